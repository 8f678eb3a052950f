//! The plainest log there is: a vector per partition. It predicts every answer of the real log,
//! and after a crash it says whether what is left could be right.
//!
//! Commits are kept in the order in which they were made. A crash may take the newest of them
//! away, back to the last one that was acknowledged as synced or served to a reader; never one
//! from the middle, and never a part of one. Events may go by the topic's cleaning rules only.

mod check;

mod cleaning;

mod seen;

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use promethean_event::EventId;
use promethean_log::TopicDefinition;

pub use seen::{Seen, SeenEvent, SeenGap, SeenLane, SeenLog, SeenReason};

use super::draft::Draft;
use super::violation::{Broken, Violation};

/// A partition of a topic, by the simulation's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneKey {
    /// The topic's number in the simulation.
    pub topic: usize,
    /// The partition.
    pub partition: u32,
}

/// How far an append had to travel before its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strength {
    /// Nothing is promised.
    None,
    /// Survives the process.
    Written,
    /// Survives power loss.
    Synced,
}

/// One publish.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Its events.
    pub drafts: Vec<Draft>,
    /// How durable it is to be.
    pub strength: Strength,
    /// What the next offsets of partitions have to be.
    pub expect: Vec<(LaneKey, u64)>,
}

/// Where an event is, or was found to be already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Its partition.
    pub lane: LaneKey,
    /// Its offset.
    pub offset: u64,
    /// Whether an earlier publish had put it there.
    pub duplicate: bool,
}

/// What the log has to answer to a publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Stored, each event at its place.
    Stored(Vec<Placed>),
    /// An id is taken by an event with other bytes.
    IdConflict,
    /// A partition's next offset is not the expected one.
    OffsetMismatch,
}

/// An event that the log has.
#[derive(Debug, Clone)]
pub struct StoredEvent {
    /// What was published.
    pub draft: Draft,
    /// Its `seq`, once seen.
    pub seq: Option<u64>,
    /// When it was appended, in ms, once seen.
    pub appended_ms: Option<u64>,
    /// Whether the cleaner has removed it.
    pub removed: bool,
    /// The commit it belongs to.
    entry: usize,
}

/// A topic and its partitions.
#[derive(Debug, Clone)]
pub struct ModelTopic {
    /// What was defined.
    pub definition: TopicDefinition,
    /// Whether the log knows it.
    pub defined: bool,
    lanes: Vec<Vec<StoredEvent>>,
    ids: HashMap<EventId, (u32, u64)>,
}

/// One commit.
#[derive(Debug, Clone)]
struct Entry {
    /// Where its events begin in `order`.
    begin: usize,
    strength: Strength,
    /// Whether its publisher was told that it is there.
    acked: bool,
    defines: Option<usize>,
}

/// The model.
#[derive(Debug, Clone, Default)]
pub struct Model {
    topics: Vec<ModelTopic>,
    entries: Vec<Entry>,
    /// Every event in commit order.
    order: Vec<(LaneKey, u64)>,
    /// Commits that every crash keeps.
    kept: usize,
    /// Commits that the death of the process has kept, until the next power cut.
    written: usize,
}

impl Model {
    /// An empty log whose topics will be these.
    pub fn new(definitions: Vec<TopicDefinition>) -> Self {
        let topics = definitions.into_iter().map(|definition| ModelTopic {
            lanes: vec![Vec::new(); definition.partitions.get() as usize],
            defined: false,
            ids: HashMap::new(),
            definition,
        });
        Self { topics: topics.collect(), ..Self::default() }
    }

    /// The topics.
    pub fn topics(&self) -> &[ModelTopic] {
        &self.topics
    }

    /// Every partition of every topic.
    pub fn lane_keys(&self) -> impl Iterator<Item = LaneKey> {
        self.topics.iter().enumerate().flat_map(|(topic, state)| {
            (0..state.definition.partitions.get())
                .map(move |partition| LaneKey { topic, partition })
        })
    }

    /// The events of a partition, offset by offset, removed ones too.
    pub fn lane(&self, key: LaneKey) -> &[StoredEvent] {
        &self.topics[key.topic].lanes[key.partition as usize]
    }

    /// The offset that the next event of a partition gets.
    pub fn next(&self, key: LaneKey) -> u64 {
        self.lane(key).len() as u64
    }

    /// Every event in commit order.
    pub fn order(&self) -> &[(LaneKey, u64)] {
        &self.order
    }

    /// Where the event with this id is, unless it was removed.
    pub fn find(&self, topic: usize, id: &EventId) -> Option<(LaneKey, u64)> {
        let (partition, offset) = *self.topics[topic].ids.get(id)?;
        Some((LaneKey { topic, partition }, offset))
    }

    /// How many commits a crash may take.
    pub fn loose(&self) -> usize {
        self.entries.len() - self.kept
    }

    /// What the log has to answer to `batch`, were it the next one.
    pub fn expect(&self, batch: &Batch) -> Outcome {
        if batch.expect.iter().any(|&(lane, next)| self.next(lane) != next) {
            return Outcome::OffsetMismatch;
        }
        let mut fresh: HashMap<(usize, EventId), (u64, Placed)> = HashMap::new();
        let mut nexts: HashMap<LaneKey, u64> = HashMap::new();
        let mut placed = Vec::with_capacity(batch.drafts.len());
        for draft in &batch.drafts {
            let lane = LaneKey { topic: draft.topic, partition: draft.partition.get() };
            let id = draft.event.id;
            let known = match fresh.get(&(draft.topic, id)) {
                Some(known) => Some(*known),
                None => self.find(draft.topic, &id).map(|(lane, offset)| {
                    let digest = self.lane(lane)[offset as usize].draft.digest;
                    (digest, Placed { lane, offset, duplicate: true })
                }),
            };
            match known {
                Some((digest, _)) if digest != draft.digest => return Outcome::IdConflict,
                Some((_, place)) => placed.push(Placed { duplicate: true, ..place }),
                None => {
                    let next = nexts.entry(lane).or_insert_with(|| self.next(lane));
                    let place = Placed { lane, offset: *next, duplicate: false };
                    *next += 1;
                    fresh.insert((draft.topic, id), (draft.digest, place));
                    placed.push(place);
                }
            }
        }
        Outcome::Stored(placed)
    }

    /// Adds what `expect` has placed as the next commit; `acked` if the publisher knows.
    pub fn commit(&mut self, batch: &Batch, placed: &[Placed], acked: bool) {
        let entry = self.entries.len();
        self.entries.push(Entry {
            begin: self.order.len(),
            strength: batch.strength,
            acked,
            defines: None,
        });
        for (draft, place) in batch.drafts.iter().zip(placed) {
            if place.duplicate {
                continue;
            }
            let topic = &mut self.topics[place.lane.topic];
            topic.ids.insert(draft.event.id, (place.lane.partition, place.offset));
            let lane = &mut topic.lanes[place.lane.partition as usize];
            assert_eq!(lane.len() as u64, place.offset, "the model gives offsets in order");
            let draft = draft.clone();
            lane.push(StoredEvent { draft, seq: None, appended_ms: None, removed: false, entry });
            self.order.push((place.lane, place.offset));
        }
    }

    /// Adds a topic's definition as the next commit.
    pub fn define(&mut self, topic: usize) {
        if self.topics[topic].defined {
            return;
        }
        self.topics[topic].defined = true;
        self.entries.push(Entry {
            begin: self.order.len(),
            strength: Strength::Synced,
            acked: false,
            defines: Some(topic),
        });
    }

    /// The newest commit was acknowledged as durable: it and all before it must stay.
    pub fn acknowledge(&mut self) {
        self.kept = self.entries.len();
    }

    /// These events were acknowledged as durable: they must stay, and all commits before them.
    pub fn acknowledge_places(&mut self, placed: &[Placed]) {
        for place in placed {
            let entry = self.lane(place.lane)[place.offset as usize].entry;
            self.kept = self.kept.max(entry + 1);
        }
    }

    /// The log's process has died: what was acknowledged as written must still be there.
    pub fn process_died(&mut self) {
        let safe = |entry: &Entry| entry.acked && entry.strength >= Strength::Written;
        self.written = self.entries.iter().rposition(safe).map_or(0, |last| last + 1);
    }

    /// The power went: only what was synced is sure.
    pub fn power_failed(&mut self) {
        self.written = 0;
    }

    /// A receipt named the `seq` of an event and, unless it is a duplicate, its append time.
    pub fn learn(&mut self, place: Placed, seq: u64, appended_ms: u64) -> Result<(), Violation> {
        let Placed { lane, offset, duplicate } = place;
        let event = &mut self.topics[lane.topic].lanes[lane.partition as usize][offset as usize];
        if event.seq.is_some_and(|before| before != seq) {
            let detail = format!("{lane:?} offset {offset} had seq {:?}, now {seq}", event.seq);
            return Violation::err(Broken::Changed, detail);
        }
        event.seq = Some(seq);
        if !duplicate {
            event.appended_ms = Some(appended_ms);
        }
        Ok(())
    }

    /// A reader was given this event: if its publisher asked for a sync, it must stay.
    pub fn served(&mut self, lane: LaneKey, offset: u64) {
        let entry = self.lane(lane)[offset as usize].entry;
        if self.entries[entry].strength == Strength::Synced {
            self.kept = self.kept.max(entry + 1);
        }
    }

    /// Takes the newest commit away.
    fn pop(&mut self) -> Option<usize> {
        let entry = self.entries.pop()?;
        if let Some(topic) = entry.defines {
            self.topics[topic].defined = false;
        }
        for (key, offset) in self.order.drain(entry.begin..).rev() {
            let topic = &mut self.topics[key.topic];
            let lane = &mut topic.lanes[key.partition as usize];
            let event = lane.pop().expect("every event of the order is in its lane");
            assert_eq!(lane.len() as u64, offset, "events go in the order they came, reversed");
            topic.ids.remove(&event.draft.event.id);
            // What it had superseded must be there again: look at every removal anew.
            for event in lane {
                event.removed = false;
            }
        }
        Some(self.entries.len())
    }
}
