//! A store that fails for a while, answers late, or loses answers.

use std::sync::Arc;

use promethean::store::AppendError;
use promethean::{Bus, BusOptions, PublishError, Start, Subscription};

use super::factory::BusFactory;
use super::fragile::FragileStore;
use super::scene::{BILLING, ORDERS, Scene, event, group, number};

/// A bus over the store of another one, with faults to order.
async fn fragile<'a>(factory: &'a dyn BusFactory) -> (Scene<'a>, Arc<FragileStore>) {
    let mut scene = Scene::open(factory).await;
    let store = Arc::new(FragileStore::new(Arc::clone(scene.bus.store())));
    scene.bus = Bus::with_store(Arc::clone(&store) as _, BusOptions::default());
    (scene, store)
}

/// P19: an ack is answered when it is durable, and not before; what is published meanwhile is
/// delivered all the same.
pub async fn acks_are_answered_when_durable(factory: &dyn BusFactory) {
    let (scene, store) = fragile(factory).await;
    let mut subscription = scene.subscribe().await;
    scene.publish_all("", 0..2).await;
    let first = scene.next(&mut subscription).await;
    let second = scene.next(&mut subscription).await;
    store.hold_saves(true);
    let mut first = std::pin::pin!(first.ack());
    let early = tokio::time::timeout(scene.pace.quiet, first.as_mut()).await;
    assert!(early.is_err(), "answered before it was durable");
    scene.publish_all("", 2..3).await;
    let third = scene.next(&mut subscription).await;
    assert_eq!(number(third.event()), 2);
    store.hold_saves(false);
    scene.within("the answer", first).await.expect("it is durable now");
    second.ack().await.expect("it can be acked");
    third.ack().await.expect("it can be acked");
    assert_eq!(scene.cursor().await, 3);
}

/// Pitfall 23: saves that fail are made again; nothing is lost, nothing is answered too early.
pub async fn failed_saves_are_made_again(factory: &dyn BusFactory) {
    let (scene, store) = fragile(factory).await;
    let mut subscription = scene.subscribe().await;
    scene.publish_all("", 0..10).await;
    let held = scene.hold(&mut subscription, 10).await;
    store.fail_saves(3);
    for delivered in held {
        scene.within("an answer", delivered.ack()).await.expect("in the end it is durable");
    }
    assert_eq!(scene.cursor().await, 10);
    let record = store.inner().group(group(BILLING)).await.expect("it can be read");
    assert_eq!(record.expect("the group is there").lanes[0].1.floor, 10);
}

/// Pitfall 23: reads that fail end nothing.
pub async fn failed_reads_are_made_again(factory: &dyn BusFactory) {
    let (scene, store) = fragile(factory).await;
    let mut subscription = scene.subscribe().await;
    store.fail_reads(5);
    scene.publish_all("k", 0..5).await;
    assert_eq!(scene.take(&mut subscription, 5).await, [0, 1, 2, 3, 4]);
}

/// P16: an answer that was lost is said to be; trying again with the same id adds nothing.
pub async fn a_lost_answer_is_told(factory: &dyn BusFactory) {
    let (scene, store) = fragile(factory).await;
    let mut subscription = scene.subscribe().await;
    store.lose_answers(1);
    let once = event(ORDERS, "k", 0);
    let lost = scene.bus.publish(once.clone()).await;
    assert!(matches!(lost, Err(PublishError::Append(AppendError::Indeterminate(_)))));
    let again = scene.bus.publish(once).await.expect("again is fine");
    assert!(again.duplicate);
    assert_eq!(scene.take(&mut subscription, 1).await, [0]);
    scene.silent(&mut subscription).await;
}

async fn one_dies(scene: &Scene<'_>, subscription: &mut Subscription) {
    let delivered = scene.next(subscription).await;
    let target = promethean::member::AckTarget::Token(delivered.token());
    let park = promethean_delivery::Verdict::Park { error: b"no", fingerprint: 1 };
    drop(subscription.seat().nack(target, park));
}

/// Pitfall 107, P21: the letter and the group's advance are one save, however often it is tried.
pub async fn a_death_is_one_save(factory: &dyn BusFactory) {
    let (scene, store) = fragile(factory).await;
    let mut subscription = scene.subscribe().await;
    scene.publish_all("", 0..5).await;
    for fails in 0..5 {
        store.fail_saves(fails);
        one_dies(&scene, &mut subscription).await;
        scene.letters_come_to(fails as usize + 1).await;
    }
    scene.cursor_comes_to(5).await;
    assert_eq!(scene.stored("dlq.orders.placed").await, 5, "each once");
    let saves = store.saves();
    let deadly: Vec<_> = saves.iter().filter(|save| !save.dead_letters.is_empty()).collect();
    let letters: usize = deadly.iter().map(|save| save.dead_letters.len()).sum();
    assert_eq!(letters, 5);
    assert!(deadly.iter().all(|save| !save.lanes.is_empty()), "never one without the other");
}

/// P21: the process goes down around the save: the event is in the flow, or dead, never both and
/// never neither.
pub async fn a_crash_leaves_an_event_in_one_place(factory: &dyn BusFactory) {
    for durable in [false, true] {
        let (scene, store) = fragile(factory).await;
        let mut subscription = scene.subscribe().await;
        scene.publish_all("k", 0..2).await;
        store.hold_saves(!durable);
        one_dies(&scene, &mut subscription).await;
        if durable {
            scene.letters_come_to(1).await;
        }
        drop(subscription);
        let inner = store.inner();
        store.cut();
        let mut after = scene;
        after.bus = Bus::with_store(inner, BusOptions::default());
        let letters = after.letters().await.len();
        let mut subscription = after.subscribe().await;
        let first = number(after.next(&mut subscription).await.event());
        assert!((letters, first) == (1, 1) || (letters, first) == (0, 0), "{letters} {first}");
    }
}

/// P22: a group whose saves hang stops neither publishers nor other groups.
pub async fn a_hanging_save_stops_one_group_only(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut healthy = scene.subscribe().await;
    let store = Arc::new(FragileStore::new(Arc::clone(scene.bus.store())));
    let other = Bus::with_store(Arc::clone(&store) as _, BusOptions::default());
    let builder = other.subscribe_to([ORDERS], "hanging").from(Start::Earliest);
    let mut hanging = builder.stream().await.expect("one can subscribe");
    scene.publish_all("", 0..10).await;
    let held = scene.hold(&mut hanging, 5).await;
    store.hold_saves(true);
    let answers: Vec<_> = held.into_iter().map(promethean::Delivered::acked).collect();
    assert_eq!(scene.take(&mut healthy, 10).await.len(), 10);
    store.hold_saves(false);
    for answer in answers {
        scene.within("the answer", answer.all()).await.expect("it is durable now");
    }
}

/// A topic that appears while a group is being made, or while its members come and go, is not
/// missed: nobody would tell the group a second time.
pub async fn a_topic_that_appears_in_between_is_read(factory: &dyn BusFactory) {
    let (scene, store) = fragile(factory).await;
    for round in 0..10 {
        store.hold_saves(true);
        let name = format!("topic-{round}.x");
        let builder = scene.bus.subscribe_to([format!("topic-{round}.*").as_str()], BILLING);
        let saves = store.saves().len();
        let subscribing = tokio::spawn(builder.stream());
        // It gets as far as its first save.
        scene.eventually("the group is being saved", async || store.saves().len() > saves).await;
        scene.publish(&name, "k", round).await;
        // And the bus has heard of the topic.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        store.hold_saves(false);
        let subscription = scene.within("the group is made", subscribing).await;
        let mut subscription = subscription.expect("it ends").expect("one can subscribe");
        assert_eq!(scene.take(&mut subscription, 1).await, [round]);
    }
}
