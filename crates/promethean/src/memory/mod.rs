//! A store in memory: for tests, for what need not survive, and as the model that the other stores
//! are held against. Plain maps behind one mutex; nothing blocks, nothing is durable.

mod contents;

mod lane;

mod groups;

mod claims;

mod entries;

mod cleaning;

mod restore;

mod growth;

use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_core::future::BoxFuture;
use promethean_event::{EventId, GroupName, Key, Offset, Timestamp};
use promethean_log::{Clock, SystemClock};
use tokio::sync::Notify;

use crate::store::{
    Append, AppendError, Appended, Claims, Entry, GroupRecord, GroupSave, Growth, KeyPage,
    KeyQuery, Lane, LaneBounds, Page, Put, Read, ReadError, Restore, SaveError, Store, Stored,
    TopicDefinition, TopicId, TopicTable,
};

use contents::Contents;

/// A store in memory.
pub struct MemoryStore {
    contents: Mutex<Contents>,
    grown: Notify,
    clock: Arc<dyn Clock>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    /// An empty store whose append times come from this clock.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { contents: Mutex::default(), grown: Notify::new(), clock }
    }

    /// An empty store that several buses of this process use at once, as hubs do.
    pub fn shared(clock: Arc<dyn Clock>) -> Self {
        let store = Self::with_clock(clock);
        store.lock().is_shared = true;
        store
    }

    /// An empty store whose append times come from the clock of the runtime, so that a test which
    /// has paused it owns them.
    pub fn with_runtime_clock() -> Self {
        Self::with_clock(Arc::new(crate::clock::Clock::start()))
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes something, and tells those who wait for growth.
    fn change<T>(&self, change: impl FnOnce(&mut Contents) -> T) -> T {
        let result = change(&mut self.lock());
        self.grown.notify_waiters();
        result
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

fn ready<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

impl Store for MemoryStore {
    fn topics(&self) -> Arc<TopicTable> {
        Arc::clone(&self.lock().table)
    }

    fn define(
        &self,
        definition: TopicDefinition,
    ) -> BoxFuture<'static, Result<TopicId, SaveError>> {
        ready(self.change(|contents| contents.define(definition)))
    }

    fn remove(&self, topic: TopicId) -> BoxFuture<'static, Result<(), SaveError>> {
        ready(self.change(|contents| contents.remove(topic)))
    }

    fn append(&self, append: Append) -> BoxFuture<'static, Result<Appended, AppendError>> {
        let now = self.clock.now();
        ready(self.change(|contents| contents.append(append, now)))
    }

    fn read(&self, read: Read) -> BoxFuture<'static, Result<Page, ReadError>> {
        let contents = self.lock();
        ready(match read {
            Read::From { lane, from, limit } => {
                contents.lane(lane).and_then(|events| events.from(lane.partition, from, limit))
            }
            Read::Before { lane, before, limit } => {
                contents.lane(lane).map(|events| events.before(lane.partition, before, limit))
            }
        })
    }

    fn bounds(&self, lane: Lane) -> BoxFuture<'_, Result<LaneBounds, ReadError>> {
        ready(self.lock().lane(lane).map(|events| events.bounds()))
    }

    fn offset_at(&self, lane: Lane, time: Timestamp) -> BoxFuture<'_, Result<Offset, ReadError>> {
        ready(self.lock().lane(lane).map(|events| events.offset_at(time)))
    }

    fn find(
        &self,
        topic: TopicId,
        id: EventId,
    ) -> BoxFuture<'_, Result<Option<Stored>, ReadError>> {
        ready(self.lock().topic(topic).map(|topic| topic.find(&id).cloned()))
    }

    fn latest(
        &self,
        topic: TopicId,
        keys: Vec<Key>,
    ) -> BoxFuture<'_, Result<Vec<Option<Stored>>, ReadError>> {
        let contents = self.lock();
        let newest = |key| contents.topic(topic).map(|topic| topic.history(key).next().cloned());
        ready(contents.topic(topic).and_then(|_| keys.iter().map(newest).collect()))
    }

    fn keys(&self, query: KeyQuery) -> BoxFuture<'_, Result<KeyPage, ReadError>> {
        ready(self.lock().topic(query.topic).map(|topic| topic.keys(&query)))
    }

    fn history(
        &self,
        topic: TopicId,
        key: Key,
        max: usize,
    ) -> BoxFuture<'_, Result<Vec<Stored>, ReadError>> {
        let contents = self.lock();
        ready(contents.topic(topic).map(|topic| topic.history(&key).take(max).cloned().collect()))
    }

    fn grown(&self, mark: u64) -> BoxFuture<'_, Growth> {
        Box::pin(async move {
            loop {
                let mut notified = pin!(self.grown.notified());
                // Listening before looking: what happens in between is heard.
                notified.as_mut().enable();
                if let Some(growth) = self.lock().growth_since(mark) {
                    return growth;
                }
                notified.await;
            }
        })
    }

    fn groups(&self) -> BoxFuture<'_, Result<Vec<GroupName>, ReadError>> {
        ready(Ok(self.lock().groups.names()))
    }

    fn group(&self, group: GroupName) -> BoxFuture<'_, Result<Option<GroupRecord>, ReadError>> {
        ready(Ok(self.lock().group(&group)))
    }

    fn save(&self, save: GroupSave) -> BoxFuture<'static, Result<(), SaveError>> {
        let now = self.clock.now();
        ready(self.change(|contents| contents.save(save, now)))
    }

    fn remove_group(&self, group: GroupName) -> BoxFuture<'static, Result<(), SaveError>> {
        ready(self.lock().remove_group(&group))
    }

    fn put(&self, puts: Vec<Put>) -> BoxFuture<'static, Result<(), SaveError>> {
        ready(self.change(|contents| contents.put(puts)))
    }

    fn entries(&self, space: &'static str) -> BoxFuture<'_, Result<Vec<Entry>, ReadError>> {
        ready(Ok(self.lock().entries.of(space)))
    }

    fn clean(&self, holds: Vec<(Lane, Offset)>) -> BoxFuture<'_, Result<(), ReadError>> {
        self.lock().clean(&holds, self.clock.now());
        ready(Ok(()))
    }

    fn claims(&self) -> Option<&dyn Claims> {
        self.lock().is_shared.then_some(self as &dyn Claims)
    }

    fn restoring(&self) -> Option<&dyn Restore> {
        Some(self)
    }

    fn failure(&self) -> Option<String> {
        None
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.change(|contents| contents.closed = true);
        ready(())
    }
}
