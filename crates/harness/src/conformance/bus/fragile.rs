//! A store that can be cut off, slowed down and made to fail, around any other.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_core::future::BoxFuture;
use promethean::event::{EventId, GroupName, Key, Offset, Timestamp};
use promethean::store::{
    Append, AppendError, Appended, Attend, Claim, Claims, Entry, EventPage, GroupRecord, GroupSave,
    Growth, HubId, HubPresence, KeyPage, KeyQuery, Lane, LaneBounds, Page, PageLimit, Put, Read,
    ReadError, SaveError, Store, Stored, TopicDefinition, TopicId, TopicTable,
};
use tokio::sync::watch;

/// A store around another one, with faults to order.
pub struct FragileStore {
    inner: Arc<dyn Store>,
    /// Nothing is written any more, as if the process were gone.
    cut: watch::Sender<bool>,
    /// The next append is the one that finds the store away.
    leaves: AtomicBool,
    /// Nothing is written for now.
    away: watch::Sender<bool>,
    /// Whether closing closes the store inside; if not it can be opened again.
    closes: bool,
    /// So many saves fail for the moment.
    saves_to_fail: AtomicU32,
    /// So many reads fail.
    reads_to_fail: AtomicU32,
    /// So many appends are stored, and their answers lost.
    answers_to_lose: AtomicU32,
    /// Saves are not begun while this is true.
    held: watch::Sender<bool>,
    /// Appends are not answered while this is true.
    appends_held: watch::Sender<bool>,
    /// What was saved, in order.
    saves: Mutex<Vec<GroupSave>>,
}

impl FragileStore {
    /// Around a store.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self {
            inner,
            cut: watch::Sender::new(false),
            leaves: AtomicBool::new(false),
            away: watch::Sender::new(false),
            closes: true,
            saves_to_fail: AtomicU32::new(0),
            reads_to_fail: AtomicU32::new(0),
            answers_to_lose: AtomicU32::new(0),
            held: watch::Sender::new(false),
            appends_held: watch::Sender::new(false),
            saves: Mutex::default(),
        }
    }

    /// Around a store that outlives being closed, as a folder does.
    pub fn lasting(inner: Arc<dyn Store>) -> Self {
        Self { closes: false, ..Self::new(inner) }
    }

    /// The store inside.
    pub fn inner(&self) -> Arc<dyn Store> {
        Arc::clone(&self.inner)
    }

    /// From now on nothing gets through.
    pub fn cut(&self) {
        self.cut.send_replace(true);
        self.held.send_replace(false);
        self.appends_held.send_replace(false);
    }

    /// From the next append on nothing is written, and everything may be tried again: as for a
    /// process that has no network for a while.
    pub fn leave_at_append(&self) {
        self.leaves.store(true, Ordering::SeqCst);
    }

    /// Waits until it is so.
    pub async fn has_left(&self) {
        // The sender is ours.
        drop(self.away.subscribe().wait_for(|away| *away).await);
    }

    /// It is there again.
    pub fn come_back(&self) {
        self.away.send_replace(false);
    }

    /// The next saves fail, and may be tried again.
    pub fn fail_saves(&self, count: u32) {
        self.saves_to_fail.store(count, Ordering::SeqCst);
    }

    /// The next reads fail.
    pub fn fail_reads(&self, count: u32) {
        self.reads_to_fail.store(count, Ordering::SeqCst);
    }

    /// The next appends are stored, and nobody is told.
    pub fn lose_answers(&self, count: u32) {
        self.answers_to_lose.store(count, Ordering::SeqCst);
    }

    /// Saves wait, or go on.
    pub fn hold_saves(&self, hold: bool) {
        self.held.send_replace(hold);
    }

    /// Appends are stored and not answered, as by a disk that hangs; or answers go on.
    pub fn hold_appends(&self, hold: bool) {
        self.appends_held.send_replace(hold);
    }

    /// What was saved so far.
    pub fn saves(&self) -> MutexGuard<'_, Vec<GroupSave>> {
        self.saves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_cut(&self) -> bool {
        *self.cut.borrow()
    }

    fn refused(&self) -> Result<(), SaveError> {
        match (self.is_cut(), *self.away.borrow()) {
            (true, _) => Err(SaveError::Append(AppendError::Closed)),
            (_, true) => Err(SaveError::Append(AppendError::Unavailable("by order".into()))),
            (false, false) => Ok(()),
        }
    }
}

/// Takes one off a count, if there is one.
fn spend(count: &AtomicU32) -> bool {
    count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

impl Store for FragileStore {
    fn topics(&self) -> Arc<TopicTable> {
        self.inner.topics()
    }

    fn define(
        &self,
        definition: TopicDefinition,
    ) -> BoxFuture<'static, Result<TopicId, SaveError>> {
        match self.refused() {
            Ok(()) => self.inner.define(definition),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    fn remove(&self, topic: TopicId) -> BoxFuture<'static, Result<(), SaveError>> {
        match self.refused() {
            Ok(()) => self.inner.remove(topic),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    fn append(&self, append: Append) -> BoxFuture<'static, Result<Appended, AppendError>> {
        if self.is_cut() {
            return Box::pin(async { Err(AppendError::Closed) });
        }
        if self.leaves.swap(false, Ordering::SeqCst) {
            self.away.send_replace(true);
        }
        if *self.away.borrow() {
            return Box::pin(async { Err(AppendError::Unavailable("by order".into())) });
        }
        let stored = self.inner.append(append);
        if spend(&self.answers_to_lose) {
            return Box::pin(async {
                stored.await?;
                Err(AppendError::Indeterminate("the answer was lost".into()))
            });
        }
        if *self.appends_held.borrow() {
            let mut held = self.appends_held.subscribe();
            return Box::pin(async move {
                // An error is a store that is gone.
                drop(held.wait_for(|held| !held).await);
                stored.await
            });
        }
        stored
    }

    fn read(&self, read: Read) -> BoxFuture<'static, Result<Page, ReadError>> {
        if spend(&self.reads_to_fail) {
            return Box::pin(async { Err(ReadError::Failed("by order".into())) });
        }
        self.inner.read(read)
    }

    fn fetch(
        &self,
        lane: Lane,
        from: Offset,
        limit: PageLimit,
    ) -> BoxFuture<'static, Result<EventPage, ReadError>> {
        if spend(&self.reads_to_fail) {
            return Box::pin(async { Err(ReadError::Failed("by order".into())) });
        }
        self.inner.fetch(lane, from, limit)
    }

    fn bounds(&self, lane: Lane) -> BoxFuture<'_, Result<LaneBounds, ReadError>> {
        self.inner.bounds(lane)
    }

    fn offset_at(&self, lane: Lane, time: Timestamp) -> BoxFuture<'_, Result<Offset, ReadError>> {
        self.inner.offset_at(lane, time)
    }

    fn find(
        &self,
        topic: TopicId,
        id: EventId,
    ) -> BoxFuture<'_, Result<Option<Stored>, ReadError>> {
        self.inner.find(topic, id)
    }

    fn latest(
        &self,
        topic: TopicId,
        keys: Vec<Key>,
    ) -> BoxFuture<'_, Result<Vec<Option<Stored>>, ReadError>> {
        self.inner.latest(topic, keys)
    }

    fn keys(&self, query: KeyQuery) -> BoxFuture<'_, Result<KeyPage, ReadError>> {
        self.inner.keys(query)
    }

    fn history(
        &self,
        topic: TopicId,
        key: Key,
        max: usize,
    ) -> BoxFuture<'_, Result<Vec<Stored>, ReadError>> {
        self.inner.history(topic, key, max)
    }

    fn grown(&self, mark: u64) -> BoxFuture<'_, Growth> {
        let mut cut = self.cut.subscribe();
        Box::pin(async move {
            tokio::select! {
                growth = self.inner.grown(mark) => growth,
                _ = cut.wait_for(|cut| *cut) => {
                    Growth { mark, closed: true, ..Growth::default() }
                }
            }
        })
    }

    fn groups(&self) -> BoxFuture<'_, Result<Vec<GroupName>, ReadError>> {
        self.inner.groups()
    }

    fn group(&self, group: GroupName) -> BoxFuture<'_, Result<Option<GroupRecord>, ReadError>> {
        self.inner.group(group)
    }

    fn save(&self, save: GroupSave) -> BoxFuture<'static, Result<(), SaveError>> {
        if let Err(error) = self.refused() {
            return Box::pin(async { Err(error) });
        }
        if spend(&self.saves_to_fail) {
            let why = AppendError::Unavailable("by order".into());
            return Box::pin(async { Err(SaveError::Append(why)) });
        }
        self.saves().push(save.clone());
        // A save that is not held has begun when this returns, as the seam promises. One that is
        // held begins when it is let go; a group has one under way at a time, so order is kept.
        if !*self.held.borrow() {
            return self.inner.save(save);
        }
        let (inner, mut held) = (self.inner(), self.held.subscribe());
        let cut = self.cut.subscribe();
        Box::pin(async move {
            // An error is a store that is gone.
            drop(held.wait_for(|held| !held).await);
            if *cut.borrow() {
                return Err(SaveError::Append(AppendError::Closed));
            }
            inner.save(save).await
        })
    }

    fn remove_group(&self, group: GroupName) -> BoxFuture<'static, Result<(), SaveError>> {
        match self.refused() {
            Ok(()) => self.inner.remove_group(group),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    fn put(&self, puts: Vec<Put>) -> BoxFuture<'static, Result<(), SaveError>> {
        match self.refused() {
            Ok(()) => self.inner.put(puts),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    fn entries(&self, space: &'static str) -> BoxFuture<'_, Result<Vec<Entry>, ReadError>> {
        self.inner.entries(space)
    }

    fn clean(&self, holds: Vec<(Lane, Offset)>) -> BoxFuture<'_, Result<(), ReadError>> {
        if self.is_cut() {
            return Box::pin(async { Ok(()) });
        }
        self.inner.clean(holds)
    }

    fn claims(&self) -> Option<&dyn Claims> {
        self.inner.claims().map(|_| self as &dyn Claims)
    }

    fn failure(&self) -> Option<String> {
        self.inner.failure()
    }

    fn disk_reads(&self) -> u64 {
        self.inner.disk_reads()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if self.closes && !self.is_cut() {
                self.inner.close().await;
            }
            self.cut();
        })
    }
}

impl FragileStore {
    /// The claims of the store inside, unless nothing gets through.
    fn claims_inside(&self) -> Result<&dyn Claims, SaveError> {
        self.refused()?;
        // Nobody is given claims that are not there.
        self.inner.claims().ok_or(SaveError::Append(AppendError::Closed))
    }
}

/// A hub that is cut off says nothing any more, not even that it goes.
impl Claims for FragileStore {
    fn attend(&self, attend: Attend) -> BoxFuture<'_, Result<Option<Vec<HubPresence>>, SaveError>> {
        Box::pin(async move { self.claims_inside()?.attend(attend).await })
    }

    fn depart(&self, hub: HubId) -> BoxFuture<'_, Result<(), SaveError>> {
        Box::pin(async move { self.claims_inside()?.depart(hub).await })
    }

    fn holders(&self, group: GroupName) -> BoxFuture<'_, Result<Vec<Claim>, ReadError>> {
        Box::pin(async move {
            let inside = self.claims_inside();
            let inside = inside.map_err(|error| ReadError::Failed(error.to_string()))?;
            inside.holders(group).await
        })
    }

    fn claim(
        &self,
        hub: HubId,
        group: GroupName,
        lanes: Vec<Lane>,
    ) -> BoxFuture<'_, Result<Vec<Claim>, SaveError>> {
        Box::pin(async move { self.claims_inside()?.claim(hub, group, lanes).await })
    }

    fn release(
        &self,
        group: GroupName,
        claims: Vec<Claim>,
    ) -> BoxFuture<'_, Result<(), SaveError>> {
        Box::pin(async move { self.claims_inside()?.release(group, claims).await })
    }
}

impl fmt::Debug for FragileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FragileStore").field("inner", &self.inner).finish_non_exhaustive()
    }
}
