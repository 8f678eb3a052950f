//! How far groups are behind.

use promethean::Start;

use super::factory::BusFactory;
use super::scene::{BILLING, ORDERS, Scene, group, number};

/// Pitfalls 47 and 71: in events and in time, with members and without.
pub async fn lag_counts_what_is_not_finished(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    scene.define(ORDERS, 1).await;
    let name = group(BILLING);
    let mut subscription = scene.subscribe().await;
    let lag = scene.bus.lag(&name).await.expect("the group is there");
    assert_eq!((lag.members, lag.events(), lag.age_ms()), (1, 0, 0));
    assert_eq!(lag.partitions[0].oldest_unacked, None);
    let first = scene.publish(ORDERS, "", 0).await;
    // Time passes, so that there is an age.
    tokio::time::sleep(scene.ticks(1)).await;
    let second = scene.publish(ORDERS, "", 1).await;
    scene.publish(ORDERS, "", 2).await;
    let mut held = scene.hold(&mut subscription, 3).await;
    let lag = scene.bus.lag(&name).await.expect("the group is there");
    let part = &lag.partitions[0];
    assert_eq!((part.cursor.get(), part.end.get(), part.events, part.out), (0, 3, 3, 3));
    assert_eq!(part.oldest_unacked, Some(first.appended_at));
    assert!(u128::from(part.age_ms) + 1 >= scene.ticks(1).as_millis(), "{}", part.age_ms);
    held.sort_by_key(|delivered| number(delivered.event()));
    held.remove(0).ack().await.expect("it can be acked");
    let lag = scene.bus.lag(&name).await.expect("the group is there");
    assert_eq!(lag.partitions[0].oldest_unacked, Some(second.appended_at));
    assert_eq!(lag.events(), 2);
    drop((held, subscription));
    scene.publish(ORDERS, "", 3).await;
    let lag = scene.bus.lag(&name).await.expect("the group is there");
    assert_eq!((lag.members, lag.events(), lag.partitions[0].out), (0, 3, 0));
}

/// `caught_up` waits for what was there when it was asked, to the last ack.
pub async fn caught_up_waits_for_the_last_ack(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let name = group(BILLING);
    let mut subscription = scene.subscribe().await;
    scene.within("an empty group", scene.bus.caught_up(&name)).await.expect("it goes on");
    scene.publish_all("", 0..3).await;
    let held = scene.hold(&mut subscription, 3).await;
    let waiting = tokio::spawn({
        let (bus, name) = (scene.bus.clone(), name.clone());
        async move { bus.caught_up(&name).await }
    });
    for delivered in held.into_iter().rev() {
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "not all is acked");
        delivered.ack().await.expect("it can be acked");
    }
    scene.within("all is acked", waiting).await.expect("it ends").expect("it goes on");
    assert_eq!(scene.cursor().await, 3);
}

/// Dead letters are finished; so is what was skipped.
pub async fn caught_up_counts_the_dead_as_finished(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    scene.publish_all("", 0..3).await;
    let mut held = scene.hold(&mut subscription, 3).await;
    held.remove(0).park("no").await.expect("it is ours");
    held.remove(0).skip().await.expect("it is ours");
    held.remove(0).ack().await.expect("it is ours");
    let name = group(BILLING);
    scene.within("nothing is left", scene.bus.caught_up(&name)).await.expect("it goes on");
    assert_eq!(scene.bus.lag(&name).await.expect("it is there").events(), 0);
}

/// A group over several topics and partitions has a cursor in each.
pub async fn every_partition_is_told(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    scene.define("a", 3).await;
    scene.define("b", 2).await;
    let builder = scene.bus.subscribe_to(["a", "b"], BILLING).from(Start::Earliest);
    let mut subscription = builder.stream().await.expect("one can subscribe");
    for turn in 0..20 {
        scene.publish("a", &format!("key-{turn}"), turn).await;
        scene.publish("b", &format!("key-{turn}"), turn).await;
    }
    let name = group(BILLING);
    let lag = scene.bus.lag(&name).await.expect("the group is there");
    assert_eq!((lag.partitions.len(), lag.events()), (5, 40));
    assert_eq!(scene.take(&mut subscription, 40).await.len(), 40);
    let lag = scene.bus.lag(&name).await.expect("the group is there");
    assert_eq!(lag.events(), 0);
    assert!(lag.partitions.iter().all(|part| part.cursor == part.end));
    let settings = scene.bus.group_settings(&name).await.expect("the group is there");
    assert_eq!(settings.topics.len(), 2);
}
