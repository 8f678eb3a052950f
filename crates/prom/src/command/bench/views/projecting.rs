//! A changelog projection against the same batched upserts into SQLite alone.

use std::collections::BTreeMap;
use std::path::Path;

use promethean::Bus;
use promethean::projection::{Changelog, Views};
use rusqlite::{Connection, params};
use serde::Serialize;

use super::load::{BATCH, TOPIC, document, key, publish, view};
use crate::command::bench::measure::{Compared, Round, rate, timed};

#[derive(Serialize)]
pub(super) struct Projecting {
    pub(super) changelog: Compared,
    /// Building anew, against building at first.
    pub(super) rebuild: Compared,
}

/// The same batches of upserts into SQLite alone, with the same columns and index, one write for
/// each key of a batch.
fn raw(path: &Path, events: usize, keys: usize) -> anyhow::Result<f64> {
    let mut connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "cache_size", -16 * 1024)?;
    connection.pragma_update(None, "wal_autocheckpoint", 4_000)?;
    connection.execute_batch(
        "CREATE TABLE v (_key TEXT PRIMARY KEY NOT NULL, _ts INTEGER NOT NULL, \
         _at INTEGER NOT NULL, _lane INTEGER NOT NULL, _offset INTEGER NOT NULL, _v INTEGER, \
         doc TEXT NOT NULL, host AS (json_extract(doc, '$.host')) VIRTUAL, \
         status AS (json_extract(doc, '$.status')) VIRTUAL); \
         CREATE INDEX v1 ON v (host, _key)",
    )?;
    let rows: Vec<(String, String)> = (0..events).map(|n| (key(n, keys), document(n))).collect();
    let (written, elapsed) = timed(|| {
        for batch in rows.chunks(BATCH) {
            let newest: BTreeMap<&str, &str> =
                batch.iter().map(|(key, doc)| (key.as_str(), doc.as_str())).collect();
            let transaction = connection.transaction()?;
            {
                let mut upsert = transaction.prepare_cached(
                    "INSERT INTO v (_key, _ts, _at, _lane, _offset, _v, doc) \
                     VALUES (?1, ?2, ?3, ?4, ?5, NULL, ?6) ON CONFLICT (_key) \
                     DO UPDATE SET _ts = excluded._ts, _at = excluded._at, \
                     _lane = excluded._lane, _offset = excluded._offset, doc = excluded.doc",
                )?;
                for (n, (key, doc)) in newest.into_iter().enumerate() {
                    upsert.execute(params![key, 1, 1, 1, n as i64, doc])?;
                }
            }
            transaction.commit()?;
        }
        Ok::<_, rusqlite::Error>(())
    });
    written?;
    Ok(rate(events, elapsed))
}

pub(super) fn measure(path: &Path, rounds: usize, events: usize) -> anyhow::Result<Projecting> {
    let keys = events / 10;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let bus = runtime.block_on(async {
        let bus = Bus::open(path.join("project")).await?;
        publish(&bus, 0..events, keys).await?;
        Ok::<_, anyhow::Error>(bus)
    })?;
    let (mut changelog, mut rebuild) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let reference = raw(&path.join(format!("raw-{round}.db")), events, keys)?;
        let file = path.join(format!("views-{round}.db"));
        let views = runtime.block_on(Views::open(&bus, &file))?;
        let (projection, live) = timed(|| {
            runtime.block_on(async {
                let projection = views.changelog(Changelog::new(view("processes"), TOPIC)).await?;
                projection.caught_up().await?;
                Ok::<_, anyhow::Error>(projection)
            })
        });
        let projection = projection?;
        let (rebuilt, anew) = timed(|| runtime.block_on(projection.rebuild()));
        rebuilt?;
        let live = rate(events, live);
        changelog.push(Round { events_per_s: live, reference_events_per_s: reference });
        let anew = rate(events, anew);
        rebuild.push(Round { events_per_s: anew, reference_events_per_s: live });
        runtime.block_on(views.stop());
    }
    runtime.block_on(bus.close());
    Ok(Projecting { changelog: Compared::of(changelog), rebuild: Compared::of(rebuild) })
}
