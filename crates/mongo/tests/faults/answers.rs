//! Answers that are easily taken for something else, and steps that end in their middle.

use std::sync::Arc;
use std::time::Duration;

use mongodb::Client;
use mongodb::bson::{Document, doc};
use mongodb::options::ClientOptions;
use promethean::outbox::limits::HOLD_MAX;
use promethean::outbox::{DrainOptions, Drainer};
use promethean::store::{KeyQuery, Lane, Put, TopicDefinition};
use promethean::{Bus, BusOptions};
use promethean_event::{EventId, Key, NewEvent, Payload, Timestamp, Topic};
use promethean_mongo::outbox::MongoOutbox;
use promethean_mongo::{MongoOptions, MongoStore};

use super::set::Set;
use crate::conformance::wait_for;
use crate::hubs::until;

fn key(number: u64) -> Key {
    Key::new(format!("k{number}")).unwrap()
}

fn event(number: u64) -> NewEvent {
    let (ts, topic) = (Timestamp::from_millis(number), Topic::new("orders").unwrap());
    let event = NewEvent::new(EventId::generate(), ts, topic, Payload::of(&number).unwrap());
    event.with_key(key(number))
}

/// "No such transaction" said of a commit that was made, beside which the server says that it could not
/// confirm it. It used to pass for certain that nothing was written: the put was done once more, and
/// found its own version in its way.
#[test]
fn a_commit_that_was_made_does_not_pass_for_one_that_was_not() {
    let set = Set::start(&["--members", "1"]);
    wait_for(async {
        let bus = set.bus().await;
        let put = async |value: u64, expect: u64| {
            let value = Some(Payload::of(&value).unwrap());
            bus.store()
                .put(vec![Put { space: "test", key: key(0), value, expect: Some(expect) }])
                .await
        };
        put(1, 0).await.unwrap();
        let version = bus.store().entries("test").await.unwrap()[0].version;
        let unconfirmed = doc! { "code": 251, "errmsg": "no such transaction" };
        let how = doc! { "writeConcernError": unconfirmed, "appName": "promethean" };
        set.fail("commitTransaction", doc! { "times": 1 }, how).await;
        put(2, version).await.unwrap();
        let entries = bus.store().entries("test").await.unwrap();
        assert_eq!(entries[0].value.decode::<u64>().unwrap(), 2);
        bus.close().await;
    });
}

/// Pitfall 27: retention that was cut off between moving the low-water mark and deleting began behind
/// it from then on, so that what had expired stayed for good.
#[test]
fn retention_that_was_cut_off_is_ended_by_the_next() {
    let set = Set::start(&["--members", "1"]);
    wait_for(async {
        let bus = set.bus().await;
        let mut definition = TopicDefinition::new(Topic::new("orders").unwrap());
        definition.cleaning.bytes_max = Some(1);
        let topic = bus.define(definition.clone()).await.unwrap().id;
        let events: Vec<_> = (0..10).map(event).collect();
        bus.publish_batch(events.clone()).await.unwrap();
        let store = &**bus.store();
        let forbidden = doc! { "errorCode": 13, "namespace": "faults.events" };
        set.fail("delete", doc! { "times": 1 }, forbidden).await;
        store.clean(Vec::new()).await.unwrap_err();
        let topics = bus.topics();
        let lane = topics.by_id(topic).unwrap().lanes().next().unwrap();
        let bounds = store.bounds(lane).await.unwrap();
        assert_eq!((bounds.start, bounds.next.get()), (bounds.next, 10), "all has expired");
        let client = Client::with_uri_str(&set.url).await.unwrap();
        let kept = client.database("faults").collection::<Document>("events");
        let below = doc! { "topic": "orders", "offset": { "$lt": 10_i64 } };
        assert_eq!(kept.count_documents(below.clone()).await.unwrap(), 10, "and is still there");
        // Nobody finds it any more.
        assert_eq!(store.find(topic, events[3].id).await.unwrap(), None);
        assert_eq!(store.latest(topic, vec![key(3), key(4)]).await.unwrap(), [None, None]);
        assert_eq!(store.history(topic, key(3), 9).await.unwrap(), []);
        let all = KeyQuery { topic, prefix: String::new(), after: None, max: 100 };
        assert_eq!(store.keys(all.clone()).await.unwrap().events, []);
        assert_eq!(store.offset_at(lane, Timestamp::from_millis(0)).await.unwrap(), bounds.start);
        // What came since is found, also behind what has expired.
        bus.publish(event(3)).await.unwrap();
        let found = store.keys(all).await.unwrap().events;
        assert_eq!(found.len(), 1);
        assert_eq!(store.latest(topic, vec![key(3)]).await.unwrap()[0].as_ref(), found.first());
        assert_eq!(store.history(topic, key(3), 9).await.unwrap(), found);
        // Whatever the rules are by then.
        definition.cleaning.bytes_max = None;
        bus.define(definition).await.unwrap();
        store.clean(Vec::new()).await.unwrap();
        assert_eq!(kept.count_documents(below).await.unwrap(), 0);
        assert_eq!(store.history(topic, key(3), 9).await.unwrap(), found);
        bus.close().await;
    });
}

/// Deleting the events of a topic that was removed had no bound: while MongoDB did not answer, cleaning
/// stood still, of all topics.
#[test]
fn sweeping_a_removed_topic_keeps_to_the_deadline() {
    let set = Set::start(&["--members", "1"]);
    wait_for(async {
        let options = MongoOptions { deadline: Duration::from_secs(2), ..MongoOptions::default() };
        let url = set.url.replacen("/?", "/faults?", 1);
        let store = Arc::new(MongoStore::open(&url, options).await.unwrap());
        let bus = Bus::with_store(store, BusOptions::default());
        let mut definition = TopicDefinition::new(Topic::new("orders").unwrap());
        definition.partitions = promethean_event::PartitionCount::new(3).unwrap();
        let topic = bus.define(definition).await.unwrap().id;
        bus.publish_batch((0..30).map(event).collect()).await.unwrap();
        let stuck = doc! {
            "blockConnection": true, "blockTimeMS": 20_000, "namespace": "faults.events",
        };
        set.fail("delete", "alwaysOn", stuck).await;
        bus.store().remove(topic).await.unwrap();
        let cleaning = tokio::time::timeout(Duration::from_secs(12), bus.store().clean(Vec::new()));
        cleaning.await.expect("it ends by its deadline").unwrap_err();
        set.fail("delete", "off", doc! {}).await;
        let client = Client::with_uri_str(&set.url).await.unwrap();
        let kept = client.database("faults").collection::<Document>("events");
        until("all are gone", async || {
            bus.store().clean(Vec::new()).await.is_ok()
                && kept.count_documents(doc! { "topic": "orders" }).await.unwrap() == 0
        })
        .await;
        let topics = client.database("faults").collection::<Document>("topics");
        assert_eq!(topics.count_documents(doc! { "was": "orders" }).await.unwrap(), 0);
        bus.close().await;
    });
}

/// P33: a claim that was made, and of which the drainer has not heard, kept its rows from everybody
/// until the lease had run out.
#[test]
fn a_claim_that_nobody_has_heard_of_holds_nothing_up() {
    let set = Set::start(&["--members", "1"]);
    wait_for(async {
        let bus = set.bus().await;
        bus.define(TopicDefinition::new(Topic::new("orders").unwrap())).await.unwrap();
        let mut options = ClientOptions::parse(&set.url).await.unwrap();
        options.app_name = Some("shop".to_owned());
        let client = Client::with_options(options).unwrap();
        let outbox = MongoOutbox::install(&client.database("shop")).await.unwrap();
        let mut session = client.start_session().await.unwrap();
        session.start_transaction().await.unwrap();
        outbox.add(&mut session, &event(1)).await.unwrap();
        session.commit_transaction().await.unwrap();
        let unconfirmed = doc! { "code": 100, "errmsg": "cannot be confirmed" };
        let how = doc! { "writeConcernError": unconfirmed, "appName": "shop" };
        set.fail("commitTransaction", doc! { "times": 1 }, how).await;
        // Nobody waits for the end of that.
        let options = DrainOptions { lease: HOLD_MAX, ..DrainOptions::default() };
        let drainer = Drainer::over(outbox.table(), bus.clone(), options).unwrap();
        let meter = drainer.meter();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let running = tokio::spawn(drainer.run(async { drop(stopped.await) }));
        until("it is sent", async || outbox.stats().await.unwrap().sent == 1).await;
        assert!(meter.counters().database_errors > 0, "the claim had an answer");
        drop(stop);
        running.await.unwrap();
        let lane: Lane =
            bus.topics().get(&Topic::new("orders").unwrap()).unwrap().lanes().next().unwrap();
        assert_eq!(bus.store().bounds(lane).await.unwrap().next.get(), 1, "once");
        bus.close().await;
    });
}
