//! Taking up what another store has kept: for moving from one to the other.

use std::fmt;

use futures_core::future::BoxFuture;
use promethean_event::{Event, NewEvent};

use super::error::{AppendError, ReadError};
use super::record::{LaneBounds, Stored};
use super::topics::Lane;

/// A store that takes up events with the places and append times that they have in another one. For
/// one who writes alone: nothing else is appended meanwhile.
pub trait Restore: fmt::Debug + Send + Sync {
    /// Takes up events, durably. In each lane offsets rise, and over all of them append times do; no
    /// lane has a later one already. What lies before the end of its lane is there, and passed over;
    /// offsets that are left out are told as compacted.
    fn restore(&self, events: Vec<(Lane, Stored)>) -> BoxFuture<'_, Result<(), AppendError>>;

    /// Says where lanes start and end, durably: not before where they do.
    fn place(&self, lanes: Vec<(Lane, LaneBounds)>) -> BoxFuture<'_, Result<(), AppendError>>;

    /// The spaces in which there are entries.
    fn spaces(&self) -> BoxFuture<'_, Result<Vec<String>, ReadError>>;
}

/// The event without its place.
pub fn unplaced(event: Event) -> NewEvent {
    let Event { id, sid, ts, topic, key, headers, payload, caused_by, tags, .. } = event;
    NewEvent { id, sid, ts, topic, key, headers, payload, caused_by, tags }
}
