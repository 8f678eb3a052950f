//! After the database of views has rejected what came of some events: halves of them are tried, until it
//! is known which one it was.

use super::database::DatabaseError;
use super::digest::{Digested, GivenUp};
use super::driver::{Driver, Step};
use super::error::ProjectionError;
use super::feed::Fed;

/// How many are taken at once. All that may be, unless something was rejected a moment ago.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Caution(Option<usize>);

impl Caution {
    /// So many at most, where otherwise so many would be.
    pub(crate) fn at_most(self, usual: usize) -> usize {
        self.0.map_or(usual, |few| few.min(usual))
    }

    /// One of these was rejected: half of them next. False if it was one alone.
    pub(crate) const fn halve(&mut self, taken: usize) -> bool {
        if taken <= 1 {
            return false;
        }
        self.0 = Some(taken / 2);
        true
    }

    /// All that were taken have gone: twice as many next, until it is the usual number.
    pub(crate) fn relax(&mut self, usual: usize) {
        self.0 = self.0.map(|few| few.saturating_mul(2)).filter(|few| *few < usual);
    }
}

impl Driver {
    /// A batch of a changelog. An event whose document the database does not take is a dead letter:
    /// it would stand in the way of all that comes after it.
    pub(super) async fn fold(&mut self, batch: Vec<Fed>) -> Result<Step, ProjectionError> {
        let is_event = |fed: &&Fed| matches!(fed, Fed::Event(..));
        let events = batch.iter().filter(is_event).count();
        let alone = if events == 1 { batch.clone() } else { Vec::new() };
        let digested = self.digest(batch).await?;
        let rejected = match self.commit(digested, None).await {
            Err(ProjectionError::Database(DatabaseError::Rejected(error))) => error,
            committed => {
                committed?;
                self.caution.relax(self.definition.batch.events);
                return Ok(Step::Moved);
            }
        };
        if self.caution.halve(events) {
            // Planned or not, it will not go as it was.
            self.forget_plan();
            self.rewind();
            return Ok(Step::Moved);
        }
        let mut digested = Digested::default();
        for fed in alone {
            digested.pass(&fed);
            if let Fed::Event(lane, stored) = fed {
                digested.given_up.push(GivenUp { lane, stored, error: rejected.clone() });
                digested.counts.events += 1;
            }
        }
        self.commit(digested, None).await?;
        self.caution.relax(self.definition.batch.events);
        Ok(Step::Moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tries that it takes to get past the events that are rejected, and which those are.
    fn sift(events: usize, bad: &[usize]) -> (Vec<usize>, usize) {
        let (mut caution, mut found) = (Caution::default(), Vec::new());
        let (mut at, mut tries) = (0, 0);
        while at < events {
            let taken = caution.at_most(100).min(events - at);
            tries += 1;
            if bad.iter().any(|bad| (at..at + taken).contains(bad)) {
                if caution.halve(taken) {
                    continue;
                }
                found.push(at);
            }
            at += taken;
            caution.relax(100);
        }
        (found, tries)
    }

    #[test]
    fn those_that_are_rejected_are_found_and_no_others() {
        assert_eq!(sift(1_000, &[]), (vec![], 10));
        for bad in [&[0][..], &[99], &[999], &[500, 501, 502], &[0, 99, 100, 731]] {
            let (found, tries) = sift(1_000, bad);
            assert_eq!(found, bad);
            assert!(tries < 10 + 20 * bad.len(), "{tries} tries for {bad:?}");
        }
    }
}
