//! What a group reads: topics, patterns, filters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use promethean::{Failure, Filter, GroupError, SettingsError, Start};

use super::factory::BusFactory;
use super::scene::{BILLING, ORDERS, Scene, event, group, number, topic};

fn even() -> Filter {
    Filter::new("even", |event| number(event).is_multiple_of(2))
}

fn large() -> Filter {
    Filter::new("large", |event| number(event) >= 1_000)
}

/// Pitfall 7: what the filter does not want is passed over, and the cursor with it.
pub async fn a_filter_passes_over_and_the_cursor_follows(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
    let mut subscription = builder.filter(large()).stream().await.expect("one can subscribe");
    scene.publish_all("k", 0..400).await;
    scene.publish_all("k", 1_000..1_030).await;
    assert_eq!(scene.take(&mut subscription, 30).await, (1_000..1_030).collect::<Vec<_>>());
    scene.cursor_comes_to(430).await;
    // Nothing at all is wanted of these, and the group still comes to the end.
    scene.publish_all("k", 0..300).await;
    let name = group(BILLING);
    scene.within("the group is through", scene.bus.caught_up(&name)).await.expect("it goes on");
    assert_eq!(scene.cursor().await, 730);
    assert_eq!(scene.bus.lag(&group(BILLING)).await.expect("it is there").events(), 0);
    scene.silent(&mut subscription).await;
}

/// What is passed over is between what is wanted: neither order nor acks get mixed up.
pub async fn a_filter_and_acks_get_along(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
    let mut subscription = builder.filter(even()).stream().await.expect("one can subscribe");
    scene.publish_all("", 0..10).await;
    let held = scene.hold(&mut subscription, 5).await;
    for delivered in held.into_iter().rev() {
        let offset = delivered.event().offset.get();
        assert_eq!(offset % 2, 0);
        assert_eq!(scene.cursor().await, 0, "the first is not acked yet");
        delivered.ack().await.expect("it can be acked");
    }
    scene.cursor_comes_to(10).await;
}

/// Members agree on the filter, by its name.
pub async fn members_agree_on_the_filter(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let builder = || scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
    let member = builder().filter(even()).stream().await.expect("one can subscribe");
    for other in [builder().filter(large()), builder()] {
        let refused = other.stream().await;
        assert!(matches!(refused, Err(GroupError::OtherSettings { .. })), "{refused:?}");
    }
    builder().filter(even()).stream().await.expect("the same is welcome");
    drop(member);
}

/// Patterns, overlapping ones too: each event once, none of the system's, none of the dead.
pub async fn patterns_match_users_topics_once(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let builder = scene.bus.subscribe_to(["**", "a.*", "a.b"], BILLING).from(Start::Earliest);
    let builder = builder.max_attempts(1);
    let handled = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&handled);
    let consumer = builder.handle(move |delivered| {
        count.fetch_add(1, Ordering::SeqCst);
        let is_bad = number(delivered.event()) == 1;
        async move { if is_bad { Err(Failure::retry("bad")) } else { Ok(()) } }
    });
    let consumer = consumer.await.expect("one can subscribe");
    scene.publish("a.b", "k", 0).await;
    scene.publish("a.b", "k", 1).await;
    scene.publish("c", "k", 2).await;
    scene.letters_come_to(1).await;
    let name = group(BILLING);
    scene.within("the group is through", scene.bus.caught_up(&name)).await.expect("it goes on");
    consumer.stop().await.expect("it stops");
    assert_eq!(handled.load(Ordering::SeqCst), 3);
    let read: Vec<_> = scene.cursors().await.into_iter().map(|cursor| cursor.topic).collect();
    assert_eq!(read, [topic("a.b"), topic("c")]);
}

/// Dead letters are read by those who name them.
pub async fn dead_letters_can_be_read_by_name(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    scene.publish(ORDERS, "k", 1).await;
    let dead = scene.next(&mut subscription).await;
    let id = dead.event().id;
    dead.park("useless").await.expect("it is ours");
    let builder = scene.bus.subscribe_to(["dlq.**"], "undertaker").from(Start::Earliest);
    let mut letters = builder.stream().await.expect("one can subscribe");
    let delivered = scene.next(&mut letters).await;
    assert_eq!(delivered.event().topic, topic("dlq.orders.placed"));
    let letter = promethean::DeadLetter::of(delivered.event()).expect("it is a dead letter");
    assert_eq!(letter.original.expect("it was there").id, id);
}

/// What nobody can mean is refused, with a reason.
pub async fn bad_names_and_patterns_are_refused(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    // Pitfall 22: a separator in a name made two groups one.
    for name in ["", "a::b", "a b", "ä", &"g".repeat(129)] {
        let refused = scene.bus.subscribe_to([ORDERS], name).stream().await;
        assert!(matches!(refused, Err(GroupError::Name(_))), "{name:?}");
    }
    for text in ["", "a..b", "heart*", "A", "a b"] {
        let refused = scene.bus.subscribe_to([text], BILLING).stream().await;
        assert!(matches!(refused, Err(GroupError::Pattern(_))), "{text:?}");
    }
    let refused = scene.bus.subscribe_to(["$groups"], BILLING).stream().await;
    assert!(matches!(refused, Err(GroupError::Settings(SettingsError::System(_)))));
    let none: [&str; 0] = [];
    let refused = scene.bus.subscribe_to(none, BILLING).stream().await;
    assert!(matches!(refused, Err(GroupError::Settings(SettingsError::NoTopics))));
    let many: Vec<_> = (0..257).map(|turn| format!("t{turn}")).collect();
    let refused = scene.bus.subscribe_to(many.iter().map(String::as_str), BILLING).stream().await;
    assert!(matches!(refused, Err(GroupError::Settings(SettingsError::TooManyTopics(257)))));
    assert_eq!(scene.bus.groups().await.expect("they can be listed"), []);
}

/// A topic that goes takes its leases with it, and hangs nobody up; one of the same name is read
/// from its beginning.
pub async fn a_removed_topic_goes_without_trouble(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let builder = scene.bus.subscribe_to(["**"], BILLING).from(Start::Earliest);
    let mut subscription = builder.stream().await.expect("one can subscribe");
    scene.publish("gone", "k", 1).await;
    scene.publish("stays", "k", 2).await;
    let mut held = scene.hold(&mut subscription, 2).await;
    held.sort_by_key(|delivered| number(delivered.event()));
    scene.bus.remove_topic(&topic("gone")).await.expect("it can be removed");
    scene.eventually("the group lets go", async || scene.cursors().await.len() == 1).await;
    let stays = held.pop().expect("two were held");
    let gone = held.pop().expect("two were held");
    let late = scene.within("an answer", gone.ack()).await;
    assert!(late.is_err(), "there is nothing to ack any more");
    stays.ack().await.expect("the other topic is as it was");
    let name = group(BILLING);
    scene.within("nothing is left", scene.bus.caught_up(&name)).await.expect("it goes on");
    scene.bus.publish(event("gone", "k", 3)).await.expect("the name is free again");
    assert_eq!(scene.take(&mut subscription, 1).await, [3]);
    assert!(scene.bus.remove_topic(&topic("never")).await.is_err());
}
