//! The state of a topic, and then its events.

use std::collections::{HashMap, VecDeque};

use promethean_event::frame::{From, SubscribeOpts};
use promethean_event::{Cursor, Event, Key, Offset, Topic};
use serde::Deserialize;

use crate::bus::Bus;
use crate::error::ReadError;
use crate::http::{Ask, segment};
use crate::machine::Gap;
use crate::tail::{Tail, Tailed};

/// Keys of a snapshot that are asked for at once.
const KEYS_AT_ONCE: &str = "1000";

/// What comes next for one who follows a topic.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Followed {
    /// The state of a key, with the offset that it comes from. No deleted keys.
    State {
        /// An event of the snapshot.
        event: Box<Event>,
        /// The offset in the topic.
        offset: Offset,
    },
    /// The snapshot is over: what follows is the topic.
    Live,
    /// An event that came after the snapshot.
    Event(Box<Event>),
    /// Events that are gone, and why.
    Missing(Gap),
}

/// The state of a topic and then its events: nothing is missed, and nothing comes twice, also
/// while events arrive, the snapshot grows, and the connection is lost.
#[derive(Debug)]
pub struct Following {
    bus: Bus,
    topic: Topic,
    place: Place,
    /// States that are newer than where the topic goes on: events up to them are in them.
    newer: HashMap<Key, Offset>,
    ready: VecDeque<Followed>,
}

#[derive(Debug)]
enum Place {
    /// In the snapshot, after a key.
    Snapshot { cursors: Option<Vec<Cursor>>, after: Option<Key> },
    /// In the topic.
    Topic(Tail),
}

#[derive(Deserialize)]
struct SnapshotPage {
    states: Vec<State>,
    cursors: Vec<Cursor>,
    next: Option<Key>,
}

#[derive(Deserialize)]
struct State {
    offset: Offset,
    event: Event,
}

impl Bus {
    /// Follows a topic: the newest state of each key, then every event after it. For topics with
    /// `snapshot = true`; of others all events come.
    pub async fn follow(&self, topic: &Topic) -> Result<Following, ReadError> {
        let mut following = Following {
            bus: self.clone(),
            topic: topic.clone(),
            place: Place::Snapshot { cursors: None, after: None },
            newer: HashMap::new(),
            ready: VecDeque::new(),
        };
        // At once, so that a topic that is not there, or not to be read, is said here.
        following.states().await?;
        Ok(following)
    }
}

impl Following {
    /// What comes next; waits for it. `None` once the bus is closed.
    pub async fn next(&mut self) -> Result<Option<Followed>, ReadError> {
        loop {
            if let Some(followed) = self.ready.pop_front() {
                return Ok(Some(followed));
            }
            let Place::Topic(tail) = &mut self.place else {
                self.states().await?;
                continue;
            };
            match tail.next().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(error),
                Some(Ok(tailed)) => self.take(tailed),
            }
        }
    }

    /// Some states; behind the last, the topic.
    async fn states(&mut self) -> Result<(), ReadError> {
        let Place::Snapshot { cursors, after } = &mut self.place else {
            return Ok(());
        };
        let path = format!("/snapshots/{}", segment(self.topic.as_str()));
        let mut query = vec![("limit", KEYS_AT_ONCE)];
        query.extend(after.as_ref().map(|key| ("after", key.as_str())));
        let page: SnapshotPage = self.bus.inner.http.ask(Ask::get(&path, &query)).await?;
        // The first page says where the topic goes on: the snapshot only grows meanwhile.
        let cursors = cursors.get_or_insert(page.cursors);
        for State { offset, event } in page.states {
            let goes_on = cursors.iter().find(|cursor| cursor.partition == event.partition);
            if let Some(key) = &event.key
                && goes_on.is_some_and(|cursor| offset >= cursor.next)
            {
                self.newer.insert(key.clone(), offset);
            }
            if !event.payload.is_tombstone() {
                self.ready.push_back(Followed::State { event: Box::new(event), offset });
            }
        }
        *after = page.next;
        if after.is_some() {
            return Ok(());
        }
        let from = Some(From::Earliest);
        let opts = SubscribeOpts { from, after: cursors.clone(), ..SubscribeOpts::default() };
        let tail = self.bus.tail([self.topic.as_str()]).with(opts).stream().await?;
        self.place = Place::Topic(tail);
        self.ready.push_back(Followed::Live);
        Ok(())
    }

    fn take(&mut self, tailed: Tailed) {
        match tailed {
            Tailed::Event(event) => {
                let known = event.key.as_ref().and_then(|key| self.newer.get(key).copied());
                if known.is_some_and(|known| event.offset <= known) {
                    return;
                }
                if let Some(key) = event.key.as_ref().filter(|_| known.is_some()) {
                    self.newer.remove(key);
                }
                self.ready.push_back(Followed::Event(event));
            }
            Tailed::Missing(gap) => {
                // Offsets of another store say nothing about what is in the states.
                if gap.reason == "epoch" {
                    self.newer.clear();
                }
                self.ready.push_back(Followed::Missing(gap));
            }
            // What is missing is named next; if nothing is, nothing has happened.
            Tailed::Resumed { .. } => {}
        }
    }
}
