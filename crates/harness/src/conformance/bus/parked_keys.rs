//! `park = "key"`: later events of a key wait behind its dead letter.

use promethean::event::{Offset, Payload};
use promethean::{
    DeadLetterQuery, Failure, GroupError, Ordered, Park, ReplayDeadLetters, ReplayTo, Start,
    Subscription,
};

use super::factory::BusFactory;
use super::scene::{BILLING, ORDERS, Scene, group, number};

async fn subscribe(scene: &Scene<'_>) -> Subscription {
    let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
    builder.park(Park::Key).stream().await.expect("one can subscribe")
}

/// Event 0 of a key is dead, 1 to 3 wait behind it; another key goes on.
async fn parked(scene: &Scene<'_>) -> Subscription {
    let mut subscription = subscribe(scene).await;
    scene.publish_all("bad", 0..4).await;
    scene.next(&mut subscription).await.park("no").await.expect("it is ours");
    scene.publish_all("good", 10..12).await;
    assert_eq!(scene.take(&mut subscription, 2).await, [10, 11]);
    scene.silent(&mut subscription).await;
    scene.letters_come_to(1).await;
    subscription
}

fn waiting() -> ReplayDeadLetters {
    ReplayDeadLetters::new(DeadLetterQuery::waiting())
}

/// Pitfall 109: nothing passes the parked one; the replayed event comes first, then the others.
pub async fn a_key_waits_and_goes_on_after_the_replay(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = parked(&scene).await;
    let lag = scene.bus.lag(&group(BILLING)).await.expect("the group is there");
    assert_eq!((lag.partitions[0].parked, lag.events()), (1, 3));
    assert_eq!(scene.cursor().await, 1, "the cursor waits with them");
    scene.bus.replay_dead_letters(&waiting()).await.expect("the replay goes through");
    let first = scene.next(&mut subscription).await;
    assert_eq!(number(first.event()), 0);
    scene.silent(&mut subscription).await;
    first.ack().await.expect("it can be acked");
    assert_eq!(scene.take(&mut subscription, 3).await, [1, 2, 3]);
    assert_eq!(scene.cursor().await, 6);
    let lag = scene.bus.lag(&group(BILLING)).await.expect("the group is there");
    assert_eq!((lag.partitions[0].parked, lag.events()), (0, 0));
}

/// Dies again: the key waits again.
pub async fn a_key_waits_again(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = parked(&scene).await;
    for _ in 0..2 {
        scene.bus.replay_dead_letters(&waiting()).await.expect("the replay goes through");
        let again = scene.next(&mut subscription).await;
        assert_eq!(number(again.event()), 0);
        again.park("still no").await.expect("it is ours");
        scene.silent(&mut subscription).await;
    }
    scene.bus.replay_dead_letters(&waiting()).await.expect("the replay goes through");
    assert_eq!(scene.take(&mut subscription, 4).await, [0, 1, 2, 3]);
}

/// Given up for good: the key goes on without it.
pub async fn a_key_goes_on_after_the_discard(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = parked(&scene).await;
    let entry = scene.letters().await.remove(0);
    scene.bus.discard_dead_letter(entry.id).await.expect("it waits");
    assert_eq!(scene.take(&mut subscription, 3).await, [1, 2, 3]);
    assert_eq!(scene.cursor().await, 6);
}

/// Replaced by another event, or published to all: the key goes on.
pub async fn a_key_goes_on_after_a_replacement(factory: &dyn BusFactory) {
    let changed = waiting().transform(|mut event| {
        event.payload = Payload::of(&100_u64).expect("a number has a JSON form");
        Some(event)
    });
    for (replay, number) in [(changed, 100), (waiting().to(ReplayTo::AllGroups), 0)] {
        let scene = Scene::open(factory).await;
        let mut subscription = parked(&scene).await;
        let report = scene.bus.replay_dead_letters(&replay).await.expect("it goes through");
        assert_eq!(report.replayed.len(), 1);
        assert_eq!(scene.take(&mut subscription, 4).await, [1, 2, 3, number]);
    }
}

/// Events that come later wait as well, and those that were out when their key was parked do not
/// get lost.
pub async fn later_events_wait_too(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = parked(&scene).await;
    scene.publish_all("bad", 4..6).await;
    scene.publish_all("good", 12..13).await;
    assert_eq!(scene.take(&mut subscription, 1).await, [12]);
    scene.silent(&mut subscription).await;
    drop(subscription);
    let mut subscription = subscribe(&scene).await;
    scene.silent(&mut subscription).await;
    scene.bus.replay_dead_letters(&waiting()).await.expect("the replay goes through");
    assert_eq!(scene.take(&mut subscription, 6).await, [0, 1, 2, 3, 4, 5]);
}

/// A key that was parked in vain: moved back before the dead letter, everything comes again.
pub async fn a_seek_frees_the_key(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = parked(&scene).await;
    let mut cursor = scene.cursors().await.remove(0);
    cursor.next = Offset::ZERO;
    scene.bus.set_cursor(&group(BILLING), &cursor).await.expect("the group can be moved");
    let mut got = scene.take(&mut subscription, 6).await;
    let bad: Vec<_> = got.iter().copied().filter(|number| *number < 10).collect();
    assert_eq!(bad, [0, 1, 2, 3], "in the order of the key");
    got.sort_unstable();
    assert_eq!(got, [0, 1, 2, 3, 10, 11]);
}

/// Keys can wait only where keys are kept in order.
pub async fn parking_keys_needs_their_order(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let builder = scene.bus.subscribe_to([ORDERS], BILLING);
    let refused = builder.park(Park::Key).ordered(Ordered::None).stream().await;
    assert!(matches!(refused, Err(GroupError::Settings(_))));
}

/// An event without a key has nobody behind it.
pub async fn events_without_a_key_hold_up_nobody(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
    let consumer = builder.park(Park::Key).handle(|delivered| async move {
        if number(delivered.event()).is_multiple_of(2) {
            Err(Failure::park("even"))
        } else {
            Ok(())
        }
    });
    let consumer = consumer.await.expect("one can subscribe");
    scene.publish_all("", 0..20).await;
    scene.letters_come_to(10).await;
    scene.cursor_comes_to(20).await;
    consumer.stop().await.expect("it stops");
}
