//! Members of a group share its events; groups do not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use promethean::{Failure, Ordered, Start};
use tokio::sync::Notify;

use super::factory::BusFactory;
use super::scene::{BILLING, ORDERS, Scene, event, group, number};

/// Pitfall 8: of two members each event goes to one.
pub async fn two_members_share_and_do_not_both_get(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let subscribe = || {
        let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
        builder.max_in_flight(5).stream()
    };
    let mut one = subscribe().await.expect("one can subscribe");
    let mut two = subscribe().await.expect("two can subscribe");
    scene.publish_all("", 0..200).await;
    let mut got = Vec::new();
    let mut by_one = 0;
    while got.len() < 200 {
        let delivered = tokio::select! {
            first = one.next() => { by_one += 1; first }
            second = two.next() => second,
        };
        let delivered = delivered.expect("the bus is open").expect("the group goes on");
        got.push(number(delivered.event()));
        assert_eq!(delivered.attempt(), 1);
        drop(delivered.acked());
    }
    assert!(by_one > 0 && by_one < 200);
    got.sort_unstable();
    assert_eq!(got, (0..200).collect::<Vec<_>>(), "each once");
    scene.silent(&mut one).await;
    scene.silent(&mut two).await;
}

/// Two groups get everything each, and their cursors have nothing to do with each other.
pub async fn groups_do_not_share(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut billing = scene.subscribe().await;
    let builder = scene.bus.subscribe_to([ORDERS], "shipping").from(Start::Earliest);
    let mut shipping = builder.stream().await.expect("one can subscribe");
    scene.publish_all("k", 0..10).await;
    assert_eq!(scene.take(&mut billing, 10).await, (0..10).collect::<Vec<_>>());
    let cursors = scene.bus.cursors(&group("shipping")).await.expect("the group is there");
    assert_eq!(cursors[0].next.get(), 0);
    assert_eq!(scene.take(&mut shipping, 10).await, (0..10).collect::<Vec<_>>());
}

/// Pitfalls 3 and 6: what is out stays out, however often something else happens.
pub async fn what_is_out_does_not_come_again(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    scene.publish_all("", 0..20).await;
    let mut held = scene.hold(&mut subscription, 20).await;
    for turn in 20..60 {
        scene.publish(ORDERS, "", turn).await;
        let delivered = scene.next(&mut subscription).await;
        assert_eq!((number(delivered.event()), delivered.attempt()), (turn, 1));
        held.push(delivered);
    }
    scene.silent(&mut subscription).await;
    let last = scene.bus.lag(&group(BILLING)).await.expect("the group is there");
    assert_eq!(last.partitions[0].out, 60);
}

/// Without order events of one key are out together.
pub async fn without_order_a_key_is_out_many_times(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
    let mut subscription = builder.ordered(Ordered::None).stream().await.expect("one can");
    scene.publish_all("k", 0..10).await;
    let held = scene.hold(&mut subscription, 10).await;
    let numbers: BTreeSet<_> = held.iter().map(|delivered| number(delivered.event())).collect();
    assert_eq!(numbers.len(), 10);
}

/// Pitfall 9: with order one event of a key is out, and the next comes when it is done.
pub async fn with_order_a_key_is_out_once(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut one = scene.subscribe().await;
    let mut two = scene.subscribe().await;
    scene.publish_all("k", 0..3).await;
    for turn in 0..3 {
        let delivered = tokio::select! {
            delivered = one.next() => delivered,
            delivered = two.next() => delivered,
        };
        let delivered = delivered.expect("the bus is open").expect("the group goes on");
        assert_eq!(number(delivered.event()), turn);
        scene.silent(&mut one).await;
        scene.silent(&mut two).await;
        delivered.ack().await.expect("it can be acked");
    }
}

/// Promise 4: many members, handlers that fail now and then; no event of a key begins before the
/// one before it has succeeded, and none is left out.
pub async fn keys_stay_in_order_through_failures(factory: &dyn BusFactory) {
    const KEYS: u64 = 8;
    const TURNS: u64 = 20;
    let scene = Scene::open(factory).await;
    scene.define(ORDERS, 3).await;
    let done: Arc<Mutex<BTreeMap<String, u64>>> = Arc::default();
    let wrong: Arc<Mutex<Vec<String>>> = Arc::default();
    let mut consumers = Vec::new();
    for _ in 0..4 {
        let (done, wrong) = (Arc::clone(&done), Arc::clone(&wrong));
        let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
        let builder = builder.max_attempts(50).backoff(scene.ticks(1) / 20, scene.ticks(1) / 4);
        let consumer = builder.concurrency(3).max_in_flight(7).handle(move |delivered| {
            let (done, wrong) = (Arc::clone(&done), Arc::clone(&wrong));
            async move {
                let key = delivered.event().key.clone().expect("all have keys");
                let turn = number(delivered.event());
                let expected = done.lock().expect("sound").get(key.as_str()).copied();
                if expected.unwrap_or(0) != turn {
                    let line = format!("{} began {turn} at {expected:?}", key.as_str());
                    wrong.lock().expect("sound").push(line);
                }
                tokio::task::yield_now().await;
                let mixed =
                    (turn * 7 + u64::from(delivered.attempt()) * 13 + key.as_str().len() as u64)
                        % 5;
                if mixed < 2 && delivered.attempt() < 6 {
                    return Err(Failure::retry("by order"));
                }
                done.lock().expect("sound").insert(key.as_str().to_owned(), turn + 1);
                Ok(())
            }
        });
        consumers.push(consumer.await.expect("one can subscribe"));
    }
    for turn in 0..TURNS {
        let events = (0..KEYS).map(|key| event(ORDERS, &"k".repeat(key as usize + 1), turn));
        scene.bus.publish_batch(events.collect()).await.expect("the batch is good");
    }
    let name = group(BILLING);
    scene.within("the group has finished", scene.bus.caught_up(&name)).await.expect("it goes on");
    assert_eq!(*wrong.lock().expect("sound"), Vec::<String>::new());
    let done = done.lock().expect("sound").clone();
    assert_eq!(done.len() as u64, KEYS);
    assert!(done.values().all(|&turn| turn == TURNS), "{done:?}");
    assert_eq!(scene.letters().await.len(), 0);
}

/// A failing event holds up its key, and nobody else.
pub async fn a_failing_event_holds_up_its_key_only(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    scene.publish(ORDERS, "bad", 0).await;
    let failing = scene.next(&mut subscription).await;
    let hour = std::time::Duration::from_secs(3_600);
    failing.retry_after(hour, "not now").await.expect("it is ours");
    scene.publish(ORDERS, "bad", 1).await;
    for turn in 2..5 {
        scene.publish(ORDERS, "good", turn).await;
        scene.publish(ORDERS, "", turn + 10).await;
    }
    let mut got = scene.take(&mut subscription, 6).await;
    got.sort_unstable();
    assert_eq!(got, [2, 3, 4, 12, 13, 14]);
    scene.silent(&mut subscription).await;
    assert_eq!(scene.cursor().await, 0, "what is not done holds the cursor");
}

/// P22: a consumer that takes and never answers stops neither publishers nor other groups.
pub async fn a_slow_group_stops_nobody(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let builder = scene.bus.subscribe_to([ORDERS], "stuck").from(Start::Earliest);
    let release = Arc::new(Notify::new());
    let waiting = Arc::clone(&release);
    let started = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&started);
    let stuck = builder.max_in_flight(2).handle(move |_| {
        let waiting = Arc::clone(&waiting);
        count.fetch_add(1, Ordering::SeqCst);
        async move {
            waiting.notified().await;
            Ok(())
        }
    });
    let stuck = stuck.await.expect("one can subscribe");
    let mut billing = scene.subscribe().await;
    for round in 0..20 {
        scene.publish_all("", round * 50..(round + 1) * 50).await;
        assert_eq!(scene.take(&mut billing, 50).await.len(), 50);
    }
    assert_eq!(started.load(Ordering::SeqCst), 1, "one handler at a time");
    let lag = scene.bus.lag(&group("stuck")).await.expect("the group is there");
    assert_eq!(lag.events(), 1_000, "nothing was dropped");
    assert!(lag.partitions[0].out <= 2, "nothing is fetched without room");
    release.notify_waiters();
    drop(stuck);
}
