use std::collections::BTreeMap;

use promethean_event::Topic;

use crate::store::{Lane, Store, TopicEntry, TopicId, TopicTable, is_reserved};

/// The topics that are moved: all but those in which a store keeps its own state.
pub(super) fn topics(table: &TopicTable) -> impl Iterator<Item = &TopicEntry> {
    table.iter().filter(|entry| !is_reserved(&entry.definition.topic))
}

/// Which topic of the source is which of the target: their numbers differ.
#[derive(Debug, Clone, Default)]
pub(super) struct Places(BTreeMap<TopicId, TopicId>);

impl Places {
    /// By name; a topic that the target does not have is left out.
    pub(super) fn between(from: &dyn Store, to: &dyn Store) -> Self {
        let (from, to) = (from.topics(), to.topics());
        let there = |name: &Topic| to.get(name).map(|entry| entry.id);
        let pairs = topics(&from).filter_map(|e| Some((e.id, there(&e.definition.topic)?)));
        Self(pairs.collect())
    }

    pub(super) fn topic(&self, topic: TopicId) -> Option<TopicId> {
        self.0.get(&topic).copied()
    }

    pub(super) fn lane(&self, lane: Lane) -> Option<Lane> {
        Some(Lane { topic: self.topic(lane.topic)?, partition: lane.partition })
    }
}
