//! Looking at events without a group: replay, look-ups, keys.

use std::collections::{BTreeMap, VecDeque};

use promethean_event::{Event, EventId, Key, Pattern, Start, Timestamp, Topic};
use serde::Deserialize;

use crate::bus::Bus;
use crate::code::Code;
use crate::error::{GroupError, ReadError};
use crate::http::{Ask, segment};
use crate::machine::Gap;

/// Which events to replay.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Replay {
    /// The topics.
    pub topics: Vec<Pattern>,
    /// Where to begin: with the oldest event (the default), at a time, or now.
    pub from: Start,
    /// Only what the store took before this time.
    pub until: Option<Timestamp>,
}

impl Replay {
    /// Everything of the topics that a pattern matches.
    pub fn of(topics: Pattern) -> Self {
        Self { topics: vec![topics], from: Start::Earliest, until: None }
    }

    /// From somewhere else than the beginning.
    #[must_use]
    pub const fn from(mut self, start: Start) -> Self {
        self.from = start;
        self
    }

    /// Only what the store took before a time.
    #[must_use]
    pub const fn until(mut self, time: Timestamp) -> Self {
        self.until = Some(time);
        self
    }
}

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
struct Page {
    events: Vec<Event>,
    gaps: Vec<Gap>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Found {
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Latest {
    events: BTreeMap<String, Option<Event>>,
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
        let mut query = vec![("topic", topic.as_str())];
        query.extend(keys.iter().map(|key| ("key", key.as_str())));
        let mut found: Latest = self.inner.http.ask(Ask::get("/latest-by-key", &query)).await?;
        Ok(keys.iter().map(|key| found.events.remove(key.as_str()).flatten()).collect())
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
            let page = self.page(&topics).await?;
            self.here.extend(page.gaps.into_iter().map(Replayed::Missing));
            let events = page.events.into_iter();
            self.here.extend(events.map(|event| Replayed::Event(Box::new(event))));
            self.after = page.next;
            if self.after.is_none() {
                self.topics.pop_front();
            }
        }
    }

    async fn page(&self, topics: &Pattern) -> Result<Page, ReadError> {
        let texts = [self.from, self.until].map(|time| time.map(|time| time.to_string()));
        let mut query = vec![("topic", topics.as_str()), ("limit", "1000")];
        let [from, until] = &texts;
        query.extend(from.as_deref().map(|from| ("from", from)));
        query.extend(until.as_deref().map(|until| ("until", until)));
        query.extend(self.after.as_deref().map(|after| ("after", after)));
        self.bus.inner.http.ask(Ask::get("/replay", &query)).await
    }
}
