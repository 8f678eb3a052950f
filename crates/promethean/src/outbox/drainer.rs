use std::sync::Arc;
use std::time::Duration;

use promethean_event::{EventId, Timestamp};
use promethean_log::{Clock, SystemClock};
use tokio::sync::watch;

use super::claims::later;
use super::counters::{DrainCounters, Tallies};
use super::database::ConnectionSource;
use super::error::{DatabaseError, OptionsError};
use super::handle::{Outbox, OutboxStats};
use super::limits::{LOOK_AWAY_MAX, LOOK_GAP_MIN, PURGE_EVERY_MAX, PURGE_ROWS_MAX};
use super::options::DrainOptions;
use super::round::Round;
use super::sqlite::SqliteTable;
use super::table::OutboxTable;
use super::target::OutboxTarget;

/// Publishes what is in an outbox. Any number of them may work on one, also in several processes.
#[derive(Debug)]
pub struct Drainer {
    pub(super) worker: String,
    pub(super) target: Arc<dyn OutboxTarget>,
    pub(super) options: DrainOptions,
    /// For its own pauses; what is in the table goes by the table's time.
    clock: Arc<dyn Clock>,
    pub(super) table: Arc<dyn OutboxTable>,
    pub(super) tallies: Arc<Tallies>,
}

/// Tells how a drainer and its outbox stand, while it runs and afterwards. A cheap clone.
#[derive(Debug, Clone)]
pub struct DrainMeter {
    tallies: Arc<Tallies>,
    table: Arc<dyn OutboxTable>,
}

impl DrainMeter {
    /// What the drainer has done.
    pub fn counters(&self) -> DrainCounters {
        self.tallies.read()
    }

    /// How the outbox stands.
    pub async fn stats(&self) -> Result<OutboxStats, DatabaseError> {
        self.table.stats().await
    }
}

/// Whether the drainer is to stop.
#[derive(Debug, Clone)]
pub(super) struct Stop(watch::Receiver<bool>);

impl Stop {
    pub(super) fn is_raised(&self) -> bool {
        *self.0.borrow()
    }

    async fn raised(&self) {
        // The sender lives as long as the run.
        let _ = self.0.clone().wait_for(|raised| *raised).await;
    }

    /// Waits for a while, or until the drainer is to stop.
    async fn rest(&self, wait: Duration) {
        tokio::select! {
            biased;
            () = self.raised() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// How the loop stands between its turns.
#[derive(Debug)]
struct Pace {
    /// Turns in a row that came to nothing but failure.
    failures: u32,
    /// The wait before the next look.
    gap: Duration,
    /// The database as it was before the last claim.
    version: Option<i64>,
    /// A claim has failed: it may have been made all the same, with nobody to work on it.
    is_unsure: bool,
    next_purge: Timestamp,
}

/// What a turn came to.
enum Turn {
    /// Nothing to claim before so long, as far as is known.
    Idle(Option<Duration>),
    Worked(Round),
}

impl Drainer {
    /// A drainer that publishes what is added to the outbox. It has a connection of its own.
    pub fn new(
        outbox: &Outbox,
        source: impl Into<ConnectionSource>,
        target: impl OutboxTarget,
        options: DrainOptions,
    ) -> Result<Self, OptionsError> {
        let table = Arc::new(SqliteTable::new(outbox, source));
        let drainer = Self::over(table, target, options)?;
        Ok(Self { clock: Arc::clone(&outbox.clock), ..drainer })
    }

    /// A drainer of any table.
    pub fn over(
        table: Arc<dyn OutboxTable>,
        target: impl OutboxTarget,
        options: DrainOptions,
    ) -> Result<Self, OptionsError> {
        options.check()?;
        Ok(Self {
            worker: format!("drainer-{}", EventId::generate()),
            target: Arc::new(target),
            options,
            clock: Arc::new(SystemClock),
            table,
            tallies: Arc::default(),
        })
    }

    /// The name under which it claims rows; no other drainer has it.
    pub fn worker(&self) -> &str {
        &self.worker
    }

    /// For metrics.
    pub fn meter(&self) -> DrainMeter {
        DrainMeter { tallies: Arc::clone(&self.tallies), table: Arc::clone(&self.table) }
    }

    /// Drains until `stop` completes. Then the publish under way is finished and marked, and what
    /// is still claimed is given back. No error ends it; dropping it is like a crash, after which
    /// the lease has to run out.
    pub async fn run(self, stop: impl Future<Output = ()>) -> DrainCounters {
        let (raise, raised) = watch::channel(false);
        let flag = Stop(raised);
        let drain = self.drain(&flag);
        tokio::pin!(drain);
        tokio::select! {
            biased;
            () = stop => {
                raise.send_replace(true);
                drain.await;
            }
            () = &mut drain => {}
        }
        self.give_back().await;
        self.tallies.read()
    }

    async fn drain(&self, stop: &Stop) {
        let mut pace = Pace {
            failures: 0,
            gap: self.options.poll,
            version: None,
            is_unsure: false,
            next_purge: Timestamp::default(),
        };
        while !stop.is_raised() {
            let turn = self.turn(&mut pace, stop).await;
            match turn {
                Ok(Turn::Idle(free_in)) => {
                    pace.failures = 0;
                    self.idle(free_in, &mut pace, stop).await;
                }
                Ok(Turn::Worked(Round { published: 0, outage: true })) => {
                    // Going on would only write a failure into row after row.
                    self.back_off(&mut pace, stop).await;
                }
                Ok(Turn::Worked(_)) => pace.failures = 0,
                Err(error) => {
                    self.tallies.database_error();
                    tracing::error!(worker = %self.worker, %error, "outbox: the database refused");
                    self.back_off(&mut pace, stop).await;
                }
            }
        }
    }

    async fn back_off(&self, pace: &mut Pace, stop: &Stop) {
        pace.failures = pace.failures.saturating_add(1);
        stop.rest(self.options.backoff().delay(pace.failures, &self.worker, 0)).await;
    }

    async fn turn(&self, pace: &mut Pace, stop: &Stop) -> Result<Turn, DatabaseError> {
        self.purge(pace).await;
        let was_unsure = pace.is_unsure;
        if was_unsure {
            // Nothing is this one's between its turns. Otherwise such rows, and all that come after
            // them by their keys, would wait for the end of the lease.
            self.table.give_back(self.worker.clone()).await?;
        }
        let claim = self.new_claim();
        pace.is_unsure = true;
        let mut claimed = self.table.claim(claim.clone()).await?;
        if was_unsure {
            // The one that nobody has heard of may have been made after that: by now it has, or never
            // will be.
            let (worker, token) = (self.worker.clone(), claim.token.clone());
            if self.table.give_back_others(worker, token).await? > 0 {
                claimed.free_in = Some(Duration::ZERO);
            }
        }
        pace.is_unsure = false;
        pace.version = Some(claimed.version);
        if claimed.rows.is_empty() {
            return Ok(Turn::Idle(claimed.free_in));
        }
        Ok(Turn::Worked(self.round(claimed.rows, &claim, stop).await))
    }

    /// Waits until there may be something to do.
    async fn idle(&self, free_in: Option<Duration>, pace: &mut Pace, stop: &Stop) {
        let now = self.clock.now();
        let until = later(now, free_in.unwrap_or(LOOK_AWAY_MAX).min(LOOK_AWAY_MAX))
            .min(pace.next_purge.max(now));
        loop {
            let left = Duration::from_millis(until.millis_since(self.clock.now()));
            tokio::select! {
                biased;
                () = stop.raised() => return,
                () = self.table.written() => {
                    // The transaction may not be committed yet: look often, for a while.
                    pace.gap = LOOK_GAP_MIN;
                    return;
                }
                () = tokio::time::sleep(pace.gap.min(left)) => {}
            }
            pace.gap = (pace.gap * 2).min(self.options.poll);
            let version = self.table.version().await;
            // An error, too, is for the next turn to meet.
            let changed = version.ok().is_none_or(|version| Some(version) != pace.version);
            if changed || self.clock.now() >= until {
                return;
            }
        }
    }

    /// Removes some of the sent rows that are old enough. A failure waits for the next time: what
    /// is to be published is more urgent.
    async fn purge(&self, pace: &mut Pace) {
        let now = self.clock.now();
        let far = later(now, PURGE_EVERY_MAX);
        // Further away than ever planned: the clock went back.
        if now < pace.next_purge && pace.next_purge <= far {
            return;
        }
        pace.next_purge = far;
        let Some(keep) = self.options.keep_sent else { return };
        match self.table.purge(keep, PURGE_ROWS_MAX).await {
            Ok(purged) => {
                self.tallies.purged(purged);
                if purged == PURGE_ROWS_MAX {
                    // There is more: after the next claim.
                    pace.next_purge = now;
                }
            }
            Err(error) => {
                self.tallies.database_error();
                tracing::warn!(worker = %self.worker, %error, "outbox: sent rows were not removed");
            }
        }
    }

    async fn give_back(&self) {
        if let Err(error) = self.table.give_back(self.worker.clone()).await {
            self.tallies.database_error();
            tracing::warn!(worker = %self.worker, %error,
                "outbox: claims were not given back, and end with their lease");
        }
    }
}
