//! Looking at events without a group: replay, look-ups, keys.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use promethean_event::{Event, EventId, Key, Offset, Partition, Replay, Timestamp, Topic};

use crate::bus::Bus;
use crate::error::GroupError;
use crate::start::offset_in;
use crate::store::{Gap, KeyPage, KeyQuery, Lane, Page, PageLimit, Read, ReadError, Stored};

/// One step of a replay.
#[derive(Debug, Clone, PartialEq)]
pub enum Replayed {
    /// An event.
    Event(Box<Stored>),
    /// What is not there any more, and why.
    Missing {
        /// The topic.
        topic: Topic,
        /// The offsets.
        gap: Gap,
    },
}

/// Events of several partitions, in the order in which the store took them; up to where the
/// partitions ended when it began.
#[derive(Debug)]
pub struct Replaying {
    bus: Bus,
    lanes: Vec<LaneReplay>,
    /// The next event of each lane, by append time and lane.
    heads: BinaryHeap<Reverse<(Timestamp, usize)>>,
    missing: VecDeque<Replayed>,
    started: bool,
}

#[derive(Debug)]
struct LaneReplay {
    lane: Lane,
    topic: Topic,
    next: Offset,
    end: Offset,
    until: Option<Timestamp>,
    events: VecDeque<Stored>,
}

impl Bus {
    /// Reads what has been, over any number of topics, without any group.
    pub async fn replay(&self, replay: Replay) -> Result<Replaying, GroupError> {
        let topics = self.topics();
        let wanted = |topic: &Topic| replay.topics.iter().any(|pattern| pattern.matches(topic));
        let mut lanes = Vec::new();
        for entry in topics.users().filter(|entry| wanted(&entry.definition.topic)) {
            for lane in entry.lanes() {
                lanes.push(LaneReplay {
                    lane,
                    topic: entry.definition.topic.clone(),
                    next: offset_in(replay.from, &*self.inner.store, lane).await?,
                    end: self.inner.store.bounds(lane).await?.next,
                    until: replay.until,
                    events: VecDeque::new(),
                });
            }
        }
        Ok(Replaying {
            bus: self.clone(),
            lanes,
            heads: BinaryHeap::new(),
            missing: VecDeque::new(),
            started: false,
        })
    }

    fn lane(&self, topic: &Topic, partition: Partition) -> Result<Lane, ReadError> {
        let topics = self.topics();
        let entry = topics.get(topic).ok_or(ReadError::UnknownLane)?;
        if partition.get() >= entry.definition.partitions.get() {
            return Err(ReadError::UnknownLane);
        }
        Ok(Lane { topic: entry.id, partition })
    }

    /// Events of a partition from an offset on.
    pub async fn read(
        &self,
        topic: &Topic,
        partition: Partition,
        from: Offset,
        limit: PageLimit,
    ) -> Result<Page, ReadError> {
        let lane = self.lane(topic, partition)?;
        self.inner.store.read(Read::From { lane, from, limit }).await
    }

    /// Events of a partition before an offset, newest first.
    pub async fn read_before(
        &self,
        topic: &Topic,
        partition: Partition,
        before: Offset,
        limit: PageLimit,
    ) -> Result<Page, ReadError> {
        let lane = self.lane(topic, partition)?;
        self.inner.store.read(Read::Before { lane, before, limit }).await
    }

    /// The event with an id.
    pub async fn find(&self, topic: &Topic, id: EventId) -> Result<Option<Stored>, ReadError> {
        let topics = self.topics();
        let entry = topics.get(topic).ok_or(ReadError::UnknownLane)?;
        self.inner.store.find(entry.id, id).await
    }

    /// The newest event of each key, in the order given; `None` for a key that is gone or never
    /// was.
    pub async fn latest_by_key(
        &self,
        topic: &Topic,
        keys: Vec<Key>,
    ) -> Result<Vec<Option<Event>>, ReadError> {
        let topics = self.topics();
        let entry = topics.get(topic).ok_or(ReadError::UnknownLane)?;
        let found = self.inner.store.latest(entry.id, keys).await?;
        let live = |stored: Stored| (!stored.event.payload.is_tombstone()).then_some(stored.event);
        Ok(found.into_iter().map(|stored| stored.and_then(live)).collect())
    }

    /// Keys in order, each with its newest event, tombstones included; all of them, page by page.
    pub async fn keys(
        &self,
        topic: &Topic,
        prefix: &str,
        after: Option<Key>,
        max: usize,
    ) -> Result<KeyPage, ReadError> {
        let topics = self.topics();
        let entry = topics.get(topic).ok_or(ReadError::UnknownLane)?;
        let query = KeyQuery { topic: entry.id, prefix: prefix.to_owned(), after, max: max.max(1) };
        self.inner.store.keys(query).await
    }

    /// The newest events of a key, newest first.
    pub async fn history(
        &self,
        topic: &Topic,
        key: Key,
        max: usize,
    ) -> Result<Vec<Stored>, ReadError> {
        let topics = self.topics();
        let entry = topics.get(topic).ok_or(ReadError::UnknownLane)?;
        self.inner.store.history(entry.id, key, max).await
    }
}

impl Replaying {
    /// The next step; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Replayed>, ReadError> {
        if !self.started {
            self.started = true;
            for number in 0..self.lanes.len() {
                self.fill(number).await?;
            }
        }
        if let Some(missing) = self.missing.pop_front() {
            return Ok(Some(missing));
        }
        let Some(Reverse((_, number))) = self.heads.pop() else {
            return Ok(None);
        };
        let event = self.lanes.get_mut(number).and_then(|lane| lane.events.pop_front());
        self.fill(number).await?;
        Ok(event.map(|stored| Replayed::Event(Box::new(stored))))
    }

    /// Puts the next event of a lane among the heads, reading on if need be.
    async fn fill(&mut self, number: usize) -> Result<(), ReadError> {
        let Some(lane) = self.lanes.get_mut(number) else {
            return Ok(());
        };
        while lane.events.is_empty() && lane.next < lane.end {
            let read = Read::From { lane: lane.lane, from: lane.next, limit: PageLimit::default() };
            let page = self.bus.inner.store.read(read).await?;
            let before = lane.next;
            lane.next = page.next;
            for gap in page.gaps {
                self.missing.push_back(Replayed::Missing { topic: lane.topic.clone(), gap });
            }
            let in_time = |stored: &Stored| lane.until.is_none_or(|t| stored.appended_at < t);
            let end = lane.end;
            let wanted = |stored: &Stored| stored.event.offset < end && in_time(stored);
            let read = page.events.len();
            lane.events.extend(page.events.into_iter().filter(wanted));
            if lane.events.len() < read || page.next == before {
                // Append times only rise: what follows is too late as well.
                lane.next = lane.end;
            }
        }
        if let Some(head) = lane.events.front() {
            self.heads.push(Reverse((head.appended_at, number)));
        }
        Ok(())
    }
}
