use std::path::Path;

use promethean_event::{Offset, Partition};
use promethean_log::{Lane, Log, Options, PageLimit};
use serde::Serialize;

use super::raw;
use crate::command::bench::events::{Source, new_log};
use crate::command::bench::measure::{Compared, Round, rate, timed};

#[derive(Debug, Serialize)]
pub(super) struct Reads {
    /// Against a plain reader that only sums up the same bytes.
    pub(super) whole: Compared,
    /// Against reading all of a log of the same size for each tenth event.
    pub(super) tenth: Compared,
}

/// Enough to be far larger than the caches.
const EVENTS: usize = 1_000_000;

pub(super) fn measure(scratch: &Path, rounds: usize) -> anyhow::Result<Reads> {
    let path = scratch.join("one");
    let log = filled(&path, 1)?;
    let files = raw::segments(&path)?;
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
    drop(log);
    std::fs::remove_dir_all(&path)?;
    Ok(Reads { whole: Compared::of(whole), tenth })
}

/// One of ten topics that take turns, against all of the log with one topic.
fn tenth(scratch: &Path, one: &Log, rounds: usize) -> anyhow::Result<Compared> {
    let path = scratch.join("ten");
    let ten = filled(&path, 10)?;
    let mut figures = Vec::new();
    for round in 0..=rounds {
        let (all, all_time) = timed(|| read_topic(one, 0));
        let wanted_of_all = all? / 10;
        let (events, time) = timed(|| read_topic(&ten, 0));
        let events = events?;
        anyhow::ensure!(events == EVENTS / 10, "a tenth of the events is in one topic");
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

/// A log of events that take turns over topics, as a reader finds it: sealed and settled.
fn filled(path: &Path, topics: usize) -> anyhow::Result<Log> {
    let (log, _) = new_log(path, topics)?;
    let mut source = Source::new(topics, 20_000)?;
    for _ in 0..EVENTS / 1000 {
        log.append_here(&source.batch(1000)?)?;
    }
    log.settle()?;
    log.close();
    Ok(Log::open_dir(path, Options::default())?.0)
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
        let visited =
            reader.visit(PageLimit::default(), |record| bytes += record.offset().get() as usize)?;
        if visited.events == 0 {
            break;
        }
        events += visited.events;
    }
    anyhow::ensure!(bytes > 0, "nothing was read");
    Ok(events)
}
