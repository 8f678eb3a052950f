//! Dead letters: what they say, where they go, and that there is one for each that died.

use promethean::event::limits::PAYLOAD_BYTES_MAX;
use promethean::event::{EventId, NewEvent, Offset, Partition, Payload, Tag};
use promethean::{BusOptions, DeadLetterQuery, DeadLetterState, Failure, Start, Subscription};
use promethean_delivery::limits::ERROR_BYTES_MAX;

use super::factory::BusFactory;
use super::scene::{BILLING, ORDERS, Scene, event, group, number, pattern, topic};

/// The next delivery is given up.
async fn park_next(scene: &Scene<'_>, subscription: &mut Subscription, error: &str) -> EventId {
    let delivered = scene.next(subscription).await;
    let id = delivered.event().id;
    delivered.park(error).await.expect("it is ours");
    id
}

/// Pitfalls 107, 108, 110, P21: the whole story, under an id that follows from where it was.
pub async fn a_letter_tells_the_whole_story(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    scene.publish(ORDERS, "x", 9).await;
    let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
    let builder = builder.max_attempts(3).backoff(scene.ticks(1) / 10, scene.ticks(1) / 5);
    let mut subscription = builder.stream().await.expect("one can subscribe");
    assert_eq!(scene.take(&mut subscription, 1).await, [9]);
    let mut sent = event(ORDERS, "k", 1);
    sent.headers.insert("x-trace", "abc").expect("a good header");
    sent.tags = vec![Tag::new("#a").expect("a good tag")];
    sent.caused_by = vec![EventId::generate()];
    let published = scene.bus.publish(sent.clone()).await.expect("the event is good");
    for turn in 1..=3 {
        let delivered = scene.next(&mut subscription).await;
        delivered.retry(format!("attempt {turn} failed")).await.expect("it is ours");
    }
    let entry = scene.letters_come_to(1).await.remove(0);
    let letter = &entry.letter;
    assert_eq!(letter.topic, topic(ORDERS));
    assert_eq!((letter.partition, letter.offset), (Partition::ZERO, Offset::new(1)));
    assert_eq!(letter.group, group(BILLING));
    assert_eq!(letter.original, Some(sent.clone().placed(published.partition, published.offset)));
    assert_eq!((letter.err.as_str(), letter.reason.as_str()), ("attempt 3 failed", "refused"));
    assert_eq!((letter.attempts, letter.times.len(), letter.round), (3, 3, 0));
    assert!(letter.times.is_sorted());
    assert_eq!(entry.state, DeadLetterState::Waiting);

    let dead = topic("dlq.orders.placed");
    let stored = scene.bus.find(&dead, entry.id).await.expect("it can be looked up");
    let stored = stored.expect("it is an event of its topic").event;
    assert_eq!(stored.key, sent.key, "the key goes with it");
    assert_eq!(stored.caused_by, [sent.id]);
    assert_eq!(scene.cursor().await, 2, "it has left the flow");
}

/// Pitfall 113: errors are cut, and what must not be kept is taken out.
pub async fn errors_are_bounded_and_redacted(factory: &dyn BusFactory) {
    let options = BusOptions::default().redact(|text| text.replace("hunter2", "***"));
    let scene = Scene::with(factory, options).await;
    let mut subscription = scene.subscribe().await;
    scene.publish_all("", 0..2).await;
    park_next(&scene, &mut subscription, "password hunter2 is wrong").await;
    park_next(&scene, &mut subscription, &"é".repeat(100_000)).await;
    let letters = scene.letters_come_to(2).await;
    let mut texts: Vec<_> = letters.iter().map(|entry| entry.letter.err.clone()).collect();
    texts.sort_unstable();
    assert_eq!(texts[0], "password *** is wrong");
    assert!(texts[1].len() <= ERROR_BYTES_MAX && texts[1].len() > ERROR_BYTES_MAX / 2);
    // Nothing of it is anywhere in what was stored.
    let stored = scene.bus.find(&topic("dlq.orders.placed"), letters[0].id).await;
    let stored = stored.expect("it can be looked up").expect("it is there");
    assert!(!stored.event.payload.as_str().contains("hunter2"));
}

/// Listing by group, topic, kind of error and id.
pub async fn letters_can_be_listed(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut groups = Vec::new();
    for name in [BILLING, "shipping"] {
        let builder = scene.bus.subscribe_to(["**"], name).from(Start::Earliest);
        groups.push(builder.stream().await.expect("one can subscribe"));
    }
    scene.publish("a.x", "", 0).await;
    scene.publish("a.y", "", 1).await;
    scene.publish("b", "", 2).await;
    for (turn, subscription) in groups.iter_mut().enumerate() {
        for step in 0..3 {
            let error = match step {
                0 => format!("order {turn}{step} not found in 'table {turn}'"),
                1 => format!("order 77{turn} not found in 'x'"),
                _ => "timed out".to_owned(),
            };
            park_next(&scene, subscription, &error).await;
        }
    }
    let all = scene.letters_come_to(6).await;
    let ids: std::collections::BTreeSet<_> = all.iter().map(|entry| entry.id).collect();
    assert_eq!(ids.len(), 6, "each group has its own");
    let list = async |query: DeadLetterQuery| {
        scene.bus.dead_letters(&query).await.expect("they can be listed")
    };
    assert_eq!(list(DeadLetterQuery::waiting().group(group(BILLING))).await.len(), 3);
    assert_eq!(list(DeadLetterQuery::waiting().topics(pattern("a.*"))).await.len(), 4);
    assert_eq!(list(DeadLetterQuery::waiting().id(all[3].id)).await, [all[3].clone()]);
    let mut kinds = std::collections::BTreeMap::new();
    for entry in &all {
        *kinds.entry(entry.letter.fingerprint.clone()).or_insert(0) += 1;
    }
    let mut counts: Vec<_> = kinds.values().copied().collect();
    counts.sort_unstable();
    assert_eq!(counts, [2, 4], "numbers and quoted text make no kind");
    for (kind, count) in kinds {
        assert_eq!(list(DeadLetterQuery::waiting().fingerprint(kind)).await.len(), count);
    }
    let mut few = DeadLetterQuery::waiting();
    few.max = 2;
    assert_eq!(list(few).await.len(), 2);
    let topics = scene.bus.topics();
    let dead: Vec<_> = topics.users().map(|entry| entry.definition.topic.to_string()).collect();
    // Pitfall 114: one topic of dead letters for each topic.
    assert_eq!(dead, ["a.x", "a.y", "b", "dlq.a.x", "dlq.a.y", "dlq.b"]);
}

/// Pitfall 108: one group's trouble is its own.
pub async fn other_groups_do_not_notice(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut billing = scene.subscribe().await;
    let builder = scene.bus.subscribe_to([ORDERS], "shipping").from(Start::Earliest);
    let mut shipping = builder.stream().await.expect("one can subscribe");
    scene.publish_all("k", 0..3).await;
    park_next(&scene, &mut billing, "no").await;
    assert_eq!(scene.take(&mut billing, 2).await, [1, 2], "the key goes on");
    assert_eq!(scene.take(&mut shipping, 3).await, [0, 1, 2]);
    let letters = scene.letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].letter.group, group(BILLING));
}

/// Pitfall 113: what fails in a topic of dead letters makes no further one, and stops nobody.
pub async fn no_letter_of_a_letter(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    scene.publish_all("", 0..3).await;
    for _ in 0..3 {
        park_next(&scene, &mut subscription, "no").await;
    }
    scene.letters_come_to(3).await;
    let builder = scene.bus.subscribe_to(["dlq.**"], "undertaker").from(Start::Earliest);
    let builder = builder.max_attempts(2).backoff(scene.ticks(1) / 10, scene.ticks(1) / 5);
    let consumer = builder.handle(|delivered| async move {
        match delivered.event().offset.get() {
            0 => Err(Failure::park("not even this")),
            1 => Err(Failure::retry("nor this")),
            _ => Ok(()),
        }
    });
    let consumer = consumer.await.expect("one can subscribe");
    scene.eventually("all were handled", async || consumer.handled() >= 4).await;
    let last = scene.publish(ORDERS, "", 3).await;
    assert_eq!(park_next(&scene, &mut subscription, "no").await, last.id);
    scene.eventually("the next one comes through", async || consumer.handled() >= 5).await;
    let topics = scene.bus.topics();
    assert!(topics.users().all(|entry| !entry.definition.topic.as_str().starts_with("dlq.dlq")));
    assert_eq!(scene.stored("dlq.orders.placed").await, 4);
    consumer.stop().await.expect("it is in good health");
}

/// The largest event that can be published can die, and is kept whole.
pub async fn the_largest_event_can_die(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    let payload = Payload::of(&"x".repeat(PAYLOAD_BYTES_MAX - 2)).expect("it just fits");
    let sent = NewEvent { payload, ..event(ORDERS, &"k".repeat(1_024), 0) };
    scene.bus.publish(sent.clone()).await.expect("it just fits");
    park_next(&scene, &mut subscription, "too heavy").await;
    let letters = scene.letters_come_to(1).await;
    let original = letters[0].letter.original.clone().expect("it is kept");
    assert_eq!(original.payload, sent.payload);
    assert_eq!(scene.cursor().await, 1);
}

/// The longest topic can have dead letters, or says that it cannot; no event goes without a trace.
pub async fn the_longest_topic_loses_nothing(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let name = "t".repeat(249);
    let builder = scene.bus.subscribe_to(["**"], BILLING).from(Start::Earliest);
    let mut subscription = builder.stream().await.expect("one can subscribe");
    scene.publish(&name, "k", 0).await;
    scene.publish(&name, "k", 1).await;
    let delivered = scene.next(&mut subscription).await;
    let target = promethean::member::AckTarget::Token(delivered.token());
    let park = promethean_delivery::Verdict::Park { error: b"no", fingerprint: 1 };
    let answer = scene.within("an answer", subscription.seat().nack(target, park)).await;
    let lost = async {
        let passed = scene.cursors().await[0].next.get() > 0;
        passed && scene.letters().await.is_empty()
    };
    assert!(!lost.await, "the event is neither in the flow nor dead: {answer:?}");
    // Whatever became of the first, the group goes on.
    scene.publish("another", "k", 2).await;
    loop {
        let delivered = scene.next(&mut subscription).await;
        let is_other = number(delivered.event()) == 2;
        delivered.ack().await.expect("it is ours");
        if is_other {
            break;
        }
    }
}

/// What others publish into a topic of dead letters is not taken for one.
pub async fn strangers_among_the_letters_do_no_harm(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    scene.publish("dlq.orders.placed", "k", 5).await;
    scene.publish(ORDERS, "", 0).await;
    park_next(&scene, &mut subscription, "no").await;
    scene.publish("dlq.orders.placed", "k", 6).await;
    let letters = scene.letters_come_to(1).await;
    assert_eq!(letters[0].letter.err, "no");
    // A copy of the letter elsewhere, or with an event of another topic, would be replayed into a
    // topic that who published it may not write.
    let genuine = letters[0].letter.clone();
    let mut smuggled = genuine.clone();
    smuggled.original.as_mut().expect("it has its event").topic = topic("payments");
    for (name, letter) in [("dlq.other", &genuine), ("dlq.orders.placed", &smuggled)] {
        let payload = Payload::of(letter).expect("it has a JSON form");
        let forged = NewEvent { payload, ..event(name, "k", 0) };
        scene.bus.publish(forged).await.expect("the event is good");
    }
    let query = DeadLetterQuery::default();
    assert_eq!(scene.bus.dead_letters(&query).await.expect("they can be listed").len(), 1);
}

/// An event that dies again has a letter that waits, whatever became of the first one: after the
/// group was moved back, after it was made anew, and in a topic that was made anew.
pub async fn every_death_has_its_letter(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = Some(scene.subscribe().await);
    scene.publish(ORDERS, "k", 0).await;
    let name = group(BILLING);
    for round in 0..4 {
        let current = subscription.get_or_insert(scene.subscribe().await);
        park_next(&scene, current, &format!("death {round}")).await;
        let letters = scene.letters_come_to(1).await;
        assert_eq!(letters[0].letter.err, format!("death {round}"));
        scene.bus.discard_dead_letter(letters[0].id).await.expect("it waits");
        // Two deaths in one millisecond would be one.
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        match round {
            0 => {
                let mut cursor = scene.cursors().await.remove(0);
                cursor.next = Offset::ZERO;
                scene.bus.set_cursor(&name, &cursor).await.expect("the group can be moved");
            }
            1 => {
                subscription = None;
                scene.bus.remove_group(&name).await.expect("it has no members");
            }
            _ => {
                scene.bus.remove_topic(&topic(ORDERS)).await.expect("it can be removed");
                scene.publish(ORDERS, "k", 1).await;
            }
        }
    }
}
