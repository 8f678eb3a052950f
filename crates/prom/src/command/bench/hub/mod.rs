//! `prom bench hub`: the server as a process, over loopback, and those of others in turn with it.

mod wire;

mod seam;

mod ours;

mod nats;

mod redis;

mod process;

mod payloads;

mod compare;

mod publish;

mod consume;

mod latency;

mod footprint;

use clap::Args;
use serde::Serialize;
use std::collections::BTreeMap;

use crate::command::Status;
use crate::command::bench::place::Place;
use crate::output::{Output, grouped};
use compare::Comparison;
use process::{Binaries, Field};
use publish::Way;

#[derive(Debug, Args)]
pub(crate) struct HubBench {
    /// Also NATS JetStream and Redis Streams, as scripts/peers finds them.
    #[arg(long)]
    peers: bool,
    /// A fifth of the events, 100,000 stored ones instead of 1 M.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    place: Place,
    /// Measure only one part.
    #[arg(long)]
    part: Option<Part>,
    /// How often each is measured, in turn.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    InFlight,
    Pipelined,
    Consume,
    Latency,
    Groups,
    Footprint,
}

#[derive(Default, Serialize)]
struct Report {
    versions: BTreeMap<&'static str, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_flight_64: Option<Comparison>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pipelined: Option<Comparison>,
    #[serde(skip_serializing_if = "Option::is_none")]
    consume: Option<Comparison>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<latency::Latency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups_10: Option<Comparison>,
    #[serde(skip_serializing_if = "Option::is_none")]
    footprint: Option<footprint::Footprint>,
}

pub(crate) fn run(bench: &HubBench, output: &Output) -> anyhow::Result<Status> {
    let scratch = bench.place.scratch()?;
    let path = scratch.path().canonicalize()?;
    let peers = if bench.peers { Some(Binaries::find()?) } else { None };
    let mut report = Report::default();
    if let Some(peers) = &peers {
        report.versions = peers.versions()?;
    }
    report.versions.insert("promethean", env!("CARGO_PKG_VERSION").to_owned());
    let (rounds, share) = (bench.rounds.max(1), if bench.quick { 1 } else { 5 });
    let wants = |part| bench.part.is_none_or(|only| only == part);
    if bench.part != Some(Part::Footprint) {
        let field = Field::start(&path, peers.as_ref())?;
        if wants(Part::InFlight) {
            output.progress("publishing with 64 in flight ...");
            let way = Way { name: "in-flight", window: 64, batch: 1, events: 20_000 * share };
            report.in_flight_64 = Some(publish::measure(&field, rounds, way)?);
        }
        if wants(Part::Pipelined) {
            output.progress("publishing without waiting ...");
            let way = Way { name: "pipelined", window: 4_000, batch: 100, events: 40_000 * share };
            report.pipelined = Some(publish::measure(&field, rounds, way)?);
        }
        if wants(Part::Consume) {
            output.progress("consuming what is stored, with acks ...");
            report.consume = Some(consume::stored(&field, rounds, 40_000 * share)?);
        }
        if wants(Part::Latency) {
            output.progress("from publisher to consumer at 1,000/s ...");
            report.latency = Some(latency::measure(&field, rounds, 500 * share)?);
        }
        if wants(Part::Groups) {
            output.progress("ten groups on one topic ...");
            report.groups_10 = Some(consume::groups(&field, rounds, 4_000 * share)?);
        }
    }
    if wants(Part::Footprint) {
        output.progress("memory and time to start ...");
        let sizes = (1_000, if bench.quick { 100_000 } else { 1_000_000 });
        report.footprint = Some(footprint::measure(&path, peers.as_ref(), rounds, sizes)?);
    }
    output.result(&report, text)?;
    Ok(Status::Done)
}

fn text(report: &Report) -> String {
    let mut out = String::new();
    for (name, version) in &report.versions {
        out += &format!("{name}: {version}\n");
    }
    let latency = report.latency.as_ref();
    for (name, comparison) in [
        ("publishing, 64 in flight", report.in_flight_64.as_ref()),
        ("publishing, pipelined", report.pipelined.as_ref()),
        ("consuming with acks", report.consume.as_ref()),
        ("from publisher to consumer at 1,000/s, p50", latency.map(|latency| &latency.p50)),
        ("from publisher to consumer at 1,000/s, p99", latency.map(|latency| &latency.p99)),
        ("ten groups on one topic", report.groups_10.as_ref()),
    ] {
        out += &comparison.map(|comparison| comparison.lines(name)).unwrap_or_default();
    }
    if let Some(footprint) = &report.footprint {
        out += &format!(
            "idle {:.1} MiB; {} connections {:.1} MiB more; ready in {:.0} ms, with {} events in {:.0} ms\n",
            footprint.idle_mib,
            grouped(footprint.connections as u64),
            footprint.connections_mib,
            footprint.ready_empty_ms,
            grouped(footprint.stored_events as u64),
            footprint.ready_stored_ms,
        );
    }
    out
}
