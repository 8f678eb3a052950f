//! All that is in a store, counted and summed up, to be compared with another one.

use std::collections::{BTreeMap, BTreeSet};

use promethean_event::{Event, GroupName, Topic, TopicDefinition};
use xxhash_rust::xxh3::Xxh3;

use super::entries::Entries;
use super::error::MigrateError;
use super::places::topics;
use crate::store::{GroupRecord, Lane, LaneBounds, PageLimit, Read, Store, Stored};

/// What a store holds.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) topics: BTreeMap<Topic, TopicTally>,
    pub(super) groups: BTreeMap<GroupName, GroupRecord>,
    pub(super) entries: Entries,
}

/// What a topic holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TopicTally {
    pub(super) definition: TopicDefinition,
    pub(super) lanes: Vec<LaneTally>,
}

/// What a lane holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LaneTally {
    pub(super) bounds: LaneBounds,
    pub(super) events: u64,
    /// Over all events, with their places and times.
    pub(super) hash: u128,
}

impl Tally {
    pub(super) fn events(&self) -> u64 {
        self.topics.values().flat_map(|topic| &topic.lanes).map(|lane| lane.events).sum()
    }

    /// One number for all events.
    pub(super) fn hash(&self) -> u128 {
        let mut hasher = Xxh3::new();
        for (topic, tally) in &self.topics {
            text(&mut hasher, topic.as_str());
            tally.lanes.iter().for_each(|lane| hasher.update(&lane.hash.to_be_bytes()));
        }
        hasher.digest128()
    }

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
        let lanes = self.lanes.iter().zip(&other.lanes);
        let partition = lanes.clone().position(|(one, other)| one != other);
        match partition.and_then(|at| Some((at, lanes.clone().nth(at)?))) {
            Some((at, (one, other))) => format!(
                "partition {at} of {topic} has {} events from {} to {} (source: {} from {} to {})",
                other.events,
                other.bounds.start,
                other.bounds.next,
                one.events,
                one.bounds.start,
                one.bounds.next
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

/// Reads all topics.
pub(super) async fn of_topics(
    store: &dyn Store,
) -> Result<BTreeMap<Topic, TopicTally>, MigrateError> {
    let mut found = BTreeMap::new();
    for entry in topics(&store.topics()) {
        let mut lanes = Vec::new();
        for lane in entry.lanes() {
            lanes.push(of_lane(store, lane).await?);
        }
        let definition = entry.definition.clone();
        found.insert(definition.topic.clone(), TopicTally { definition, lanes });
    }
    Ok(found)
}

async fn of_lane(store: &dyn Store, lane: Lane) -> Result<LaneTally, MigrateError> {
    let bounds = store.bounds(lane).await?;
    let (mut events, mut hasher, mut from) = (0, Xxh3::new(), bounds.start);
    while from < bounds.next {
        let page = store.read(Read::From { lane, from, limit: PageLimit::default() }).await?;
        for stored in &page.events {
            event(&mut hasher, stored);
            events += 1;
        }
        from = page.next;
    }
    Ok(LaneTally { bounds, events, hash: hasher.digest128() })
}

/// Everything of an event: each part with its length, so that none can pass for another.
fn event(hasher: &mut Xxh3, stored: &Stored) {
    let Event { id, sid, ts, topic: _, key, partition: _, offset, headers, .. } = &stored.event;
    let Event { payload, caused_by, tags, .. } = &stored.event;
    number(hasher, offset.get());
    number(hasher, stored.appended_at.millis());
    hasher.update(id.as_bytes());
    text(hasher, &sid.map(|sid| sid.to_string()).unwrap_or_default());
    number(hasher, ts.millis());
    // A key has one byte at least: nothing is no key.
    text(hasher, key.as_ref().map_or("", |key| key.as_str()));
    number(hasher, headers.iter().count() as u64);
    for (name, value) in headers.iter() {
        text(hasher, name);
        text(hasher, value);
    }
    text(hasher, payload.as_str());
    number(hasher, caused_by.len() as u64);
    caused_by.iter().for_each(|cause| hasher.update(cause.as_bytes()));
    number(hasher, tags.len() as u64);
    tags.iter().for_each(|tag| text(hasher, tag.as_str()));
}

fn number(hasher: &mut Xxh3, number: u64) {
    hasher.update(&number.to_be_bytes());
}

fn text(hasher: &mut Xxh3, text: &str) {
    number(hasher, text.len() as u64);
    hasher.update(text.as_bytes());
}
