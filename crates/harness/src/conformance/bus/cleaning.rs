//! Retention and compaction, and what they may not touch.

use promethean::event::{Offset, Partition};
use promethean::store::{Cleaning, Compaction, GapReason, PageLimit, TopicDefinition};
use promethean::{BusOptions, Replay, Replayed, Start, Subscription};

use super::factory::BusFactory;
use super::scene::{BILLING, ORDERS, Scene, event, group, key, number, pattern, topic};

async fn open<'a>(factory: &'a dyn BusFactory, cleaning: Cleaning) -> Scene<'a> {
    let options = BusOptions::default().clean_every(factory.pace().tick);
    let scene = Scene::with(factory, options).await;
    let definition = TopicDefinition { cleaning, ..TopicDefinition::new(topic(ORDERS)) };
    scene.bus.define(definition).await.expect("the topic can be defined");
    scene
}

fn retention(factory: &dyn BusFactory) -> Cleaning {
    let age = u64::try_from(factory.pace().tick.as_millis()).expect("a tick is short") * 3;
    Cleaning { age_ms_max: Some(age), ..Cleaning::default() }
}

async fn start(scene: &Scene<'_>) -> u64 {
    let bounds = scene.bus.store().bounds(scene.lane(ORDERS, 0)).await;
    bounds.expect("the lane is there").start.get()
}

async fn holding(scene: &Scene<'_>) -> Subscription {
    let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
    builder.hold().stream().await.expect("one can subscribe")
}

/// P23: what a group with `hold` has not finished is kept, with a member or without.
pub async fn held_events_are_kept(factory: &dyn BusFactory) {
    let scene = open(factory, retention(factory)).await;
    let mut subscription = holding(&scene).await;
    scene.publish_all("k", 0..6).await;
    assert_eq!(scene.take(&mut subscription, 2).await, [0, 1]);
    drop(subscription);
    // Many rounds of the cleaner.
    tokio::time::sleep(scene.ticks(20)).await;
    assert!(start(&scene).await <= 2, "what is not finished is kept");
    let mut subscription = holding(&scene).await;
    assert_eq!(scene.take(&mut subscription, 4).await, [2, 3, 4, 5]);
    if factory.cleans_at_once() {
        scene.eventually("what is finished goes", async || start(&scene).await == 6).await;
    }
    scene.publish_all("k", 6..8).await;
    assert_eq!(scene.take(&mut subscription, 2).await, [6, 7]);
}

/// Pitfall 14: a group whose next event has expired goes on with the first that is there, and does
/// not begin anew.
pub async fn an_expired_backlog_is_passed_over(factory: &dyn BusFactory) {
    if !factory.cleans_at_once() {
        return;
    }
    let scene = open(factory, retention(factory)).await;
    let mut subscription = scene.subscribe().await;
    scene.publish_all("k", 0..6).await;
    assert_eq!(scene.take(&mut subscription, 2).await, [0, 1]);
    let held = scene.next(&mut subscription).await;
    subscription.seat().pause();
    scene.eventually("all expire", async || start(&scene).await == 6).await;
    scene.publish_all("k", 6..8).await;
    subscription.seat().resume();
    // It is out, and stays whole, although the store has it no more.
    assert_eq!(number(held.event()), 2);
    held.ack().await.expect("it is still ours");
    let mut got = Vec::new();
    while got.last() != Some(&7) {
        got.extend(scene.take(&mut subscription, 1).await);
    }
    assert!(got.ends_with(&[6, 7]) && got.is_sorted(), "{got:?}");
    scene.cursor_comes_to(8).await;
    let name = group(BILLING);
    scene.within("nothing is left", scene.bus.caught_up(&name)).await.expect("it goes on");
}

/// The same without a member at the time, and with a seek into what is gone.
pub async fn a_seek_into_the_past_says_where_it_went(factory: &dyn BusFactory) {
    if !factory.cleans_at_once() {
        return;
    }
    let scene = open(factory, retention(factory)).await;
    let mut subscription = scene.subscribe().await;
    scene.publish_all("k", 0..4).await;
    assert_eq!(scene.take(&mut subscription, 1).await, [0]);
    drop(subscription);
    scene.eventually("all expire", async || start(&scene).await == 4).await;
    scene.publish_all("k", 4..6).await;
    let mut subscription = scene.subscribe().await;
    let mut got = Vec::new();
    while got.last() != Some(&5) {
        got.extend(scene.take(&mut subscription, 1).await);
    }
    // What the group had read before it expired may still come.
    assert!(got.ends_with(&[4, 5]) && got.is_sorted(), "{got:?}");
    let mut cursor = scene.cursors().await.remove(0);
    cursor.next = Offset::ZERO;
    let start = start(&scene).await;
    let moved = scene.bus.set_cursor(&group(BILLING), &cursor).await.expect("it can be moved");
    assert!(moved.to.get() >= start && moved.to.get() > 0, "history starts later: {moved:?}");
}

/// Promise 11: what is missing is said, by pages and by a replay.
pub async fn gaps_are_announced(factory: &dyn BusFactory) {
    if !factory.cleans_at_once() {
        return;
    }
    let scene = open(factory, retention(factory)).await;
    scene.publish_all("k", 0..4).await;
    scene.eventually("all expire", async || start(&scene).await == 4).await;
    scene.publish_all("k", 4..5).await;
    let limit = PageLimit::default();
    let page = scene.bus.read(&topic(ORDERS), Partition::ZERO, Offset::new(1), limit).await;
    let page = page.expect("a page");
    let gap = page.gaps.first().expect("it is announced");
    assert_eq!((gap.from.get(), gap.to.get(), gap.reason), (1, 4, GapReason::Expired));
    assert_eq!(page.events.len(), 1);
    let mut replaying = scene.bus.replay(Replay::of(pattern(ORDERS))).await.expect("it begins");
    let mut steps = Vec::new();
    while let Some(step) = replaying.next().await.expect("it goes on") {
        steps.push(matches!(step, Replayed::Missing { .. }));
    }
    assert_eq!(steps.last(), Some(&false));
}

/// Pitfalls 33 and 36: compaction keeps the newest of each key, and groups that come late get it.
pub async fn compaction_keeps_the_newest(factory: &dyn BusFactory) {
    if !factory.cleans_at_once() {
        return;
    }
    let compaction = Some(Compaction::default());
    let scene = open(factory, Cleaning { compaction, ..Cleaning::default() }).await;
    let events = (0..30).map(|turn| event(ORDERS, &format!("key-{}", turn % 3), turn)).collect();
    scene.bus.publish_batch(events).await.expect("the batch is good");
    let left = async || {
        let limit = PageLimit::default();
        let page = scene.bus.read(&topic(ORDERS), Partition::ZERO, Offset::ZERO, limit).await;
        page.expect("a page").events.len()
    };
    scene.eventually("the others go", async || left().await == 3).await;
    let mut subscription = scene.subscribe().await;
    let mut got = scene.take(&mut subscription, 3).await;
    got.sort_unstable();
    assert_eq!(got, [27, 28, 29]);
    scene.cursor_comes_to(30).await;
    let latest = scene.bus.latest_by_key(&topic(ORDERS), vec![key("key-1")]).await;
    assert_eq!(latest.expect("it can be read")[0].as_ref().map(number), Some(28));
}

/// `hold` protects from compaction as well.
pub async fn held_events_are_not_compacted(factory: &dyn BusFactory) {
    let compaction = Some(Compaction::default());
    let scene = open(factory, Cleaning { compaction, ..Cleaning::default() }).await;
    let mut subscription = holding(&scene).await;
    scene.publish_all("k", 0..20).await;
    let first = scene.next(&mut subscription).await;
    tokio::time::sleep(scene.ticks(10)).await;
    first.ack().await.expect("it can be acked");
    assert_eq!(scene.take(&mut subscription, 19).await, (1..20).collect::<Vec<_>>());
}
