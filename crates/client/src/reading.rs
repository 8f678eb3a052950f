//! Looking at events without a group: replay, look-ups, keys.

use std::collections::{BTreeMap, VecDeque};

use promethean_event::{
    Event, EventId, Key, Offset, Partition, Pattern, Replay, Start, Timestamp, Topic,
    TopicDefinition,
};
use serde::Deserialize;
use serde_json::json;

use crate::bus::Bus;
use crate::code::Code;
use crate::error::{GroupError, ReadError};
use crate::http::{Ask, segment};
use crate::machine::Gap;

/// One step of a replay.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Replayed {
    /// An event.
    Event(Box<Event>),
    /// What is not there any more, and why.
    Missing(Gap),
}

/// Stored events: by topic, partition and offset.
#[derive(Debug)]
pub struct Replaying {
    bus: Bus,
    topics: VecDeque<Pattern>,
    from: Option<Timestamp>,
    until: Option<Timestamp>,
    after: Option<String>,
    here: VecDeque<Replayed>,
}

#[derive(Deserialize)]
struct Pages {
    events: Vec<Event>,
    gaps: Vec<Gap>,
    next: Option<String>,
}

/// Events of a partition, in order.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Page {
    /// The events.
    pub events: Vec<Event>,
    /// What is not there any more.
    pub gaps: Vec<Gap>,
    /// Where to go on.
    pub next: Offset,
}

/// Keys of a topic, in order.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct KeyPage {
    /// The newest events, tombstones included, by key.
    pub events: Vec<Event>,
    /// Whether there may be more.
    pub more: bool,
}

#[derive(Deserialize)]
struct Found {
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Latest {
    events: BTreeMap<String, Option<Event>>,
    /// Keys to ask for again: the answer was full before them.
    #[serde(default)]
    left: Vec<Key>,
}

impl Bus {
    /// Reads what has been, over any number of topics, without any group.
    pub async fn replay(&self, replay: Replay) -> Result<Replaying, GroupError> {
        let from = match replay.from {
            Start::Earliest => None,
            Start::At(time) => Some(time),
            // Nothing of what is there.
            Start::Latest => Some(self.inner.clock.now()),
            // Its own time is that of its publisher: the server knows when it came.
            Start::AfterId(_) => {
                let text = "a replay begins at the beginning, at a time, or now; \
                            follow with `tail` to begin after an event";
                return Err(GroupError::Settings(text.to_owned()));
            }
        };
        let (topics, until) = (replay.topics.into(), replay.until);
        let here = VecDeque::new();
        Ok(Replaying { bus: self.clone(), topics, from, until, after: None, here })
    }

    /// The event with an id.
    pub async fn find(&self, topic: &Topic, id: EventId) -> Result<Option<Event>, ReadError> {
        let ask = Ask::get(&format!("/event/{id}"), &[("topic", topic.as_str())]);
        match self.inner.http.ask::<Found>(ask).await {
            Ok(found) => Ok(found.events.into_iter().next()),
            Err(GroupError::Refused(refusal)) if refusal.code == Code::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The newest event of each key, in the order given; `None` for a key that is gone or never
    /// was.
    pub async fn latest_by_key(
        &self,
        topic: &Topic,
        keys: Vec<Key>,
    ) -> Result<Vec<Option<Event>>, ReadError> {
        let mut found = BTreeMap::new();
        let mut left = keys.clone();
        loop {
            let mut query = vec![("topic", topic.as_str())];
            query.extend(left.iter().map(|key| ("key", key.as_str())));
            let page: Latest = self.inner.http.ask(Ask::get("/latest-by-key", &query)).await?;
            found.extend(page.events);
            // Each answer has one at least.
            if page.left.is_empty() || page.left.len() >= left.len() {
                break;
            }
            left = page.left;
        }
        Ok(keys.iter().map(|key| found.remove(key.as_str()).flatten()).collect())
    }

    /// Events of a partition from an offset on, so many at most.
    pub async fn read(
        &self,
        topic: &Topic,
        partition: Partition,
        from: Offset,
        max: usize,
    ) -> Result<Page, ReadError> {
        let place = format!("{topic}/{partition}/{from}");
        let (partition, limit) = (partition.to_string(), limit(max));
        let query = [("partition", &*partition), ("after", &*place), ("limit", &*limit)];
        let path = format!("/events/{}", segment(topic.as_str()));
        let found: Pages = self.inner.http.ask(Ask::get(&path, &query)).await?;
        let passed = found.events.iter().map(|event| event.offset.next());
        let next = passed.chain(found.gaps.iter().map(|gap| gap.to)).fold(from, Offset::max);
        Ok(Page { events: found.events, gaps: found.gaps, next })
    }

    /// Keys in order, each with its newest event, tombstones included; all of them, page by page.
    pub async fn keys(
        &self,
        topic: &Topic,
        prefix: &str,
        after: Option<Key>,
        max: usize,
    ) -> Result<KeyPage, ReadError> {
        let limit = limit(max);
        let mut query = vec![("prefix", prefix), ("limit", &*limit)];
        query.extend(after.as_ref().map(|key| ("after", key.as_str())));
        let path = format!("/keys/{}", segment(topic.as_str()));
        self.inner.http.ask(Ask::get(&path, &query)).await
    }

    /// The newest events of a key, newest first; about 8 MiB at most, so that large ones may be
    /// fewer than `max`.
    pub async fn history(
        &self,
        topic: &Topic,
        key: Key,
        max: usize,
    ) -> Result<Vec<Event>, ReadError> {
        let limit = limit(max);
        let query = [("key", key.as_str()), ("limit", &*limit)];
        let path = format!("/history/{}", segment(topic.as_str()));
        Ok(self.inner.http.ask::<Found>(Ask::get(&path, &query)).await?.events)
    }

    /// Defines a topic, or changes how it is cleaned. The same definition again changes nothing.
    pub async fn define(&self, definition: TopicDefinition) -> Result<(), GroupError> {
        let cleaning = &definition.cleaning;
        let kept = cleaning.compaction.map(
            |kept| json!({ "age_ms_min": kept.age_ms_min, "tombstone_ms": kept.tombstone_ms }),
        );
        let rules = json!({
            "partitions": definition.partitions.get(),
            "retention_ms": cleaning.age_ms_max,
            "retention_bytes": cleaning.bytes_max,
            "compaction": kept,
        });
        let path = format!("/topics/{}", segment(definition.topic.as_str()));
        self.inner.http.ask::<serde_json::Value>(Ask::post(&path, &rules)).await.map(drop)
    }

    /// Removes a topic with all its events.
    pub async fn remove_topic(&self, topic: &Topic) -> Result<(), GroupError> {
        let ask = Ask::delete(&format!("/topics/{}", segment(topic.as_str())));
        self.inner.http.ask::<serde_json::Value>(ask).await.map(drop)
    }
}

impl Replaying {
    /// The next step; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Replayed>, ReadError> {
        loop {
            if let Some(step) = self.here.pop_front() {
                return Ok(Some(step));
            }
            let Some(topics) = self.topics.front().cloned() else {
                return Ok(None);
            };
            let page: Pages = self.page(&topics).await?;
            self.here.extend(page.gaps.into_iter().map(Replayed::Missing));
            let events = page.events.into_iter();
            self.here.extend(events.map(|event| Replayed::Event(Box::new(event))));
            self.after = page.next;
            if self.after.is_none() {
                self.topics.pop_front();
            }
        }
    }

    async fn page(&self, topics: &Pattern) -> Result<Pages, ReadError> {
        let texts = [self.from, self.until].map(|time| time.map(|time| time.to_string()));
        let mut query = vec![("topic", topics.as_str()), ("limit", "1000")];
        let [from, until] = &texts;
        query.extend(from.as_deref().map(|from| ("from", from)));
        query.extend(until.as_deref().map(|until| ("until", until)));
        query.extend(self.after.as_deref().map(|after| ("after", after)));
        self.bus.inner.http.ask(Ask::get("/replay", &query)).await
    }
}

/// As many as one question may ask for.
fn limit(max: usize) -> String {
    max.clamp(1, 1_000).to_string()
}
