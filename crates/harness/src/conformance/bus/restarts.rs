//! What survives when the process goes down without a word.

use std::time::Duration;

use promethean::event::NewEvent;
use promethean::{
    DeadLetterQuery, DeadLetterState, GroupError, Park, ReplayDeadLetters, Start, Subscribe,
};

use super::factory::BusFactory;
use super::scene::{BILLING, ORDERS, Scene, event, group, number, pattern, topic};

fn billing(scene: &Scene<'_>) -> Subscribe {
    scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest)
}

/// P1, P17, P19: acked stays acked, out of order too; what was not comes again; what was published
/// is there.
pub async fn acks_survive(factory: &dyn BusFactory) {
    if !factory.survives_restart() {
        return;
    }
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    scene.publish_all("", 0..8).await;
    for delivered in scene.hold(&mut subscription, 8).await {
        if [0, 2, 3, 6].contains(&number(delivered.event())) {
            delivered.ack().await.expect("it can be acked");
        }
    }
    drop(subscription);
    let scene = scene.crash().await;
    assert_eq!(scene.numbers(ORDERS).await, (0..8).collect::<Vec<_>>());
    assert_eq!(scene.cursor().await, 1);
    let mut subscription = scene.subscribe().await;
    let mut again = scene.take(&mut subscription, 4).await;
    again.sort_unstable();
    assert_eq!(again, [1, 4, 5, 7]);
    scene.silent(&mut subscription).await;
    assert_eq!(scene.cursor().await, 8);
}

/// Pitfall 106, promise 6: an event that kills the process each time is a dead letter in the end,
/// after exactly as many attempts as the group says.
pub async fn attempts_survive(factory: &dyn BusFactory) {
    if !factory.survives_restart() {
        return;
    }
    const MOST: u16 = 4;
    let mut scene = Scene::open(factory).await;
    scene.publish_all("k", 0..2).await;
    let mut attempts = Vec::new();
    for _ in 0..=MOST {
        let builder = billing(&scene).max_attempts(MOST);
        let mut subscription = builder.stream().await.expect("one can subscribe");
        let delivered = scene.next(&mut subscription).await;
        attempts.push((number(delivered.event()), delivered.attempt()));
        drop((delivered, subscription));
        scene = scene.crash().await;
    }
    let of_first: Vec<_> = attempts.iter().filter(|(event, _)| *event == 0).collect();
    assert!(of_first.len() <= usize::from(MOST), "not more than it may: {attempts:?}");
    let counts: Vec<_> = of_first.iter().map(|(_, attempt)| *attempt).collect();
    assert!(counts.windows(2).all(|pair| pair[0] < pair[1]), "never short: {attempts:?}");
    assert_eq!(attempts.last().map(|(event, _)| *event), Some(1), "{attempts:?}");
    let letters = scene.letters_come_to(1).await;
    assert_eq!(letters[0].letter.offset.get(), 0);
    assert_eq!(letters[0].letter.attempts, MOST);
}

/// Promise 6: retries that failed before the crash are counted after it.
pub async fn failures_survive(factory: &dyn BusFactory) {
    if !factory.survives_restart() {
        return;
    }
    let scene = Scene::open(factory).await;
    let most = 3;
    let subscribe = billing(&scene).max_attempts(most);
    let subscribe = subscribe.backoff(scene.ticks(1) / 10, scene.ticks(1) / 5);
    let mut subscription = subscribe.stream().await.expect("one can subscribe");
    scene.publish(ORDERS, "k", 0).await;
    let first = scene.next(&mut subscription).await;
    assert_eq!(first.attempt(), 1);
    first.retry("no").await.expect("it is ours");
    let second = scene.next(&mut subscription).await;
    assert_eq!(second.attempt(), 2);
    // Not at once: the third attempt, which is the last, would be made for a subscription that goes.
    second.retry_after(scene.ticks(1).max(Duration::from_secs(1)), "no").await.expect("it is ours");
    drop(subscription);
    let scene = scene.crash().await;
    let subscribe = billing(&scene).max_attempts(most);
    let subscribe = subscribe.backoff(scene.ticks(1) / 10, scene.ticks(1) / 5);
    let mut subscription = subscribe.stream().await.expect("one can subscribe");
    let delivered = scene.next(&mut subscription).await;
    assert_eq!(delivered.attempt(), 3);
    delivered.retry("the last time").await.expect("it is ours");
    let letters = scene.letters_come_to(1).await;
    assert_eq!((letters[0].letter.attempts, letters[0].letter.times.len()), (3, 3));
}

/// Dead letters, and what became of them.
pub async fn dead_letters_survive(factory: &dyn BusFactory) {
    if !factory.survives_restart() {
        return;
    }
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    scene.publish_all("", 0..3).await;
    let mut held = scene.hold(&mut subscription, 3).await;
    held.sort_by_key(|delivered| number(delivered.event()));
    for delivered in held {
        delivered.park("no").await.expect("it is ours");
    }
    let letters = scene.letters_come_to(3).await;
    scene.bus.discard_dead_letter(letters[0].id).await.expect("it waits");
    let one = ReplayDeadLetters::new(DeadLetterQuery::waiting().id(letters[1].id));
    scene.bus.replay_dead_letters(&one).await.expect("the replay goes through");
    drop(subscription);
    let scene = scene.crash().await;
    let all = scene.bus.dead_letters(&DeadLetterQuery::default()).await.expect("they are listed");
    let states: Vec<_> = all.iter().map(|entry| entry.state).collect();
    let expected =
        [DeadLetterState::Discarded, DeadLetterState::Replayed, DeadLetterState::Waiting];
    assert_eq!(states, expected);
    assert_eq!(all[2], letters[2]);
    let mut subscription = scene.subscribe().await;
    let replayed = scene.next(&mut subscription).await;
    assert_eq!(replayed.event().offset, letters[1].letter.offset, "it was given back");
    replayed.ack().await.expect("it can be acked");
    scene.silent(&mut subscription).await;
}

/// Keys that wait behind a dead letter still do.
pub async fn parked_keys_survive(factory: &dyn BusFactory) {
    if !factory.survives_restart() {
        return;
    }
    let scene = Scene::open(factory).await;
    let mut subscription = billing(&scene).park(Park::Key).stream().await.expect("one can");
    scene.publish_all("bad", 0..3).await;
    scene.next(&mut subscription).await.park("no").await.expect("it is ours");
    drop(subscription);
    let scene = scene.crash().await;
    scene.publish_all("bad", 3..4).await;
    scene.publish_all("good", 10..11).await;
    let mut subscription = billing(&scene).park(Park::Key).stream().await.expect("one can");
    assert_eq!(scene.take(&mut subscription, 1).await, [10]);
    scene.silent(&mut subscription).await;
    let waiting = ReplayDeadLetters::new(DeadLetterQuery::waiting());
    scene.bus.replay_dead_letters(&waiting).await.expect("the replay goes through");
    assert_eq!(scene.take(&mut subscription, 4).await, [0, 1, 2, 3]);
}

/// A move that was answered is not taken back, and acks from before it stay void.
pub async fn moves_survive(factory: &dyn BusFactory) {
    if !factory.survives_restart() {
        return;
    }
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    scene.publish_all("k", 0..5).await;
    assert_eq!(scene.take(&mut subscription, 5).await, [0, 1, 2, 3, 4]);
    let mut cursor = scene.cursors().await.remove(0);
    cursor.next = promethean::event::Offset::new(3);
    scene.bus.set_cursor(&group(BILLING), &cursor).await.expect("it can be moved");
    drop(subscription);
    let scene = scene.crash().await;
    assert_eq!(scene.cursor().await, 3);
    let mut subscription = scene.subscribe().await;
    assert_eq!(scene.take(&mut subscription, 2).await, [3, 4]);
}

/// The group is there with its settings before anybody subscribes, and takes in what is published.
pub async fn groups_and_settings_survive(factory: &dyn BusFactory) {
    if !factory.survives_restart() {
        return;
    }
    let scene = Scene::open(factory).await;
    let builder = scene.bus.subscribe_to(["orders.*"], BILLING).max_attempts(7).hold();
    drop(builder.stream().await.expect("one can subscribe"));
    let settings = scene.bus.group_settings(&group(BILLING)).await.expect("it is there");
    let scene = scene.crash().await;
    assert_eq!(scene.bus.groups().await.expect("they are listed"), [group(BILLING)]);
    let again = scene.bus.group_settings(&group(BILLING)).await.expect("it is there");
    assert_eq!(again, settings);
    assert_eq!((again.max_attempts, again.hold), (7, true));
    assert_eq!(again.topics, [pattern("orders.*")]);
    assert!(matches!(scene.bus.lag(&group("nobody")).await, Err(GroupError::Unknown(_))));
}

/// A topic that appears while the group is nowhere is read from its first event on.
pub async fn topics_that_appear_meanwhile_are_read_whole(factory: &dyn BusFactory) {
    if !factory.survives_restart() {
        return;
    }
    let scene = Scene::open(factory).await;
    scene.publish("orders.a", "k", 0).await;
    let subscribe = |scene: &Scene<'_>| scene.bus.subscribe_to(["orders.*"], BILLING);
    drop(subscribe(&scene).stream().await.expect("one can subscribe"));
    scene.publish("orders.b", "k", 1).await;
    scene.publish("orders.a", "k", 2).await;
    let scene = scene.crash().await;
    scene.publish("orders.c", "k", 3).await;
    let mut subscription = subscribe(&scene).stream().await.expect("one can subscribe");
    let mut got = scene.take(&mut subscription, 3).await;
    got.sort_unstable();
    assert_eq!(got, [1, 2, 3], "nothing since the group was made, and nothing before");
    scene.silent(&mut subscription).await;
}

/// P14 across a restart: the same id adds nothing, and other content is refused.
pub async fn ids_survive(factory: &dyn BusFactory) {
    if !factory.survives_restart() {
        return;
    }
    let scene = Scene::open(factory).await;
    scene.define(ORDERS, 3).await;
    let once = event(ORDERS, "k", 0);
    let first = scene.bus.publish(once.clone()).await.expect("the event is good");
    let scene = scene.crash().await;
    let again = scene.bus.publish(once.clone()).await.expect("again is fine");
    assert!(again.duplicate);
    assert_eq!((again.partition, again.offset), (first.partition, first.offset));
    let other = NewEvent { payload: promethean::event::Payload::null(), ..once };
    assert!(scene.bus.publish(other).await.is_err());
    let topics = scene.bus.topics();
    let entry = topics.get(&topic(ORDERS)).expect("the topic is there");
    assert_eq!(entry.definition.partitions.get(), 3);
}

/// Promise 4 across crashes: with events out and acks under way, no key is out of order, and what
/// was confirmed never comes again.
pub async fn keys_stay_in_order_across_crashes(factory: &dyn BusFactory) {
    if !factory.survives_restart() {
        return;
    }
    const TURNS: u64 = 40;
    let mut scene = Scene::open(factory).await;
    let mut confirmed = std::collections::BTreeMap::new();
    for turn in 0..TURNS {
        let events = ["a", "b", "c"].map(|key| event(ORDERS, key, turn)).to_vec();
        scene.bus.publish_batch(events).await.expect("the batch is good");
    }
    for round in 0_u64.. {
        let mut subscription = billing(&scene).max_attempts(1_000).stream().await.expect("one can");
        let mut seen = std::collections::BTreeMap::new();
        for step in 0..20 {
            let next = tokio::time::timeout(scene.pace.quiet, subscription.next()).await;
            let Ok(next) = next else { break };
            let delivered = next.expect("the bus is open").expect("the group goes on");
            let key = delivered.event().key.clone().expect("all have keys");
            let turn = number(delivered.event());
            let least = confirmed.get(&key).map_or(0, |done: &u64| done + 1);
            assert!(turn >= least, "{turn} of {} was confirmed", key.as_str());
            let before = seen.insert(key.clone(), turn);
            assert!(before.is_none_or(|before| turn == before + 1 || turn == before));
            if before.is_none() {
                assert!(turn <= least + 20, "the first after a crash follows what was done");
            }
            if (step + round) % 3 == 0 {
                // Made, and perhaps not durable when the process goes down.
                drop(delivered.acked());
            } else if delivered.ack().await.is_ok() {
                confirmed.insert(key, turn);
            }
        }
        drop(subscription);
        let done = scene.cursor().await == 3 * TURNS;
        scene = scene.crash().await;
        if done {
            break;
        }
        assert!(round < 100, "it comes to an end");
    }
    assert_eq!(scene.letters().await.len(), 0);
}

/// Closed in good order, everything is there, and nothing more comes.
pub async fn a_closed_bus_opens_again(factory: &dyn BusFactory) {
    if !factory.survives_restart() {
        return;
    }
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    scene.publish_all("", 0..5).await;
    for delivered in scene.hold(&mut subscription, 4).await {
        // Nobody waits for these but the close.
        drop(delivered.acked());
    }
    drop(subscription);
    scene.within("it closes", scene.bus.close()).await;
    let scene = scene.crash().await;
    let mut subscription = scene.subscribe().await;
    assert_eq!(scene.take(&mut subscription, 1).await.len(), 1);
    scene.silent(&mut subscription).await;
    assert_eq!(scene.cursor().await, 5);
}
