//! What a snapshot has kept of a key that its topic has lost.

use promethean_event::{Key, Offset, Timestamp, Topic};

use super::{SOURCE_OFFSET, reaches, snapshot_topic, source_offset};
use crate::as_of::Moment;
use crate::bus::Bus;
use crate::store::{ReadError, Stored, TopicEntry};

/// States of a key that are looked through. A snapshot is compacted: mostly there is one.
const STATES_MAX: usize = 1_000;

/// Up to where states are looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Before {
    /// Behind the last offset of the topic that counts.
    pub(crate) end: Offset,
    /// Where the moment may lie before all that the topic has: its time. When the topic took what is
    /// gone is not known; that the snapshot had it by then is.
    pub(crate) by: Option<Timestamp>,
}

impl Before {
    /// A moment of a partition that begins at `start`.
    pub(crate) fn new(moment: Moment, end: Offset, start: Offset) -> Self {
        let by = match moment {
            Moment::Appended(time) if end <= start => Some(time),
            _ => None,
        };
        Self { end, by }
    }

    /// The offset of the topic that a state comes from, if it counts.
    pub(crate) fn source_of(&self, stored: &Stored) -> Option<Offset> {
        let is_known = self.by.is_none_or(|time| stored.appended_at <= time);
        source_offset(&stored.event).filter(|offset| is_known && *offset < self.end)
    }
}

/// A state of a key that was kept.
#[derive(Debug)]
pub(crate) struct Kept {
    /// The event of the snapshot.
    pub(crate) stored: Stored,
    /// The same as it was in the topic.
    pub(crate) source: Stored,
    /// Whether nothing of the key can have come between it and the moment.
    pub(crate) is_complete: bool,
}

/// The nearest state of a key before a moment. It is complete if it is the newest that
/// the snapshot has, and the snapshot reaches as far as is `needed`: what is behind is in the topic.
pub(crate) async fn kept_before(
    bus: &Bus,
    source: &TopicEntry,
    key: &Key,
    (before, needed): (Before, Offset),
) -> Result<Option<Kept>, ReadError> {
    let topics = bus.topics();
    let name = snapshot_topic(&source.definition.topic).ok();
    let Some(snapshot) = name.and_then(|name| topics.get(&name)) else {
        return Ok(None);
    };
    let states = bus.store().history(snapshot.id, key.clone(), STATES_MAX).await?;
    for (place, stored) in states.into_iter().enumerate() {
        let Some(offset) = before.source_of(&stored) else {
            continue;
        };
        let reach = reaches(bus, source).await?.get(&stored.event.partition).copied();
        // A snapshot of another topic of this name says nothing about this one.
        let Some(reach) = reach else {
            return Ok(None);
        };
        let is_complete = place == 0 && reach >= needed;
        let dressed = as_in_source(&stored, &source.definition.topic, offset);
        return Ok(Some(Kept { stored, source: dressed, is_complete }));
    }
    Ok(None)
}

/// An event of a snapshot as it was in the topic, as far as the snapshot knows.
pub(crate) fn as_in_source(stored: &Stored, topic: &Topic, offset: Offset) -> Stored {
    let mut source = stored.clone();
    source.event.topic = topic.clone();
    source.event.offset = offset;
    source.event.headers.remove(SOURCE_OFFSET);
    if let Some(&id) = stored.event.caused_by.first() {
        source.event.id = id;
    }
    source.event.caused_by = Vec::new();
    source
}
