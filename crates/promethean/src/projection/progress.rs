//! How a projection stands, for those who look and for those who wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use promethean_event::Offset;

use super::view_store::Counts;
use crate::store::Lane;

/// What a projection does.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProjectionState {
    /// It waits for its topics to be there.
    Waiting,
    /// It follows the log.
    Running,
    /// Another hub keeps the views; this one takes over if that one goes.
    Elsewhere,
    /// Something failed that may go by itself: it is tried again.
    Retrying {
        /// What failed.
        error: String,
        /// How often by now.
        attempts: u32,
    },
    /// Its definition has changed: its views stay as they were until they are built anew.
    Rebuilding,
    /// It does not go on. The rest of the bus does.
    Failed {
        /// Why.
        error: String,
    },
    /// It was stopped.
    Stopped,
}

/// How a projection stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// What it does.
    pub state: ProjectionState,
    /// Where it goes on, by partition.
    pub cursors: HashMap<Lane, Offset>,
    /// What has been counted since its views were built.
    pub counts: Counts,
    /// Events that were gone before they were read; with any, build the views anew.
    pub missed: u64,
    /// What its documents follow: part of every validator.
    pub definition: String,
}

/// Offsets that cleaning leaves alone, because a projection has not read them.
#[derive(Debug, Default)]
pub(crate) struct Holds(Mutex<HoldTable>);

#[derive(Debug, Default)]
struct HoldTable {
    next: u64,
    held: HashMap<u64, HashMap<Lane, Offset>>,
}

/// One projection's part of the holds; ends with it.
#[derive(Debug)]
pub(crate) struct Hold {
    holds: Arc<Holds>,
    number: u64,
}

impl Holds {
    pub(crate) fn list(&self) -> Vec<(Lane, Offset)> {
        let table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.held.values().flatten().map(|(&lane, &offset)| (lane, offset)).collect()
    }

    pub(crate) fn hold(self: &Arc<Self>, cursors: HashMap<Lane, Offset>) -> Hold {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = table.next;
        table.next += 1;
        table.held.insert(number, cursors);
        Hold { holds: Arc::clone(self), number }
    }
}

impl Hold {
    pub(crate) fn advance(&self, lane: Lane, next: Offset) {
        let mut table = self.holds.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = table.held.get_mut(&self.number) {
            held.insert(lane, next);
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut table = self.holds.0.lock().unwrap_or_else(PoisonError::into_inner);
        table.held.remove(&self.number);
    }
}
