//! What a projection makes of a batch, before any of it is committed.

use std::collections::{BTreeMap, HashMap, VecDeque};

use promethean_event::{Failure, GroupName, NewEvent, Offset};

use super::feed::Fed;
use super::stamp::Write;
use super::view_store::Counts;
use crate::dead_letter::REPLAY_FOR;
use crate::store::{Gap, Lane, Stored};

/// An event that becomes a dead letter.
#[derive(Debug, Clone)]
pub(crate) struct GivenUp {
    pub(crate) lane: Lane,
    pub(crate) stored: Box<Stored>,
    pub(crate) error: String,
}

/// An event that another one gave rise to.
#[derive(Debug, Clone)]
pub(crate) struct Emitted {
    pub(crate) lane: Lane,
    /// Where the cause stands.
    pub(crate) offset: Offset,
    pub(crate) event: NewEvent,
}

/// What came of a batch.
#[derive(Debug, Default)]
pub(crate) struct Digested {
    /// By view; one write for each key.
    pub(crate) writes: Vec<BTreeMap<String, Write>>,
    /// Events to append, before anything is committed.
    pub(crate) emitted: Vec<Emitted>,
    pub(crate) given_up: Vec<GivenUp>,
    pub(crate) counts: Counts,
    /// Where the lanes are now.
    pub(crate) next: HashMap<Lane, Offset>,
    pub(crate) gaps: Vec<(Lane, Gap)>,
    /// In which order the lanes were passed: up to where, one after the other.
    pub(crate) order: Vec<(Lane, Offset)>,
    /// The latest append time.
    pub(crate) reached: u64,
    /// What was not worked on, because the first of it is to be tried again.
    pub(crate) rest: VecDeque<Fed>,
    pub(crate) retry: Option<Failure>,
}

impl Digested {
    /// Something has been passed.
    pub(crate) fn pass(&mut self, fed: &Fed) {
        self.next.insert(fed.lane(), fed.next());
        match self.order.last_mut() {
            Some((lane, next)) if *lane == fed.lane() => *next = fed.next(),
            _ => self.order.push((fed.lane(), fed.next())),
        }
        match fed {
            Fed::Event(_, stored) => {
                self.reached = self.reached.max(stored.appended_at.millis());
            }
            Fed::Passed(lane, gap) => self.gaps.push((*lane, *gap)),
        }
    }
}

/// Whether an event was published again for one group that is another one.
pub(crate) fn is_for_another(stored: &Stored, group: &GroupName) -> bool {
    let headers = &stored.event.headers;
    headers.get(REPLAY_FOR).is_some_and(|name| name != group.as_str())
}
