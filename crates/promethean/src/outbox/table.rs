//! The seam between a drainer, which decides, and the database that the rows are in.

use std::fmt;
use std::time::Duration;

use futures_core::future::BoxFuture;
use promethean_event::NewEvent;

use super::error::DatabaseError;
use super::handle::OutboxStats;
use super::limits::ERROR_BYTES_MAX;
use super::options::AfterDead;

/// What a drainer does to an outbox. Time is the table's own: its callers say how long, never when.
///
/// A claim is a lease with a token. The token is new with every claim and is all that marking goes
/// by: a row that another claim has taken over does not have the old one any more.
///
/// A row with a key can be claimed if no earlier row of its key is held: by a claim, by the wait
/// before its next attempt, or by being dead. Earlier rows that are free are claimed with it,
/// because claims take rows in order.
///
/// `harness::conformance::outbox` is what every table is held to.
pub trait OutboxTable: fmt::Debug + Send + Sync + 'static {
    /// Claims rows in one step; they come in their order. Does not write if there is none.
    fn claim(&self, claim: Claim) -> BoxFuture<'_, Result<Claimed, DatabaseError>>;

    /// Prolongs a claim on what is still held under it, from now; tells on how many rows.
    fn renew(&self, token: String, lease: Duration) -> BoxFuture<'_, Result<usize, DatabaseError>>;

    /// Ends the claim on some rows, each only if the claim still has it.
    fn settle(
        &self,
        token: String,
        settlements: Vec<Settlement>,
    ) -> BoxFuture<'_, Result<Settled, DatabaseError>>;

    /// Gives back whatever a worker still holds; tells how many rows.
    fn give_back(&self, worker: String) -> BoxFuture<'_, Result<usize, DatabaseError>>;

    /// Gives back what a worker still holds by other claims than the one of this token; tells how many
    /// rows. Of claims that nobody has heard of: none can be made any more when a later one has been.
    fn give_back_others(
        &self,
        worker: String,
        token: String,
    ) -> BoxFuture<'_, Result<usize, DatabaseError>>;

    /// Removes some rows that were sent as long ago as this, or longer; tells how many.
    fn purge(&self, keep: Duration, rows_max: usize)
    -> BoxFuture<'_, Result<usize, DatabaseError>>;

    /// How the outbox stands.
    fn stats(&self) -> BoxFuture<'_, Result<OutboxStats, DatabaseError>>;

    /// Another number whenever others may have written; costs next to nothing.
    fn version(&self) -> BoxFuture<'_, Result<i64, DatabaseError>>;

    /// Waits until this process has told that it wrote.
    fn written(&self) -> BoxFuture<'_, ()>;
}

/// Who claims, under which token, and for how long.
#[derive(Debug, Clone)]
pub struct Claim {
    /// No other claim has it.
    pub token: String,
    /// Who claims.
    pub worker: String,
    /// Most rows.
    pub rows: usize,
    /// How long the claim lasts.
    pub lease: Duration,
    /// What later events of a dead event's key do.
    pub after_dead: AfterDead,
}

/// What was there to be claimed.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// The rows, in their order.
    pub rows: Vec<Row>,
    /// If there were none: after what time the next held row comes free by itself.
    pub free_in: Option<Duration>,
    /// The table's [`version`](OutboxTable::version) from before it was looked at.
    pub version: i64,
}

/// A claimed row.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its place in the order of adding.
    pub seq: i64,
    /// Failed attempts before this one.
    pub attempts: u32,
    /// Whose order it is part of. Known of a malformed row, too: it stops its key.
    pub order: Option<OrderKey>,
    /// The event.
    pub content: Result<NewEvent, Malformed>,
}

/// What is kept of events of one key in one topic: their order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OrderKey {
    /// The topic.
    pub topic: String,
    /// The key.
    pub key: String,
}

/// Why a row is not an event: somebody else wrote it, or the database is damaged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("malformed row, {part}: {reason}; correct it in the database and retry, or discard it")]
pub struct Malformed {
    /// The column or field.
    pub part: &'static str,
    /// What is wrong with it.
    pub reason: String,
}

/// What has become of a claimed row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is published.
    Sent,
    /// It failed, and is tried again.
    Again {
        /// Not before this time from now.
        delay: Duration,
        /// Why it failed.
        error: String,
    },
    /// It is not tried again unless somebody says so.
    Dead {
        /// Why.
        error: String,
    },
    /// It was not tried.
    Released,
}

/// The end of a claim on one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The row's place.
    pub seq: i64,
    /// What has become of it.
    pub outcome: Outcome,
}

/// How many rows went which way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settled {
    /// Published and marked.
    pub sent: u64,
    /// To be tried again.
    pub failed: u64,
    /// Given up.
    pub dead: u64,
    /// Not marked, because another claim had taken them over.
    pub fenced: u64,
}

impl Settled {
    /// Counts a row that was marked.
    pub fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Sent => self.sent += 1,
            Outcome::Again { .. } => self.failed += 1,
            Outcome::Dead { .. } => self.dead += 1,
            Outcome::Released => {}
        }
    }
}

/// As much of an error as a row keeps.
pub fn shortened(error: &str) -> &str {
    let mut end = error.len().min(ERROR_BYTES_MAX);
    while !error.is_char_boundary(end) {
        end -= 1;
    }
    error.get(..end).unwrap_or_default()
}
