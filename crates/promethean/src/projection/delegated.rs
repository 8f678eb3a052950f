//! Delegated projections: code that writes by itself, in a transaction of the store that also moves
//! the cursor. What that transaction is, the store knows; the rest goes as with every projection:
//! one hub at a time, in order, what fails for ever to the dead letters.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use promethean_event::{Failure, FailureVerdict};

use super::database::DatabaseError;
use super::definition::{Definition, DefinitionError, Draft, Kind};
use super::digest::{Digested, GivenUp, is_for_another};
use super::driver::{Driver, Step};
use super::error::ProjectionError;
use super::feed::Fed;
use super::limits::{DELEGATED_EVENTS, GRAVE_MS};
use super::view_store::{Batch, Counts};
use crate::store::Stored;

/// Runs code over events, in order, and commits what it wrote together with a batch, which has no
/// writes of its own: both or neither.
pub type Carry = Arc<
    dyn Fn(Batch, Vec<Stored>) -> BoxFuture<'static, Result<Carried, DatabaseError>> + Send + Sync,
>;

/// What came of it.
#[derive(Debug)]
pub enum Carried {
    /// Everything was committed.
    Committed,
    /// Nothing was, because of one event.
    Failed {
        /// Which, counted from 0.
        at: usize,
        /// Why, and what is to become of it.
        failure: Failure,
    },
}

/// A projection whose code writes where it likes.
#[derive(Debug, Clone)]
#[must_use = "a projection runs once it is started"]
pub struct Delegated {
    name: String,
    topics: Vec<String>,
    batch_events: usize,
}

impl Delegated {
    /// A projection without topics yet.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), topics: Vec::new(), batch_events: DELEGATED_EVENTS }
    }

    /// Reads a topic. Partitions have no order among each other.
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.topics.push(topic.into());
        self
    }

    /// Events that are committed together. Default: 100.
    pub const fn batch(mut self, events: usize) -> Self {
        self.batch_events = events;
        self
    }

    /// With what carries it out.
    pub fn carried(self, carry: Carry) -> DelegatedProjection {
        DelegatedProjection { projection: self, carry }
    }
}

/// A delegated projection, to be started.
#[must_use = "a projection runs once it is started"]
pub struct DelegatedProjection {
    projection: Delegated,
    carry: Carry,
}

impl DelegatedProjection {
    pub(crate) fn finish(self) -> Result<Definition, DefinitionError> {
        let Delegated { name, topics, batch_events } = self.projection;
        let draft = Draft {
            name,
            topics,
            views: Vec::new(),
            version: 1,
            grave_ms: GRAVE_MS,
            batch_events: Some(batch_events),
        };
        draft.finish(Kind::Delegated { carry: self.carry })
    }
}

impl fmt::Debug for DelegatedProjection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.projection.fmt(f)
    }
}

impl Driver {
    /// Hands events to code that commits them itself. If one of them fails, what came before it is
    /// done once more, without it; then it is alone, and goes the way that its failure says.
    pub(super) async fn delegate(
        &mut self,
        carry: &Carry,
        mut left: VecDeque<Fed>,
    ) -> Result<Step, ProjectionError> {
        let mut take = left.len();
        let failure = loop {
            match self.carry(carry, left.range(..take.min(left.len()))).await? {
                None => {
                    left.drain(..take.min(left.len()));
                    self.rest = left;
                    return Ok(Step::Moved);
                }
                Some((0, failure)) => break failure,
                Some((before, _)) => take = before,
            }
        };
        let delay = match failure.verdict() {
            FailureVerdict::RetryAfter(delay) => Some(delay),
            FailureVerdict::Retry => Some(Duration::ZERO),
            FailureVerdict::Park | FailureVerdict::Skip => None,
        };
        if let Some(delay) = delay {
            self.rest = left;
            return Ok(Step::Again(delay, failure.into_error()));
        }
        let mut digested = Digested::default();
        if let Some(fed) = left.pop_front() {
            digested.pass(&fed);
            if let (Fed::Event(lane, stored), FailureVerdict::Park) = (fed, failure.verdict()) {
                let error = failure.into_error();
                digested.given_up.push(GivenUp { lane, stored, error });
            }
            digested.counts.events = 1;
        }
        self.commit(digested, None).await?;
        self.rest = left;
        Ok(Step::Moved)
    }

    /// Nothing if all of it was committed; otherwise what failed, and how many came before it.
    async fn carry<'a>(
        &mut self,
        carry: &Carry,
        part: impl Iterator<Item = &'a Fed>,
    ) -> Result<Option<(usize, Failure)>, ProjectionError> {
        let (mut digested, mut events, mut places) = (Digested::default(), Vec::new(), Vec::new());
        for (place, fed) in part.enumerate() {
            digested.pass(fed);
            if let Fed::Event(_, stored) = fed
                && !is_for_another(stored, &self.definition.name)
            {
                events.push(Stored::clone(stored));
                places.push(place);
            }
        }
        let moves = self.moves(&digested.next, &digested.gaps);
        let counts = Counts { events: events.len() as u64, ..Counts::default() };
        let batch = Batch { cursors: moves.clone(), counts, ..self.empty_batch() };
        match carry(batch, events).await? {
            Carried::Committed => {
                self.moved(&moves, counts, None);
                Ok(None)
            }
            Carried::Failed { at, failure } => {
                Ok(Some((places.get(at).copied().unwrap_or(0), failure)))
            }
        }
    }
}
