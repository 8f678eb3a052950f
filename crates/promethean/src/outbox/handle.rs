use std::sync::Arc;
use std::time::Duration;

use promethean_event::{EventId, NewEvent, Timestamp};
use promethean_log::{Clock, SystemClock};
use rusqlite::{Connection, Transaction, params};
use tokio::sync::Notify;

use super::error::{AddError, DatabaseError, ReviveError};
use super::limits::LISTING_ROWS_MAX;
use super::row::{self, from_millis, lossy};
use super::schema;

/// The outbox of a database. A cheap clone; clones of one wake the same drainers.
#[derive(Debug, Clone)]
pub struct Outbox {
    pub(super) wake: Arc<Notify>,
    pub(super) clock: Arc<dyn Clock>,
}

/// An event that failed: dead, or to be tried again. Texts are as they stand in the row, which may
/// be malformed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedEvent {
    /// The place in the outbox.
    pub seq: i64,
    /// The id of the event.
    pub id: String,
    /// Its topic.
    pub topic: String,
    /// Its key.
    pub key: Option<String>,
    /// How often it failed.
    pub attempts: u32,
    /// How it failed last.
    pub error: String,
    /// When it was added.
    pub added_at: Timestamp,
    /// When it was given up; `None` if it was not.
    pub dead_at: Option<Timestamp>,
}

/// Which part of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listing {
    /// Only rows after this place; pass the last one's to go on. Default: all.
    pub after: i64,
    /// How many at most; bounded by [`LISTING_ROWS_MAX`]. Default 100.
    pub max: usize,
}

impl Default for Listing {
    fn default() -> Self {
        Self { after: i64::MIN, max: 100 }
    }
}

/// How an outbox stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutboxStats {
    /// Events that are not published yet; the dead are not among them.
    pub pending: u64,
    /// Those of them that have failed at least once.
    pub failing: u64,
    /// How long the oldest of them has been waiting.
    pub oldest_pending: Option<Duration>,
    /// Events that were given up.
    pub dead: u64,
    /// Published events whose rows are still kept.
    pub sent: u64,
}

impl Outbox {
    /// Creates the tables if they are not there, and gives the handle. Works inside a transaction,
    /// too.
    pub fn install(connection: &Connection) -> Result<Self, DatabaseError> {
        Self::with_clock(connection, Arc::new(SystemClock))
    }

    /// The same, with a clock of the caller's.
    pub fn with_clock(
        connection: &Connection,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, DatabaseError> {
        schema::install(connection)?;
        Ok(Self { wake: Arc::new(Notify::new()), clock })
    }

    /// Adds an event to the caller's transaction: it will be published if that commits, and else
    /// never was. The same event again adds nothing.
    ///
    /// Events of one key are published in the order in which they were added.
    pub fn add(&self, tx: &Transaction<'_>, event: &NewEvent) -> Result<(), AddError> {
        // After some errors SQLite rolls back by itself; what is written then would stand alone.
        if tx.is_autocommit() {
            return Err(AddError::NoTransaction);
        }
        if event.topic.is_system() {
            return Err(AddError::SystemTopic(event.topic.as_str().to_owned()));
        }
        event.check()?;
        if !row::insert(tx, event, self.clock.now())? && !is_same(tx, event)? {
            return Err(AddError::IdConflict(event.id));
        }
        self.wake();
        Ok(())
    }

    /// Commits, and wakes the drainer at the very moment. After a commit by other means it notices
    /// soon, too, as it looks often for a while after [`add`](Self::add).
    pub fn commit(&self, tx: Transaction<'_>) -> rusqlite::Result<()> {
        tx.commit()?;
        self.wake();
        Ok(())
    }

    /// Wakes a drainer of this process that uses this handle or a clone.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Events that were given up, with the reason, in the order of adding.
    pub fn dead(
        &self,
        connection: &Connection,
        listing: Listing,
    ) -> Result<Vec<FailedEvent>, DatabaseError> {
        list(
            connection,
            "INDEXED BY promethean_outbox_held
             WHERE sent_at IS NULL AND not_before > 0 AND dead_at IS NOT NULL",
            listing,
        )
    }

    /// Events that failed and will be tried again, with the last reason, in the order of adding.
    pub fn failing(
        &self,
        connection: &Connection,
        listing: Listing,
    ) -> Result<Vec<FailedEvent>, DatabaseError> {
        list(
            connection,
            "INDEXED BY promethean_outbox_open
             WHERE sent_at IS NULL AND dead_at IS NULL AND attempts > 0",
            listing,
        )
    }

    /// Has a dead event tried again, in its old place: before the later ones of its key, unless
    /// they went on without it.
    pub fn retry(&self, connection: &Connection, id: EventId) -> Result<(), ReviveError> {
        let revived = connection.execute(
            "UPDATE promethean_outbox SET dead_at = NULL, attempts = 0, not_before = 0
             WHERE id = ?1 AND dead_at IS NOT NULL",
            [id.to_string()],
        )?;
        self.wake();
        if revived == 0 { Err(ReviveError::NotDead(id)) } else { Ok(()) }
    }

    /// Removes a dead event for good. What waits behind it goes on.
    pub fn discard(&self, connection: &Connection, id: EventId) -> Result<(), ReviveError> {
        let removed = connection.execute(
            "DELETE FROM promethean_outbox WHERE id = ?1 AND dead_at IS NOT NULL",
            [id.to_string()],
        )?;
        self.wake();
        if removed == 0 { Err(ReviveError::NotDead(id)) } else { Ok(()) }
    }

    /// How the outbox stands.
    pub fn stats(&self, connection: &Connection) -> Result<OutboxStats, DatabaseError> {
        stats(connection, self.clock.now())
    }
}

fn is_same(connection: &Connection, event: &NewEvent) -> rusqlite::Result<bool> {
    let sql = format!("SELECT {} FROM promethean_outbox WHERE id = ?1", row::ENVELOPE);
    connection
        .prepare_cached(&sql)?
        .query_row([event.id.to_string()], |found| Ok(row::read(found, 0).as_ref() == Ok(event)))
}

fn list(
    connection: &Connection,
    which: &str,
    listing: Listing,
) -> Result<Vec<FailedEvent>, DatabaseError> {
    let sql = format!(
        "SELECT seq, attempts, added_at, dead_at, id, topic, key, error FROM promethean_outbox
         {which} AND seq > ?1 ORDER BY seq LIMIT ?2"
    );
    let max = i64::try_from(listing.max.min(LISTING_ROWS_MAX)).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(params![listing.after, max], |row| {
        let dead_at: Option<i64> = row.get(3)?;
        Ok(FailedEvent {
            seq: row.get(0)?,
            attempts: u32::try_from(row.get::<_, i64>(1)?).unwrap_or(u32::MAX),
            added_at: from_millis(row.get(2)?),
            dead_at: dead_at.map(from_millis),
            id: lossy(row, 4).unwrap_or_default(),
            topic: lossy(row, 5).unwrap_or_default(),
            key: lossy(row, 6),
            error: lossy(row, 7).unwrap_or_default(),
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn stats(connection: &Connection, now: Timestamp) -> Result<OutboxStats, DatabaseError> {
    let count = |sql: &str| -> rusqlite::Result<u64> {
        let count: i64 = connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
        Ok(u64::try_from(count).unwrap_or(0))
    };
    let oldest: Option<i64> = connection
        .prepare_cached(
            "SELECT MIN(added_at) FROM (SELECT added_at FROM promethean_outbox
             INDEXED BY promethean_outbox_open
             WHERE sent_at IS NULL AND dead_at IS NULL ORDER BY seq LIMIT 1)",
        )?
        .query_row([], |row| row.get(0))?;
    Ok(OutboxStats {
        pending: count(
            "SELECT COUNT(*) FROM promethean_outbox INDEXED BY promethean_outbox_open
             WHERE sent_at IS NULL AND dead_at IS NULL",
        )?,
        failing: count(
            "SELECT COUNT(*) FROM promethean_outbox INDEXED BY promethean_outbox_open
             WHERE sent_at IS NULL AND dead_at IS NULL AND attempts > 0",
        )?,
        oldest_pending: oldest
            .map(|added| Duration::from_millis(now.millis_since(from_millis(added)))),
        dead: count(
            "SELECT COUNT(*) FROM promethean_outbox INDEXED BY promethean_outbox_held
             WHERE sent_at IS NULL AND not_before > 0 AND dead_at IS NOT NULL",
        )?,
        sent: count(
            "SELECT COUNT(*) FROM promethean_outbox INDEXED BY promethean_outbox_sent
             WHERE sent_at IS NOT NULL",
        )?,
    })
}
