//! `prom bench bus`.

mod consume;

mod idle;

mod latency;

mod publish;

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use promethean::embedded::{EmbeddedOptions, EmbeddedStore};
use promethean::{Bus, BusOptions};
use serde::Serialize;
use tokio::runtime::Runtime;

use super::events::topic;
use super::place::Place;
use crate::command::Status;
use crate::output::{Output, grouped};

#[derive(Debug, Args)]
pub(crate) struct BusBench {
    /// 200,000 stored events instead of 1 M, 2,000 idle subscriptions instead of 10,000.
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
    /// Opens idle subscriptions and prints what they cost. Used by the benchmark itself.
    #[arg(long, hide = true, value_name = "COUNT")]
    idle_of: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Publish,
    Consume,
    Groups,
    Latency,
    Idle,
}

#[derive(Serialize)]
struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    publish: Option<publish::Publishing>,
    #[serde(skip_serializing_if = "Option::is_none")]
    consume: Option<consume::Consuming>,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups_10: Option<consume::Groups>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<latency::Latency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idle: Option<idle::Idle>,
}

/// A bus on a store that is still at hand.
pub(super) struct Opened {
    pub(super) bus: Bus,
    pub(super) store: Arc<EmbeddedStore>,
}

/// Opens a bus in a directory, with the topic `bench.0`. Inside a runtime.
async fn open(path: &Path) -> anyhow::Result<Opened> {
    let (store, _) = EmbeddedStore::open(path, EmbeddedOptions::default())
        .with_context(|| format!("cannot open a bus in {}", path.display()))?;
    let store = Arc::new(store);
    let bus = Bus::with_store(Arc::clone(&store) as _, BusOptions::default());
    bus.define(promethean::store::TopicDefinition::new(topic(0)?)).await?;
    Ok(Opened { bus, store })
}

fn runtime() -> anyhow::Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

pub(crate) fn run(bench: &BusBench, output: &Output) -> anyhow::Result<Status> {
    if let Some(count) = bench.idle_of {
        return idle::print(count, output);
    }
    let scratch = bench.place.scratch()?;
    let rounds = bench.rounds.max(1);
    let stored = if bench.quick { 200_000 } else { 1_000_000 };
    let wants = |part| bench.part.is_none_or(|only| only == part);
    let path = scratch.path();
    let mut report =
        Report { publish: None, consume: None, groups_10: None, latency: None, idle: None };
    if wants(Part::Publish) {
        output.progress("publishing, against the log alone ...");
        report.publish = Some(publish::measure(path, rounds)?);
    }
    if wants(Part::Consume) {
        output.progress("groups that read what is stored, against the log's own reader ...");
        report.consume = Some(consume::measure(path, rounds, stored)?);
    }
    if wants(Part::Groups) {
        output.progress("ten groups on a live topic, against one ...");
        report.groups_10 = Some(consume::measure_groups(path, rounds)?);
    }
    if wants(Part::Latency) {
        output.progress("from publish to handler, against a plain sync ...");
        report.latency = Some(latency::measure(path, rounds)?);
    }
    if wants(Part::Idle) {
        output.progress("idle subscriptions ...");
        report.idle = Some(idle::measure(if bench.quick { 2_000 } else { 10_000 })?);
    }
    output.result(&report, text)?;
    Ok(Status::Done)
}

fn text(report: &Report) -> String {
    let mut out = String::new();
    if let Some(publish) = &report.publish {
        out += &publish.publishers_256.line("256 publishers of single events");
    }
    if let Some(consume) = &report.consume {
        out += &consume.default.line("a new group, ordered by key");
        out += &consume.unordered.line("a new group, in no order");
        out += &consume.handler.line("by a handler, ordered by key");
        out += &consume.handler_unordered.line("by a handler, in no order");
    }
    if let Some(groups) = &report.groups_10 {
        out += &groups.deliveries.line("ten groups on a live topic");
        out += &format!("reads from the disk meanwhile: {}\n", groups.disk_reads);
    }
    if let Some(latency) = &report.latency {
        out += &format!(
            "publish to handler at 1,000/s: {:.0} us median, a plain sync {:.0} us, ratio {:.2}\n",
            latency.median_us, latency.fdatasync_us, latency.ratio
        );
    }
    if let Some(idle) = &report.idle {
        out += &format!(
            "{} idle subscriptions: {:.1} MiB, {:.4} s of CPU in {:.1} s\n",
            grouped(idle.subscriptions as u64),
            idle.mib,
            idle.cpu_s,
            idle.watched_s
        );
    }
    out
}
