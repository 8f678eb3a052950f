//! Changes of state on their way into the log: checked, handed over in the order of the calls, and
//! taken into memory by the keeper once they are durable.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;

use futures_core::future::BoxFuture;
use promethean_event::{GroupName, NewEvent, Offset, Timestamp, Topic};
use promethean_log::{self as log, Clock, Log, Ticket};
use tokio::sync::{Notify, futures::Notified, oneshot};

use super::handed::{HandedEntries, HandedGroups, Promise, Sequence};
use super::kept::{EntryChange, GroupChange, Kept};
use super::record::{self, DeltaRecord, Encoded, EntryRecord, RecordError};
use super::translate::log_topic;
use crate::store::limits::CHANGES_WAITING_MAX;
use crate::store::{
    AppendError, GroupSave, Lane, Put, SaveError, TopicDefinition, TopicEntry, TopicId, TopicTable,
    is_reserved, is_space,
};

/// The changes of state of a store.
#[derive(Debug)]
pub(super) struct Journal {
    pub(super) desk: Arc<Desk>,
    keeper: Mutex<Option<JoinHandle<()>>>,
}

/// What callers and the keeper see together.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) log: Log,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) system: SystemTopics,
    pub(super) ledger: Mutex<Ledger>,
    pub(super) arrived: Condvar,
    /// Written by the keeper only.
    pub(super) kept: RwLock<Kept>,
    pub(super) table: RwLock<Topics>,
    pub(super) topics_changed: Notify,
}

/// The topics of the system's.
#[derive(Debug)]
pub(super) struct SystemTopics {
    pub(super) deltas: (Topic, log::Lane),
    pub(super) groups: (Topic, log::Lane),
    pub(super) entries: (Topic, log::Lane),
}

/// All topics, and how often they have changed.
#[derive(Debug, Default)]
pub(super) struct Topics {
    pub(super) table: Arc<TopicTable>,
    pub(super) version: u64,
}

/// What was handed to the log and waits for its answer.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) deltas: Sequence,
    pub(super) entries: Sequence,
    pub(super) handed_groups: HandedGroups,
    pub(super) handed_entries: HandedEntries,
    /// In the order in which the log got it.
    pub(super) waiting: VecDeque<Waiting>,
    pub(super) stop: Option<Stop>,
}

/// How the keeper ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// Once everything is answered, and after a checkpoint.
    Close,
    /// Once everything is answered.
    Drop,
}

/// A change that waits for the log, and those who wait for it.
#[derive(Debug)]
pub(super) enum Waiting {
    Group(Promise, Box<GroupChange>, Answer<()>),
    Entries(Promise, Vec<EntryChange>, Answer<()>),
    Define(Ticket<Result<log::TopicId, log::AppendError>>, TopicDefinition, Answer<TopicId>),
    Remove(Ticket<Result<(), log::AppendError>>, TopicId, Answer<()>),
    /// Nothing new: durable as soon as what was handed over before it. With the number of breaks
    /// so far.
    Nothing(Kind, u64, Answer<()>),
}

/// What a change is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Groups,
    Entries,
}

pub(super) type Answer<T> = oneshot::Sender<Result<T, SaveError>>;

impl Journal {
    pub(super) fn new(desk: Arc<Desk>, keeper: JoinHandle<()>) -> Self {
        Self { desk, keeper: Mutex::new(Some(keeper)) }
    }

    pub(super) fn topics(&self) -> Arc<TopicTable> {
        self.desk.topics()
    }

    pub(super) fn topics_version(&self) -> u64 {
        self.desk.table.read().unwrap_or_else(PoisonError::into_inner).version
    }

    pub(super) fn topics_changed(&self) -> Notified<'_> {
        self.desk.topics_changed.notified()
    }

    pub(super) fn kept(&self) -> RwLockReadGuard<'_, Kept> {
        self.desk.kept()
    }

    pub(super) fn define(
        &self,
        definition: TopicDefinition,
    ) -> BoxFuture<'static, Result<TopicId, SaveError>> {
        if is_reserved(&definition.topic) {
            return refused(AppendError::UnknownTopic(definition.topic).into());
        }
        self.desk.hand(|ledger, answer| {
            let ticket = self.desk.log.define(definition.clone());
            ledger.waiting.push_back(Waiting::Define(ticket, definition, answer));
            Ok(())
        })
    }

    pub(super) fn remove(&self, topic: TopicId) -> BoxFuture<'static, Result<(), SaveError>> {
        let table = self.topics();
        let Some(TopicEntry { definition, .. }) = table.by_id(topic) else {
            return Box::pin(std::future::ready(Ok(())));
        };
        if is_reserved(&definition.topic) {
            return refused(AppendError::UnknownTopic(definition.topic.clone()).into());
        }
        self.desk.hand(|ledger, answer| {
            let ticket = self.desk.log.remove(log_topic(topic));
            ledger.waiting.push_back(Waiting::Remove(ticket, topic, answer));
            Ok(())
        })
    }

    pub(super) fn save(&self, save: GroupSave) -> BoxFuture<'static, Result<(), SaveError>> {
        if let Some(event) = save.dead_letters.iter().find(|event| is_reserved(&event.topic)) {
            return refused(AppendError::UnknownTopic(event.topic.clone()).into());
        }
        let desk = &self.desk;
        let (now, table) = (desk.clock.now(), desk.topics());
        desk.hand(|ledger, answer| desk.hand_save(ledger, save, (now, &table), answer))
    }

    pub(super) fn remove_group(
        &self,
        group: &GroupName,
    ) -> BoxFuture<'static, Result<(), SaveError>> {
        let desk = &self.desk;
        let now = desk.clock.now();
        desk.hand(|ledger, answer| desk.hand_removal(ledger, group, now, answer))
    }

    pub(super) fn put(&self, puts: Vec<Put>) -> BoxFuture<'static, Result<(), SaveError>> {
        let desk = &self.desk;
        let now = desk.clock.now();
        desk.hand(|ledger, answer| desk.hand_puts(ledger, puts, now, answer))
    }

    /// Ends the keeper, after a checkpoint. Blocks.
    pub(super) fn close(&self) {
        self.end(Stop::Close);
    }

    /// Ends the keeper. Blocks.
    pub(super) fn stop(&self) {
        self.end(Stop::Drop);
    }

    fn end(&self, stop: Stop) {
        self.desk.lock().stop.get_or_insert(stop);
        self.desk.arrived.notify_all();
        let keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(keeper) = keeper {
            // One that panicked has nothing left to tell: its senders are gone.
            drop(keeper.join());
        }
    }
}

fn refused<T: Send + 'static>(error: SaveError) -> BoxFuture<'static, Result<T, SaveError>> {
    Box::pin(std::future::ready(Err(error)))
}

impl Desk {
    pub(super) fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn kept(&self) -> RwLockReadGuard<'_, Kept> {
        self.kept.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn topics(&self) -> Arc<TopicTable> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner).table)
    }

    /// Hands a change over under the lock, so that the order of calls is that of the log.
    fn hand<T: Send + 'static>(
        &self,
        hand: impl FnOnce(&mut Ledger, Answer<T>) -> Result<(), SaveError>,
    ) -> BoxFuture<'static, Result<T, SaveError>> {
        let mut ledger = self.lock();
        if ledger.stop.is_some() {
            return refused(AppendError::Closed.into());
        }
        if ledger.waiting.len() >= CHANGES_WAITING_MAX {
            return refused(AppendError::Busy(ledger.waiting.len()).into());
        }
        let first = ledger.waiting.is_empty();
        let (answer, answered) = oneshot::channel();
        if let Err(error) = hand(&mut ledger, answer) {
            return refused(error);
        }
        drop(ledger);
        if first {
            self.arrived.notify_one();
        }
        Box::pin(async move {
            let gone = || SaveError::from(AppendError::Indeterminate("the store is gone".into()));
            answered.await.unwrap_or_else(|_| Err(gone()))
        })
    }

    fn hand_save(
        &self,
        ledger: &mut Ledger,
        save: GroupSave,
        (now, table): (Timestamp, &TopicTable),
        answer: Answer<()>,
    ) -> Result<(), SaveError> {
        if let Some(error) = ledger.deltas.refusal() {
            return Err(error.into());
        }
        let GroupSave { group, settings, lanes, dead_letters, claims: _ } = save;
        let place = ledger.deltas.next;
        let known = ledger.handed_groups.incarnation(&group);
        if known.is_none() && settings.is_none() {
            return Err(SaveError::UnknownGroup(group));
        }
        let mut lanes = lanes;
        lanes.retain(|(lane, _)| table.by_id(lane.topic).is_some());
        let lanes = ledger.handed_groups.fresh(&group, lanes)?;
        if lanes.is_empty() && settings.is_none() && dead_letters.is_empty() {
            let nothing = Waiting::Nothing(Kind::Groups, ledger.deltas.breaks, answer);
            ledger.waiting.push_back(nothing);
            return Ok(());
        }
        let incarnation = known.unwrap_or(place + 1);
        let (removed, bytes) = (false, 0);
        let mut change = GroupChange { place, group, incarnation, settings, lanes, removed, bytes };
        let promise = self.hand_change(ledger, &mut change, (now, dead_letters))?;
        ledger.handed_groups.note(&change.group, incarnation, &change.lanes);
        ledger.waiting.push_back(Waiting::Group(promise, Box::new(change), answer));
        Ok(())
    }

    fn hand_removal(
        &self,
        ledger: &mut Ledger,
        group: &GroupName,
        now: Timestamp,
        answer: Answer<()>,
    ) -> Result<(), SaveError> {
        if let Some(error) = ledger.deltas.refusal() {
            return Err(error.into());
        }
        let Some(incarnation) = ledger.handed_groups.incarnation(group) else {
            let nothing = Waiting::Nothing(Kind::Groups, ledger.deltas.breaks, answer);
            ledger.waiting.push_back(nothing);
            return Ok(());
        };
        let mut change = GroupChange {
            place: ledger.deltas.next,
            group: group.clone(),
            incarnation,
            settings: None,
            lanes: Vec::new(),
            removed: true,
            bytes: 0,
        };
        let promise = self.hand_change(ledger, &mut change, (now, Vec::new()))?;
        ledger.handed_groups.remove(group);
        ledger.waiting.push_back(Waiting::Group(promise, Box::new(change), answer));
        Ok(())
    }

    /// One record of `$deltas`, behind the dead letters that it belongs to, in one append.
    fn hand_change(
        &self,
        ledger: &mut Ledger,
        change: &mut GroupChange,
        (now, mut events): (Timestamp, Vec<NewEvent>),
    ) -> Result<Promise, SaveError> {
        let encoded =
            |(lane, delta): &(Lane, _)| (record::lane_number(*lane), Encoded::delta(delta));
        let content = DeltaRecord {
            group: change.group.clone(),
            incarnation: change.incarnation,
            settings: change.settings.clone(),
            lanes: change.lanes.iter().map(encoded).collect(),
            removed: change.removed,
        };
        let at = (now, Offset::new(change.place));
        let event = record::event(&self.system.deltas.0, None, &content, at);
        let event = event?;
        change.bytes = event.payload.as_bytes().len() as u64;
        events.push(event);
        Ok(ledger.deltas.hand(&self.log, events, 1)?)
    }

    fn hand_puts(
        &self,
        ledger: &mut Ledger,
        puts: Vec<Put>,
        now: Timestamp,
        answer: Answer<()>,
    ) -> Result<(), SaveError> {
        if let Some(error) = ledger.entries.refusal() {
            return Err(error.into());
        }
        for put in &puts {
            if !is_space(put.space) {
                return Err(SaveError::BadSpace(put.space));
            }
            let version = ledger.handed_entries.version(put.space, &put.key);
            if put.expect.is_some_and(|expected| expected != version) {
                return Err(SaveError::Changed { key: put.key.clone(), version });
            }
        }
        let mut changes: Vec<EntryChange> = Vec::with_capacity(puts.len());
        let mut events = Vec::with_capacity(puts.len());
        for put in puts {
            let earlier = changes.iter().rev().find(|c| c.space == put.space && c.key == put.key);
            let there = earlier.map_or_else(
                || ledger.handed_entries.version(put.space, &put.key) > 0,
                |earlier| earlier.value.is_some(),
            );
            if put.value.is_none() && !there {
                continue;
            }
            let place = ledger.entries.next + changes.len() as u64;
            let Put { space, key, value, .. } = put;
            let change = EntryChange { place, space: space.to_owned(), key, value };
            events.push(self.entry_event(&change, now)?);
            changes.push(change);
        }
        if changes.is_empty() {
            let nothing = Waiting::Nothing(Kind::Entries, ledger.entries.breaks, answer);
            ledger.waiting.push_back(nothing);
            return Ok(());
        }
        let promise = ledger.entries.hand(&self.log, events, changes.len() as u64)?;
        for change in &changes {
            let version = change.value.is_some().then_some(change.place + 1);
            ledger.handed_entries.note(&change.space, &change.key, version);
        }
        ledger.waiting.push_back(Waiting::Entries(promise, changes, answer));
        Ok(())
    }

    fn entry_event(&self, change: &EntryChange, now: Timestamp) -> Result<NewEvent, RecordError> {
        let key = record::entry_key(&change.space, &change.key)?;
        let content = EntryRecord {
            space: change.space.clone(),
            key: change.key.clone(),
            value: change.value.clone(),
            deleted: change.value.is_none(),
        };
        let at = (now, Offset::new(change.place));
        record::event(&self.system.entries.0, Some(key), &content, at)
    }
}

/// A record that cannot be made: nothing was handed over.
impl From<RecordError> for SaveError {
    fn from(error: RecordError) -> Self {
        AppendError::Unavailable(error.to_string()).into()
    }
}
