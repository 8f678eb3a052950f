use std::collections::{HashMap, VecDeque};

use promethean_event::{Key, Offset, Topic};

use super::compactor::reaches;
use super::{snapshot_topic, source_offset};
use crate::bus::Bus;
use crate::store::{Gap, KeyQuery, Lane, PageLimit, Read, ReadError, Stored, TopicId};

/// Keys of a snapshot that are read at once.
const KEYS_AT_ONCE: usize = 1_000;

/// What comes next for one who follows a topic.
#[derive(Debug, Clone, PartialEq)]
pub enum Followed {
    /// The state of a key, with the offset that it comes from. No deleted keys.
    State {
        /// An event of the snapshot.
        stored: Box<Stored>,
        /// The offset in the topic.
        offset: Offset,
    },
    /// The snapshot is over: what follows is the topic.
    Live,
    /// An event that came after the snapshot.
    Event(Box<Stored>),
    /// Events that are gone. What was compacted has something newer of its key behind it, or was
    /// a deletion; what has expired is lost.
    Missing(Gap),
}

/// The state of a topic and then its events: nothing is missed, and nothing comes twice, also
/// while events arrive and the compactor works.
#[derive(Debug)]
pub struct Following {
    bus: Bus,
    snapshot: Option<TopicId>,
    after: Option<Key>,
    /// States that are newer than where the partition goes on: events up to them are in them.
    newer: HashMap<Key, Offset>,
    lanes: Vec<(Lane, Offset)>,
    ready: VecDeque<Followed>,
    is_live: bool,
    mark: u64,
    has_more: bool,
}

impl Bus {
    /// Follows a topic: the newest state of each key, then every event after it.
    pub async fn follow(&self, topic: &Topic) -> Result<Following, ReadError> {
        let topics = self.topics();
        let source = topics.get(topic).ok_or(ReadError::UnknownLane)?;
        // First how far the snapshot reaches, then the snapshot: it only grows meanwhile.
        let reaches = reaches(self, source).await?;
        let name = snapshot_topic(topic).map_err(|_| ReadError::UnknownLane)?;
        let snapshot = topics.get(&name).map(|entry| entry.id).filter(|_| !reaches.is_empty());
        let mut lanes = Vec::new();
        for lane in source.lanes() {
            let start = self.store().bounds(lane).await?.start;
            lanes.push((lane, reaches.get(&lane.partition).copied().unwrap_or(start)));
        }
        Ok(Following {
            bus: self.clone(),
            snapshot,
            after: None,
            newer: HashMap::new(),
            lanes,
            ready: VecDeque::new(),
            is_live: false,
            mark: 0,
            has_more: true,
        })
    }
}

impl Following {
    /// What comes next; waits for it. `None` when the bus is closed.
    pub async fn next(&mut self) -> Result<Option<Followed>, ReadError> {
        loop {
            if let Some(followed) = self.ready.pop_front() {
                return Ok(Some(followed));
            }
            if !self.is_live {
                self.states().await?;
            } else if self.has_more {
                self.has_more = self.events().await?;
            } else {
                let growth = self.bus.store().grown(self.mark).await;
                self.mark = growth.mark;
                self.has_more = true;
                if growth.closed {
                    return Ok(None);
                }
            }
        }
    }

    /// What can be had without waiting; `None` at the end of what is there now.
    pub async fn next_now(&mut self) -> Result<Option<Followed>, ReadError> {
        loop {
            if let Some(followed) = self.ready.pop_front() {
                return Ok(Some(followed));
            }
            if !self.is_live {
                self.states().await?;
            } else if !self.events().await? {
                return Ok(None);
            }
        }
    }

    async fn states(&mut self) -> Result<(), ReadError> {
        let Some(topic) = self.snapshot else {
            self.go_live();
            return Ok(());
        };
        let (prefix, after) = (String::new(), self.after.clone());
        let query = KeyQuery { topic, prefix, after, max: KEYS_AT_ONCE };
        let page = self.bus.store().keys(query).await?;
        self.after = page.events.last().and_then(|stored| stored.event.key.clone());
        let from: HashMap<_, _> =
            self.lanes.iter().map(|(lane, from)| (lane.partition, *from)).collect();
        for stored in page.events {
            let (Some(key), Some(offset)) =
                (stored.event.key.clone(), source_offset(&stored.event))
            else {
                continue;
            };
            if from.get(&stored.event.partition).is_some_and(|&from| offset >= from) {
                self.newer.insert(key, offset);
            }
            if !stored.event.payload.is_tombstone() {
                self.ready.push_back(Followed::State { stored: Box::new(stored), offset });
            }
        }
        if !page.more || self.after.is_none() {
            self.go_live();
        }
        Ok(())
    }

    fn go_live(&mut self) {
        self.is_live = true;
        self.ready.push_back(Followed::Live);
    }

    /// Reads on in every partition; false if there was nothing.
    async fn events(&mut self) -> Result<bool, ReadError> {
        let mut is_any = false;
        for (lane, from) in &mut self.lanes {
            let read = Read::From { lane: *lane, from: *from, limit: PageLimit::default() };
            let page = self.bus.store().read(read).await?;
            is_any |= page.next > *from;
            *from = page.next;
            self.ready.extend(page.gaps.into_iter().map(Followed::Missing));
            for stored in page.events {
                let key = stored.event.key.as_ref();
                match key.and_then(|key| self.newer.get(key).copied()) {
                    Some(newer) if stored.event.offset <= newer => {}
                    Some(_) => {
                        if let Some(key) = key {
                            self.newer.remove(key);
                        }
                        self.ready.push_back(Followed::Event(Box::new(stored)));
                    }
                    None => self.ready.push_back(Followed::Event(Box::new(stored))),
                }
            }
        }
        Ok(is_any)
    }
}
