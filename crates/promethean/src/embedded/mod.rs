//! The store on one machine: everything is in one log, in the folder `log` of the store's own.
//!
//! Events are the log's. The state of groups is in it too, in topics of the system's:
//!
//! - `$deltas`: one record for each save, in the same frame as the dead letters that go with it.
//! - `$groups`: now and then the state of all groups as a whole, a checkpoint. Its last record, the
//!   mark, says which deltas are in it; then those, and the checkpoint before, are trimmed.
//! - `$entries`: the small things of [`Store::put`], compacted by key.
//!
//! Opening takes the checkpoint with the last mark and brings it forward with the deltas behind it;
//! a checkpoint without a mark was cut off by a crash and does not count. Applying a delta twice is
//! harmless, because deltas are numbered; those of an earlier group of the same name are told by
//! its incarnation. In memory are all states of groups and all entries.
//!
//! Limits: `store/limits.rs`. Why it is so: `ARCHITECTURE.md`.

mod translate;

mod reading;

mod readers;

mod record;

mod kept;

mod handed;

mod journal;

mod keeper;

mod checkpoint;

mod growth;

mod restore;

mod open;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use futures_core::future::BoxFuture;
use promethean_event::{EventId, GroupName, Key, Offset, Timestamp};
use promethean_log::{Disk, Glimpse, Log, WrittenBy};
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::store::{
    Append, AppendError, Appended, Entry, EventPage, Expectation, GroupRecord, GroupSave, Growth,
    KeyPage, KeyQuery, Lane, LaneBounds, Page, PageLimit, Put, Read, ReadError, Restore, Run,
    SaveError, Store, Stored, TopicDefinition, TopicId, TopicTable, is_reserved,
};

use journal::Journal;
pub use open::{EmbeddedOptions, OpenError, OpenReport};
use readers::Readers;
use translate::{holds, log_lane, log_part, log_topic};

/// How often a glimpse is tried.
const GLIMPSES_MAX: u32 = 16;

/// A store in a folder of this machine. Only one process can have it open.
///
/// Reads of what is not in memory run on the blocking threads of the tokio runtime that calls.
pub struct EmbeddedStore {
    log: Log,
    journal: Arc<Journal>,
    readers: Arc<Readers>,
    damage: Arc<Mutex<Vec<promethean_log::Damage>>>,
}

impl EmbeddedStore {
    /// Takes note of damage, and says so once.
    fn note(damage: &Mutex<Vec<promethean_log::Damage>>, found: Vec<promethean_log::Damage>) {
        let mut known = damage.lock().unwrap_or_else(PoisonError::into_inner);
        for one in found {
            let same = |other: &promethean_log::Damage| {
                (&other.file, &other.bytes) == (&one.file, &one.bytes)
            };
            if !known.iter().any(same) {
                let (bytes, seqs) = (&one.bytes, &one.seqs);
                tracing::error!(file = one.file, ?bytes, ?seqs, reason = one.reason, "damage");
                known.push(one);
            }
        }
    }

    /// What the log itself would not refuse.
    fn check(&self, append: &Append) -> Result<(), AppendError> {
        if let Some(event) = append.events.iter().find(|event| is_reserved(&event.topic)) {
            return Err(AppendError::UnknownTopic(event.topic.clone()));
        }
        match append.expect.iter().find(|expected| self.is_unknown(expected)) {
            Some(expected) => Err(AppendError::UnknownLane(expected.lane)),
            None => Ok(()),
        }
    }

    fn is_unknown(&self, expected: &Expectation) -> bool {
        self.log.lane(log_lane(expected.lane)).is_none()
    }

    /// Opens the store in a folder, making it if it is not there. Blocks.
    pub fn open(path: &Path, options: EmbeddedOptions) -> Result<(Self, OpenReport), OpenError> {
        let (log_options, settings) = options.split();
        let (log, report) = Log::open_dir(&path.join("log"), log_options)?;
        open::open(log, report, settings)
    }

    /// The store in a folder as it is at this moment, also while another process has it open: to read
    /// from. Changes nothing there; what is written to it goes with it. Blocks.
    pub fn glimpse(path: &Path) -> Result<Self, OpenError> {
        let mut options = EmbeddedOptions::default();
        // Nothing is kept ready for what will not come.
        (options.log.spare_segments, options.log.free_bytes_min) = (0, 0);
        let mut tries = GLIMPSES_MAX;
        loop {
            tries -= 1;
            let opened =
                Glimpse::of(&path.join("log")).map_err(|error| OpenError::Log(error.into()));
            let opened = opened.and_then(|disk| Self::open_on(Arc::new(disk), options.clone()));
            // What is being written, or cleaned away, at this moment is whole at the next one.
            match opened {
                Ok((store, report)) if report.log.damage.is_empty() => return Ok(store),
                Ok((_, report)) if tries == 0 => {
                    let damage = report.log.damage.into_iter().next();
                    let (file, reason) = damage.map_or_else(
                        || (String::new(), "it is damaged"),
                        |damage| (damage.file, damage.reason),
                    );
                    return Err(OpenError::Log(promethean_log::OpenError::Damaged {
                        file,
                        reason,
                    }));
                }
                Err(error) if tries == 0 => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Opens the store on a disk that nobody else uses. Blocks.
    pub fn open_on(
        disk: Arc<dyn Disk>,
        options: EmbeddedOptions,
    ) -> Result<(Self, OpenReport), OpenError> {
        let (log_options, settings) = options.split();
        let (log, report) = Log::open(disk, log_options)?;
        open::open(log, report, settings)
    }

    /// The log under it.
    pub const fn log(&self) -> &Log {
        &self.log
    }

    fn check_topic(&self, topic: TopicId) -> Result<Arc<TopicTable>, ReadError> {
        let table = self.journal.topics();
        if table.by_id(topic).is_none() {
            return Err(ReadError::UnknownLane);
        }
        Ok(table)
    }

    /// Asks the log on a thread that may block, about a topic that is there.
    fn ask<T: Send + 'static>(
        &self,
        topic: TopicId,
        question: impl FnOnce(&Log, &TopicTable) -> Result<T, ReadError> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, ReadError>> {
        let table = match self.check_topic(topic) {
            Ok(table) => table,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let log = self.log.clone();
        Box::pin(blocking(move || question(&log, &table)))
    }
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedStore").field("log", &self.log).finish_non_exhaustive()
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.journal.stop();
    }
}

/// Who writes what a task appends. Its own thread, where the runtime has another one: to wake the
/// writer and to be woken by it takes as long as a sync. The log bounds how long the thread is away, and
/// lets one write at a time.
fn written_by() -> WrittenBy {
    let spared = Handle::try_current().is_ok_and(|runtime| {
        runtime.runtime_flavor() == RuntimeFlavor::MultiThread
            && runtime.metrics().num_workers() > 1
    });
    if spared { WrittenBy::CallerIfQuick } else { WrittenBy::Writer }
}

/// Runs what may block apart from the tasks.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ReadError> + Send + 'static,
) -> Result<T, ReadError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(ReadError::Failed(error.to_string())),
    }
}

impl Store for EmbeddedStore {
    fn topics(&self) -> Arc<TopicTable> {
        self.journal.topics()
    }

    fn define(
        &self,
        definition: TopicDefinition,
    ) -> BoxFuture<'static, Result<TopicId, SaveError>> {
        self.journal.define(definition)
    }

    fn remove(&self, topic: TopicId) -> BoxFuture<'static, Result<(), SaveError>> {
        let removed = self.journal.remove(topic);
        self.readers.forget();
        removed
    }

    fn append(&self, append: Append) -> BoxFuture<'static, Result<Appended, AppendError>> {
        if let Err(refused) = self.check(&append) {
            return Box::pin(std::future::ready(Err(refused)));
        }
        let part = log_part(append.events.len(), append.durability, &append.expect);
        let answers = self.log.append_run(&append.events, &[part], written_by());
        Box::pin(async move {
            let answer = answers.await.pop().ok_or(AppendError::Closed)?;
            answer.map(Into::into).map_err(Into::into)
        })
    }

    fn append_run(&self, run: Run) -> BoxFuture<'static, Vec<Result<Appended, AppendError>>> {
        let mut expected = run.parts().iter().flat_map(|part| &part.expect);
        if expected.any(|expected| self.is_unknown(expected))
            || run.events().iter().any(|event| is_reserved(&event.topic))
        {
            // Some are refused here: each goes by itself.
            let each: Vec<_> = run.into_appends().map(|append| self.append(append)).collect();
            return Box::pin(futures_util::future::join_all(each));
        }
        let parts = run.parts().iter();
        let parts = parts.map(|part| log_part(part.events, part.durability, &part.expect));
        let parts: Vec<_> = parts.collect();
        let answers = self.log.append_run(run.events(), &parts, written_by());
        Box::pin(async move {
            let answers = answers.await.into_iter();
            answers.map(|answer| answer.map(Into::into).map_err(Into::into)).collect()
        })
    }

    fn read(&self, read: Read) -> BoxFuture<'static, Result<Page, ReadError>> {
        reading::read(&self.readers, &self.log, &self.journal.topics(), read)
    }

    fn fetch(
        &self,
        lane: Lane,
        from: Offset,
        limit: PageLimit,
    ) -> BoxFuture<'static, Result<EventPage, ReadError>> {
        reading::fetch(&self.readers, &self.log, &self.journal.topics(), (lane, from, limit))
    }

    fn bounds(&self, lane: Lane) -> BoxFuture<'_, Result<LaneBounds, ReadError>> {
        let known = self.log.lane(log_lane(lane)).ok_or(ReadError::UnknownLane);
        let bounds = known.map(|known| LaneBounds { start: known.start, next: known.next });
        Box::pin(std::future::ready(bounds))
    }

    fn offset_at(&self, lane: Lane, time: Timestamp) -> BoxFuture<'_, Result<Offset, ReadError>> {
        self.ask(lane.topic, move |log, _| Ok(log.offset_at(log_lane(lane), time)?))
    }

    fn find(
        &self,
        topic: TopicId,
        id: EventId,
    ) -> BoxFuture<'_, Result<Option<Stored>, ReadError>> {
        self.ask(topic, move |log, table| {
            let record = log.find(log_topic(topic), &id)?;
            record.map(|record| reading::stored(&record, table)).transpose()
        })
    }

    fn latest(
        &self,
        topic: TopicId,
        keys: Vec<Key>,
    ) -> BoxFuture<'_, Result<Vec<Option<Stored>>, ReadError>> {
        self.ask(topic, move |log, table| {
            let records = log.latest_many(log_topic(topic), &keys)?;
            let stored = |record: Option<_>| {
                record.map(|record| reading::stored(&record, table)).transpose()
            };
            records.into_iter().map(stored).collect()
        })
    }

    fn keys(&self, query: KeyQuery) -> BoxFuture<'_, Result<KeyPage, ReadError>> {
        self.ask(query.topic, move |log, table| reading::keys(log, table, &query))
    }

    fn history(
        &self,
        topic: TopicId,
        key: Key,
        max: usize,
    ) -> BoxFuture<'_, Result<Vec<Stored>, ReadError>> {
        self.ask(topic, move |log, table| {
            let records = log.history(log_topic(topic), &key, max)?;
            records.iter().map(|record| reading::stored(record, table)).collect()
        })
    }

    fn grown(&self, mark: u64) -> BoxFuture<'_, Growth> {
        Box::pin(growth::grown(&self.log, &self.journal, mark))
    }

    fn groups(&self) -> BoxFuture<'_, Result<Vec<GroupName>, ReadError>> {
        let names = self.journal.kept().groups.keys().cloned().collect();
        Box::pin(std::future::ready(Ok(names)))
    }

    fn group(&self, group: GroupName) -> BoxFuture<'_, Result<Option<GroupRecord>, ReadError>> {
        let table = self.journal.topics();
        let record = self.journal.kept().group(&group, &table);
        Box::pin(std::future::ready(Ok(record)))
    }

    fn save(&self, save: GroupSave) -> BoxFuture<'static, Result<(), SaveError>> {
        self.journal.save(save)
    }

    fn remove_group(&self, group: GroupName) -> BoxFuture<'static, Result<(), SaveError>> {
        self.journal.remove_group(&group)
    }

    fn put(&self, puts: Vec<Put>) -> BoxFuture<'static, Result<(), SaveError>> {
        self.journal.put(puts)
    }

    fn entries(&self, space: &'static str) -> BoxFuture<'_, Result<Vec<Entry>, ReadError>> {
        let entries = self.journal.kept().entries_of(space);
        Box::pin(std::future::ready(Ok(entries)))
    }

    fn clean(&self, held: Vec<(Lane, Offset)>) -> BoxFuture<'_, Result<(), ReadError>> {
        let (log, readers) = (self.log.clone(), Arc::clone(&self.readers));
        Box::pin(blocking(move || {
            // Before, so that no open reader keeps a file from being used again; after, so that
            // none shows what is gone.
            readers.forget();
            // Segments without a side file are left alone; one that was sealed a moment ago may
            // still wait for its own.
            log.settle()?;
            let cleaned = log.clean(&holds(held));
            readers.forget();
            cleaned.map(drop).map_err(Into::into)
        }))
    }

    fn restoring(&self) -> Option<&dyn Restore> {
        Some(self)
    }

    fn failure(&self) -> Option<String> {
        self.log.failure()
    }

    fn damage(&self) -> Vec<String> {
        let known = self.damage.lock().unwrap_or_else(PoisonError::into_inner);
        let line = |one: &promethean_log::Damage| {
            let promethean_log::Damage { file, bytes, seqs, reason } = one;
            let (from, to) = (bytes.start, bytes.end);
            let events = match seqs.end.saturating_sub(seqs.start) {
                0 => String::new(),
                _ => format!(", seqs {} to {}", seqs.start, seqs.end),
            };
            format!("{file} bytes {from} to {to}{events}: {reason}")
        };
        known.iter().map(line).collect()
    }

    fn scrub(&self, place: u64) -> BoxFuture<'_, Result<usize, ReadError>> {
        let (log, damage) = (self.log.clone(), Arc::clone(&self.damage));
        Box::pin(blocking(move || {
            let scrubbed = log.scrub(place)?;
            Self::note(&damage, scrubbed.damage);
            Ok(scrubbed.segments)
        }))
    }

    fn disk_reads(&self) -> u64 {
        self.log.disk_reads()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        let (log, journal) = (self.log.clone(), Arc::clone(&self.journal));
        Box::pin(async move {
            let closed = tokio::task::spawn_blocking(move || {
                journal.close();
                log.close();
            });
            // A thread that panicked has nothing left to close.
            drop(closed.await);
        })
    }
}
