//! Reading without a group: replay, look-ups, keys.

use std::time::Duration;

use promethean::event::{Event, EventId, NewEvent, Offset, Partition, Payload, Timestamp};
use promethean::store::{PageLimit, ReadError};
use promethean::{Replay, Replayed, Start};

use super::factory::BusFactory;
use super::scene::{ORDERS, Scene, event, key, number, pattern, topic};

async fn replayed(scene: &Scene<'_>, replay: Replay) -> Vec<Event> {
    let mut replaying = scene.bus.replay(replay).await.expect("the replay begins");
    let mut events = Vec::new();
    while let Some(step) = replaying.next().await.expect("the replay goes on") {
        match step {
            Replayed::Event(stored) => events.push(stored.event),
            missing => panic!("nothing is missing here: {missing:?}"),
        }
    }
    events
}

/// Over topics and partitions in the order in which they were taken.
pub async fn a_replay_keeps_the_order_of_the_store(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    scene.define("a", 3).await;
    scene.define("b", 1).await;
    scene.publish("elsewhere", "k", 99).await;
    for turn in 0..30 {
        let name = if turn % 3 == 0 { "b" } else { "a" };
        scene.publish(name, &format!("key-{}", turn % 7), turn).await;
        // Lets the append times differ.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let mut both = Replay::of(pattern("a"));
    both.topics.push(pattern("b"));
    let numbers: Vec<_> = replayed(&scene, both).await.iter().map(number).collect();
    assert_eq!(numbers, (0..30).collect::<Vec<_>>());
    let all = replayed(&scene, Replay::of(pattern("**"))).await;
    assert_eq!(all.len(), 31);
    assert_eq!(replayed(&scene, Replay::of(pattern("nothing"))).await, []);
}

/// Pitfalls 72 and 73: any number of events, also many in one millisecond, none left out.
pub async fn a_long_replay_leaves_nothing_out(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    scene.publish_all("", 0..3_500).await;
    let replay = scene.bus.replay(Replay::of(pattern(ORDERS))).await;
    let mut replaying = replay.expect("the replay begins");
    // What comes after it has begun is not part of it.
    scene.publish_all("", 3_500..3_510).await;
    let mut numbers = Vec::new();
    while let Some(Replayed::Event(stored)) = replaying.next().await.expect("it goes on") {
        numbers.push(number(&stored.event));
    }
    assert_eq!(numbers, (0..3_500).collect::<Vec<_>>());
}

/// From anywhere, until any time.
pub async fn a_replay_has_bounds(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut published = Vec::new();
    for turn in 0..8 {
        published.push(scene.publish(ORDERS, "k", turn).await);
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    let (from, until) = (published[2].appended_at, published[6].appended_at);
    let within = |at: Timestamp| from <= at && at < until;
    let expected: Vec<_> = (0..8).filter(|&n| within(published[n as usize].appended_at)).collect();
    let replay = Replay::of(pattern(ORDERS)).from(Start::At(from)).until(until);
    let numbers: Vec<_> = replayed(&scene, replay).await.iter().map(number).collect();
    assert_eq!(numbers, expected);
    let replay = Replay::of(pattern(ORDERS)).from(Start::AfterId(published[5].id));
    let numbers: Vec<_> = replayed(&scene, replay).await.iter().map(number).collect();
    assert_eq!(numbers, [6, 7]);
    assert_eq!(replayed(&scene, Replay::of(pattern(ORDERS)).from(Start::Latest)).await, []);
    let none = Replay::of(pattern(ORDERS)).until(Timestamp::from_millis(0));
    assert_eq!(replayed(&scene, none).await, []);
    let unknown = Replay::of(pattern(ORDERS)).from(Start::AfterId(EventId::generate()));
    assert!(scene.bus.replay(unknown).await.is_err());
}

/// Pages, forward and backward.
pub async fn pages_go_both_ways(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    scene.publish_all("k", 0..25).await;
    let name = topic(ORDERS);
    let limit = PageLimit { events: 10, bytes: 1 << 20 };
    let (mut from, mut numbers) = (Offset::ZERO, Vec::new());
    while from.get() < 25 {
        let page = scene.bus.read(&name, Partition::ZERO, from, limit).await.expect("a page");
        assert!(page.events.len() <= 10 && page.next > from && page.gaps.is_empty());
        numbers.extend(page.events.iter().map(|stored| number(&stored.event)));
        from = page.next;
    }
    assert_eq!(numbers, (0..25).collect::<Vec<_>>());
    let (mut before, mut back) = (Offset::new(u64::MAX), Vec::new());
    while before.get() > 0 {
        let page = scene.bus.read_before(&name, Partition::ZERO, before, limit).await;
        let page = page.expect("a page");
        assert!(page.next < before);
        back.extend(page.events.iter().map(|stored| number(&stored.event)));
        before = page.next;
    }
    assert_eq!(back, (0..25).rev().collect::<Vec<_>>());
    let tiny = PageLimit { events: 10, bytes: 1 };
    let page = scene.bus.read(&name, Partition::ZERO, Offset::ZERO, tiny).await.expect("a page");
    assert_eq!(page.events.len(), 1, "one event always fits");
    let end = scene.bus.read(&name, Partition::ZERO, Offset::new(25), limit).await;
    assert!(end.is_ok_and(|page| page.events.is_empty()));
    let beyond = scene.bus.read(&name, Partition::ZERO, Offset::new(26), limit).await;
    assert!(matches!(beyond, Err(ReadError::BeyondEnd { .. })));
    let nowhere = scene.bus.read(&name, Partition::new(1), Offset::ZERO, limit).await;
    assert!(matches!(nowhere, Err(ReadError::UnknownLane)));
}

/// Pitfall 31: the latest is the one with the highest place, whatever its time says.
pub async fn the_latest_of_a_key_is_the_last(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    scene.define(ORDERS, 3).await;
    for turn in 0..30_u64 {
        let ts = Timestamp::from_millis(1_000 - turn);
        let event = NewEvent { ts, ..event(ORDERS, &format!("key-{}", turn % 10), turn) };
        scene.bus.publish(event).await.expect("the event is good");
    }
    scene.publish("other", "key-3", 77).await;
    let keys = vec![key("key-3"), key("never"), key("key-0"), key("key-3")];
    let latest = scene.bus.latest_by_key(&topic(ORDERS), keys).await.expect("they can be read");
    let numbers: Vec<_> = latest.iter().map(|event| event.as_ref().map(number)).collect();
    assert_eq!(numbers, [Some(23), None, Some(20), Some(23)]);
    let none = scene.bus.latest_by_key(&topic(ORDERS), Vec::new()).await.expect("nothing is fine");
    assert_eq!(none, []);
    let nowhere = scene.bus.latest_by_key(&topic("nowhere"), vec![key("k")]).await;
    assert!(matches!(nowhere, Err(ReadError::UnknownLane)));
}

/// Pitfall 32: a key that was deleted is not there, until it is written again.
pub async fn tombstones_hide_their_key(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let name = topic(ORDERS);
    let latest = async |text: &str| {
        let found = scene.bus.latest_by_key(&name, vec![key(text)]).await;
        found.expect("it can be read").remove(0)
    };
    let marked = Payload::parse(r#"{"_deleted":true}"#).expect("good JSON");
    for (text, grave) in [("a", Payload::null()), ("b", marked)] {
        scene.publish(ORDERS, text, 1).await;
        assert!(latest(text).await.is_some());
        let tombstone = NewEvent { payload: grave, ..event(ORDERS, text, 0) };
        scene.bus.publish(tombstone).await.expect("the event is good");
        assert!(latest(text).await.is_none());
    }
    scene.publish(ORDERS, "b", 2).await;
    assert_eq!(latest("b").await.as_ref().map(number), Some(2));
    let history = scene.bus.history(&name, key("b"), 10).await.expect("it can be read");
    let places: Vec<_> = history.iter().map(|stored| stored.event.offset.get()).collect();
    assert_eq!(places, [4, 3, 2], "newest first, the tombstone included");
    let one = scene.bus.history(&name, key("b"), 1).await.expect("it can be read");
    assert_eq!(one.len(), 1);
}

/// Pitfall 30: no key given means all of them, page by page.
pub async fn all_keys_can_be_listed(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    scene.define(ORDERS, 4).await;
    let events = (0..90).map(|turn| event(ORDERS, &format!("key-{:02}", turn % 45), turn));
    scene.bus.publish_batch(events.collect()).await.expect("the batch is good");
    scene.publish(ORDERS, "other", 7).await;
    let name = topic(ORDERS);
    for (prefix, count) in [("", 46), ("key-", 45), ("key-1", 10), ("zzz", 0)] {
        let (mut after, mut listed) = (None, Vec::new());
        loop {
            let page = scene.bus.keys(&name, prefix, after.take(), 7).await.expect("a page");
            assert!(page.events.len() <= 7);
            listed.extend(page.events.iter().map(|stored| stored.event.clone()));
            after = listed.last().and_then(|event| event.key.clone());
            if !page.more {
                break;
            }
        }
        let keys: Vec<_> = listed.iter().filter_map(|event| event.key.clone()).collect();
        assert_eq!(keys.len(), count, "{prefix}");
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "in order, each once");
        assert!(listed.iter().all(|event| number(event) >= 45 || number(event) == 7), "the newest");
    }
}

/// By id, in its topic.
pub async fn events_are_found_by_id(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let published = scene.publish(ORDERS, "k", 5).await;
    scene.publish("other", "k", 6).await;
    let found = scene.bus.find(&topic(ORDERS), published.id).await.expect("it can be looked up");
    let found = found.expect("it is there");
    assert_eq!((number(&found.event), found.appended_at), (5, published.appended_at));
    let elsewhere = scene.bus.find(&topic("other"), published.id).await;
    assert_eq!(elsewhere.expect("it can be looked up"), None);
    let never = scene.bus.find(&topic(ORDERS), EventId::generate()).await;
    assert_eq!(never.expect("it can be looked up"), None);
}
