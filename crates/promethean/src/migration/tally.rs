//! What a store holds besides events, to be compared with another one.

use std::collections::{BTreeMap, BTreeSet};

use promethean_event::{GroupName, Topic, TopicDefinition};

use super::entries::Entries;
use super::error::MigrateError;
use super::places::topics;
use crate::store::{GroupRecord, LaneBounds, Store};

/// What a store holds.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) topics: BTreeMap<Topic, TopicTally>,
    pub(super) groups: BTreeMap<GroupName, GroupRecord>,
    pub(super) entries: Entries,
}

/// What a topic is, and where its lanes start and end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TopicTally {
    pub(super) definition: TopicDefinition,
    pub(super) lanes: Vec<LaneBounds>,
}

impl Tally {
    /// What is not the same in another one, in words.
    pub(super) fn differences(&self, target: &Self) -> Vec<String> {
        let mut found = Vec::new();
        for topic in names(self.topics.keys(), target.topics.keys()) {
            match (self.topics.get(topic), target.topics.get(topic)) {
                (Some(one), Some(other)) if one == other => {}
                (Some(one), Some(other)) => found.push(one.difference(other)),
                (Some(_), None) => found.push(format!("topic {topic} is missing")),
                _ => found.push(format!("topic {topic} is in the target only")),
            }
        }
        for group in names(self.groups.keys(), target.groups.keys()) {
            if self.groups.get(group) != target.groups.get(group) {
                found.push(format!("group {group} does not stand as it does in the source"));
            }
        }
        for place in names(self.entries.keys(), target.entries.keys()) {
            if self.entries.get(place) != target.entries.get(place) {
                let (space, key) = place;
                found.push(format!("entry {key} of `{space}` is another one"));
            }
        }
        found
    }
}

impl TopicTally {
    fn difference(&self, other: &Self) -> String {
        let topic = &self.definition.topic;
        let mut lanes = self.lanes.iter().zip(&other.lanes).enumerate();
        match lanes.find(|(_, (one, other))| one != other) {
            Some((at, (one, other))) => format!(
                "partition {at} of {topic} goes from {} to {} (source: from {} to {})",
                other.start, other.next, one.start, one.next
            ),
            None => format!("topic {topic} is defined in another way"),
        }
    }
}

fn names<'a, T: Ord + 'a>(
    one: impl Iterator<Item = &'a T>,
    other: impl Iterator<Item = &'a T>,
) -> BTreeSet<&'a T> {
    one.chain(other).collect()
}

/// What topics there are.
pub(super) async fn of_topics(
    store: &dyn Store,
) -> Result<BTreeMap<Topic, TopicTally>, MigrateError> {
    let mut found = BTreeMap::new();
    for entry in topics(&store.topics()) {
        let mut lanes = Vec::new();
        for lane in entry.lanes() {
            lanes.push(store.bounds(lane).await?);
        }
        let definition = entry.definition.clone();
        found.insert(definition.topic.clone(), TopicTally { definition, lanes });
    }
    Ok(found)
}
