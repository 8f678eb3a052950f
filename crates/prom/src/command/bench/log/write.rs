use std::path::Path;
use std::time::Duration;

use promethean_event::EventId;
use promethean_log::{Append, Log, Ticket};
use serde::Serialize;

use super::raw;
use crate::command::bench::events::{Source, new_log};
use crate::command::bench::measure::{Compared, Round, rate, timed};

/// Concurrent publishers of single events.
const PUBLISHERS: usize = 256;

/// Events of a publisher that are made ahead, and how often. In life an event is published when it
/// was just made: the processor still has it at hand, which it would not if all were made ahead.
const PORTION: usize = 20;
const PORTIONS: usize = 15;

#[derive(Debug, Serialize)]
pub(super) struct Writes {
    /// Each batch answered before the next is encoded: one sync for each, as the reference has.
    pub(super) batch_1000: Compared,
    pub(super) batch_10000: Compared,
    /// The next batch encoded while one is synced. Not like for like: small ones may share a sync.
    pub(super) batch_1000_two_under_way: Compared,
    pub(super) batch_10000_two_under_way: Compared,
    pub(super) publishers_256: Compared,
    pub(super) topics_100: Compared,
}

pub(super) fn measure(scratch: &Path, rounds: usize) -> anyhow::Result<Writes> {
    Ok(Writes {
        batch_1000: batches(scratch, rounds, (1000, 150), append_each)?,
        batch_10000: batches(scratch, rounds, (10_000, 20), append_each)?,
        batch_1000_two_under_way: batches(scratch, rounds, (1000, 150), append_two_under_way)?,
        batch_10000_two_under_way: batches(scratch, rounds, (10_000, 20), append_two_under_way)?,
        publishers_256: publishers(scratch, rounds)?,
        topics_100: topics(scratch, rounds)?,
    })
}

/// Batches of a size, each waited for, against the same bytes with a sync each.
fn batches(
    scratch: &Path,
    rounds: usize,
    (size, times): (usize, usize),
    append_all: impl Fn(&Log, &[Append]) -> anyhow::Result<()>,
) -> anyhow::Result<Compared> {
    let encoded = raw::encoded_batch(&scratch.join("encoded"), size)?;
    let log_path = scratch.join("batches");
    let (log, _) = new_log(&log_path, 1)?;
    let mut source = Source::new(1, 20_000)?;
    let compared = in_turn(rounds, size * times, || {
        let (written, raw_time) =
            timed(|| raw::append_synced(&scratch.join("raw"), &encoded, times));
        written?;
        let batches = make(&mut source, size, times)?;
        let (appended, time) = timed(|| append_all(&log, &batches));
        appended?;
        log.settle()?;
        Ok((raw_time, time))
    })?;
    drop(log);
    std::fs::remove_dir_all(&log_path)?;
    Ok(compared)
}

/// Measures the reference and ours in turn. The first round only warms up disk and memory.
fn in_turn(
    rounds: usize,
    events: usize,
    mut round: impl FnMut() -> anyhow::Result<(Duration, Duration)>,
) -> anyhow::Result<Compared> {
    round()?;
    let mut figures = Vec::new();
    for _ in 0..rounds {
        let (reference, ours) = round()?;
        figures.push(Round {
            events_per_s: rate(events, ours),
            reference_events_per_s: rate(events, reference),
        });
    }
    Ok(Compared::of(figures))
}

fn make(source: &mut Source, size: usize, times: usize) -> anyhow::Result<Vec<Append>> {
    (0..times).map(|_| source.batch(size)).collect()
}

fn append_each(log: &Log, batches: &[Append]) -> anyhow::Result<()> {
    for batch in batches {
        log.append(batch).wait()?;
    }
    Ok(())
}

/// As a publisher with much to say does: it encodes the next batch while one is synced, and waits
/// for a batch as soon as the next one is handed over. If both are waiting when the writer comes,
/// they share a frame and its sync, unless they are too large for one.
fn append_two_under_way(log: &Log, batches: &[Append]) -> anyhow::Result<()> {
    let mut under_way = None;
    for batch in batches {
        if let Some(ticket) = under_way.replace(log.append(batch)) {
            ticket.wait()?;
        }
    }
    under_way.map(Ticket::wait).transpose()?;
    Ok(())
}

/// Many publishers, each waiting for its own event, against as many events per sync.
fn publishers(scratch: &Path, rounds: usize) -> anyhow::Result<Compared> {
    let encoded = raw::encoded_batch(&scratch.join("encoded"), PUBLISHERS)?;
    let log_path = scratch.join("publishers");
    let (log, _) = new_log(&log_path, 1)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    let mut source = Source::new(1, 20_000)?;
    let each = PORTIONS * PORTION;
    let compared = in_turn(rounds, PUBLISHERS * each, || {
        let (written, raw_time) =
            timed(|| raw::append_synced(&scratch.join("raw"), &encoded, each));
        written?;
        let mut time = Duration::ZERO;
        for _ in 0..PORTIONS {
            let work = (0..PUBLISHERS)
                .map(|_| make(&mut source, 1, PORTION))
                .collect::<anyhow::Result<Vec<_>>>()?;
            let (published, portion_time) = timed(|| runtime.block_on(publish_all(&log, work)));
            drop(published?);
            time += portion_time;
        }
        log.settle()?;
        Ok((raw_time, time))
    })?;
    drop(log);
    std::fs::remove_dir_all(&log_path)?;
    Ok(compared)
}

/// Gives the events back, since to free them is no part of publishing.
async fn publish_all(log: &Log, work: Vec<Vec<Append>>) -> anyhow::Result<Vec<Vec<Append>>> {
    let mut tasks = Vec::new();
    for events in work {
        tasks.push(tokio::spawn(publish(log.clone(), events)));
    }
    let mut published = Vec::new();
    for task in tasks {
        published.push(task.await??);
    }
    Ok(published)
}

async fn publish(log: Log, mut events: Vec<Append>) -> anyhow::Result<Vec<Append>> {
    for append in &mut events {
        // An event gets its id when it is published.
        append.events.iter_mut().for_each(|event| event.id = EventId::generate());
        log.append(append).await?;
    }
    Ok(events)
}

/// Batches spread over 100 topics against the same in one topic.
fn topics(scratch: &Path, rounds: usize) -> anyhow::Result<Compared> {
    let (size, times) = (1000, 100);
    let (one_path, many_path) = (scratch.join("one"), scratch.join("many"));
    let (one, _) = new_log(&one_path, 1)?;
    let (many, _) = new_log(&many_path, 100)?;
    let mut source_one = Source::new(1, 20_000)?;
    let mut source_many = Source::new(100, 20_000)?;
    let compared = in_turn(rounds, size * times, || {
        let batches = make(&mut source_one, size, times)?;
        let (appended, one_time) = timed(|| append_each(&one, &batches));
        appended?;
        one.settle()?;
        let batches = make(&mut source_many, size, times)?;
        let (appended, many_time) = timed(|| append_each(&many, &batches));
        appended?;
        many.settle()?;
        Ok((one_time, many_time))
    })?;
    drop((one, many));
    std::fs::remove_dir_all(&one_path)?;
    std::fs::remove_dir_all(&many_path)?;
    Ok(compared)
}
