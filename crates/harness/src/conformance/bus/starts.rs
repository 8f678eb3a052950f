//! Where a group begins, and that it misses nothing from then on.

use std::time::Duration;

use promethean::event::{EventId, Timestamp};
use promethean::{GroupError, Start};

use super::factory::BusFactory;
use super::scene::{BILLING, ORDERS, Scene, event, group, number, topic};

/// Pitfalls 12 and 13: `latest` is fixed when `subscribe` returns: nothing older, everything newer,
/// and each once.
pub async fn latest_begins_when_subscribe_returns(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let old = (0..1_500).map(|turn| event(ORDERS, "", turn)).collect();
    scene.bus.publish_batch(old).await.expect("the batch is good");
    for round in 0..30 {
        let name = format!("group-{round}");
        let builder = scene.bus.subscribe_to([ORDERS], &name);
        let mut subscription = builder.stream().await.expect("one can subscribe");
        scene.publish(ORDERS, "", 10_000 + round).await;
        assert_eq!(scene.take(&mut subscription, 1).await, [10_000 + round]);
    }
}

/// Publishers at work while a group begins: it gets a suffix without a hole, which holds all that
/// was published after `subscribe` had returned.
pub async fn a_group_that_begins_under_load_gets_a_whole_suffix(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    scene.publish(ORDERS, "k", 0).await;
    let bus = scene.bus.clone();
    let publisher = tokio::spawn(async move {
        for turn in 1..400 {
            bus.publish(event(ORDERS, "k", turn)).await.expect("the publish goes through");
            tokio::task::yield_now().await;
        }
    });
    let mut groups = Vec::new();
    for round in 0..10 {
        // What the last one has waits until all the others are done.
        let builder = scene.bus.subscribe_to([ORDERS], &format!("group-{round}"));
        let builder = builder.ack_timeout(scene.pace.patience * 10);
        let subscription = builder.stream().await.expect("one can subscribe");
        groups.push((scene.stored(ORDERS).await, subscription));
        tokio::task::yield_now().await;
    }
    publisher.await.expect("the publisher ends");
    for (stored, mut subscription) in groups {
        let mut expected = None;
        loop {
            let got = scene.take(&mut subscription, 1).await[0];
            let first = expected.is_none();
            assert!(!first || got <= stored, "began at {got}, {stored} were there");
            assert_eq!(got, *expected.get_or_insert(got), "no hole, nothing twice");
            if got == 399 {
                break;
            }
            expected = Some(got + 1);
        }
    }
}

/// Everything that is kept.
pub async fn earliest_begins_with_the_oldest(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    scene.publish_all("k", 0..5).await;
    let mut subscription = scene.subscribe().await;
    scene.publish_all("k", 5..7).await;
    assert_eq!(scene.take(&mut subscription, 7).await, [0, 1, 2, 3, 4, 5, 6]);
}

/// Pitfall 15: a time is a time, 0 included; by the store's clock, not the publisher's.
pub async fn a_time_begins_with_what_was_taken_then(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut times = Vec::new();
    for turn in 0..6 {
        times.push(scene.publish(ORDERS, "k", turn).await.appended_at);
        // Lets the append times differ; nothing depends on by how much.
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    let start_of = |time| times.iter().filter(|&&taken| taken < time).count() as u64;
    let later = times[5].plus_millis(1_000_000);
    let wanted = [Timestamp::from_millis(0), times[0], times[3], times[5], later];
    for (round, time) in wanted.into_iter().enumerate() {
        let builder = scene.bus.subscribe_to([ORDERS], &format!("group-{round}"));
        let mut subscription = builder.from(Start::At(time)).stream().await.expect("any time");
        let expected: Vec<_> = (start_of(time)..6).collect();
        assert_eq!(scene.take(&mut subscription, expected.len()).await, expected);
        scene.silent(&mut subscription).await;
    }
}

/// Pitfall 14: after an event means after its place; an event that is nowhere is an error, and
/// makes no group.
pub async fn after_an_event_begins_behind_it(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    scene.publish_all("k", 0..3).await;
    let third = scene.publish(ORDERS, "k", 3).await;
    scene.publish_all("k", 4..6).await;
    let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::AfterId(third.id));
    let mut subscription = builder.stream().await.expect("the event is there");
    assert_eq!(scene.take(&mut subscription, 2).await, [4, 5]);

    let unknown = EventId::generate();
    let builder = scene.bus.subscribe_to([ORDERS], "lost").from(Start::AfterId(unknown));
    let refused = builder.stream().await;
    assert!(matches!(refused, Err(GroupError::UnknownEvent(id)) if id == unknown));
    let groups = scene.bus.groups().await.expect("they can be listed");
    assert_eq!(groups, [group(BILLING)]);
}

/// `AfterId` over several partitions loses nothing that came later, in any of them.
pub async fn after_an_event_loses_nothing_elsewhere(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    scene.define(ORDERS, 4).await;
    let mut published = Vec::new();
    for turn in 0..40 {
        let key = format!("key-{turn}");
        published.push(scene.publish(ORDERS, &key, turn).await);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let after = published[19].id;
    let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::AfterId(after));
    let mut subscription = builder.stream().await.expect("the event is there");
    let mut got = Vec::new();
    while got.iter().filter(|&&number| number >= 20).count() < 20 {
        got.extend(scene.take(&mut subscription, 1).await);
    }
    assert!(!got.contains(&19), "after it, not with it");
    let partition = published[19].partition;
    let same: Vec<_> = (0..20).filter(|&n| published[n as usize].partition == partition).collect();
    assert!(same.iter().all(|number| !got.contains(number)), "its own partition is exact");
}

/// Pitfall 84: a group that was here goes on where it was, whatever `from` says.
pub async fn a_group_that_was_here_goes_on(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    scene.publish_all("k", 0..4).await;
    assert_eq!(scene.take(&mut subscription, 2).await, [0, 1]);
    drop(subscription);
    scene.publish_all("k", 4..6).await;
    for start in [Start::Latest, Start::Earliest, Start::At(Timestamp::from_millis(u64::MAX))] {
        let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(start);
        let mut subscription = builder.stream().await.expect("one can subscribe");
        assert_eq!(number(scene.next(&mut subscription).await.event()), 2, "{start:?}");
    }
}

/// A topic that appears later is read from its first event on, `latest` or not, also if the group
/// had no member at the time.
pub async fn topics_that_appear_later_are_read_whole(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let subscribe = || scene.bus.subscribe_to(["orders.*"], BILLING).stream();
    let mut subscription = subscribe().await.expect("a pattern may match nothing yet");
    scene.publish("orders.a", "k", 1).await;
    scene.publish("orders.a", "k", 2).await;
    assert_eq!(scene.take(&mut subscription, 2).await, [1, 2]);
    drop(subscription);
    scene.publish("orders.b", "k", 3).await;
    scene.publish("orders.b", "k", 4).await;
    scene.publish("elsewhere.b", "k", 5).await;
    let mut subscription = subscribe().await.expect("one can subscribe");
    assert_eq!(scene.take(&mut subscription, 2).await, [3, 4]);
    scene.silent(&mut subscription).await;
    let read: Vec<_> = scene.cursors().await.into_iter().map(|cursor| cursor.topic).collect();
    assert_eq!(read, [topic("orders.a"), topic("orders.b")]);
}

/// The same for a topic that is defined with several partitions and filled in one go.
pub async fn a_wide_topic_that_appears_later_is_read_whole(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let builder = scene.bus.subscribe_to(["**"], BILLING);
    let mut subscription = builder.stream().await.expect("one can subscribe");
    scene.define("wide", 5).await;
    let events = (0..50).map(|turn| event("wide", &format!("key-{turn}"), turn)).collect();
    scene.bus.publish_batch(events).await.expect("the batch is good");
    let mut got = scene.take(&mut subscription, 50).await;
    got.sort_unstable();
    assert_eq!(got, (0..50).collect::<Vec<_>>());
    scene.silent(&mut subscription).await;
}
