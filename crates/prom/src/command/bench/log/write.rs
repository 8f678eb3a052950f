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

/// Events that each of them has made ahead, and how often it publishes all of them, each time with new
/// ids: in life an event is published when it was just made, and the processor still has it at hand.
const MADE: usize = 20;
const CYCLES: usize = 15;

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
        batch_1000: batches(scratch, rounds, (1000, 150))?,
        batch_10000: batches(scratch, rounds, (10_000, 20))?,
        batch_1000_two_under_way: batches_two_under_way(scratch, rounds, (1000, 150))?,
        batch_10000_two_under_way: batches_two_under_way(scratch, rounds, (10_000, 20))?,
        publishers_256: publishers(scratch, rounds)?,
        topics_100: topics(scratch, rounds)?,
    })
}

/// Batches of a size, each waited for, against the same bytes with a sync each. The two take turns
/// batch by batch, so that a busy machine slows down both. A batch is made just before it is appended,
/// as in life: the processor still has it at hand.
fn batches(
    scratch: &Path,
    rounds: usize,
    (size, times): (usize, usize),
) -> anyhow::Result<Compared> {
    let mut plain = raw::Plain::new(scratch, size)?;
    let log_path = scratch.join("batches");
    let (log, _) = new_log(&log_path, 1)?;
    let mut source = Source::new(1, 20_000)?;
    let compared = in_turn(rounds, size * times, || {
        plain.begin()?;
        let (mut raw_time, mut time) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..times {
            let batch = source.batch(size)?;
            raw_time += plain.append_synced(1)?;
            let (appended, of_batch) = timed(|| log.append_here(&batch));
            appended?;
            time += of_batch;
        }
        log.settle()?;
        Ok((raw_time, time))
    })?;
    drop(log);
    std::fs::remove_dir_all(&log_path)?;
    Ok(compared)
}

/// The same by a publisher with much to say: it encodes the next batch while one is synced, and waits
/// for a batch as soon as the next one is handed over. If both are waiting when the writer comes, they
/// share a frame and its sync, unless they are too large for one.
fn batches_two_under_way(
    scratch: &Path,
    rounds: usize,
    (size, times): (usize, usize),
) -> anyhow::Result<Compared> {
    let mut plain = raw::Plain::new(scratch, size)?;
    let log_path = scratch.join("batches");
    let (log, _) = new_log(&log_path, 1)?;
    let mut source = Source::new(1, 20_000)?;
    let compared = in_turn(rounds, size * times, || {
        plain.begin()?;
        let raw_time = plain.append_synced(times)?;
        let batches = make(&mut source, size, times)?;
        let (appended, time) = timed(|| append_two_under_way(&log, &batches));
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
        log.append_here(batch)?;
    }
    Ok(())
}

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
    let mut plain = raw::Plain::new(scratch, PUBLISHERS)?;
    let log_path = scratch.join("publishers");
    let (log, _) = new_log(&log_path, 1)?;
    // Tasks of one thread: the other core is for the log.
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let mut source = Source::new(1, 20_000)?;
    let each = MADE * CYCLES;
    let compared = in_turn(rounds, PUBLISHERS * each, || {
        plain.begin()?;
        let raw_time = plain.append_synced(each)?;
        let work = (0..PUBLISHERS)
            .map(|_| make(&mut source, 1, MADE))
            .collect::<anyhow::Result<Vec<_>>>()?;
        let (published, time) = timed(|| runtime.block_on(publish_all(&log, work)));
        drop(published?);
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
    for _ in 0..CYCLES {
        for append in &mut events {
            // An event gets its id when it is published.
            append.events.iter_mut().for_each(|event| event.id = EventId::generate());
            log.append(append).await?;
        }
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
