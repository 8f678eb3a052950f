//! Stores that are wrong on purpose. A suite that lets one of them pass proves nothing.

use std::sync::{Arc, Mutex, PoisonError};

use futures_core::future::BoxFuture;
use futures_util::FutureExt;
use promethean::store::{
    Append, AppendError, Appended, Claims, Entry, GroupRecord, GroupSave, Growth, KeyPage,
    KeyQuery, Lane, LaneBounds, Page, Put, Read, ReadError, Restore, SaveError, Store, Stored,
    TopicDefinition, TopicId, TopicTable, unplaced,
};
use promethean_event::{EventId, GroupName, Key, Offset, Timestamp};

use super::check::Check;
use super::factory::{Ending, StoreFactory};

/// What is wrong with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The same id is stored again.
    ForgetsIds,
    /// A batch is stored event by event.
    TearsBatches,
    /// Conditions of appends are not looked at.
    IgnoresExpectations,
    /// What is missing is not told.
    HidesGaps,
    /// What has grown before the wait is not told.
    LosesWakeUps,
    /// Saves are growth of some lane.
    WakesForNothing,
    /// A save forgets its dead letters.
    DropsDeadLetters,
    /// Dead letters are stored before the save they belong to, on their own.
    DeadLettersApart,
    /// A save is answered, and not kept.
    ForgetsSaves,
    /// A removed group stays.
    KeepsRemovedGroups,
    /// The last one to put wins, whatever version was expected.
    IgnoresVersions,
    /// What is held is cleaned away.
    IgnoresHolds,
    /// Saves of hubs that have lost their claims are taken.
    IgnoresClaims,
    /// Events of another store are put one behind the other.
    ForgetsPlaces,
}

impl Fault {
    /// All of them, each with the concern that has to find it.
    pub const ALL: &[(Self, &'static str)] = &[
        (Self::ForgetsIds, "idempotence"),
        (Self::TearsBatches, "append"),
        (Self::IgnoresExpectations, "append"),
        (Self::HidesGaps, "cleaning"),
        (Self::LosesWakeUps, "growth"),
        (Self::WakesForNothing, "growth"),
        (Self::DropsDeadLetters, "groups"),
        (Self::DeadLettersApart, "groups"),
        (Self::ForgetsSaves, "groups"),
        (Self::KeepsRemovedGroups, "groups"),
        (Self::IgnoresVersions, "entries"),
        (Self::IgnoresHolds, "cleaning"),
        (Self::IgnoresClaims, "claims"),
        (Self::ForgetsPlaces, "restoring"),
    ];
}

/// Makes stores of another factory wrong.
#[derive(Debug)]
pub struct FaultyFactory {
    inner: Box<dyn StoreFactory>,
    fault: Fault,
    opened: Mutex<Option<Arc<dyn Store>>>,
}

impl FaultyFactory {
    /// Stores of `inner` with a fault.
    pub fn new(inner: Box<dyn StoreFactory>, fault: Fault) -> Self {
        Self { inner, fault, opened: Mutex::new(None) }
    }

    fn wrap(&self, inner: Arc<dyn Store>) -> Arc<dyn Store> {
        let opened = Some(Arc::clone(&inner));
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = opened;
        Arc::new(FaultyStore { inner, fault: self.fault })
    }
}

impl StoreFactory for FaultyFactory {
    fn open(&self) -> BoxFuture<'_, Check<Arc<dyn Store>>> {
        Box::pin(async { Ok(self.wrap(self.inner.open().await?)) })
    }

    fn reopen(
        &self,
        store: Arc<dyn Store>,
        ending: Ending,
    ) -> BoxFuture<'_, Check<Option<Arc<dyn Store>>>> {
        drop(store);
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        Box::pin(async move {
            let Some(opened) = opened else { return Ok(None) };
            let reopened = self.inner.reopen(opened, ending).await?;
            Ok(reopened.map(|store| self.wrap(store)))
        })
    }

    fn pass(&self, millis: u64) -> bool {
        self.inner.pass(millis)
    }
}

#[derive(Debug)]
struct FaultyStore {
    inner: Arc<dyn Store>,
    fault: Fault,
}

impl FaultyStore {
    async fn append_torn(inner: Arc<dyn Store>, append: Append) -> Result<Appended, AppendError> {
        let Append { events, durability, mut expect } = append;
        let mut whole: Option<Appended> = None;
        for event in events {
            let expect = std::mem::take(&mut expect);
            let one = inner.append(Append { events: vec![event], durability, expect }).await?;
            match &mut whole {
                Some(whole) => whole.receipts.extend(one.receipts),
                None => whole = Some(one),
            }
        }
        whole.ok_or(AppendError::Empty)
    }
}

impl Store for FaultyStore {
    fn topics(&self) -> Arc<TopicTable> {
        self.inner.topics()
    }

    fn define(
        &self,
        definition: TopicDefinition,
    ) -> BoxFuture<'static, Result<TopicId, SaveError>> {
        self.inner.define(definition)
    }

    fn remove(&self, topic: TopicId) -> BoxFuture<'static, Result<(), SaveError>> {
        self.inner.remove(topic)
    }

    fn append(&self, mut append: Append) -> BoxFuture<'static, Result<Appended, AppendError>> {
        match self.fault {
            Fault::ForgetsIds => {
                append.events.iter_mut().for_each(|event| event.id = EventId::generate());
            }
            Fault::IgnoresExpectations => append.expect.clear(),
            Fault::TearsBatches => {
                return Box::pin(Self::append_torn(Arc::clone(&self.inner), append));
            }
            _ => {}
        }
        self.inner.append(append)
    }

    fn read(&self, read: Read) -> BoxFuture<'static, Result<Page, ReadError>> {
        let (read, hides) = (self.inner.read(read), self.fault == Fault::HidesGaps);
        Box::pin(async move {
            let mut page = read.await?;
            if hides {
                page.gaps.clear();
            }
            Ok(page)
        })
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
        match self.fault {
            Fault::LosesWakeUps => Box::pin(async move {
                // What is there already is taken for known, unless it is all of it.
                let mut known = mark;
                while mark > 0
                    && let Some(growth) = self.inner.grown(known).now_or_never()
                    && !growth.closed
                {
                    known = growth.mark;
                }
                self.inner.grown(known).await
            }),
            Fault::WakesForNothing => Box::pin(async move {
                let mut growth = self.inner.grown(mark).await;
                let table = self.inner.topics();
                let all = table.users().flat_map(promethean::store::TopicEntry::lanes);
                growth.lanes = Some(all.map(|lane| (lane, Offset::ZERO)).collect());
                growth
            }),
            _ => self.inner.grown(mark),
        }
    }

    fn groups(&self) -> BoxFuture<'_, Result<Vec<GroupName>, ReadError>> {
        self.inner.groups()
    }

    fn group(&self, group: GroupName) -> BoxFuture<'_, Result<Option<GroupRecord>, ReadError>> {
        self.inner.group(group)
    }

    fn save(&self, mut save: GroupSave) -> BoxFuture<'static, Result<(), SaveError>> {
        match self.fault {
            Fault::DropsDeadLetters => save.dead_letters.clear(),
            Fault::ForgetsSaves => save.lanes.clear(),
            Fault::IgnoresClaims => save.claims.clear(),
            Fault::DeadLettersApart => {
                let inner = Arc::clone(&self.inner);
                return Box::pin(async move {
                    for letter in std::mem::take(&mut save.dead_letters) {
                        inner.append(letter.into()).await?;
                    }
                    inner.save(save).await
                });
            }
            _ => {}
        }
        self.inner.save(save)
    }

    fn remove_group(&self, group: GroupName) -> BoxFuture<'static, Result<(), SaveError>> {
        if self.fault == Fault::KeepsRemovedGroups {
            return Box::pin(std::future::ready(Ok(())));
        }
        self.inner.remove_group(group)
    }

    fn put(&self, mut puts: Vec<Put>) -> BoxFuture<'static, Result<(), SaveError>> {
        if self.fault == Fault::IgnoresVersions {
            puts.iter_mut().for_each(|put| put.expect = None);
        }
        self.inner.put(puts)
    }

    fn entries(&self, space: &'static str) -> BoxFuture<'_, Result<Vec<Entry>, ReadError>> {
        self.inner.entries(space)
    }

    fn clean(&self, mut holds: Vec<(Lane, Offset)>) -> BoxFuture<'_, Result<(), ReadError>> {
        if self.fault == Fault::IgnoresHolds {
            holds.clear();
        }
        self.inner.clean(holds)
    }

    fn claims(&self) -> Option<&dyn Claims> {
        self.inner.claims()
    }

    fn restoring(&self) -> Option<&dyn Restore> {
        self.inner.restoring().map(|_| self as &dyn Restore)
    }

    fn failure(&self) -> Option<String> {
        self.inner.failure()
    }

    fn disk_reads(&self) -> u64 {
        self.inner.disk_reads()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}

impl Restore for FaultyStore {
    fn restore(&self, events: Vec<(Lane, Stored)>) -> BoxFuture<'_, Result<(), AppendError>> {
        if self.fault == Fault::ForgetsPlaces {
            let events = events.into_iter().map(|(_, stored)| unplaced(stored.event)).collect();
            let appended = self.inner.append(Append { events, ..Append::default() });
            return Box::pin(async move { appended.await.map(drop) });
        }
        match self.inner.restoring() {
            Some(restore) => restore.restore(events),
            None => Box::pin(std::future::ready(Err(AppendError::Closed))),
        }
    }

    fn place(&self, lanes: Vec<(Lane, LaneBounds)>) -> BoxFuture<'_, Result<(), AppendError>> {
        match self.inner.restoring() {
            Some(restore) => restore.place(lanes),
            None => Box::pin(std::future::ready(Err(AppendError::Closed))),
        }
    }

    fn spaces(&self) -> BoxFuture<'_, Result<Vec<String>, ReadError>> {
        match self.inner.restoring() {
            Some(restore) => restore.spaces(),
            None => Box::pin(std::future::ready(Ok(Vec::new()))),
        }
    }
}
