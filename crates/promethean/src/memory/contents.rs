use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use promethean_event::limits::{BATCH_BYTES_MAX, BATCH_EVENTS_MAX};
use promethean_event::{EventId, Key, NewEvent, Offset, Partition, Timestamp, Topic};

use super::claims::Held;
use super::entries::Entries;
use super::groups::Groups;
use super::growth::Recent;
use super::lane::LaneEvents;
use crate::store::{
    Append, AppendError, Appended, Growth, KeyPage, KeyQuery, Lane, ReadError, Receipt, SaveError,
    Stored, TopicDefinition, TopicEntry, TopicId, TopicTable, is_reserved,
};

/// Everything that a store keeps.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) table: Arc<TopicTable>,
    pub(super) topics: BTreeMap<TopicId, TopicEvents>,
    pub(super) groups: Groups,
    pub(super) entries: Entries,
    /// Several hubs use it.
    pub(super) is_shared: bool,
    pub(super) held: Held,
    pub(super) recent: Recent,
    pub(super) closed: bool,
    next_topic: u32,
    pub(super) last_append: Timestamp,
}

/// The events of a topic.
#[derive(Debug)]
pub(super) struct TopicEvents {
    pub(super) definition: TopicDefinition,
    pub(super) lanes: Vec<LaneEvents>,
    pub(super) ids: HashMap<EventId, (Partition, Offset)>,
}

impl Contents {
    pub(super) fn refuse_if_closed(&self) -> Result<(), AppendError> {
        if self.closed { Err(AppendError::Closed) } else { Ok(()) }
    }

    pub(super) fn topic(&self, topic: TopicId) -> Result<&TopicEvents, ReadError> {
        self.topics.get(&topic).ok_or(ReadError::UnknownLane)
    }

    pub(super) fn lane(&self, lane: Lane) -> Result<&LaneEvents, ReadError> {
        self.topic(lane.topic)?.lane(lane.partition).ok_or(ReadError::UnknownLane)
    }

    pub(super) fn define(&mut self, definition: TopicDefinition) -> Result<TopicId, SaveError> {
        self.refuse_if_closed()?;
        if is_reserved(&definition.topic) {
            return Err(AppendError::UnknownTopic(definition.topic).into());
        }
        let known = self.table.get(&definition.topic).cloned();
        let id = match known {
            Some(known) if known.definition == definition => return Ok(known.id),
            Some(known) if known.definition.partitions != definition.partitions => {
                return Err(SaveError::PartitionsFixed {
                    topic: definition.topic,
                    has: known.definition.partitions.get(),
                    wanted: definition.partitions.get(),
                });
            }
            Some(known) => {
                if let Some(topic) = self.topics.get_mut(&known.id) {
                    topic.definition = definition.clone();
                }
                known.id
            }
            None => {
                let id = TopicId::new(self.next_topic);
                self.next_topic += 1;
                self.topics.insert(id, TopicEvents::new(definition.clone()));
                id
            }
        };
        Arc::make_mut(&mut self.table).insert(TopicEntry { id, definition });
        self.recent.note_topics();
        Ok(id)
    }

    pub(super) fn remove(&mut self, topic: TopicId) -> Result<(), SaveError> {
        self.refuse_if_closed()?;
        if self.topics.remove(&topic).is_some() {
            Arc::make_mut(&mut self.table).remove(topic);
            self.recent.note_topics();
        }
        Ok(())
    }

    pub(super) fn append(
        &mut self,
        append: Append,
        now: Timestamp,
    ) -> Result<Appended, AppendError> {
        self.refuse_if_closed()?;
        if append.events.is_empty() {
            return Err(AppendError::Empty);
        }
        let bytes: usize = append.events.iter().map(size).sum();
        if append.events.len() > BATCH_EVENTS_MAX || bytes > BATCH_BYTES_MAX {
            return Err(AppendError::TooLarge { events: append.events.len(), bytes });
        }
        // Before anything else is looked at, as in every store: a retry with a condition is refused.
        for event in &append.events {
            self.id_of(&event.topic)?;
        }
        for expectation in &append.expect {
            let (lane, expected) = (expectation.lane, expectation.next);
            let known = self.lane(lane).map_err(|_| AppendError::UnknownLane(lane))?;
            let actual = Offset::new(known.next);
            if actual != expected {
                return Err(AppendError::OffsetMismatch { lane, expected, actual });
            }
        }
        let receipts = self.place_all(append.events, now)?.into();
        let appended_at = self.last_append;
        Ok(Appended { receipts, appended_at, durability: append.durability })
    }

    /// Gives events their places; all of them or none.
    pub(super) fn place_all(
        &mut self,
        events: Vec<NewEvent>,
        now: Timestamp,
    ) -> Result<Vec<Receipt>, AppendError> {
        // Append times never go back, whatever the clock does.
        self.last_append = self.last_append.max(now);
        let mut receipts = Vec::with_capacity(events.len());
        for event in events {
            match self.place(event) {
                Ok(receipt) => receipts.push(receipt),
                Err(error) => {
                    self.undo(&receipts);
                    return Err(error);
                }
            }
        }
        let fresh = receipts.iter().filter(|receipt| !receipt.duplicate);
        self.recent.note_lanes(fresh.map(|receipt| receipt.lane));
        Ok(receipts)
    }

    fn id_of(&self, name: &Topic) -> Result<TopicId, AppendError> {
        let known = self.table.get(name).map(|entry| entry.id);
        known.ok_or_else(|| AppendError::UnknownTopic(name.clone()))
    }

    fn place(&mut self, event: NewEvent) -> Result<Receipt, AppendError> {
        let appended_at = self.last_append;
        let id = self.id_of(&event.topic)?;
        let unknown = || AppendError::UnknownTopic(event.topic.clone());
        let topic = self.topics.get_mut(&id).ok_or_else(unknown)?;
        if let Some(&(partition, offset)) = topic.ids.get(&event.id) {
            if topic.find(&event.id).is_none_or(|first| !same_content(first, &event)) {
                return Err(AppendError::IdConflict { topic: event.topic, id: event.id });
            }
            return Ok(Receipt { lane: Lane { topic: id, partition }, offset, duplicate: true });
        }
        let partition = topic.definition.partitions.partition_of(event.key.as_ref(), &event.id);
        let lane = topic.lanes.get_mut(partition.get() as usize).ok_or_else(unknown)?;
        let offset = Offset::new(lane.next);
        let (event_id, bytes) = (event.id, size(&event) as u32);
        let event = event.placed(partition, offset);
        lane.push(Stored { event, appended_at, bytes });
        topic.ids.insert(event_id, (partition, offset));
        Ok(Receipt { lane: Lane { topic: id, partition }, offset, duplicate: false })
    }

    /// Takes back what a refused batch was given.
    fn undo(&mut self, receipts: &[Receipt]) {
        for receipt in receipts.iter().rev().filter(|receipt| !receipt.duplicate) {
            let Some(topic) = self.topics.get_mut(&receipt.lane.topic) else { continue };
            let partition = receipt.lane.partition.get() as usize;
            if let Some(stored) = topic.lanes.get_mut(partition).and_then(LaneEvents::pop) {
                topic.ids.remove(&stored.event.id);
            }
        }
    }

    pub(super) fn growth_since(&self, mark: u64) -> Option<Growth> {
        let mut growth = self.recent.since(mark, self.closed)?;
        if let Some(lanes) = &mut growth.lanes {
            for (lane, end) in lanes.iter_mut() {
                *end = self.lane(*lane).map_or(Offset::ZERO, |events| Offset::new(events.next));
            }
            lanes.retain(|(lane, _)| self.lane(*lane).is_ok());
        }
        Some(growth)
    }
}

impl TopicEvents {
    fn new(definition: TopicDefinition) -> Self {
        let lanes = definition.partitions.partitions().map(|_| LaneEvents::default()).collect();
        Self { definition, lanes, ids: HashMap::new() }
    }

    fn lane(&self, partition: Partition) -> Option<&LaneEvents> {
        self.lanes.get(partition.get() as usize)
    }

    pub(super) fn find(&self, id: &EventId) -> Option<&Stored> {
        let (partition, offset) = self.ids.get(id)?;
        self.lane(*partition)?.get(*offset)
    }

    /// The events of a key, newest first. A key is in one partition.
    pub(super) fn history<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = &'a Stored> {
        let newest_first = self.lanes.iter().flat_map(|lane| lane.events.values().rev());
        newest_first.filter(move |stored| stored.event.key.as_ref() == Some(key))
    }

    pub(super) fn keys(&self, query: &KeyQuery) -> KeyPage {
        let mut newest: BTreeMap<&Key, &Stored> = BTreeMap::new();
        for stored in self.lanes.iter().flat_map(|lane| lane.events.values()) {
            let wanted = |key: &&Key| {
                key.as_str().starts_with(&query.prefix)
                    && query.after.as_ref().is_none_or(|after| *key > after)
            };
            if let Some(key) = stored.event.key.as_ref().filter(wanted) {
                newest.insert(key, stored);
            }
        }
        let max = query.max.max(1);
        let more = newest.len() > max;
        KeyPage { events: newest.into_values().take(max).cloned().collect(), more }
    }
}

/// Whether it is the same event: all but the event time, which a publisher that tries again may
/// have taken anew.
fn same_content(first: &Stored, again: &NewEvent) -> bool {
    let event = &first.event;
    (&event.sid, &event.key, &event.headers) == (&again.sid, &again.key, &again.headers)
        && event.payload == again.payload
        && (&event.caused_by, &event.tags) == (&again.caused_by, &again.tags)
}

/// Bytes of an event in a log, about.
fn size(event: &NewEvent) -> usize {
    const FIXED_BYTES: usize = 70;
    let headers: usize = event.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    FIXED_BYTES
        + event.key.as_ref().map_or(0, |key| key.as_str().len())
        + headers
        + event.caused_by.len() * 16
        + event.payload.as_bytes().len()
}
