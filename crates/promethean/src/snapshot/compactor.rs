use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use promethean_event::{
    EventId, Key, KeyError, NewEvent, Offset, Partition, Payload, Topic, TopicError,
};
use tokio::sync::watch;

use super::{Reach, SOURCE_OFFSET, SPACE, reach_key, snapshot_topic, source_offset};
use crate::bus::Bus;
use crate::store::{
    Append, AppendError, Compaction, Expectation, KeyQuery, Lane, PageLimit, Put, Read, ReadError,
    SaveError, Stored, TopicDefinition, TopicEntry,
};

/// Keys that are published together.
const KEYS_AT_ONCE: usize = 1_000;
/// Longest delay before a compaction that failed is tried again.
const RETRY_MS_MAX: u64 = 60_000;

/// Why nothing was compacted.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CompactorError {
    /// No such topic.
    #[error("there is no topic {0}")]
    NoTopic(Topic),
    /// The snapshot's topic has no name.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// The snapshot's topic cannot be made, or how far it reaches cannot be kept.
    #[error(transparent)]
    Save(#[from] SaveError),
    /// The store could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Something could not be published.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// A name that is too long to be kept.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// What a compaction has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compacted {
    /// Events of the source that were read.
    pub read: u64,
    /// States that were published.
    pub published: u64,
    /// Events without a key, which no snapshot can have.
    pub unkeyed: u64,
}

/// Keeps the snapshot of one topic. Stateless: all it knows is in the store, so that a second one
/// (of another process, or after a crash) adds nothing that is there.
#[derive(Debug, Clone)]
pub struct Compactor {
    bus: Bus,
    topic: Topic,
}

impl Compactor {
    /// A compactor of a topic.
    pub const fn new(bus: Bus, topic: Topic) -> Self {
        Self { bus, topic }
    }

    /// Publishes the states of all keys that have changed since it was last done.
    pub async fn run(&self) -> Result<Compacted, CompactorError> {
        let source = self.bus.topics().get(&self.topic).cloned();
        let source = source.ok_or_else(|| CompactorError::NoTopic(self.topic.clone()))?;
        let target = self.define(&source).await?;
        let reaches = reaches(&self.bus, &source).await?;
        let mut compacted = Compacted::default();
        if reaches.is_empty() {
            self.all(&source, &target, &mut compacted).await?;
            return Ok(compacted);
        }
        for lane in source.lanes() {
            let from = reaches.get(&lane.partition).copied().unwrap_or(Offset::ZERO);
            self.lane(lane, from, &target, &mut compacted).await?;
        }
        Ok(compacted)
    }

    async fn define(&self, source: &TopicEntry) -> Result<TopicEntry, CompactorError> {
        let topic = snapshot_topic(&self.topic)?;
        let known = self.bus.topics().get(&topic).cloned();
        if let Some(known) = known {
            if !self.is_of_another(source, &known).await? {
                return Ok(known);
            }
            // By its number: one that another compactor has made meanwhile stays.
            self.bus.store().remove(known.id).await?;
        }
        let mut definition = TopicDefinition::new(topic);
        definition.partitions = source.definition.partitions;
        // Only the newest state of a key is a snapshot; deletions stay a day for those who follow.
        let compaction = Compaction { age_ms_min: 0, tombstone_ms: 24 * 60 * 60 * 1000 };
        definition.cleaning.compaction = Some(compaction);
        let id = self.bus.store().define(definition.clone()).await?;
        Ok(TopicEntry { id, definition })
    }

    /// Whether a snapshot is that of an earlier topic of this name: offsets of that one mean nothing
    /// to this one, and keys of that one are not there.
    async fn is_of_another(
        &self,
        source: &TopicEntry,
        target: &TopicEntry,
    ) -> Result<bool, ReadError> {
        let noted = noted(&self.bus, source, target).await?;
        let is_own = |reach: &Reach| reach.topic == source.id.get();
        Ok(!noted.is_empty() && !noted.values().any(is_own))
    }

    /// For the first time: from the newest event of each key, not from all events.
    async fn all(
        &self,
        source: &TopicEntry,
        target: &TopicEntry,
        compacted: &mut Compacted,
    ) -> Result<(), CompactorError> {
        let mut ends = Vec::new();
        for lane in source.lanes() {
            ends.push((lane, self.bus.store().bounds(lane).await?.next));
        }
        // It reaches nowhere yet, but is a snapshot: from here on nobody else writes there. Somebody's
        // event would hide the state of its key.
        let claimed: Vec<_> = source.lanes().map(|lane| (lane, Offset::ZERO)).collect();
        self.reached(&claimed, target).await?;
        let mut after = None;
        loop {
            let (topic, prefix) = (source.id, String::new());
            let query = KeyQuery { topic, prefix, after, max: KEYS_AT_ONCE };
            let page = self.bus.store().keys(query).await?;
            compacted.read += page.events.len() as u64;
            after = page.events.last().and_then(|stored| stored.event.key.clone());
            let newest = page.events.into_iter();
            let newest = newest.filter_map(|stored| Some((stored.event.key.clone()?, stored)));
            self.publish(newest.collect(), target, compacted).await?;
            if !page.more || after.is_none() {
                break;
            }
        }
        self.reached(&ends, target).await
    }

    /// What has come since, folded to the newest of each key.
    async fn lane(
        &self,
        lane: Lane,
        mut from: Offset,
        target: &TopicEntry,
        compacted: &mut Compacted,
    ) -> Result<(), CompactorError> {
        let end = self.bus.store().bounds(lane).await?.next;
        while from < end {
            let limit = PageLimit { events: KEYS_AT_ONCE, ..PageLimit::default() };
            let page = self.bus.store().read(Read::From { lane, from, limit }).await?;
            let mut newest = BTreeMap::new();
            for stored in page.events {
                compacted.read += 1;
                match stored.event.key.clone() {
                    Some(key) => drop(newest.insert(key, stored)),
                    None => compacted.unkeyed += 1,
                }
            }
            self.publish(newest, target, compacted).await?;
            self.reached(&[(lane, page.next)], target).await?;
            if page.next == from {
                break;
            }
            from = page.next;
        }
        Ok(())
    }

    /// Publishes states, except those that are there already, or newer ones: after a crash the
    /// same events may be read in other portions, and an older state must not come last.
    async fn publish(
        &self,
        newest: BTreeMap<Key, Stored>,
        target: &TopicEntry,
        compacted: &mut Compacted,
    ) -> Result<(), CompactorError> {
        if newest.is_empty() {
            return Ok(());
        }
        let mut taken = HashSet::new();
        loop {
            // Before looking: what another compactor adds from here on makes the append fail.
            let expect = self.ends(target).await?;
            let mut events = self.unknown(&newest, target).await?;
            if events.is_empty() {
                return Ok(());
            }
            for event in events.iter_mut().filter(|event| taken.contains(&event.id)) {
                event.id = EventId::generate();
            }
            let count = events.len() as u64;
            let append = Append { events, expect, ..Append::default() };
            match self.bus.store().append(append).await {
                Ok(_) => {
                    compacted.published += count;
                    return Ok(());
                }
                Err(AppendError::OffsetMismatch { .. }) => {}
                // Somebody's event from before the topic was a snapshot; its offset, not its id, is
                // what keeps a state from coming twice.
                Err(AppendError::IdConflict { id, .. }) if taken.insert(id) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn ends(&self, target: &TopicEntry) -> Result<Vec<Expectation>, ReadError> {
        let mut ends = Vec::new();
        for lane in target.lanes() {
            ends.push(Expectation { lane, next: self.bus.store().bounds(lane).await?.next });
        }
        Ok(ends)
    }

    /// The states that the snapshot does not have, nor newer ones.
    async fn unknown(
        &self,
        newest: &BTreeMap<Key, Stored>,
        target: &TopicEntry,
    ) -> Result<Vec<NewEvent>, ReadError> {
        let keys: Vec<Key> = newest.keys().cloned().collect();
        let known = self.bus.store().latest(target.id, keys).await?;
        let mut events = Vec::new();
        for (stored, known) in newest.values().zip(known) {
            let is_there = known.as_ref().and_then(|known| source_offset(&known.event));
            let is_known = is_there.is_some_and(|offset| offset >= stored.event.offset);
            let was_never = known.is_none() && stored.event.payload.is_tombstone();
            if !is_known && !was_never {
                events.push(self.state(stored.clone(), target));
            }
        }
        Ok(events)
    }

    fn state(&self, stored: Stored, target: &TopicEntry) -> NewEvent {
        let event = stored.event;
        let mut name = self.topic.as_str().as_bytes().to_vec();
        name.push(0);
        name.extend_from_slice(event.id.as_bytes());
        name.extend_from_slice(&event.offset.get().to_be_bytes());
        let id = EventId::derived("promethean snapshot", &name);
        let topic = target.definition.topic.clone();
        let mut state = NewEvent::new(id, event.ts, topic, event.payload);
        state.key = event.key;
        state.headers = event.headers;
        // A number is good in a header; one too many of them gives way to it.
        while state.headers.set(SOURCE_OFFSET, &event.offset.to_string()).is_err() {
            state.headers = promethean_event::Headers::new();
        }
        state.caused_by = vec![event.id];
        state
    }

    async fn reached(
        &self,
        ends: &[(Lane, Offset)],
        target: &TopicEntry,
    ) -> Result<(), CompactorError> {
        let mut puts = Vec::new();
        for (lane, next) in ends {
            let key = Key::new(reach_key(&self.topic, lane.partition))?;
            let target = Some(target.id.get());
            // Numbers have a JSON form.
            let value = Payload::of(&Reach { topic: lane.topic.get(), target, next: *next }).ok();
            puts.push(Put { space: SPACE, key, value, expect: None });
        }
        Ok(self.bus.store().put(puts).await?)
    }

    /// Does it again and again, as soon as something has come, but no more often than this.
    pub fn start(self, every: Duration) -> Compacting {
        let (sender, done) = watch::channel(Compacted::default());
        let runtime = self.bus.inner.runtime.clone();
        let task = runtime.spawn(self.keep(every, sender));
        Compacting { done, task }
    }

    async fn keep(self, every: Duration, done: watch::Sender<Compacted>) {
        let (mut mark, mut failures) = (0, 0_u32);
        loop {
            let growth = self.bus.store().grown(mark).await;
            mark = growth.mark;
            if growth.closed {
                return;
            }
            match self.run().await {
                Ok(compacted) => {
                    failures = 0;
                    done.send_modify(|all| {
                        all.read += compacted.read;
                        all.published += compacted.published;
                        all.unkeyed += compacted.unkeyed;
                    });
                    tokio::time::sleep(every).await;
                }
                Err(CompactorError::NoTopic(_)) => {}
                Err(error) => {
                    failures += 1;
                    // What failed has to be done without anything new coming.
                    mark = 0;
                    tracing::warn!(topic = %self.topic, %error, failures, "no snapshot this time");
                    let delay = 100_u64.saturating_mul(1 << failures.min(16)).min(RETRY_MS_MAX);
                    tokio::time::sleep(Duration::from_millis(delay)).await;
                }
            }
        }
    }
}

/// A compactor at work; ends when this is dropped.
#[derive(Debug)]
pub struct Compacting {
    done: watch::Receiver<Compacted>,
    task: tokio::task::JoinHandle<()>,
}

impl Compacting {
    /// What it has done by now, to be watched.
    pub fn done(&self) -> watch::Receiver<Compacted> {
        self.done.clone()
    }
}

impl Drop for Compacting {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How far the snapshot of a topic reaches, by partition; nothing if there is none.
pub(crate) async fn reaches(
    bus: &Bus,
    source: &TopicEntry,
) -> Result<HashMap<Partition, Offset>, ReadError> {
    let topics = bus.topics();
    let name = snapshot_topic(&source.definition.topic).ok();
    let Some(target) = name.and_then(|name| topics.get(&name)) else {
        return Ok(HashMap::new());
    };
    let noted = noted(bus, source, target).await?.into_iter();
    let own = noted.filter(|(_, reach)| reach.topic == source.id.get());
    let own = own.filter(|(_, reach)| reach.next > Offset::ZERO);
    Ok(own.map(|(partition, reach)| (partition, reach.next)).collect())
}

/// Whether a compactor has begun the snapshot of a topic.
pub(crate) async fn is_begun(
    bus: &Bus,
    source: &TopicEntry,
    target: &TopicEntry,
) -> Result<bool, ReadError> {
    let noted = noted(bus, source, target).await?;
    Ok(noted.values().any(|reach| reach.topic == source.id.get()))
}

/// What is noted of a snapshot under the name of a topic, by partition.
async fn noted(
    bus: &Bus,
    source: &TopicEntry,
    target: &TopicEntry,
) -> Result<HashMap<Partition, Reach>, ReadError> {
    let entries = bus.store().entries(SPACE).await?;
    let by_key: HashMap<&str, _> =
        entries.iter().map(|entry| (entry.key.as_str(), &entry.value)).collect();
    let mut noted = HashMap::new();
    for partition in source.definition.partitions.partitions() {
        let key = reach_key(&source.definition.topic, partition);
        let reach = by_key.get(key.as_str()).and_then(|value| value.decode::<Reach>().ok());
        noted.extend(reach.filter(|reach| reach.is_of(target)).map(|reach| (partition, reach)));
    }
    Ok(noted)
}
