use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use promethean::event::{Event, Key, Offset, Payload, Timestamp, Topic};
use promethean::memory::MemoryStore;
use promethean::store::{Compaction, Store, TopicDefinition};
use promethean::{AsOf, AsOfError, Bus, BusOptions, Moment};
use promethean_log::Clock;

use super::scenario::{TOPIC, event};

#[derive(Debug, Default)]
struct TestClock(AtomicU64);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

struct Past {
    bus: Bus,
    clock: Arc<TestClock>,
}

impl Past {
    fn new() -> Self {
        let clock = Arc::new(TestClock::default());
        let store: Arc<dyn Store> =
            Arc::new(MemoryStore::with_clock(Arc::clone(&clock) as Arc<dyn Clock>));
        Self { bus: Bus::with_store(store, BusOptions::default()), clock }
    }

    /// Appended at a time, with an event time of its own.
    async fn publish(&self, at: u64, ts: u64, key: &str, payload: &str) -> Offset {
        self.clock.0.store(at, Ordering::SeqCst);
        let event = event(Some(key), payload);
        self.bus.publish(event).at(Timestamp::from_millis(ts)).await.unwrap().offset
    }

    async fn at(&self, key: &str, moment: Moment) -> AsOf<Payload> {
        self.bus.as_of(&topic(), &Key::new(key).unwrap(), moment).await.unwrap()
    }

    async fn value(&self, key: &str, moment: Moment) -> String {
        match self.at(key, moment).await {
            AsOf::State { value, .. } => value.as_str().to_owned(),
            other => format!("{other:?}").chars().take(8).collect(),
        }
    }
}

fn topic() -> Topic {
    Topic::new(TOPIC).unwrap()
}

fn appended(ms: u64) -> Moment {
    Moment::Appended(Timestamp::from_millis(ms))
}

fn happened(ms: u64) -> Moment {
    Moment::Happened(Timestamp::from_millis(ms))
}

/// Pitfalls 152, 153 and 156.
#[tokio::test]
async fn a_key_as_it_was() {
    let past = Past::new();
    past.publish(10, 1, "other", "0").await;
    past.publish(20, 1, "a", "1").await;
    past.publish(20, 1, "a", "2").await;
    past.publish(30, 1, "a", "null").await;
    past.publish(40, 1, "a", "3").await;
    for (ms, expected) in
        [(9, "NeverExi"), (19, "NeverExi"), (20, "2"), (29, "2"), (30, "Deleted "), (99, "3")]
    {
        assert_eq!(past.value("a", appended(ms)).await, expected, "{ms}");
    }
    for (offset, expected) in [(0, "NeverExi"), (1, "1"), (2, "2"), (3, "Deleted "), (4, "3")] {
        assert_eq!(past.value("a", Moment::Offset(Offset::new(offset))).await, expected);
    }
    let beyond = Moment::Offset(Offset::new(5));
    let beyond = past.bus.as_of(&topic(), &Key::new("a").unwrap(), beyond).await;
    assert!(matches!(beyond, Err(AsOfError::Read(_))));
    assert_eq!(past.value("nobody", appended(99)).await, "NeverExi");
}

/// Pitfall 154: what was known then, and what happened then, are two questions.
#[tokio::test]
async fn a_late_event_changes_what_happened_but_not_what_was_known() {
    let past = Past::new();
    past.publish(100, 10, "a", "1").await;
    past.publish(200, 30, "a", "3").await;
    assert_eq!(past.value("a", happened(25)).await, "1");
    past.publish(300, 20, "a", "2").await;
    assert_eq!(past.value("a", happened(25)).await, "2");
    assert_eq!(past.value("a", happened(30)).await, "3");
    assert_eq!(past.value("a", appended(250)).await, "3");
    assert_eq!(past.value("a", appended(300)).await, "2");
}

/// Pitfall 155: what has expired or was compacted is said.
#[tokio::test]
async fn before_retained_history_is_not_never() {
    let past = Past::new();
    let mut definition = TopicDefinition::new(topic());
    definition.cleaning.age_ms_max = Some(100);
    past.bus.define(definition.clone()).await.unwrap();
    past.publish(10, 1, "a", "1").await;
    past.publish(150, 1, "a", "2").await;
    past.publish(150, 1, "b", "2").await;
    past.clock.0.store(200, Ordering::SeqCst);
    past.bus.store().clean(Vec::new()).await.unwrap();
    let before = past.at("a", appended(20)).await;
    let AsOf::BeforeHistory { first: Some(first), starts_at, .. } = before else {
        panic!("{before:?}");
    };
    assert_eq!((first.event.offset.get(), starts_at.get()), (1, 1));
    assert_eq!(past.value("a", appended(150)).await, "2");
    // Nothing at all had been appended by then.
    assert_eq!(past.value("a", appended(9)).await, "BeforeHi");

    let past = Past::new();
    definition.cleaning.age_ms_max = None;
    definition.cleaning.compaction = Some(Compaction { age_ms_min: 50, tombstone_ms: 0 });
    past.bus.define(definition).await.unwrap();
    for (at, value) in [(10, "1"), (20, "2"), (30, "3"), (200, "4")] {
        past.publish(at, 1, "a", value).await;
    }
    past.clock.0.store(230, Ordering::SeqCst);
    past.bus.store().clean(Vec::new()).await.unwrap();
    assert_eq!(past.value("a", appended(25)).await, "BeforeHi");
    let newest = past.at("a", appended(300)).await;
    assert!(matches!(newest, AsOf::State { is_complete: true, .. }), "{newest:?}");
}

/// Pitfalls 150 and 151: a long history is read as far as it must be, and never cut silently.
#[tokio::test]
async fn long_histories_are_followed_to_their_beginning() {
    let past = Past::new();
    for n in 0..2_000 {
        past.publish(n, n, if n % 2 == 0 { "a" } else { "b" }, &n.to_string()).await;
    }
    for ms in [0, 2, 998, 1998] {
        assert_eq!(past.value("a", appended(ms)).await, ms.to_string());
    }
    let count = |state: Option<u64>, _: &Event| Ok(Some(state.unwrap_or(0) + 1));
    let key = Key::new("a").unwrap();
    let counted = past.bus.as_of_with(&topic(), &key, appended(999), count).await.unwrap();
    assert!(matches!(counted, AsOf::State { value: 500, is_complete: true, .. }));
    let failing = |_: Option<u64>, event: &Event| match event.offset.get() {
        4 => Err("four".to_owned()),
        _ => Ok(None),
    };
    let failed = past.bus.as_of_with(&topic(), &key, appended(999), failing).await;
    assert!(matches!(failed, Err(AsOfError::Reducer { offset, .. }) if offset.get() == 4));
}

#[tokio::test]
async fn a_whole_topic_as_it_was() {
    let past = Past::new();
    for n in 0..500_u64 {
        let value = if n % 13 == 0 { "null".to_owned() } else { n.to_string() };
        past.publish(n, n, &format!("k{:02}", n % 37), &value).await;
    }
    for moment in [appended(0), appended(20), appended(250), happened(250), appended(900)] {
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let (page, next) = past.bus.as_of_all(&topic(), moment, after, 10).await.unwrap();
            found.extend(page);
            match next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        for (key, answer) in &found {
            assert_eq!(*answer, past.at(key.as_str(), moment).await);
        }
        let (Moment::Appended(time) | Moment::Happened(time)) = moment else { unreachable!() };
        assert_eq!(found.len() as u64, (time.millis() + 1).min(37));
    }
}
