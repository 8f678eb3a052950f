//! Every step of the database and of the store fails once, for every place where it can: views end
//! up as if nothing had happened, and nothing is emitted twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use futures_core::future::BoxFuture;
use promethean_event::{
    Event, EventId, GroupName, Key, NewEvent, Offset, Payload, Timestamp, Topic,
};
use tempfile::TempDir;

use super::database::Faults;
use super::{
    Changelog, Declared, ProjectionState, Source, Transaction, Transactional, View, Views,
};
use crate::memory::MemoryStore;
use crate::store::{
    Append, AppendError, Appended, Entry, GroupRecord, GroupSave, Growth, KeyPage, KeyQuery, Lane,
    LaneBounds, Page, Put, Read, ReadError, SaveError, Store, Stored, TopicDefinition, TopicId,
    TopicTable,
};
use crate::{Bus, BusOptions, Failure};

/// A store whose n-th append or read fails, once; an append that fails may have happened.
#[derive(Debug)]
struct FailingStore {
    store: MemoryStore,
    left: AtomicI64,
    /// Partition 1 seems empty until something fails.
    hides: AtomicBool,
}

impl FailingStore {
    fn new() -> Self {
        let (left, hides) = (AtomicI64::new(i64::MAX), AtomicBool::new(false));
        Self { store: MemoryStore::new(), left, hides }
    }

    fn fails(&self) -> bool {
        self.left.fetch_sub(1, Ordering::SeqCst) == 0
    }
}

macro_rules! passes_on {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($argument: $type),*) -> $result { self.store.$name($($argument),*) })*
    };
}

impl Store for FailingStore {
    fn append(&self, append: Append) -> BoxFuture<'static, Result<Appended, AppendError>> {
        if self.fails() {
            self.hides.store(false, Ordering::SeqCst);
            // It happened, but nobody heard of it.
            drop(self.store.append(append));
            let lost = AppendError::Indeterminate("injected".into());
            return Box::pin(std::future::ready(Err(lost)));
        }
        self.store.append(append)
    }

    fn read(&self, read: Read) -> BoxFuture<'static, Result<Page, ReadError>> {
        if self.fails() {
            return Box::pin(std::future::ready(Err(ReadError::Failed("injected".into()))));
        }
        if let Read::From { lane, from, .. } = read
            && lane.partition.get() == 1
            && self.hides.load(Ordering::SeqCst)
        {
            let empty = Page { next: from, ..Page::default() };
            return Box::pin(std::future::ready(Ok(empty)));
        }
        self.store.read(read)
    }

    fn find(
        &self,
        topic: TopicId,
        id: EventId,
    ) -> BoxFuture<'_, Result<Option<Stored>, ReadError>> {
        self.store.find(topic, id)
    }

    fn latest(
        &self,
        topic: TopicId,
        keys: Vec<Key>,
    ) -> BoxFuture<'_, Result<Vec<Option<Stored>>, ReadError>> {
        self.store.latest(topic, keys)
    }

    fn history(
        &self,
        topic: TopicId,
        key: Key,
        max: usize,
    ) -> BoxFuture<'_, Result<Vec<Stored>, ReadError>> {
        self.store.history(topic, key, max)
    }

    passes_on! {
        topics() -> Arc<TopicTable>;
        define(definition: TopicDefinition) -> BoxFuture<'static, Result<TopicId, SaveError>>;
        remove(topic: TopicId) -> BoxFuture<'static, Result<(), SaveError>>;
        bounds(lane: Lane) -> BoxFuture<'_, Result<LaneBounds, ReadError>>;
        offset_at(lane: Lane, time: Timestamp) -> BoxFuture<'_, Result<Offset, ReadError>>;
        keys(query: KeyQuery) -> BoxFuture<'_, Result<KeyPage, ReadError>>;
        grown(mark: u64) -> BoxFuture<'_, Growth>;
        groups() -> BoxFuture<'_, Result<Vec<GroupName>, ReadError>>;
        group(group: GroupName) -> BoxFuture<'_, Result<Option<GroupRecord>, ReadError>>;
        save(save: GroupSave) -> BoxFuture<'static, Result<(), SaveError>>;
        remove_group(group: GroupName) -> BoxFuture<'static, Result<(), SaveError>>;
        put(puts: Vec<Put>) -> BoxFuture<'static, Result<(), SaveError>>;
        entries(space: &'static str) -> BoxFuture<'_, Result<Vec<Entry>, ReadError>>;
        clean(holds: Vec<(Lane, Offset)>) -> BoxFuture<'_, Result<(), ReadError>>;
        failure() -> Option<String>;
        close() -> BoxFuture<'_, ()>;
    }
}

const EVENTS: usize = 12;

fn event(n: usize) -> NewEvent {
    let payload = match n {
        3 => "null".to_owned(),
        _ => format!(r#"{{"n":{n},"v":{}}}"#, n % 5),
    };
    let payload = Payload::parse(payload).unwrap();
    let topic = Topic::new("source").unwrap();
    let mut event = NewEvent::new(EventId::generate(), Timestamp::from_millis(1), topic, payload);
    event.key = Some(Key::new(format!("k{}", n % 3)).unwrap());
    event
}

fn count(tx: &mut Transaction<'_>, event: &Event) -> Result<(), Failure> {
    if event.offset.get() == 7 {
        return Err(Failure::park("seven"));
    }
    let seen = tx.read::<u64>("counts", "all")?.unwrap_or(0) + 1;
    tx.put("counts", "all", &seen)?;
    let topic = Topic::new("out").map_err(Failure::park)?;
    let payload = Payload::of(&seen).map_err(Failure::park)?;
    tx.emit(NewEvent::new(EventId::generate(), event.ts, topic, payload))?;
    Ok(())
}

/// What is there in the end: all rows, what was emitted, dead letters.
#[derive(Debug, PartialEq)]
struct Outcome {
    rows: Vec<String>,
    emitted: Vec<String>,
    letters: u64,
}

struct Fault {
    database: Faults,
    store: i64,
}

async fn run(fault: Fault) -> Outcome {
    let store = Arc::new(FailingStore::new());
    let bus = Bus::with_store(Arc::clone(&store) as Arc<dyn Store>, BusOptions::default());
    bus.publish_batch((0..EVENTS).map(event).collect()).await.unwrap();
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("state.db");
    let views = Views::open_with(&bus, &path, fault.database).await.unwrap();
    store.left.store(fault.store, Ordering::SeqCst);
    let version = Some(Source::Payload("/v".into()));
    let declared = Declared { version, ..Declared::default() };
    let versioned = Changelog::new(View::new("versioned"), "source").declared(declared).batch(5);
    let counts = Transactional::new("counts").topic("source").view(View::new("counts")).batch(5);
    let mut rows = Vec::new();
    let mut started = Vec::new();
    for n in 0..3 {
        loop {
            let projection = match n {
                0 => views.changelog(Changelog::new(View::new("plain"), "source").batch(5)).await,
                1 => views.changelog(versioned.clone()).await,
                _ => views.transactional(counts.clone().apply(count)).await,
            };
            // Starting may fail, too: then it is started again.
            if let Ok(projection) = projection {
                started.push(projection);
                break;
            }
        }
    }
    for (projection, view) in started.iter().zip(["plain", "versioned", "counts"]) {
        projection.caught_up().await.unwrap();
        let documents = projection.scan(view, None, 100).await.unwrap();
        rows.extend(documents.iter().map(|document| document.to_json()));
    }
    let mut lengths = Vec::new();
    for topic in ["out", "dlq.source"] {
        let topics = bus.topics();
        let lane = topics.get(&Topic::new(topic).unwrap()).unwrap().lanes().next().unwrap();
        lengths.push((lane, store.store.bounds(lane).await.unwrap().next.get()));
    }
    let (out, _) = lengths[0];
    let read = Read::From { lane: out, from: Offset::ZERO, limit: Default::default() };
    let page = store.store.read(read).await.unwrap();
    let emitted = page.events.iter().map(|stored| stored.event.payload.as_str().to_owned());
    Outcome { rows, emitted: emitted.collect(), letters: lengths[1].1 }
}

#[tokio::test(start_paused = true)]
async fn a_failure_at_any_step_changes_nothing_in_the_end() {
    let whole = run(Fault { database: Faults::default(), store: i64::MAX }).await;
    assert_eq!(whole.emitted.len(), EVENTS - 1);
    assert_eq!(whole.letters, 1);
    let mut steps = 0;
    loop {
        let (database, left) = Faults::after(steps);
        assert_eq!(run(Fault { database, store: i64::MAX }).await, whole, "database step {steps}");
        if left.load(Ordering::SeqCst) > 0 {
            break;
        }
        steps += 1;
    }
    assert!(steps > 30, "{steps}");
    for step in 0..20 {
        let fault = Fault { database: Faults::default(), store: step };
        assert_eq!(run(fault).await, whole, "store step {step}");
    }
}

/// What an event emits may depend on events of other partitions before it. If the batch is done
/// again after something was appended for it, it is the same batch in the same order, also if
/// another partition shows earlier events by then.
#[tokio::test(start_paused = true)]
async fn what_was_appended_for_is_done_again_in_the_same_order() {
    let store = Arc::new(FailingStore::new());
    let bus = Bus::with_store(Arc::clone(&store) as Arc<dyn Store>, BusOptions::default());
    let mut definition = TopicDefinition::new(Topic::new("source").unwrap());
    definition.partitions = promethean_event::PartitionCount::new(2).unwrap();
    bus.define(definition).await.unwrap();
    bus.publish_batch((0..40).map(event).collect()).await.unwrap();
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("state.db");
    let views = Views::open(&bus, &path).await.unwrap();
    let lanes: Vec<Lane> =
        bus.topics().get(&Topic::new("source").unwrap()).unwrap().lanes().collect();
    for lane in &lanes {
        assert!(store.store.bounds(*lane).await.unwrap().next.get() > 5, "both have events");
    }
    // Three reads go through (both partitions, and the end of the one that shows), the append does
    // not.
    store.hides.store(true, Ordering::SeqCst);
    store.left.store(3, Ordering::SeqCst);
    let third = Transactional::new("third").topic("source").view(View::new("counts"));
    let third = third.apply(|tx, event| {
        let seen = tx.read::<u64>("counts", "all")?.unwrap_or(0) + 1;
        tx.put("counts", "all", &seen)?;
        if seen.is_multiple_of(3) {
            let topic = Topic::new("out").map_err(Failure::park)?;
            let payload = Payload::of(&seen).map_err(Failure::park)?;
            tx.emit(NewEvent::new(EventId::generate(), event.ts, topic, payload))?;
        }
        Ok(())
    });
    let projection = views.transactional(third).await.unwrap();
    let failed = |progress: &super::Progress| !matches!(progress.state, ProjectionState::Running);
    let mut progress = projection.watch();
    let first = progress.wait_for(|progress| failed(progress) && !progress.cursors.is_empty());
    drop(first.await.unwrap());
    assert!(!store.hides.load(Ordering::SeqCst), "it was the append that failed");
    projection.caught_up().await.unwrap();
    let topics = bus.topics();
    let out = topics.get(&Topic::new("out").unwrap()).unwrap().lanes().next().unwrap();
    let read = Read::From { lane: out, from: Offset::ZERO, limit: Default::default() };
    let page = store.store.read(read).await.unwrap();
    let emitted: Vec<u64> =
        page.events.iter().map(|stored| stored.event.payload.decode().unwrap()).collect();
    assert_eq!(emitted, (1..=13).map(|n| n * 3).collect::<Vec<u64>>());
}

/// One that has failed let go of what it had not read: by the time that somebody had mended it,
/// retention could have taken its events.
#[tokio::test]
async fn what_one_that_failed_has_not_read_is_not_cleaned_away() {
    let bus = Bus::with_store(Arc::new(MemoryStore::new()), BusOptions::default());
    let mut definition = TopicDefinition::new(Topic::new("source").unwrap());
    definition.cleaning.bytes_max = Some(1);
    bus.define(definition).await.unwrap();
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("state.db");
    let views = Views::open(&bus, &path).await.unwrap();
    let plain = Changelog::new(View::new("plain"), "source");
    let projection = views.changelog(plain).await.unwrap();
    bus.publish_batch((0..EVENTS).map(event).collect()).await.unwrap();
    projection.caught_up().await.unwrap();
    let tool = rusqlite::Connection::open(&path).unwrap();
    tool.execute_batch("ALTER TABLE plain RENAME TO gone").unwrap();
    bus.publish_batch((0..EVENTS).map(event).collect()).await.unwrap();
    let mut progress = projection.watch();
    let failed = |now: &super::Progress| matches!(now.state, ProjectionState::Failed { .. });
    drop(progress.wait_for(failed).await.unwrap());
    bus.inner.clean().await.unwrap();
    let lane = bus.topics().get(&Topic::new("source").unwrap()).unwrap().lanes().next().unwrap();
    assert_eq!(bus.store().bounds(lane).await.unwrap().start.get(), EVENTS as u64);
    tool.execute_batch("ALTER TABLE gone RENAME TO plain").unwrap();
    projection.resume().await.unwrap();
    progress.wait_for(|now| !failed(now)).await.unwrap();
    projection.caught_up().await.unwrap();
    assert_eq!(projection.progress().missed, 0);
    bus.inner.clean().await.unwrap();
    assert_eq!(bus.store().bounds(lane).await.unwrap().start.get(), 2 * EVENTS as u64);
}
