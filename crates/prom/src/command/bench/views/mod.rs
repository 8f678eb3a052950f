//! `prom bench views`.

mod load;

mod past;

mod projecting;

mod serving;

use clap::Args;
use serde::Serialize;

use super::measure::Compared;
use super::place::Place;
use crate::command::Status;
use crate::output::{Output, grouped};

#[derive(Debug, Args)]
pub(crate) struct ViewsBench {
    /// Logs of 100,000 and 1 M events instead of 1 M and 10 M.
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
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Project,
    Serve,
    Past,
}

#[derive(Serialize)]
struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    project: Option<projecting::Projecting>,
    #[serde(skip_serializing_if = "Option::is_none")]
    serve: Option<serving::Serving>,
    #[serde(skip_serializing_if = "Option::is_none")]
    past: Option<past::PastFigures>,
}

pub(crate) fn run(bench: &ViewsBench, output: &Output) -> anyhow::Result<Status> {
    let scratch = bench.place.scratch()?;
    let rounds = bench.rounds.max(1);
    let wants = |part| bench.part.is_none_or(|only| only == part);
    let path = scratch.path();
    let mut report = Report { project: None, serve: None, past: None };
    if wants(Part::Project) {
        output.progress("projecting, against the same upserts into SQLite alone ...");
        let events = if bench.quick { 100_000 } else { 500_000 };
        report.project = Some(projecting::measure(path, rounds, events)?);
    }
    if wants(Part::Serve) {
        output.progress("snapshots on 64 connections, against a constant answer ...");
        report.serve = Some(serving::measure(path, rounds)?);
    }
    if wants(Part::Past) {
        output.progress("the past, in a short and in a long log ...");
        let events = if bench.quick { 100_000 } else { 1_000_000 };
        report.past = Some(past::measure(path, events)?);
    }
    output.result(&report, text)?;
    Ok(Status::Done)
}

fn text(report: &Report) -> String {
    let mut out = String::new();
    let mut line = |name: &str, compared: &Compared| out += &compared.line(name);
    if let Some(project) = &report.project {
        line("changelog, against SQLite alone", &project.changelog);
        line("rebuild, against live", &project.rebuild);
    }
    if let Some(serve) = &report.serve {
        line("GET of a snapshot", &serve.get);
        line("304 of a snapshot", &serve.not_modified);
    }
    if let Some(past) = &report.past {
        for (by, medians) in [("append", &past.by_append), ("event", &past.by_event)] {
            out += &format!(
                "a key of 100 events as of, by {by}: {:.0} us in {} events, {:.0} us in {}, \
                 ratio {:.2}\n",
                medians.short_us,
                grouped(past.short_events),
                medians.long_us,
                grouped(past.long_events),
                medians.ratio
            );
        }
        out += &format!(
            "whole view as of now: {} keys/s; as of the middle: {} keys/s\n",
            grouped(past.whole_keys_per_s as u64),
            grouped(past.whole_middle_keys_per_s as u64)
        );
    }
    out
}
