//! `prom bench mongo`.

mod set;

mod append;

mod consume;

mod feed;

mod latency;

use clap::Args;
use promethean_mongo::mongodb::bson::doc;
use promethean_mongo::mongodb::{Client, Database};
use promethean_mongo::{MongoOptions, MongoStore};
use serde::Serialize;

use super::measure::Compared;
use crate::command::Status;
use crate::output::Output;

#[derive(Debug, Args)]
pub(crate) struct MongoBench {
    /// Connection string of a replica set [default: one of one member, started by scripts/mongod].
    #[arg(long, value_name = "URL", env = "PROM_MONGO_URL", hide_env_values = true)]
    store: Option<String>,
    /// Events of one round.
    #[arg(long, default_value_t = 20_000)]
    events: usize,
    /// How often each pair is measured, in turn.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Measure only one part.
    #[arg(long)]
    part: Option<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Append,
    Consume,
    Changefeed,
    Latency,
}

#[derive(Serialize)]
struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    append: Option<append::Appending>,
    #[serde(skip_serializing_if = "Option::is_none")]
    consume: Option<Compared>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changefeed: Option<Compared>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<latency::Latency>,
}

/// Where a part is measured: a database of its own.
struct Place {
    url: String,
    client: Client,
    name: String,
}

impl Place {
    async fn new(url: &str) -> anyhow::Result<Self> {
        let name = format!("bench-{}", promethean_event::EventId::generate());
        let client = Client::with_uri_str(url).await?;
        Ok(Self { url: url.to_owned(), client, name })
    }

    /// A hub's store in it.
    async fn store(&self) -> anyhow::Result<MongoStore> {
        let options = MongoOptions { database: self.name.clone(), ..MongoOptions::default() };
        Ok(MongoStore::open(&self.url, options).await?)
    }

    fn database(&self) -> Database {
        self.client.database(&self.name)
    }

    async fn end(self) -> anyhow::Result<()> {
        self.database().drop().await?;
        // Answered when everything before it is done.
        self.client.database("admin").run_command(doc! { "ping": 1 }).await?;
        Ok(())
    }
}

pub(crate) fn run(bench: &MongoBench, output: &Output) -> anyhow::Result<Status> {
    let started = match &bench.store {
        Some(_) => None,
        None => Some(set::ReplicaSet::start()?),
    };
    let started_url = started.as_ref().map(|set| set.url.clone());
    let url = bench.store.clone().or(started_url).unwrap_or_default();
    let report = crate::command::block_on(measure(bench, url, output))?;
    drop(started);
    output.result(&report, text)?;
    Ok(Status::Done)
}

async fn measure(bench: &MongoBench, url: String, output: &Output) -> anyhow::Result<Report> {
    let rounds = bench.rounds.max(1);
    // Whole batches, and one at least.
    let events = bench.events.div_ceil(append::BATCH) * append::BATCH;
    let wants = |part| bench.part.is_none_or(|only| only == part);
    let mut report = Report { append: None, consume: None, changefeed: None, latency: None };
    if wants(Part::Append) {
        output.progress("appending, against insertMany of the same documents ...");
        report.append = Some(append::measure(&url, rounds, events).await?);
    }
    if wants(Part::Consume) {
        output.progress("consuming with acks, against a plain indexed cursor ...");
        report.consume = Some(consume::measure(&url, rounds, events).await?);
    }
    if wants(Part::Changefeed) {
        output.progress("a changefeed, against a bare reader of the change stream ...");
        report.changefeed = Some(Box::pin(feed::measure(&url, rounds, events)).await?);
    }
    if wants(Part::Latency) {
        output.progress("from publish to delivery on another hub, against a majority write ...");
        report.latency = Some(latency::measure(&url, rounds, events.min(1_000)).await?);
    }
    Ok(report)
}

fn text(report: &Report) -> String {
    let mut out = String::new();
    let mut line = |name: &str, compared: &Compared| out += &compared.line(name);
    if let Some(append) = &report.append {
        line("append, one hub", &append.one_hub);
        line("append, four hubs, 1 partition", &append.four_hubs_one_partition);
        line("append, one hub, 16 partitions", &append.one_hub_16_partitions);
        line("append, four hubs, 16 partitions", &append.four_hubs_16_partitions);
        line("append, four hubs, 1 of 16 at a time", &append.four_hubs_16_partitions_one_each);
    }
    if let Some(consume) = &report.consume {
        line("consume with acks", consume);
    }
    if let Some(feed) = &report.changefeed {
        line("changefeed", feed);
    }
    if let Some(latency) = &report.latency {
        out += &format!(
            "publish to delivery on another hub: median {:.0} us, p99 {:.0} us; majority write {:.0} \
             us, ratio {:.2}\n",
            latency.median_us, latency.p99_us, latency.majority_write_us, latency.ratio
        );
    }
    out
}
