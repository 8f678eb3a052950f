//! What led to an event, and what it led to.

use promethean_event::{EventId, Key, Offset, Partition, Timestamp, Topic};
use serde::Deserialize;

use crate::bus::Bus;
use crate::error::ReadError;
use crate::http::Ask;

/// How far a trace goes. By default in both directions, as far as the server goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TraceWish {
    /// In both directions.
    #[default]
    Both,
    /// Towards causes.
    Up,
    /// Towards effects.
    Down,
}

/// An event with what led to it and what it led to.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Trace {
    /// Where it began.
    pub id: EventId,
    /// Whether that is all there is.
    #[serde(rename = "complete")]
    pub is_complete: bool,
    /// All events, causes first.
    #[serde(rename = "events")]
    pub nodes: Vec<TraceNode>,
}

/// An event of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct TraceNode {
    /// Its id.
    pub id: EventId,
    /// How far from where the trace began: causes below 0, effects above.
    pub depth: i64,
    /// Its causes.
    pub causes: Vec<EventId>,
    /// Those of its effects that are in the trace.
    pub effects: Vec<EventId>,
    /// The event; `None` if it is not there any more, or not to be read.
    pub event: Option<TracedEvent>,
}

/// What a trace tells of an event.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct TracedEvent {
    /// Its topic.
    pub topic: Topic,
    /// The partition of it.
    pub partition: Partition,
    /// The place there.
    pub offset: Offset,
    /// Its key.
    pub key: Option<Key>,
    /// Its own time.
    pub ts: Timestamp,
    /// When the store took it.
    pub appended_at: Timestamp,
}

impl Bus {
    /// The causes of an event and its effects, of topics that may be read.
    pub async fn trace(&self, id: EventId, wish: TraceWish) -> Result<Trace, ReadError> {
        let direction = match wish {
            TraceWish::Both => None,
            TraceWish::Up => Some(("direction", "up")),
            TraceWish::Down => Some(("direction", "down")),
        };
        let query: Vec<_> = direction.into_iter().collect();
        self.inner.http.ask(Ask::get(&format!("/trace/{id}"), &query)).await
    }
}
