//! The suite for tables of an outbox, run for the one in SQLite. `crates/mongo` runs it for its own.
#![expect(clippy::unwrap_used, reason = "a test that meets what it did not expect should stop")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_core::future::BoxFuture;
use promethean::outbox::{
    AddError, FailedEvent, Listing, Outbox, OutboxTable, ReviveError, SqliteTable,
};
use promethean_event::{EventId, NewEvent};
use promethean_harness::conformance::Check;
use promethean_harness::conformance::outbox::{Ending, OutboxPlace, run};
use promethean_harness::log_simulation::SimClock;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::conformance::wait_for;

#[derive(Debug)]
struct SqlitePlace {
    folder: TempDir,
    connection: Mutex<Connection>,
    outbox: Outbox,
    clock: SimClock,
}

impl SqlitePlace {
    fn boxed() -> Check<Box<dyn OutboxPlace>> {
        let folder = tempfile::tempdir()?;
        let connection = Connection::open(folder.path().join("app.db"))?;
        // Rows are looked at while drainers write.
        connection.busy_timeout(Duration::from_secs(10))?;
        let clock = SimClock::at(1_700_000_000_000);
        let outbox = Outbox::with_clock(&connection, Arc::new(clock.clone()))?;
        Ok(Box::new(Self { folder, connection: Mutex::new(connection), outbox, clock }))
    }

    fn add_now(
        &self,
        events: &[NewEvent],
        ending: Ending,
    ) -> Result<Result<(), AddError>, rusqlite::Error> {
        let mut connection = self.connection.lock().unwrap();
        let tx = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        let added = events.iter().try_for_each(|event| self.outbox.add(&tx, event));
        match ending {
            Ending::Commit => self.outbox.commit(tx)?,
            Ending::Rollback => tx.rollback()?,
        }
        Ok(added)
    }
}

impl OutboxPlace for SqlitePlace {
    fn table(&self) -> Arc<dyn OutboxTable> {
        let path = self.folder.path().join("app.db");
        Arc::new(SqliteTable::new(&self.outbox, path))
    }

    fn add(
        &self,
        events: Vec<NewEvent>,
        ending: Ending,
    ) -> BoxFuture<'_, Check<Result<(), AddError>>> {
        Box::pin(async move { Ok(self.add_now(&events, ending)?) })
    }

    fn dead(&self) -> BoxFuture<'_, Check<Vec<FailedEvent>>> {
        let connection = self.connection.lock().unwrap();
        let dead = self.outbox.dead(&connection, Listing::default());
        Box::pin(std::future::ready(dead.map_err(Into::into)))
    }

    fn retry(&self, id: EventId) -> BoxFuture<'_, Result<(), ReviveError>> {
        let retried = self.outbox.retry(&self.connection.lock().unwrap(), id);
        Box::pin(std::future::ready(retried))
    }

    fn discard(&self, id: EventId) -> BoxFuture<'_, Result<(), ReviveError>> {
        let discarded = self.outbox.discard(&self.connection.lock().unwrap(), id);
        Box::pin(std::future::ready(discarded))
    }

    fn spoil(&self, id: EventId) -> BoxFuture<'_, Check> {
        let sql = "UPDATE promethean_outbox SET payload = '{' WHERE id = ?1";
        let spoiled = self.connection.lock().unwrap().execute(sql, [id.to_string()]);
        Box::pin(std::future::ready(spoiled.map(drop).map_err(Into::into)))
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, Check> {
        self.clock.advance(u64::try_from(time.as_millis()).unwrap());
        Box::pin(std::future::ready(Ok(())))
    }
}

#[test]
fn the_table_in_sqlite_holds() {
    let violations = wait_for(run(&|| Box::pin(std::future::ready(SqlitePlace::boxed()))));
    assert!(violations.is_empty(), "{violations:#?}");
}
