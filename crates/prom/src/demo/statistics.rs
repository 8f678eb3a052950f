//! The views of the demo: `processes` is `process.state` by key; `host_stats` counts, for each
//! host, its processes by status, by a projection in Rust.

use promethean::Failure;
use promethean::projection::{
    Changelog, Field, Projection, Transaction, TransactionError, Transactional,
    TransactionalProjection, View, Views,
};
use promethean_event::Event;
use serde::{Deserialize, Serialize};

use super::STATES;
use super::table::{ProcessState, Status};

/// The views that the demo keeps; the first is the default.
pub(crate) const VIEWS: [&str; 2] = ["processes", "host_stats"];

/// What is known of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HostStats {
    pub(super) processes: u64,
    pub(super) alive: u64,
    pub(super) stale: u64,
    /// Processes that came and went.
    pub(super) gone: u64,
    /// Events that were counted, each once.
    pub(super) changes: u64,
}

/// Which host a process is counted at, and as what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Counted {
    host: String,
    status: Status,
}

pub(crate) async fn start_view(views: &Views, name: &str) -> anyhow::Result<Projection> {
    Ok(match name {
        "processes" => views.changelog(processes()).await?,
        "host_stats" => views.transactional(host_stats()).await?,
        other => anyhow::bail!("the demo has no view {other}"),
    })
}

fn processes() -> Changelog {
    let view = View::new("processes")
        .field(Field::text("host"))
        .field(Field::text("name"))
        .field(Field::integer("pid"))
        .field(Field::text("status"))
        .field(Field::number("cpu_pct"))
        .field(Field::number("mem_mb"))
        .field(Field::integer("last_seen_ts"))
        .index(["host", "status"]);
    Changelog::new(view, STATES)
}

fn host_stats() -> TransactionalProjection {
    let stats = View::new("host_stats")
        .field(Field::integer("processes"))
        .field(Field::integer("alive"))
        .field(Field::integer("stale"));
    Transactional::new("host-statistics")
        .topic(STATES)
        .view(stats)
        // A tombstone does not say its host: where a process was counted is kept beside.
        .view(View::new("host_members"))
        .apply(count)
}

fn count(tx: &mut Transaction<'_>, event: &Event) -> Result<(), Failure> {
    let Some(key) = event.key.as_ref().map(|key| key.as_str()) else {
        return Err(Failure::park("a process state without a key"));
    };
    let state = if event.payload.is_tombstone() {
        None
    } else {
        let state: ProcessState = event.payload.decode().map_err(Failure::park)?;
        Some(Counted { host: state.host, status: state.status })
    };
    let before: Option<Counted> = tx.read("host_members", key)?;
    let Some(host) = state.as_ref().or(before.as_ref()).map(|counted| counted.host.clone()) else {
        // Gone before it was ever seen.
        return Ok(());
    };
    change(tx, &host, |stats| {
        stats.changes += 1;
        if before.is_some() && state.is_none() {
            stats.gone += 1;
        }
    })?;
    if let Some(counted) = &before {
        change(tx, &counted.host, |stats| stats.without(counted.status))?;
    }
    match &state {
        Some(counted) => {
            change(tx, &counted.host, |stats| stats.with(counted.status))?;
            tx.put("host_members", key, counted)?;
        }
        None => tx.delete("host_members", key)?,
    }
    Ok(())
}

fn change(
    tx: &mut Transaction<'_>,
    host: &str,
    change: impl FnOnce(&mut HostStats),
) -> Result<(), TransactionError> {
    let mut stats: HostStats = tx.read("host_stats", host)?.unwrap_or_default();
    change(&mut stats);
    tx.put("host_stats", host, &stats)
}

impl HostStats {
    fn count(&mut self, status: Status) -> &mut u64 {
        match status {
            Status::Alive => &mut self.alive,
            Status::Stale => &mut self.stale,
        }
    }

    fn with(&mut self, status: Status) {
        self.processes += 1;
        *self.count(status) += 1;
    }

    fn without(&mut self, status: Status) {
        self.processes = self.processes.saturating_sub(1);
        let count = self.count(status);
        *count = count.saturating_sub(1);
    }
}
