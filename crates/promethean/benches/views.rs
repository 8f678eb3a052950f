//! How fast projections are, against SQLite alone, in one run: `cargo bench -p promethean --bench
//! views [-- EVENTS KEYS]`. The same upserts, in the same batches, into the same tables.
//!
//! Also: rebuilding from keys and from every event, and a key as it was in logs of two lengths.

use std::path::Path;
use std::time::Instant;

use promethean::event::{EventId, Key, NewEvent, Payload, Timestamp, Topic};
use promethean::projection::{Changelog, Coded, Field, Projection, Transactional, View, Views};
use promethean::{Bus, Moment};
use rusqlite::{Connection, params};

const BATCH: usize = 4_096;
const TOPIC: &str = "process.state";

/// What is measured with.
#[derive(Clone, Copy)]
struct Load {
    events: usize,
    keys: usize,
}

impl Load {
    /// The key of an event: spread, the same in every run.
    fn key(self, n: usize) -> String {
        let spread = (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        format!("process:{}", spread % self.keys as u64)
    }
}

fn document(n: usize) -> String {
    let filler = "x".repeat(120);
    format!(
        r#"{{"host":"host-{}","name":"worker","pid":{n},"status":"alive","cpu_pct":1.5,"note":"{filler}"}}"#,
        n % 100
    )
}

fn view(name: &str, indexes: bool) -> View {
    let view = View::new(name);
    if !indexes {
        return view;
    }
    view.field(Field::text("host")).field(Field::text("status")).index(["host"]).index(["status"])
}

#[expect(clippy::disallowed_methods, reason = "measures real time")]
fn now() -> Instant {
    Instant::now()
}

type Failed = Box<dyn std::error::Error>;

/// The same batches of upserts into SQLite alone, one write for each key of a batch.
fn raw(folder: &Path, load: Load, indexes: bool) -> Result<f64, Failed> {
    let mut connection = Connection::open(folder.join(format!("raw-{indexes}.db")))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "cache_size", -16 * 1024)?;
    connection.pragma_update(None, "wal_autocheckpoint", 4_000)?;
    connection.execute_batch(
        "CREATE TABLE v (_key TEXT PRIMARY KEY NOT NULL, _ts INTEGER NOT NULL, \
         _at INTEGER NOT NULL, _lane INTEGER NOT NULL, _offset INTEGER NOT NULL, _v INTEGER, \
         doc TEXT NOT NULL)",
    )?;
    if indexes {
        connection.execute_batch(
            "CREATE INDEX v1 ON v (json_extract(doc, '$.host'), _key); \
             CREATE INDEX v2 ON v (json_extract(doc, '$.status'), _key)",
        )?;
    }
    let rows: Vec<(String, String)> =
        (0..load.events).map(|n| (load.key(n), document(n))).collect();
    let started = now();
    for batch in rows.chunks(BATCH) {
        let newest: std::collections::BTreeMap<&str, &str> =
            batch.iter().map(|(key, doc)| (key.as_str(), doc.as_str())).collect();
        let transaction = connection.transaction()?;
        {
            let mut upsert = transaction.prepare_cached(
                "INSERT INTO v VALUES (?1, ?2, ?3, ?4, ?5, NULL, ?6) ON CONFLICT (_key) \
                 DO UPDATE SET _ts = excluded._ts, _at = excluded._at, _lane = excluded._lane, \
                 _offset = excluded._offset, doc = excluded.doc",
            )?;
            for (n, (key, doc)) in newest.into_iter().enumerate() {
                upsert.execute(params![key, 1, 1, 1, n as i64, doc])?;
            }
        }
        transaction.commit()?;
    }
    Ok(load.events as f64 / started.elapsed().as_secs_f64())
}

async fn publish(bus: &Bus, load: Load) -> Result<(), Failed> {
    let topic = Topic::new(TOPIC)?;
    for from in (0..load.events).step_by(BATCH) {
        let mut events = Vec::with_capacity(BATCH);
        for n in from..(from + BATCH).min(load.events) {
            let payload = Payload::parse(document(n))?;
            let ts = Timestamp::from_millis(n as u64);
            let event = NewEvent::new(EventId::generate(), ts, topic.clone(), payload);
            events.push(event.with_key(Key::new(load.key(n))?));
        }
        bus.publish_batch(events).await?;
    }
    Ok(())
}

/// Events a second until a projection has caught up.
async fn caught_up(projection: &Projection, load: Load) -> Result<f64, Failed> {
    let started = now();
    projection.caught_up().await?;
    Ok(load.events as f64 / started.elapsed().as_secs_f64())
}

async fn rebuilt(projection: &Projection, load: Load) -> Result<f64, Failed> {
    let started = now();
    projection.rebuild().await?;
    Ok(load.events as f64 / started.elapsed().as_secs_f64())
}

fn counting() -> promethean::projection::TransactionalProjection {
    Transactional::new("counts").topic(TOPIC).view(View::new("counts")).apply(|tx, event| {
        let host = event.key.as_ref().map_or("none", |key| key.as_str());
        let seen = tx.read::<u64>("counts", host)?.unwrap_or(0);
        tx.put("counts", host, &(seen + 1))?;
        Ok(())
    })
}

/// The median time to see a key as it was in the middle of the log, in microseconds.
async fn as_of(bus: &Bus, load: Load) -> Result<f64, Failed> {
    let topic = Topic::new(TOPIC)?;
    let middle = promethean::event::Offset::new(load.events as u64 / 2);
    let mut times = Vec::new();
    for n in 0..2_000 {
        let key = Key::new(load.key(n * 7))?;
        let started = now();
        bus.as_of(&topic, &key, Moment::Offset(middle)).await?;
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times.get(times.len() / 2).copied().unwrap_or_default())
}

async fn whole_as_of(bus: &Bus, load: Load) -> Result<f64, Failed> {
    let topic = Topic::new(TOPIC)?;
    let moment = Moment::Offset(promethean::event::Offset::new(load.events as u64 - 1));
    let (mut after, mut keys) = (None, 0);
    let started = now();
    loop {
        let (page, next) = bus.as_of_all(&topic, moment, after, 1_000).await?;
        keys += page.len();
        match next {
            Some(next) => after = Some(next),
            None => return Ok(keys as f64 / started.elapsed().as_secs_f64()),
        }
    }
}

#[expect(clippy::print_stdout, reason = "a benchmark reports")]
fn report(what: &str, rate: f64, raw: f64) {
    println!("{what:<44} {rate:>12.0} /s {:>8.2} of SQLite alone", rate / raw);
}

#[expect(clippy::print_stdout, reason = "a benchmark reports")]
fn report_plain(what: &str, value: f64, unit: &str) {
    println!("{what:<44} {value:>12.1} {unit}");
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Failed> {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
    let load =
        Load { events: numbers.next().unwrap_or(300_000), keys: numbers.next().unwrap_or(100_000) };
    let folder = tempfile::TempDir::new()?;
    let bus = Bus::open(folder.path().join("bus")).await?;
    publish(&bus, load).await?;
    let views = Views::open(&bus, folder.path().join("state.db")).await?;
    for indexes in [false, true] {
        let raw = raw(folder.path(), load, indexes)?;
        let with = if indexes { "two indexes" } else { "no index" };
        report(&format!("SQLite alone, {with}"), raw, raw);
        let name = if indexes { "indexed" } else { "plain" };
        let changelog = views.changelog(Changelog::new(view(name, indexes), TOPIC)).await?;
        report(&format!("changelog, {with}"), caught_up(&changelog, load).await?, raw);
        report(&format!("rebuild from keys, {with}"), rebuilt(&changelog, load).await?, raw);
        changelog.stop().await;
        if !indexes {
            let coded = Coded::new().version(|event| i64::try_from(event.offset.get()).ok());
            let versioned = Changelog::new(View::new("versioned"), TOPIC).coded(coded);
            let versioned = views.changelog(versioned).await?;
            report("changelog with versions", caught_up(&versioned, load).await?, raw);
            report("rebuild from every event", rebuilt(&versioned, load).await?, raw);
            versioned.stop().await;
            let counts = views.transactional(counting()).await?;
            report("transactional, a read and a write each", caught_up(&counts, load).await?, raw);
            counts.stop().await;
        }
    }
    report_plain("a key as it was, median", as_of(&bus, load).await?, "us");
    report_plain("a whole topic as it was", whole_as_of(&bus, load).await?, "keys/s");
    bus.close().await;
    Ok(())
}
