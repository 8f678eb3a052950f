use std::sync::Arc;
use std::time::Duration;

use promethean_event::{EventError, EventId};

use super::limits::{BATCH_ROWS_MAX, HOLD_MAX, LEASE_MIN};

/// Why the database did not do what the outbox asked.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseError {
    /// SQLite refused.
    #[error("SQLite refused: {0}")]
    Sqlite(#[source] Arc<rusqlite::Error>),
    /// There is no outbox in this database.
    #[error("this database has no outbox; call Outbox::install on it first")]
    NotInstalled,
    /// A newer program has been here.
    #[error("the outbox has schema version {found}, this program knows {known}; update it")]
    Newer {
        /// The version in the database.
        found: i64,
        /// The newest version that is known.
        known: i64,
    },
    /// A database on another machine refused, or did not answer.
    #[error("{0}")]
    Remote(String),
    /// The thread that worked on the database ended without an answer.
    #[error("the work on the database ended without an answer ({0})")]
    Aborted(String),
}

impl From<rusqlite::Error> for DatabaseError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(Arc::new(error))
    }
}

/// Why an event was not added. The transaction is still the caller's: roll it back or go on.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// SQLite has ended the transaction, as it does after some errors.
    #[error("the transaction is no longer open; start again from its beginning")]
    NoTransaction,
    /// The id is there with other content.
    #[error("event {0} is already in the outbox with other content; use a new id")]
    IdConflict(EventId),
    /// The topic is one of the system's.
    #[error("topic {0} is kept for the system; choose another one")]
    SystemTopic(String),
    /// More tags or causes than an event may have.
    #[error(transparent)]
    Event(#[from] EventError),
    /// A time that SQLite cannot hold.
    #[error("event time {0} is beyond {max} ms; give the time in milliseconds", max = i64::MAX)]
    Time(u64),
    /// A part of the event has no JSON form.
    #[error("the event could not be written as text: {0}")]
    Text(String),
    /// The database refused.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

impl From<rusqlite::Error> for AddError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error.into())
    }
}

/// Why a dead event was not tried again or discarded.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ReviveError {
    /// There is no dead event with this id.
    #[error("no dead event has the id {0}; Outbox::dead lists them")]
    NotDead(EventId),
    /// The database refused.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

impl From<rusqlite::Error> for ReviveError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error.into())
    }
}

/// Which option of a drainer makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// Nothing, or too much, at a time.
    #[error("batch is {0}; it must be 1 to {BATCH_ROWS_MAX}")]
    Batch(usize),
    /// A lease that cannot be renewed in time, or that outlives a dead drainer for too long.
    #[error("lease is {0:?}; it must be {LEASE_MIN:?} to {HOLD_MAX:?}")]
    Lease(Duration),
    /// Backoff from more to less, from nothing, or for too long.
    #[error("backoff is {min:?} to {max:?}; it must rise, from 1 ms at least to {HOLD_MAX:?}")]
    Backoff {
        /// The first wait.
        min: Duration,
        /// The longest wait.
        max: Duration,
    },
    /// No time at all.
    #[error("{0} is zero; give it a millisecond at least")]
    Zero(&'static str),
    /// Dead before the first attempt.
    #[error("max_attempts is 0; leave it out to try without end, or give 1 at least")]
    MaxAttempts,
}
