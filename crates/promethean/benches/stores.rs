//! What the stores cost: `cargo bench -p promethean`. Wall time, on a disk that others may use.
#![expect(clippy::print_stdout, reason = "printing the figures is what it is for")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot start has nothing to say")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use promethean::embedded::{EmbeddedOptions, EmbeddedStore};
use promethean::memory::MemoryStore;
use promethean::store::{
    Append, Durability, GroupSave, Lane, LaneDelta, PageLimit, Read, Store, TopicDefinition,
};
use promethean_delivery::Change;
use promethean_event::{
    EventId, GroupName, Key, NewEvent, Offset, Partition, Payload, Timestamp, Topic,
};

const EVENTS: u64 = 400_000;
const SAVES: u64 = 20_000;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    runtime.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let open = || EmbeddedStore::open(folder.path(), EmbeddedOptions::default()).unwrap().0;
        let store: Arc<dyn Store> = Arc::new(open());
        measure("embedded", &store).await;
        store.close().await;
        drop(store);
        let (_, took) = time(async { open() }).await;
        println!("embedded: opened in {took:?}");
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        measure("memory", &store).await;
    });
}

#[expect(clippy::disallowed_methods, reason = "measures real time")]
async fn time<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let begin = Instant::now();
    let result = work.await;
    (result, begin.elapsed())
}

fn each(took: Duration, count: u64) -> u128 {
    took.as_nanos() / u128::from(count)
}

async fn measure(name: &str, store: &Arc<dyn Store>) {
    let topic = Topic::new("orders.placed").unwrap();
    let id = store.define(TopicDefinition::new(topic.clone())).await.unwrap();
    let lane = Lane { topic: id, partition: Partition::ZERO };
    fill(store, &topic).await;
    for page in [100, 1000] {
        let whole = time(read(store, lane, Offset::ZERO, page)).await.1;
        println!("{name}: read, pages of {page}: {} ns per event", each(whole, EVENTS));
        let from = Offset::new(EVENTS - 10_000);
        let disk_reads = store.disk_reads();
        let tail = time(read(store, lane, from, page)).await.1;
        let disk_reads = store.disk_reads() - disk_reads;
        let each = each(tail, 10_000);
        println!(
            "{name}: read newest, pages of {page}: {each} ns per event, {disk_reads} from disk"
        );
    }
    for together in [1, 16, 256] {
        let took = time(saves(store, lane, together)).await.1;
        println!("{name}: {together} groups saving: {} ns per save", each(took, SAVES));
    }
}

async fn fill(store: &Arc<dyn Store>, topic: &Topic) {
    let payload = Payload::of(&"x".repeat(160)).unwrap();
    for first in (0..EVENTS).step_by(1000) {
        let event = |number: u64| {
            let ts = Timestamp::from_millis(number);
            NewEvent::new(EventId::generate(), ts, topic.clone(), payload.clone())
                .with_key(Key::new(format!("key {}", number % 1000)).unwrap())
        };
        let events = (first..first + 1000).map(event).collect();
        let append = Append { events, durability: Durability::Written, expect: Vec::new() };
        store.append(append).await.unwrap();
    }
}

async fn read(store: &Arc<dyn Store>, lane: Lane, from: Offset, events: usize) {
    let mut from = from;
    let limit = PageLimit { events, bytes: usize::MAX };
    loop {
        let page = store.read(Read::From { lane, from, limit }).await.unwrap();
        if page.events.is_empty() {
            break;
        }
        from = page.next;
    }
    assert_eq!(from.get(), EVENTS);
}

/// So many groups, each of which waits for its save before the next one.
async fn saves(store: &Arc<dyn Store>, lane: Lane, groups: u64) {
    let mut members = Vec::new();
    for number in 0..groups {
        let store = Arc::clone(store);
        members.push(tokio::spawn(async move {
            let group = GroupName::new(&format!("group-{groups}-{number}")).unwrap();
            let mut save = GroupSave {
                group,
                settings: Some(Payload::of("shared").unwrap()),
                lanes: Vec::new(),
                dead_letters: Vec::new(),
                claims: Vec::new(),
            };
            for version in 1..=SAVES / groups {
                let changes = vec![Change::Floor(version * 100), Change::Horizon(version * 200)];
                save.lanes = vec![(lane, LaneDelta { version, changes })];
                store.save(save.clone()).await.unwrap();
                save.settings = None;
            }
        }));
    }
    for member in members {
        member.await.unwrap();
    }
}
