//! What was read on both sides and found to be the same, lane by lane. It is gone on with: what was
//! compared while the source was in use need not be read again while it is not.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use promethean_event::{Event, Offset, Partition, Topic};
use xxhash_rust::xxh3::Xxh3;

use super::error::MigrateError;
use crate::store::{GapReason, Lane, PageLimit, Read, Store, Stored};

/// How far both sides are known to be the same.
#[derive(Debug, Default)]
pub struct Proof {
    lanes: BTreeMap<(Topic, Partition), LaneProof>,
}

/// The same of one lane.
#[derive(Default)]
struct LaneProof {
    next: Offset,
    events: u64,
    /// Over those, with their places and times.
    hash: Xxh3,
    /// Events of the target that the source has let go of since they were copied.
    let_go: u64,
}

impl fmt::Debug for LaneProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneProof").field("next", &self.next).finish_non_exhaustive()
    }
}

/// A lane as it is on both sides.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair<'a> {
    pub(super) topic: &'a Topic,
    pub(super) from: Lane,
    pub(super) to: Lane,
}

impl Proof {
    /// How many events were compared.
    pub fn events(&self) -> u64 {
        self.lanes.values().map(|lane| lane.events).sum()
    }

    pub(super) fn let_go(&self) -> u64 {
        self.lanes.values().map(|lane| lane.let_go).sum()
    }

    /// One number for all of them.
    pub(super) fn hash(&self) -> u128 {
        let mut hasher = Xxh3::new();
        let mut last = None;
        for ((topic, _), lane) in &self.lanes {
            if last.replace(topic) != Some(topic) {
                text(&mut hasher, topic.as_str());
            }
            hasher.update(&lane.hash.digest128().to_be_bytes());
        }
        hasher.digest128()
    }

    /// Nothing is known of a topic any more.
    pub(super) fn forget(&mut self, topic: &Topic) {
        self.lanes.retain(|(known, _), _| known != topic);
    }

    /// Reads on, on both sides, up to an offset; what differs first, in words.
    pub(super) async fn go_on(
        &mut self,
        (from, to): (&dyn Store, &dyn Store),
        pair: Pair<'_>,
        end: Offset,
    ) -> Result<Option<String>, MigrateError> {
        let lane = self.lanes.entry((pair.topic.clone(), pair.from.partition)).or_default();
        let begin = lane.next.max(from.bounds(pair.from).await?.start);
        let mut ours = Course::new(from, pair.topic, pair.from, begin..end);
        let mut theirs = Course::new(to, pair.topic, pair.to, begin..end);
        loop {
            let one = ours.next().await?;
            let place = one.as_ref().map_or(end, |one| one.event.offset);
            while theirs.peek().await?.is_some_and(|other| other.event.offset < place) {
                // The source had it when it was copied: offsets are dense, and what is missing
                // there went by its rules.
                theirs.next().await?;
                lane.let_go += 1;
            }
            let Some(one) = one else { break };
            let other = theirs.next().await?;
            if !other.is_some_and(|other| is_same(&one, &other)) {
                let (topic, partition) = (pair.topic, pair.from.partition);
                return Ok(Some(format!(
                    "the event at {topic}/{partition}/{place} is another one, or is missing"
                )));
            }
            event(&mut lane.hash, &one);
            lane.events += 1;
            lane.next = Offset::new(place.get() + 1);
        }
        lane.next = lane.next.max(end);
        Ok(None)
    }
}

fn is_same(one: &Stored, other: &Stored) -> bool {
    one.event == other.event && one.appended_at == other.appended_at
}

/// Events of a range of a lane, one after the other.
pub(super) struct Course<'a> {
    store: &'a dyn Store,
    topic: &'a Topic,
    lane: Lane,
    next: Offset,
    end: Offset,
    limit: PageLimit,
    waiting: VecDeque<Stored>,
}

impl<'a> Course<'a> {
    pub(super) fn new(
        store: &'a dyn Store,
        topic: &'a Topic,
        lane: Lane,
        range: std::ops::Range<Offset>,
    ) -> Self {
        let (waiting, limit) = (VecDeque::new(), PageLimit::default());
        Self { store, topic, lane, next: range.start, end: range.end, limit, waiting }
    }

    /// With pages of so many events.
    pub(super) const fn paged(mut self, events: usize) -> Self {
        self.limit.events = events;
        self
    }

    /// The next event; it stays the next one.
    pub(super) async fn peek(&mut self) -> Result<Option<&Stored>, MigrateError> {
        while self.waiting.is_empty() && self.next < self.end {
            let read = Read::From { lane: self.lane, from: self.next, limit: self.limit };
            let page = self.store.read(read).await?;
            if let Some(gap) = page.gaps.iter().find(|gap| gap.reason == GapReason::Corrupt) {
                // It must not pass for something that was cleaned away.
                let (topic, partition) = (self.topic.clone(), self.lane.partition);
                let (from, to) = (gap.from, gap.to);
                return Err(MigrateError::Damaged { topic, partition, from, to });
            }
            let end = self.end;
            self.next = page.next;
            self.waiting.extend(page.events.into_iter().filter(|one| one.event.offset < end));
        }
        Ok(self.waiting.front())
    }

    pub(super) async fn next(&mut self) -> Result<Option<Stored>, MigrateError> {
        self.peek().await?;
        Ok(self.waiting.pop_front())
    }
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
