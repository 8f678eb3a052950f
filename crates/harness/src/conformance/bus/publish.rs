//! The way in: atomic, idempotent, in order, or refused with nothing left behind.

use promethean::event::limits::{CAUSED_BY_COUNT_MAX, TAGS_COUNT_MAX};
use promethean::event::{
    EventId, NewEvent, Offset, Partition, PartitionCount, Payload, SessionId, Tag, Timestamp, Topic,
};
use promethean::store::{Append, AppendError, Appended, Expectation, PageLimit};
use promethean::{BusOptions, PublishError, PublishOptions, Start, UnknownTopics};
use tokio::task::JoinSet;

use super::factory::BusFactory;
use super::scene::{ORDERS, Scene, event, key, number, topic};

/// Promise 2, P3: all events of a call, over any number of topics, or none.
pub async fn one_call_is_atomic_over_topics(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let first = scene.publish("a.one", "k", 1).await;
    scene.define("b.two", 3).await;
    let conflict = NewEvent { id: first.id, ..event("a.one", "k", 2) };
    let batch = vec![event("b.two", "x", 3), conflict, event("b.two", "y", 4)];
    let refused = scene.bus.publish_batch(batch).await;
    assert!(matches!(refused, Err(PublishError::Append(AppendError::IdConflict { .. }))));
    assert_eq!(scene.stored("b.two").await, 0, "nothing of a refused batch is stored");
    assert_eq!(scene.stored("a.one").await, 1);

    let batch = vec![event("b.two", "x", 3), event("a.one", "k", 5), event("b.two", "y", 4)];
    let ids: Vec<_> = batch.iter().map(|event| event.id).collect();
    let published = scene.bus.publish_batch(batch).await.expect("the batch is good");
    assert_eq!(published.iter().map(|one| one.id).collect::<Vec<_>>(), ids, "receipts in order");
    assert_eq!(scene.stored("b.two").await, 2);
    assert_eq!(scene.numbers("a.one").await, [1, 5]);
}

/// What came together is stored in its order, and each publish of it is refused for itself.
pub async fn a_run_is_in_order_and_each_is_answered_for_itself(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let first = scene.publish(ORDERS, "k", 0).await;
    let conflict = NewEvent { id: first.id, ..event(ORDERS, "k", 9) };
    let system = NewEvent { topic: Topic::system("x").expect("a name"), ..event(ORDERS, "k", 9) };
    let run = [
        vec![event(ORDERS, "k", 1)],
        vec![event(ORDERS, "k", 2), conflict],
        vec![event(ORDERS, "k", 3), event(ORDERS, "k", 4)],
        vec![system],
        vec![event(ORDERS, "k", 5)],
    ];
    let part = |events| Append { events, ..Append::default() };
    let run = run.into_iter().map(part).collect();
    let outcomes = scene.bus.publish_run(run).await;
    let offsets = |outcome: &Result<Appended, _>| match outcome {
        Ok(appended) => Ok(appended.receipts.iter().map(|one| one.offset.get()).collect()),
        Err(error) => Err(matches!(error, PublishError::Append(AppendError::IdConflict { .. }))),
    };
    let seen: Vec<Result<Vec<u64>, bool>> = outcomes.iter().map(offsets).collect();
    assert_eq!(seen, [Ok(vec![1]), Err(true), Ok(vec![2, 3]), Err(false), Ok(vec![4])]);
    assert_eq!(scene.numbers(ORDERS).await, [0, 1, 3, 4, 5]);

    // A topic that is not there yet is made, as by a single publish.
    let run = [part(vec![event("made.now", "k", 1)])];
    assert!(scene.bus.publish_run(run.into_iter().collect()).await.iter().all(Result::is_ok));
    assert_eq!(scene.numbers("made.now").await, [1]);
}

/// Pitfalls 18 and 26, P14: the same id again answers with the first place and adds nothing; the
/// id is one per topic.
pub async fn the_same_id_again_adds_nothing(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    scene.define(ORDERS, 4).await;
    let once = event(ORDERS, "k", 7);
    let first = scene.bus.publish(once.clone()).await.expect("the event is good");
    assert!(!first.duplicate);
    scene.publish(ORDERS, "k", 8).await;
    let again = scene.bus.publish(once.clone()).await.expect("again is fine");
    assert!(again.duplicate);
    assert_eq!((again.partition, again.offset), (first.partition, first.offset));
    assert_eq!(scene.stored(ORDERS).await, 2);
    let elsewhere = NewEvent { topic: topic("orders.copied"), ..once };
    let copy = scene.bus.publish(elsewhere).await.expect("another topic, another event");
    assert!(!copy.duplicate);
}

/// P14: the same id with other content is a mistake of the publisher's, and is said to be one.
pub async fn the_same_id_with_other_content_is_refused(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let once = event(ORDERS, "k", 7);
    scene.bus.publish(once.clone()).await.expect("the event is good");
    let others = [
        NewEvent { payload: Payload::null(), ..once.clone() },
        NewEvent { key: Some(key("other")), ..once.clone() },
        NewEvent { key: None, ..once.clone() },
    ];
    for other in others {
        let refused = scene.bus.publish(other).await;
        assert!(matches!(refused, Err(PublishError::Append(AppendError::IdConflict { .. }))));
    }
    assert_eq!(scene.numbers(ORDERS).await, [7]);
}

/// P14: publishers that try the same event at the same time store it once.
pub async fn the_same_id_at_the_same_time_is_stored_once(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let once = event(ORDERS, "k", 7);
    let mut tasks = JoinSet::new();
    for _ in 0..32 {
        let (bus, event) = (scene.bus.clone(), once.clone());
        tasks.spawn(async move { bus.publish(event).await.expect("the event is good") });
    }
    let answers = tasks.join_all().await;
    assert!(answers.iter().all(|one| one.offset == Offset::ZERO));
    assert_eq!(answers.iter().filter(|one| !one.duplicate).count(), 1);
    assert_eq!(scene.stored(ORDERS).await, 1);
}

/// Promise 3 inside one call.
pub async fn the_same_id_twice_in_a_batch_is_stored_once(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let once = event(ORDERS, "k", 7);
    let batch = vec![once.clone(), event(ORDERS, "k", 8), once];
    let published = scene.bus.publish_batch(batch).await.expect("the batch is good");
    let places: Vec<_> = published.iter().map(|one| (one.offset.get(), one.duplicate)).collect();
    assert_eq!(places, [(0, false), (1, false), (0, true)]);
    assert_eq!(scene.numbers(ORDERS).await, [7, 8]);
}

/// A publish that depends on what the publisher has read.
pub async fn expectations_hold_or_nothing_is_stored(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    scene.publish(ORDERS, "k", 0).await;
    let lane = scene.lane(ORDERS, 0);
    let expecting = |next| PublishOptions {
        expect: vec![Expectation { lane, next: Offset::new(next) }],
        ..PublishOptions::default()
    };
    for wrong in [0, 2, u64::MAX] {
        let events = vec![event(ORDERS, "k", 1), event("other", "k", 1)];
        match scene.bus.publish_with(events, expecting(wrong)).await {
            Err(PublishError::Append(AppendError::OffsetMismatch { expected, actual, .. })) => {
                assert_eq!((expected.get(), actual.get()), (wrong, 1));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(scene.stored(ORDERS).await + scene.stored("other").await, 1);
    let mut tasks = JoinSet::new();
    for number in 1..=16 {
        let (bus, options) = (scene.bus.clone(), expecting(1));
        let event = event(ORDERS, "k", number);
        tasks.spawn(async move { bus.publish_with(vec![event], options).await.is_ok() });
    }
    let winners = tasks.join_all().await.into_iter().filter(|won| *won).count();
    assert_eq!(winners, 1, "one of those who expect the same place gets it");
    assert_eq!(scene.stored(ORDERS).await, 2);
}

/// P11, P13: offsets are dense, and a publisher's own events are in its order.
pub async fn a_publishers_events_are_in_its_order(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    scene.define(ORDERS, 3).await;
    let mut tasks = JoinSet::new();
    for publisher in 0..8 {
        let bus = scene.bus.clone();
        tasks.spawn(async move {
            for turn in 0..25 {
                let event = event(ORDERS, &format!("p{publisher}"), turn);
                bus.publish(event).await.expect("the publish goes through");
            }
        });
    }
    tasks.join_all().await;
    let mut seen = 0;
    let mut last = std::collections::HashMap::new();
    for partition in 0..3 {
        let partition = Partition::new(partition);
        let limit = PageLimit { events: 1_000, bytes: 1 << 24 };
        let page = scene.bus.read(&topic(ORDERS), partition, Offset::ZERO, limit).await;
        for (place, stored) in page.expect("it can be read").events.iter().enumerate() {
            assert_eq!(stored.event.offset.get(), place as u64, "dense");
            let key = stored.event.key.clone().expect("all have keys");
            let turn = number(&stored.event);
            let before = last.insert(key, (partition, turn));
            assert!(before.is_none_or(|before| before == (partition, turn.wrapping_sub(1))));
            seen += 1;
        }
    }
    assert_eq!(seen, 200);
}

/// Pitfalls 85 and 86: the partition is computed once, from the key or the id, and stored.
pub async fn partitions_follow_the_published_hash(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let count = PartitionCount::new(7).expect("a small count");
    scene.define(ORDERS, 7).await;
    for turn in 0..40_u64 {
        let key = if turn % 2 == 0 { format!("key-{turn}") } else { String::new() };
        let event = event(ORDERS, &key, turn);
        let expected = count.partition_of(event.key.as_ref(), &event.id);
        let id = event.id;
        let published = scene.bus.publish(event).await.expect("the event is good");
        assert_eq!(published.partition, expected);
        let found = scene.bus.find(&topic(ORDERS), id).await.expect("it can be looked up");
        assert_eq!(found.expect("it is there").event.partition, expected);
    }
    let changed = promethean::store::TopicDefinition {
        partitions: PartitionCount::new(8).expect("a small count"),
        ..promethean::store::TopicDefinition::new(topic(ORDERS))
    };
    assert!(scene.bus.define(changed).await.is_err(), "the count is the topic's, and fixed");
}

/// Names, counts and sizes that are not allowed; nothing is left of the publish, not even a topic.
pub async fn what_is_not_allowed_is_refused(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let system = Topic::system("$groups").expect("a system's name");
    let refused = scene.bus.publish(NewEvent { topic: system, ..event("a", "k", 1) }).await;
    assert!(matches!(refused, Err(PublishError::System(_))));
    let empty = scene.bus.publish_batch(Vec::new()).await;
    assert!(matches!(empty, Err(PublishError::Append(AppendError::Empty))));

    let tag = Tag::new("t").expect("a good tag");
    let tagged = NewEvent { tags: vec![tag; TAGS_COUNT_MAX + 1], ..event("b", "k", 1) };
    let batch = vec![event("never.made", "k", 1), tagged];
    assert!(matches!(scene.bus.publish_batch(batch).await, Err(PublishError::Event(_))));
    let caused_by = vec![EventId::generate(); CAUSED_BY_COUNT_MAX + 1];
    let caused = NewEvent { caused_by, ..event("b", "k", 1) };
    assert!(matches!(scene.bus.publish(caused).await, Err(PublishError::Event(_))));
    let topics = scene.bus.topics();
    assert!(topics.get(&topic("never.made")).is_none(), "a refused publish makes no topic");
    assert!(topics.get(&topic("b")).is_none());
}

/// By these headers the system knows what it has published for one group alone. Anybody who could set
/// them could hide events from all others; and who hands the headers of a replay on would do so.
pub async fn marks_of_the_system_are_its_own(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    let mut marked = event(ORDERS, "k", 1);
    for (name, value) in [
        ("x-replay-for", "nobody"),
        ("x-replay-round", "9"),
        ("x-source-offset", "999"),
        ("x-trace", "abc"),
    ] {
        marked.headers.insert(name, value).expect("a good header");
    }
    scene.bus.publish(marked.clone()).await.expect("the event is good");
    scene.bus.publish_batch(vec![marked]).await.expect("the same again is fine");
    let delivered = scene.next(&mut subscription).await;
    let names: Vec<_> = delivered.event().headers.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["x-trace"]);
    delivered.ack().await.expect("it is ours");
    assert_eq!(scene.stored(ORDERS).await, 1);
}

/// More than one batch may hold is refused whole.
pub async fn an_oversized_batch_is_refused_whole(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    scene.define(ORDERS, 1).await;
    let large = Payload::of(&"x".repeat(1 << 19)).expect("half a mebibyte is fine");
    let events: Vec<_> = (0..65)
        .map(|turn| NewEvent { payload: large.clone(), ..event(ORDERS, "k", turn) })
        .collect();
    let refused = scene.bus.publish_batch(events).await;
    assert!(matches!(refused, Err(PublishError::Append(AppendError::TooLarge { .. }))));
    let many = (0..65_537).map(|turn| event(ORDERS, "", turn)).collect();
    let refused = scene.bus.publish_batch(many).await;
    assert!(matches!(refused, Err(PublishError::Append(AppendError::TooLarge { .. }))));
    assert_eq!(scene.stored(ORDERS).await, 0);
}

/// A bus that takes only topics that were defined.
pub async fn unknown_topics_can_be_refused(factory: &dyn BusFactory) {
    let options = BusOptions::default().unknown_topics(UnknownTopics::Refuse);
    let scene = Scene::with(factory, options).await;
    scene.define("known", 1).await;
    let batch = vec![event("known", "k", 1), event("unknown", "k", 2)];
    let refused = scene.bus.publish_batch(batch).await;
    assert!(matches!(refused, Err(PublishError::UnknownTopic(name)) if name == topic("unknown")));
    assert_eq!(scene.stored("known").await, 0);
    assert!(scene.bus.topics().get(&topic("unknown")).is_none());
}

/// Pitfalls 10, 11, 17: event times and ids of the publisher's are data, and order nothing.
pub async fn times_and_ids_order_nothing(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    for turn in 0..6 {
        // Each has an older time and a smaller id than the one before.
        let id = EventId::v7(1_000_000 - turn, [0; 10]);
        let ts = Timestamp::from_millis(1_000 - turn * 100);
        let event = NewEvent { id, ts, ..event(ORDERS, "k", turn) };
        let published = scene.bus.publish(event).await.expect("any time is fine");
        assert!(published.appended_at > ts, "the store has its own time");
    }
    assert_eq!(scene.take(&mut subscription, 6).await, [0, 1, 2, 3, 4, 5]);
}

/// What is delivered is what was published, to the byte.
pub async fn events_come_out_as_they_went_in(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    let text = r#"{"z":1.50,"a":[1E3,-0,9007199254740993],"é":"\u00e9"}"#;
    let mut sent = event(ORDERS, "käse::1", 0);
    sent.payload = Payload::parse(text).expect("good JSON");
    sent.sid = Some(SessionId::generate());
    sent.ts = Timestamp::from_millis(0);
    sent.headers.insert("x-operator", "$set.a").expect("a good header");
    sent.caused_by = vec![EventId::generate(), EventId::generate()];
    sent.tags = vec![Tag::new("#stt").expect("a good tag")];
    let published = scene.bus.publish(sent.clone()).await.expect("the event is good");
    let delivered = scene.next(&mut subscription).await;
    let expected = sent.placed(published.partition, published.offset);
    assert_eq!(*delivered.event(), expected);
    assert_eq!(delivered.event().payload.as_str(), text);
    assert_eq!(delivered.appended_at(), published.appended_at);
}

/// P15: what was refused is never delivered.
pub async fn refused_events_are_never_seen(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let first = scene.publish(ORDERS, "k", 0).await;
    let builder = scene.bus.subscribe_to([ORDERS], "watch").from(Start::Earliest);
    let mut subscription = builder.stream().await.expect("one can subscribe");
    for turn in 1..=10 {
        if turn % 2 == 0 {
            let conflict = NewEvent { id: first.id, ..event(ORDERS, "k", 99) };
            let batch = vec![event(ORDERS, "k", 98), conflict];
            assert!(scene.bus.publish_batch(batch).await.is_err());
        } else {
            scene.publish(ORDERS, "k", turn).await;
        }
    }
    assert_eq!(scene.take(&mut subscription, 6).await, [0, 1, 3, 5, 7, 9]);
    scene.silent(&mut subscription).await;
}
