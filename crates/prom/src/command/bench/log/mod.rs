//! `prom bench log`.

mod lookup;

mod raw;

mod read;

mod write;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::command::Status;
use crate::command::bench::place::Place;
use crate::output::{Output, grouped};

#[derive(Debug, Args)]
pub(crate) struct LogBench {
    /// 1 M events instead of 10 M; under a minute.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    place: Place,
    /// Measure only one part.
    #[arg(long)]
    part: Option<Part>,
    /// How often each pair is measured, in turn.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Opens the log in a directory and prints this process's memory. Used by the benchmark itself.
    #[arg(long, hide = true, value_name = "DIR")]
    memory_of: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Write,
    Read,
    Lookup,
}

#[derive(Serialize)]
struct Report {
    events: usize,
    write: Option<write::Writes>,
    read: Option<read::Reads>,
    #[serde(flatten)]
    stored: Option<Stored>,
}

#[derive(Serialize)]
struct Stored {
    event_bytes: f64,
    lookup: lookup::Lookups,
    open: lookup::Opens,
    rss_mib: f64,
    disk_ratio: f64,
}

pub(crate) fn run(bench: &LogBench, output: &Output) -> anyhow::Result<Status> {
    if let Some(path) = &bench.memory_of {
        return lookup::print_memory(path, output);
    }
    let scratch = bench.place.scratch()?;
    let rounds = bench.rounds.max(1);
    let events = if bench.quick { 1_000_000 } else { 10_000_000 };
    let wants = |part| bench.part.is_none_or(|only| only == part);
    let mut report = Report { events, write: None, read: None, stored: None };
    if wants(Part::Write) {
        output.progress("writing, fsynced, against a plain file ...");
        report.write = Some(write::measure(scratch.path(), rounds)?);
    }
    if wants(Part::Read) {
        output.progress("reading, against a plain file ...");
        report.read = Some(read::measure(scratch.path(), rounds)?);
    }
    if wants(Part::Lookup) {
        output.progress(&format!("filling logs of up to {} events ...", grouped(events as u64)));
        let filled = lookup::fill(scratch.path(), events)?;
        output.progress("look-ups and opening ...");
        let (lookup, open) = lookup::measure(&filled, rounds)?;
        report.stored = Some(Stored {
            event_bytes: filled.event_bytes(),
            lookup,
            open,
            rss_mib: filled.memory_mib()?,
            disk_ratio: filled.disk_ratio()?,
        });
    }
    output.result(&report, text)?;
    Ok(Status::Done)
}

fn text(report: &Report) -> String {
    let mut out = String::new();
    if let Some(write) = &report.write {
        out += &write.batch_1000.line("fsynced batches of 1,000");
        out += &write.batch_1000_two_under_way.line("  two under way");
        out += &write.batch_10000.line("fsynced batches of 10,000");
        out += &write.batch_10000_two_under_way.line("  two under way");
        out += &write.publishers_256.line("256 publishers of single events");
        out += &write.topics_100.line("100 topics against one");
    }
    if let Some(read) = &report.read {
        out += &read.whole.line("sequential read of one topic");
        out += &read.tenth.line("a topic that is a tenth of the log");
    }
    if let Some(stored) = &report.stored {
        let (lookups, open) = (&stored.lookup, &stored.open);
        out += &format!(
            "in {} events: by id {:.1} us, latest by key {:.1} us, offset at time {:.1} us\n",
            grouped(report.events as u64),
            lookups.by_id_us,
            lookups.latest_by_key_us,
            lookups.offset_at_us
        );
        out += &format!(
            "open {:.1} ms ({:.1} ms with 100 k events), {:.1} MiB, disk {:.2}x of the events\n",
            open.events_10m_ms, open.events_100k_ms, stored.rss_mib, stored.disk_ratio
        );
    }
    out
}
