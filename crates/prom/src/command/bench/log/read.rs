use std::path::Path;

use promethean_event::{Offset, Partition};
use promethean_log::{Lane, Log, Options, PageLimit};
use serde::Serialize;

use super::events::{Source, new_log};
use super::lookup::Filled;
use super::raw;
use crate::command::bench::measure::{Compared, Round, rate, timed};

#[derive(Debug, Serialize)]
pub(super) struct Reads {
    /// Against a plain reader that only sums up the same bytes.
    pub(super) whole: Compared,
    /// Against reading all of a log of the same size for each tenth event.
    pub(super) tenth: Compared,
}

pub(super) fn measure(scratch: &Path, filled: &Filled, rounds: usize) -> anyhow::Result<Reads> {
    let (log, _) = Log::open_dir(&filled.million, Options::default())?;
    let files = raw::segments(&filled.million)?;
    let mut whole = Vec::new();
    for round in 0..=rounds {
        let (summed, raw_time) = timed(|| raw::read_summed(&files));
        summed?;
        let (events, time) = timed(|| read_topic(&log, 0));
        let events = events?;
        if round > 0 {
            whole.push(Round {
                events_per_s: rate(events, time),
                reference_events_per_s: rate(events, raw_time),
            });
        }
    }
    let tenth = tenth(scratch, &log, rounds)?;
    Ok(Reads { whole: Compared::of(whole), tenth })
}

/// One of ten topics that take turns, against all of the log with one topic.
fn tenth(scratch: &Path, one: &Log, rounds: usize) -> anyhow::Result<Compared> {
    let path = scratch.join("ten");
    let (ten, ids) = new_log(&path, 10)?;
    let mut source = Source::new(10, 20_000)?;
    let total = 1_000_000;
    for _ in 0..total / 10_000 {
        ten.append(&source.batch(10_000)?).wait()?;
    }
    ten.settle()?;
    let first = ids.first().map_or(0, |id| id.get());
    let mut figures = Vec::new();
    for round in 0..=rounds {
        let (all, all_time) = timed(|| read_topic(one, 0));
        let wanted_of_all = all? / 10;
        let (events, time) = timed(|| read_topic(&ten, first));
        let events = events?;
        anyhow::ensure!(events == total / 10, "a tenth of the events is in one topic");
        if round > 0 {
            figures.push(Round {
                events_per_s: rate(events, time),
                reference_events_per_s: rate(wanted_of_all, all_time),
            });
        }
    }
    drop(ten);
    std::fs::remove_dir_all(&path)?;
    Ok(Compared::of(figures))
}

/// Reads a topic from end to end; gives the number of events.
fn read_topic(log: &Log, number: u32) -> anyhow::Result<usize> {
    let topics = log.topics();
    let topic = topics.iter().find(|(id, _)| id.get() == number);
    let (topic, _) = topic.ok_or_else(|| anyhow::anyhow!("no topic {number}"))?;
    let mut reader = log.read(Lane { topic: *topic, partition: Partition::ZERO }, Offset::ZERO)?;
    let mut events = 0;
    let mut bytes = 0;
    loop {
        let page = reader.next_page(PageLimit::default())?;
        if page.records.is_empty() {
            break;
        }
        events += page.records.len();
        bytes += page.records.iter().map(|record| record.bytes()).sum::<usize>();
    }
    anyhow::ensure!(bytes > 0, "nothing was read");
    Ok(events)
}
