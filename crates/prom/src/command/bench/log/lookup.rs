use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use promethean_event::{EventId, Partition, Timestamp};
use promethean_log::{Lane, Log, Options, TopicId};
use serde::Serialize;

use crate::command::Status;
use crate::command::bench::events::{Source, key, new_log};
use crate::command::bench::measure::{median, timed};
use crate::output::Output;

const KEYS: u64 = 1_000_000;
const LOOKUPS: usize = 2000;
/// An open takes a millisecond: a few of them say more of what else the machine does.
const OPENS_MIN: usize = 25;

#[derive(Debug, Serialize)]
pub(super) struct Lookups {
    pub(super) by_id_us: f64,
    pub(super) latest_by_key_us: f64,
    pub(super) offset_at_us: f64,
    /// The same in a tenth of the events: to see how it grows.
    in_a_tenth: Tenth,
}

#[derive(Debug, Serialize)]
struct Tenth {
    events: usize,
    by_id_us: f64,
    latest_by_key_us: f64,
    offset_at_us: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct Opens {
    /// Named for the full run; with `--quick` it is 1 M events.
    pub(super) events_10m_ms: f64,
    pub(super) events_100k_ms: f64,
    pub(super) ratio: f64,
}

/// Logs that were filled for measuring.
#[derive(Debug)]
pub(super) struct Filled {
    small: Sample,
    tenth: Sample,
    full: Sample,
}

#[derive(Debug)]
struct Sample {
    path: PathBuf,
    events: usize,
    ids: Vec<EventId>,
    encoded_bytes: u64,
    append_ms: (u64, u64),
}

pub(super) fn fill(scratch: &Path, events: usize) -> anyhow::Result<Filled> {
    let small = fill_one(&scratch.join("small"), 100_000)?;
    let tenth = fill_one(&scratch.join("tenth"), events / 10)?;
    let full = fill_one(&scratch.join("full"), events)?;
    Ok(Filled { small, tenth, full })
}

fn fill_one(path: &Path, events: usize) -> anyhow::Result<Sample> {
    let (log, ids) = new_log(path, 1)?;
    let topic = *ids.first().context("one topic")?;
    let mut source = Source::new(1, KEYS)?;
    let mut sample = Vec::new();
    let size = 1000;
    for number in 0..events / size {
        let batch = source.batch(size)?;
        let every = (events / LOOKUPS).max(1);
        let wanted = batch.events.iter().enumerate();
        sample.extend(
            wanted
                .filter(|(place, _)| (number * size + place).is_multiple_of(every))
                .map(|(_, event)| event.id),
        );
        log.append_here(&batch)?;
    }
    log.settle()?;
    let first =
        log.page_before(lane(topic), promethean_event::Offset::new(1), Default::default())?;
    let end = promethean_event::Offset::new(events as u64);
    let last = log.page_before(lane(topic), end, Default::default())?;
    let time = |records: &[promethean_log::Record]| {
        records.first().map_or(0, |record| record.appended_at().millis())
    };
    let encoded_bytes = log.bytes();
    log.close();
    let append_ms = (time(&first.records), time(&last.records));
    Ok(Sample { path: path.to_owned(), events, ids: sample, encoded_bytes, append_ms })
}

const fn lane(topic: TopicId) -> Lane {
    Lane { topic, partition: Partition::ZERO }
}

pub(super) fn measure(filled: &Filled, rounds: usize) -> anyhow::Result<(Lookups, Opens)> {
    let tenth = look_up(&filled.tenth)?;
    let full = look_up(&filled.full)?;
    let (mut small_ms, mut full_ms) = (Vec::new(), Vec::new());
    for _ in 0..rounds.max(OPENS_MIN) {
        small_ms.push(open_ms(&filled.small.path)?);
        full_ms.push(open_ms(&filled.full.path)?);
    }
    let opens = Opens {
        ratio: median(full_ms.clone()) / median(small_ms.clone()),
        events_10m_ms: median(full_ms),
        events_100k_ms: median(small_ms),
    };
    let in_a_tenth = Tenth {
        events: filled.tenth.events,
        by_id_us: tenth.0,
        latest_by_key_us: tenth.1,
        offset_at_us: tenth.2,
    };
    let lookups =
        Lookups { by_id_us: full.0, latest_by_key_us: full.1, offset_at_us: full.2, in_a_tenth };
    Ok((lookups, opens))
}

/// Medians in microseconds: by id, latest by key, offset at a time; warm.
fn look_up(sample: &Sample) -> anyhow::Result<(f64, f64, f64)> {
    let (log, _) = Log::open_dir(&sample.path, Options::default())?;
    let topics = log.topics();
    let (topic, _) = topics.first().context("one topic")?;
    let mut medians = [f64::NAN; 3];
    for _ in 0..2 {
        let (mut by_id, mut by_key, mut at) = (Vec::new(), Vec::new(), Vec::new());
        for (number, id) in scattered(&sample.ids) {
            let (found, time) = timed(|| log.find(*topic, id));
            anyhow::ensure!(found?.is_some_and(|record| record.id() == *id), "{id} is not found");
            by_id.push(time.as_secs_f64() * 1e6);
            let key = key(number as u64, KEYS)?;
            let (found, time) = timed(|| log.latest(*topic, &key));
            anyhow::ensure!(found?.is_some(), "{key} is not found");
            by_key.push(time.as_secs_f64() * 1e6);
            let (from, to) = sample.append_ms;
            let span = (to - from).max(1);
            let moment = from + (number as u64).wrapping_mul(0x9e37_79b9) % span;
            let (found, time) =
                timed(|| log.offset_at(lane(*topic), Timestamp::from_millis(moment)));
            found?;
            at.push(time.as_secs_f64() * 1e6);
        }
        medians = [median(by_id), median(by_key), median(at)];
    }
    let [by_id, by_key, at] = medians;
    Ok((by_id, by_key, at))
}

/// The ids in an order in which neighbours are far apart.
fn scattered(ids: &[EventId]) -> impl Iterator<Item = (usize, &EventId)> {
    let count = ids.len().max(1);
    (0..count).filter_map(move |number| Some((number, ids.get(number * 7919 % count)?)))
}

fn open_ms(path: &Path) -> anyhow::Result<f64> {
    let (opened, time) = timed(|| Log::open_dir(path, Options::default()));
    let (log, report) = opened?;
    anyhow::ensure!(report.damage.is_empty(), "the log is damaged");
    log.close();
    Ok(time.as_secs_f64() * 1e3)
}

impl Filled {
    pub(super) fn event_bytes(&self) -> f64 {
        self.full.encoded_bytes as f64 / self.full.events as f64
    }

    /// The memory of a process that has the log open and does nothing else.
    pub(super) fn memory_mib(&self) -> anyhow::Result<f64> {
        let program = std::env::current_exe()?;
        let output = Command::new(program)
            .args(["--json", "bench", "log", "--memory-of"])
            .arg(&self.full.path)
            .output()?;
        anyhow::ensure!(output.status.success(), "the process that measures memory failed");
        let memory: Memory = serde_json::from_slice(&output.stdout)?;
        Ok(memory.rss_mib)
    }

    /// Everything on disk against the encoded events.
    pub(super) fn disk_ratio(&self) -> anyhow::Result<f64> {
        let mut bytes = 0;
        for entry in std::fs::read_dir(&self.full.path)? {
            use std::os::unix::fs::MetadataExt;
            bytes += entry?.metadata()?.blocks() * 512;
        }
        Ok(bytes as f64 / self.full.encoded_bytes as f64)
    }
}

#[derive(Debug, Serialize, serde::Deserialize)]
struct Memory {
    rss_mib: f64,
}

/// Opens a log and prints the resident memory of this process.
pub(super) fn print_memory(path: &Path, output: &Output) -> anyhow::Result<Status> {
    let (log, _) = Log::open_dir(path, Options::default())?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: f64 = line
        .and_then(|line| line.split_whitespace().next())
        .context("this system does not tell the resident memory")?
        .parse()?;
    drop(log);
    output
        .result(&Memory { rss_mib: kib / 1024.0 }, |memory| format!("{:.1} MiB", memory.rss_mib))?;
    Ok(Status::Done)
}
