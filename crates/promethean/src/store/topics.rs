use std::collections::{BTreeMap, HashMap};

use promethean_delivery::LaneId;
use promethean_event::{Partition, Pattern, Topic, TopicDefinition};

/// A topic's number in one store. Never given twice, also not after the topic was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(u32);

impl TopicId {
    /// The topic with this number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// One partition of one topic: the unit of order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane {
    /// The topic.
    pub topic: TopicId,
    /// The partition of it.
    pub partition: Partition,
}

impl Lane {
    /// What delivery calls the lane: the same for as long as the store lives.
    pub const fn id(self) -> LaneId {
        LaneId::new((self.topic.0 as u64) << 32 | self.partition.get() as u64)
    }

    /// The lane that delivery calls so.
    pub const fn of(id: LaneId) -> Self {
        let number = id.get();
        Self { topic: TopicId((number >> 32) as u32), partition: Partition::new(number as u32) }
    }
}

/// A topic with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicEntry {
    /// Its number.
    pub id: TopicId,
    /// What it is.
    pub definition: TopicDefinition,
}

impl TopicEntry {
    /// Its partitions.
    pub fn lanes(&self) -> impl Iterator<Item = Lane> + use<> {
        let topic = self.id;
        self.definition.partitions.partitions().map(move |partition| Lane { topic, partition })
    }
}

/// All topics of a store at one moment.
#[derive(Debug, Clone, Default)]
pub struct TopicTable {
    by_name: BTreeMap<Topic, TopicEntry>,
    names: HashMap<TopicId, Topic>,
}

impl TopicTable {
    /// The topic of this name.
    pub fn get(&self, topic: &Topic) -> Option<&TopicEntry> {
        self.by_name.get(topic)
    }

    /// The topic of this number.
    pub fn by_id(&self, id: TopicId) -> Option<&TopicEntry> {
        self.by_name.get(self.names.get(&id)?)
    }

    /// The users' topics that a pattern matches, by name; the system's never match.
    pub fn matching(&self, pattern: &Pattern) -> impl Iterator<Item = &TopicEntry> {
        self.users().filter(move |entry| pattern.matches(&entry.definition.topic))
    }

    /// The users' topics, by name.
    pub fn users(&self) -> impl Iterator<Item = &TopicEntry> {
        self.by_name.values().filter(|entry| !entry.definition.topic.is_system())
    }

    /// Takes a topic up, or its new definition.
    pub(crate) fn insert(&mut self, entry: TopicEntry) {
        self.names.insert(entry.id, entry.definition.topic.clone());
        self.by_name.insert(entry.definition.topic.clone(), entry);
    }

    /// Lets a topic go. Its name may belong to another one by now, which stays.
    pub(crate) fn remove(&mut self, id: TopicId) {
        if let Some(name) = self.names.remove(&id)
            && self.by_name.get(&name).is_some_and(|entry| entry.id == id)
        {
            self.by_name.remove(&name);
        }
    }

    /// All of them, the system's too.
    pub fn iter(&self) -> impl Iterator<Item = &TopicEntry> {
        self.by_name.values()
    }
}

impl FromIterator<TopicEntry> for TopicTable {
    fn from_iter<I: IntoIterator<Item = TopicEntry>>(entries: I) -> Self {
        let mut table = Self::default();
        entries.into_iter().for_each(|entry| table.insert(entry));
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_has_one_number_and_the_number_one_lane() {
        for (topic, partition) in [(0, 0), (7, 3), (u32::MAX, 65_535)] {
            let lane = Lane { topic: TopicId(topic), partition: Partition::new(partition) };
            assert_eq!(Lane::of(lane.id()), lane);
        }
    }

    #[test]
    fn patterns_never_match_the_systems_topics() {
        let entry =
            |id, topic| TopicEntry { id: TopicId(id), definition: TopicDefinition::new(topic) };
        let table = TopicTable::from_iter([
            entry(0, Topic::system("$groups").unwrap()),
            entry(1, Topic::new("a.b").unwrap()),
        ]);
        let all = Pattern::new("**").unwrap();
        let names: Vec<_> = table.matching(&all).map(|entry| entry.id.get()).collect();
        assert_eq!(names, [1]);
        assert_eq!(table.iter().count(), 2);
        assert_eq!(table.by_id(TopicId(1)), table.get(&Topic::new("a.b").unwrap()));
    }
}
