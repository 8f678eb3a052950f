//! The table in SQLite: each step a job on a connection of its own.

use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use promethean_event::Timestamp;
use promethean_log::Clock;
use tokio::sync::Notify;

use super::claims::{self, later};
use super::database::{ConnectionSource, Database};
use super::error::DatabaseError;
use super::handle::{self, Outbox, OutboxStats};
use super::table::{Claim, Claimed, OutboxTable, Settled, Settlement};

/// The outbox of a SQLite database, as a drainer sees it.
#[derive(Debug)]
pub struct SqliteTable {
    database: Database,
    clock: Arc<dyn Clock>,
    wake: Arc<Notify>,
}

impl SqliteTable {
    /// The table of an outbox; connections of its own come from the source.
    pub fn new(outbox: &Outbox, source: impl Into<ConnectionSource>) -> Self {
        Self {
            database: Database::new(source.into()),
            clock: Arc::clone(&outbox.clock),
            wake: Arc::clone(&outbox.wake),
        }
    }
}

impl OutboxTable for SqliteTable {
    fn claim(&self, claim: Claim) -> BoxFuture<'_, Result<Claimed, DatabaseError>> {
        let now = self.clock.now();
        Box::pin(self.database.run(move |connection| {
            // Before looking, so that no commit after the look goes unnoticed.
            let version = claims::data_version(connection)?;
            if claims::is_any(connection, now, claim.after_dead)? {
                let rows = claims::claim(connection, now, &claim)?;
                return Ok(Claimed { rows, free_in: None, version });
            }
            let free = claims::next_free(connection, now)?;
            let free_in = free.map(|free| Duration::from_millis(free.millis_since(now)));
            Ok(Claimed { rows: Vec::new(), free_in, version })
        }))
    }

    fn renew(&self, token: String, lease: Duration) -> BoxFuture<'_, Result<usize, DatabaseError>> {
        let until = later(self.clock.now(), lease);
        Box::pin(self.database.run(move |connection| claims::renew(connection, &token, until)))
    }

    fn settle(
        &self,
        token: String,
        settlements: Vec<Settlement>,
    ) -> BoxFuture<'_, Result<Settled, DatabaseError>> {
        let now = self.clock.now();
        Box::pin(
            self.database
                .run(move |connection| claims::settle(connection, now, &token, &settlements)),
        )
    }

    fn give_back(&self, worker: String) -> BoxFuture<'_, Result<usize, DatabaseError>> {
        Box::pin(self.database.run(move |connection| claims::give_back(connection, &worker)))
    }

    fn give_back_others(
        &self,
        worker: String,
        token: String,
    ) -> BoxFuture<'_, Result<usize, DatabaseError>> {
        let give_back =
            move |connection: &mut _| claims::give_back_others(connection, &worker, &token);
        Box::pin(self.database.run(give_back))
    }

    fn purge(
        &self,
        keep: Duration,
        rows_max: usize,
    ) -> BoxFuture<'_, Result<usize, DatabaseError>> {
        let keep = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX);
        let until = Timestamp::from_millis(self.clock.now().millis().saturating_sub(keep));
        Box::pin(self.database.run(move |connection| claims::purge(connection, until, rows_max)))
    }

    fn stats(&self) -> BoxFuture<'_, Result<OutboxStats, DatabaseError>> {
        let now = self.clock.now();
        Box::pin(self.database.run(move |connection| handle::stats(connection, now)))
    }

    fn version(&self) -> BoxFuture<'_, Result<i64, DatabaseError>> {
        Box::pin(self.database.run(|connection| claims::data_version(connection)))
    }

    fn written(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.wake.notified())
    }
}
