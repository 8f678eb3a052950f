//! Which topics there are and where their partitions stand. Kept in memory, and written into the
//! log itself: whole at the start of each segment, and each change as it happens. So the newest
//! segment alone tells everything, and older ones can go.

use std::sync::Arc;

use promethean_event::{EventId, Offset, Partition, PartitionCount, Topic};

use crate::codec::{Fields, put_u32, put_u64};
use crate::error::AppendError;
use crate::hash::FastMap;
use crate::limits::LANES_MAX;
use crate::topic::{Cleaning, Compaction, Lane, TopicDefinition, TopicId};

/// All topics of a log.
#[derive(Debug, Clone, Default)]
pub(crate) struct Catalog {
    topics: Vec<TopicState>,
    by_name: Arc<Names>,
    /// Of topics that are there.
    lane_count: usize,
}

/// The numbers of topics and how they are divided: what it takes to encode events. Shared with
/// publishers, so that they need not stop the writer.
pub(crate) type Names = FastMap<Topic, (TopicId, PartitionCount)>;

/// One topic: what it is, and where its partitions stand.
#[derive(Debug, Clone)]
pub(crate) struct TopicState {
    pub(crate) definition: TopicDefinition,
    pub(crate) removed: bool,
    /// No id in the topic is greater: an id beyond it cannot be a duplicate.
    pub(crate) greatest_id: EventId,
    lanes: Vec<LaneState>,
}

/// Where a partition stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LaneState {
    /// The first offset that is kept; what was before it is gone.
    pub start: Offset,
    /// The offset that the next event will get.
    pub next: Offset,
}

/// One change of the catalog, as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CatalogEntry {
    Topic { id: TopicId, definition: TopicDefinition, greatest_id: EventId },
    Lane { lane: Lane, state: LaneState },
    Start { lane: Lane, start: Offset },
    Removed { id: TopicId },
}

impl Catalog {
    pub(crate) fn id(&self, topic: &Topic) -> Option<TopicId> {
        self.by_name.get(topic).map(|&(id, _)| id)
    }

    pub(crate) fn names(&self) -> Arc<Names> {
        Arc::clone(&self.by_name)
    }

    pub(crate) fn topic(&self, id: TopicId) -> Option<&TopicState> {
        self.topics.get(id.0 as usize)
    }

    /// A topic that is there and not removed.
    pub(crate) fn live(&self, id: TopicId) -> Option<&TopicState> {
        self.topic(id).filter(|topic| !topic.removed)
    }

    pub(crate) fn live_topics(&self) -> impl Iterator<Item = (TopicId, &TopicState)> {
        let numbered = self.topics.iter().enumerate();
        numbered.filter(|(_, topic)| !topic.removed).map(|(id, topic)| (TopicId(id as u32), topic))
    }

    pub(crate) fn lane(&self, lane: Lane) -> Option<LaneState> {
        self.live(lane.topic)?.lane(lane.partition)
    }

    /// Topics that are there.
    pub(crate) fn topic_count(&self) -> usize {
        self.by_name.len()
    }

    /// Whether a log of so many lanes takes no more topics of so many partitions.
    pub(crate) fn has_no_room(&self, partitions: PartitionCount) -> bool {
        self.lane_count + partitions.get() as usize > LANES_MAX
    }

    /// The number that a new topic gets. Numbers are never used again.
    pub(crate) fn next_id(&self) -> TopicId {
        TopicId(self.topics.len() as u32)
    }

    /// Takes note that `lane` now ends at `next`, its newest event having this id.
    pub(crate) fn advance(&mut self, lane: Lane, next: u64, id: EventId) {
        let Some(topic) = self.topics.get_mut(lane.topic.0 as usize) else {
            return;
        };
        topic.greatest_id = topic.greatest_id.max(id);
        if let Some(state) = topic.lanes.get_mut(lane.partition.get() as usize) {
            state.next = state.next.max(Offset::new(next));
        }
    }

    /// Whether a lane may go on at these places: not before where it is.
    pub(crate) fn leads_on(&self, lane: Lane, to: LaneState) -> Result<(), AppendError> {
        let known = self.lane(lane).ok_or_else(|| {
            AppendError::StorageFailed(format!("topic number {} is unknown", lane.topic.get()))
        })?;
        if to.next < known.next || to.start < known.start || to.next < to.start {
            let (expected, actual) = (to.next, known.next);
            return Err(AppendError::OffsetMismatch { lane, expected, actual });
        }
        Ok(())
    }

    /// Applies a written change. Entries of an unknown topic are left alone.
    pub(crate) fn apply(&mut self, entry: &CatalogEntry) {
        match entry {
            CatalogEntry::Topic { id, definition, greatest_id } => {
                self.put_topic(*id, definition, *greatest_id);
            }
            CatalogEntry::Lane { lane, state } => {
                if let Some(place) = self.lane_mut(*lane) {
                    *place = *state;
                }
            }
            CatalogEntry::Start { lane, start } => {
                if let Some(place) = self.lane_mut(*lane) {
                    place.start = place.start.max(*start);
                }
            }
            CatalogEntry::Removed { id } => {
                // Not twice: its name may be that of another one by now.
                let known = self.topics.get_mut(id.0 as usize).filter(|topic| !topic.removed);
                if let Some(topic) = known {
                    topic.removed = true;
                    self.lane_count -= std::mem::take(&mut topic.lanes).len();
                    Arc::make_mut(&mut self.by_name).remove(&topic.definition.topic);
                }
            }
        }
    }

    fn put_topic(&mut self, id: TopicId, definition: &TopicDefinition, greatest_id: EventId) {
        // Numbers are given in order; one that is skipped belongs to a topic that was removed so
        // long ago that nothing of it is written any more.
        while self.topics.len() < id.0 as usize {
            self.topics.push(TopicState::gone());
        }
        let named = (id, definition.partitions);
        Arc::make_mut(&mut self.by_name).insert(definition.topic.clone(), named);
        let lanes_of = |topic: &TopicState| topic.lanes.len();
        let before = self.topics.get(id.0 as usize).map_or(0, lanes_of);
        match self.topics.get_mut(id.0 as usize) {
            Some(known) => {
                known.definition = definition.clone();
                known.greatest_id = known.greatest_id.max(greatest_id);
                known.removed = false;
                known.grow_lanes();
            }
            None => {
                let mut topic = TopicState {
                    definition: definition.clone(),
                    removed: false,
                    greatest_id,
                    lanes: Vec::new(),
                };
                topic.grow_lanes();
                self.topics.push(topic);
            }
        }
        self.lane_count += self.topics.get(id.0 as usize).map_or(0, lanes_of) - before;
    }

    fn lane_mut(&mut self, lane: Lane) -> Option<&mut LaneState> {
        let topic = self.topics.get_mut(lane.topic.0 as usize)?;
        topic.lanes.get_mut(lane.partition.get() as usize)
    }

    /// Everything, as entries for the start of a segment.
    pub(crate) fn snapshot(&self) -> Vec<CatalogEntry> {
        let mut entries = Vec::new();
        for (index, topic) in self.topics.iter().enumerate() {
            let id = TopicId(index as u32);
            if topic.removed {
                continue;
            }
            entries.push(CatalogEntry::Topic {
                id,
                definition: topic.definition.clone(),
                greatest_id: topic.greatest_id,
            });
            for (partition, &state) in topic.lanes.iter().enumerate() {
                if state != LaneState::default() {
                    let lane = Lane { topic: id, partition: Partition::new(partition as u32) };
                    entries.push(CatalogEntry::Lane { lane, state });
                }
            }
        }
        // The highest number must survive even if its topic is gone.
        if let Some(last) = self.topics.last().filter(|last| last.removed) {
            let id = TopicId(self.topics.len() as u32 - 1);
            let definition = last.definition.clone();
            entries.push(CatalogEntry::Topic { id, definition, greatest_id: last.greatest_id });
            entries.push(CatalogEntry::Removed { id });
        }
        entries
    }
}

impl TopicState {
    fn gone() -> Self {
        let name = Topic::system("$gone").unwrap_or_else(|_| unreachable!("a good name"));
        Self {
            definition: TopicDefinition::new(name),
            removed: true,
            greatest_id: EventId::from_bytes([0; 16]),
            lanes: Vec::new(),
        }
    }

    fn grow_lanes(&mut self) {
        let count = self.definition.partitions.get() as usize;
        if self.lanes.len() < count {
            self.lanes.resize(count, LaneState::default());
        }
    }

    pub(crate) fn lane(&self, partition: Partition) -> Option<LaneState> {
        self.lanes.get(partition.get() as usize).copied()
    }
}

impl CatalogEntry {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Topic { id, definition, greatest_id } => {
                out.push(1);
                put_u32(out, id.0);
                out.push(definition.topic.as_str().len() as u8);
                out.extend_from_slice(definition.topic.as_str().as_bytes());
                put_u32(out, definition.partitions.get());
                out.extend_from_slice(greatest_id.as_bytes());
                put_cleaning(out, &definition.cleaning);
            }
            Self::Lane { lane, state } => {
                out.push(2);
                put_lane(out, *lane);
                put_u64(out, state.start.get());
                put_u64(out, state.next.get());
            }
            Self::Start { lane, start } => {
                out.push(3);
                put_lane(out, *lane);
                put_u64(out, start.get());
            }
            Self::Removed { id } => {
                out.push(4);
                put_u32(out, id.0);
            }
        }
    }

    /// The entries of a frame's body; `None` if they were not written by us.
    pub(crate) fn decode_all(body: &[u8]) -> Option<Vec<Self>> {
        let mut fields = Fields(body);
        let mut entries = Vec::new();
        while !fields.is_empty() {
            entries.push(Self::decode(&mut fields)?);
        }
        Some(entries)
    }

    fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        match fields.u8()? {
            1 => {
                let id = TopicId(fields.u32()?);
                let length = fields.u8()?;
                let name = std::str::from_utf8(fields.bytes(length as usize)?).ok()?;
                let topic = Topic::stored(name).ok()?;
                let partitions = PartitionCount::new(fields.u32()?).ok()?;
                let greatest_id = EventId::from_bytes(fields.array()?);
                let cleaning = take_cleaning(fields)?;
                let definition = TopicDefinition { topic, partitions, cleaning };
                Some(Self::Topic { id, definition, greatest_id })
            }
            2 => {
                let lane = take_lane(fields)?;
                let start = Offset::new(fields.u64()?);
                let next = Offset::new(fields.u64()?);
                Some(Self::Lane { lane, state: LaneState { start, next } })
            }
            3 => Some(Self::Start { lane: take_lane(fields)?, start: Offset::new(fields.u64()?) }),
            4 => Some(Self::Removed { id: TopicId(fields.u32()?) }),
            _ => None,
        }
    }
}

fn put_lane(out: &mut Vec<u8>, lane: Lane) {
    put_u32(out, lane.topic.0);
    put_u32(out, lane.partition.get());
}

fn take_lane(fields: &mut Fields<'_>) -> Option<Lane> {
    let topic = TopicId(fields.u32()?);
    Some(Lane { topic, partition: Partition::new(fields.u32()?) })
}

/// `u64::MAX` stands for "no limit".
fn put_cleaning(out: &mut Vec<u8>, cleaning: &Cleaning) {
    put_u64(out, cleaning.age_ms_max.unwrap_or(u64::MAX));
    put_u64(out, cleaning.bytes_max.unwrap_or(u64::MAX));
    match cleaning.compaction {
        None => out.push(0),
        Some(Compaction { age_ms_min, tombstone_ms }) => {
            out.push(1);
            put_u64(out, age_ms_min);
            put_u64(out, tombstone_ms);
        }
    }
}

fn take_cleaning(fields: &mut Fields<'_>) -> Option<Cleaning> {
    let limit = |value| (value != u64::MAX).then_some(value);
    let age_ms_max = limit(fields.u64()?);
    let bytes_max = limit(fields.u64()?);
    let compaction = match fields.u8()? {
        0 => None,
        1 => Some(Compaction { age_ms_min: fields.u64()?, tombstone_ms: fields.u64()? }),
        _ => return None,
    };
    Some(Cleaning { age_ms_max, bytes_max, compaction })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str, partitions: u32) -> TopicDefinition {
        TopicDefinition::new(Topic::new(name).unwrap())
            .with_partitions(PartitionCount::new(partitions).unwrap())
            .with_cleaning(Cleaning {
                age_ms_max: Some(5),
                bytes_max: None,
                compaction: Some(Compaction { age_ms_min: 1, tombstone_ms: 2 }),
            })
    }

    /// Its name may have been given to another topic, which was lost with it.
    #[test]
    fn a_topic_that_is_removed_twice_takes_no_other_with_it() {
        let mut catalog = Catalog::default();
        let greatest_id = EventId::generate();
        let define = |catalog: &mut Catalog, id| {
            let definition = topic("a", 3);
            catalog.apply(&CatalogEntry::Topic { id: TopicId(id), definition, greatest_id });
        };
        define(&mut catalog, 0);
        catalog.apply(&CatalogEntry::Removed { id: TopicId(0) });
        assert_eq!((catalog.topic_count(), catalog.lane_count), (0, 0));
        define(&mut catalog, 1);
        catalog.apply(&CatalogEntry::Removed { id: TopicId(0) });
        assert_eq!(catalog.id(&Topic::new("a").unwrap()), Some(TopicId(1)));
        assert_eq!((catalog.topic_count(), catalog.lane_count), (1, 3), "what is there counts");
        assert_eq!(catalog.next_id(), TopicId(2), "numbers are never used again");
        catalog.lane_count = LANES_MAX - 3;
        let has_no_room = |count| catalog.has_no_room(PartitionCount::new(count).unwrap());
        assert_eq!([has_no_room(3), has_no_room(4)], [false, true]);
    }

    #[test]
    fn a_snapshot_brings_everything_back() {
        let mut catalog = Catalog::default();
        let greatest_id = EventId::generate();
        for (number, name) in ["a", "b", "c"].iter().enumerate() {
            let id = TopicId(number as u32);
            let definition = topic(name, 2);
            catalog.apply(&CatalogEntry::Topic { id, definition, greatest_id });
        }
        let lane = Lane { topic: TopicId(1), partition: Partition::new(1) };
        catalog.advance(lane, 9, greatest_id);
        catalog.apply(&CatalogEntry::Start { lane, start: Offset::new(4) });
        catalog.apply(&CatalogEntry::Removed { id: TopicId(0) });
        catalog.apply(&CatalogEntry::Removed { id: TopicId(2) });

        let mut bytes = Vec::new();
        let snapshot = catalog.snapshot();
        snapshot.iter().for_each(|entry| entry.encode(&mut bytes));
        let decoded = CatalogEntry::decode_all(&bytes).unwrap();
        assert_eq!(decoded, snapshot);
        let mut again = Catalog::default();
        decoded.iter().for_each(|entry| again.apply(entry));

        assert_eq!(again.next_id(), TopicId(3), "numbers are never used again");
        assert_eq!(again.id(&Topic::new("a").unwrap()), None);
        assert_eq!(
            again.lane(lane),
            Some(LaneState { start: Offset::new(4), next: Offset::new(9) })
        );
        assert_eq!(again.live(TopicId(1)).unwrap().definition, topic("b", 2));
        assert_eq!(again.snapshot(), snapshot);
    }
}
