//! One round: what was claimed is published, marked, and the claim renewed meanwhile.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;

use futures_util::{FutureExt, StreamExt, stream};
use promethean_event::EventId;

use super::drainer::{Drainer, Stop};
use super::error::DatabaseError;
use super::limits::{PARTS_AT_ONCE_MAX, SETTLE_TRIES_MAX};
use super::parts::{Part, Ready, Rules, divide};
use super::table::{Claim, Outcome, Row, Settlement};
use super::target::{PublishError, Remedy};

/// What a round came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Round {
    pub(super) published: usize,
    /// The store took nothing, or did not answer, at least once.
    pub(super) outage: bool,
}

impl Round {
    fn and(self, other: Self) -> Self {
        Self { published: self.published + other.published, outage: self.outage || other.outage }
    }
}

impl Drainer {
    /// A claim with a token of its own.
    pub(super) fn new_claim(&self) -> Claim {
        Claim {
            token: EventId::generate().to_string(),
            worker: self.worker.clone(),
            rows: self.options.batch,
            lease: self.options.lease,
            after_dead: self.options.after_dead,
        }
    }

    /// Publishes and settles everything that was claimed.
    pub(super) async fn round(&self, rows: Vec<Row>, claim: &Claim, stop: &Stop) -> Round {
        let rules = Rules::new(&self.options, &self.worker);
        let work = stream::iter(divide(rows))
            .map(|part| self.work(part, &rules, claim, stop))
            .buffer_unordered(PARTS_AT_ONCE_MAX)
            .fold(Round::default(), async |sum, round| sum.and(round));
        tokio::select! {
            round = work => round,
            never = self.keep_renewing(claim) => match never {},
        }
    }

    async fn work(&self, mut part: Part, rules: &Rules, claim: &Claim, stop: &Stop) -> Round {
        let mut round = Round::default();
        loop {
            if stop.is_raised() {
                part.release();
            }
            let Some(ready) = part.next(rules) else { break };
            let result = self.publish(&ready).await;
            match &result {
                Ok(()) => round.published += ready.len(),
                Err(error) => {
                    round.outage |= error.judge().0 == Remedy::Outage;
                    tracing::warn!(worker = %self.worker, events = ready.len(), %error,
                        "outbox: a publish failed");
                }
            }
            part.answer(ready, result.as_ref().copied(), rules);
            self.settle(part.take_settled(), claim).await;
        }
        self.settle(part.take_settled(), claim).await;
        round
    }

    async fn publish(&self, ready: &[Ready]) -> Result<(), PublishError> {
        let events: Vec<_> = ready.iter().map(|row| row.event.clone()).collect();
        let limit = self.options.publish_timeout;
        // The call as well as its future: neither may end the loop.
        let publish = AssertUnwindSafe(async { self.target.publish(events).await }).catch_unwind();
        let receipts = match tokio::time::timeout(limit, publish).await {
            Ok(Ok(answer)) => answer?,
            Ok(Err(_panic)) => return Err(PublishError::Panicked),
            Err(_elapsed) => return Err(PublishError::NoAnswer(limit)),
        };
        if receipts.len() != ready.len() {
            let (events, receipts) = (ready.len(), receipts.len());
            return Err(PublishError::WrongAnswer { events, receipts });
        }
        self.tallies.duplicates(receipts.iter().filter(|receipt| receipt.duplicate).count());
        Ok(())
    }

    /// Marks what was decided. If the database refuses for good, the lease runs out, and what was
    /// published is published again, which adds nothing.
    async fn settle(&self, settlements: Vec<Settlement>, claim: &Claim) {
        if settlements.is_empty() {
            return;
        }
        for failures in 1..=SETTLE_TRIES_MAX {
            match self.try_settle(settlements.clone(), claim).await {
                Ok(fenced) => {
                    if fenced > 0 {
                        tracing::warn!(worker = %self.worker, rows = fenced,
                            "outbox: the lease ran out, and another drainer has taken over");
                    }
                    return report_dead(&settlements);
                }
                Err(error) => {
                    self.tallies.database_error();
                    tracing::warn!(worker = %self.worker, failures, %error,
                        "outbox: rows could not be marked");
                    let wait = self.options.backoff().delay(failures, &self.worker, -1);
                    tokio::time::sleep(wait).await;
                }
            }
        }
        tracing::error!(worker = %self.worker, rows = settlements.len(),
            "outbox: rows stay unmarked, and are taken up again when their lease has run out");
    }

    async fn try_settle(
        &self,
        settlements: Vec<Settlement>,
        claim: &Claim,
    ) -> Result<u64, DatabaseError> {
        let settled = self.table.settle(claim.token.clone(), settlements).await?;
        self.tallies.settled(settled);
        Ok(settled.fenced)
    }

    async fn keep_renewing(&self, claim: &Claim) -> Infallible {
        loop {
            tokio::time::sleep(claim.lease / 3).await;
            if let Err(error) = self.table.renew(claim.token.clone(), claim.lease).await {
                self.tallies.database_error();
                tracing::warn!(worker = %self.worker, %error, "outbox: a claim was not renewed");
            }
        }
    }
}

/// An event that was given up needs somebody's attention.
fn report_dead(settlements: &[Settlement]) {
    for Settlement { seq, outcome } in settlements {
        if let Outcome::Dead { error } = outcome {
            tracing::error!(seq, error, "outbox: an event is dead; see Outbox::dead");
        }
    }
}
