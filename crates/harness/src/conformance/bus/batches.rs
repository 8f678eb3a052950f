//! Deliveries that are taken, and answered, many at a time.

use promethean::{AckError, DeliveredBatch, Start, Subscription};

use super::factory::BusFactory;
use super::scene::{BILLING, ORDERS, Scene, group, number};

async fn next_batch(scene: &Scene<'_>, subscription: &mut Subscription) -> DeliveredBatch {
    let next = scene.within("a batch", subscription.next_batch()).await;
    next.expect("the bus is open").expect("the group goes on")
}

fn numbers(batch: &DeliveredBatch) -> Vec<u64> {
    batch.iter().map(|delivered| number(delivered.event())).collect()
}

/// Everything comes once and in order, no batch is larger than asked for, and one ack is for all.
pub async fn a_batch_is_acked_as_one(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    scene.publish_all("", 0..25).await;
    let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest).batch_size(10);
    let mut subscription = builder.stream().await.expect("one can subscribe");
    let mut seen = Vec::new();
    while seen.len() < 25 {
        let batch = next_batch(&scene, &mut subscription).await;
        assert!((1..=10).contains(&batch.len()), "{}", batch.len());
        seen.extend(numbers(&batch));
        batch.ack().await.expect("it can be acked");
        assert_eq!(scene.cursor().await, seen.len() as u64);
    }
    assert_eq!(seen, (0..25).collect::<Vec<_>>());
    scene.silent(&mut subscription).await;
}

/// What has come one by one while nobody looked is taken together; what does not fit in comes next,
/// however it is asked for.
pub async fn small_batches_are_gathered(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let builder = scene.bus.subscribe_to([ORDERS], BILLING).batch_size(10);
    let mut subscription = builder.stream().await.expect("one can subscribe");
    for one in 0..14 {
        scene.publish_all("", one..one + 1).await;
        scene
            .eventually("it is on its way", async || {
                let lag = scene.bus.lag(&group(BILLING)).await.expect("the group is there");
                lag.partitions[0].out == one + 1
            })
            .await;
    }
    let batch = next_batch(&scene, &mut subscription).await;
    assert_eq!(numbers(&batch), (0..10).collect::<Vec<_>>());
    batch.ack().await.expect("it can be acked");
    let next = scene.next(&mut subscription).await;
    assert_eq!(number(next.event()), 10);
    next.ack().await.expect("it can be acked");
    let rest = next_batch(&scene, &mut subscription).await;
    assert_eq!(numbers(&rest), [11, 12, 13]);
    rest.ack().await.expect("it can be acked");
    assert_eq!(scene.cursor().await, 14);
}

/// What was begun one by one is not lost when one goes on by batches.
pub async fn batches_go_on_where_single_ones_ended(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    scene.publish_all("", 0..5).await;
    let mut subscription = scene.subscribe().await;
    let first = scene.next(&mut subscription).await;
    let mut seen = vec![number(first.event())];
    first.ack().await.expect("it can be acked");
    while seen.len() < 5 {
        let batch = next_batch(&scene, &mut subscription).await;
        seen.extend(numbers(&batch));
        batch.ack().await.expect("it can be acked");
    }
    assert_eq!(seen, [0, 1, 2, 3, 4]);
    assert_eq!(scene.cursor().await, 5);
}

/// Each event of a batch can be answered for itself.
pub async fn a_batch_can_be_taken_apart(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    scene.publish_all("", 0..4).await;
    let mut subscription = scene.subscribe().await;
    let mut held = 0;
    while held < 4 {
        for delivered in next_batch(&scene, &mut subscription).await {
            held += 1;
            if number(delivered.event()) == 1 {
                delivered.retry("the first time").await.expect("it is ours");
            } else {
                delivered.ack().await.expect("it can be acked");
            }
        }
    }
    let again = next_batch(&scene, &mut subscription).await;
    assert_eq!(numbers(&again), [1]);
    assert_eq!(again.iter().map(|delivered| delivered.attempt()).collect::<Vec<_>>(), [2]);
    again.ack().await.expect("it can be acked");
    assert_eq!(scene.cursor().await, 4);
}

/// A batch that failed comes again, every event with its next attempt.
pub async fn a_batch_that_failed_comes_again(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    scene.publish_all("", 0..3).await;
    let mut subscription = scene.subscribe().await;
    let mut failed = 0;
    while failed < 3 {
        let batch = next_batch(&scene, &mut subscription).await;
        failed += batch.len();
        batch.retry("not today").await.expect("it is ours");
    }
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let batch = next_batch(&scene, &mut subscription).await;
        assert!(batch.iter().all(|delivered| delivered.attempt() == 2));
        seen.extend(numbers(&batch));
        batch.ack().await.expect("it can be acked");
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2]);
    assert_eq!(scene.cursor().await, 3);
}

/// P20 for batches: once its events have come again, to the same member even, the ack of a batch
/// changes nothing.
pub async fn a_late_batch_is_refused(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    scene.publish_all("", 0..2).await;
    let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
    let builder = builder.ack_timeout(scene.ticks(2)).max_attempts(1_000);
    let mut subscription = builder.stream().await.expect("one can subscribe");
    let late = next_batch(&scene, &mut subscription).await;
    scene
        .eventually("the lease is over", async || {
            let lag = scene.bus.lag(&group(BILLING)).await.expect("the group is there");
            lag.partitions[0].out == 0
        })
        .await;
    let mut again = next_batch(&scene, &mut subscription).await;
    while again.iter().any(|delivered| delivered.attempt() == 1) {
        again = next_batch(&scene, &mut subscription).await;
    }
    let refused = late.ack().await.expect_err("it is too late");
    assert!(matches!(refused, AckError::LeaseLost), "{refused:?}");
    assert_eq!(scene.cursor().await, 0);
    // On a slow machine these may have run out too; in the end some are in time.
    loop {
        // Refused or not: the cursor tells.
        drop(again.ack().await);
        if scene.cursor().await == 2 {
            break;
        }
        again = next_batch(&scene, &mut subscription).await;
    }
}
