//! Every operation goes by an index: what the server's profiler has seen of all of them.

use std::sync::Arc;

use futures_util::TryStreamExt;
use mongodb::Client;
use mongodb::bson::{Document, doc};
use promethean::projection::query::ListQuery;
use promethean::projection::{Changelog, Field, Projection, View, Views};
use promethean::store::{
    Append, Cleaning, Compaction, KeyQuery, Lane, PageLimit, Put, Read, Store, TopicDefinition,
};
use promethean::{Bus, BusOptions};
use promethean_event::{
    EventId, Key, NewEvent, Offset, Partition, PartitionCount, Payload, Timestamp, Topic,
};
use promethean_mongo::views::MongoViews;
use promethean_mongo::{MongoOptions, MongoStore};

use crate::conformance::wait_for;
use crate::replica_set::{database, drop_database, url, url_of};

const EVENTS: u64 = 2_000;

fn event(topic: &Topic, number: u64) -> NewEvent {
    let ts = Timestamp::from_millis(number);
    let is_tombstone = number.is_multiple_of(50);
    let payload = if is_tombstone { Payload::null() } else { Payload::of(&number).unwrap() };
    let event = NewEvent::new(EventId::generate(), ts, topic.clone(), payload);
    event.with_key(Key::new(format!("key {}", number % 100)).unwrap())
}

/// Everything that a store is asked.
async fn exercise(store: &Arc<MongoStore>, lane: Lane, known: &NewEvent) {
    let limit = PageLimit { events: 10, ..PageLimit::default() };
    let from = Offset::new(EVENTS / 4);
    store.read(Read::From { lane, from, limit }).await.unwrap();
    store.read(Read::Before { lane, before: from, limit }).await.unwrap();
    store.bounds(lane).await.unwrap();
    store.offset_at(lane, Timestamp::from_millis(1)).await.unwrap();
    assert!(store.find(lane.topic, known.id).await.unwrap().is_some());
    let key = known.key.clone().unwrap();
    store.latest(lane.topic, vec![key.clone()]).await.unwrap();
    store.history(lane.topic, key, 5).await.unwrap();
    let query = KeyQuery { topic: lane.topic, prefix: "key".into(), after: None, max: 5 };
    assert_eq!(store.keys(query).await.unwrap().events.len(), 5);
    let again = store.append(known.clone().into()).await.unwrap();
    assert!(again.receipts[0].duplicate);
    let key = Key::new("a").unwrap();
    let put = Put { space: "tokens", key, value: Some(Payload::null()), expect: Some(0) };
    store.put(vec![put]).await.unwrap();
    store.entries("tokens").await.unwrap();
    store.clean(Vec::new()).await.unwrap();
}

async fn profiled(database: &str, filter: Document) -> Vec<Document> {
    let client = Client::with_uri_str(url()).await.unwrap();
    let profile = client.database(database).collection::<Document>("system.profile");
    profile.find(filter).await.unwrap().try_collect().await.unwrap()
}

/// Everything that a view is asked.
async fn look_up(view: &Projection) {
    view.caught_up().await.unwrap();
    assert!(view.get("latest", "key 7").await.unwrap().is_some());
    assert_eq!(view.scan("latest", Some("key 1"), 10).await.unwrap().len(), 10);
    let query = ListQuery::parse(view.view("latest").unwrap(), [("n", "1907")]).unwrap();
    assert_eq!(view.list("latest", query).await.unwrap().documents.len(), 1);
    assert_eq!(view.verify().await.unwrap().different, 0);
}

/// Views: keeping them, reading them, and building them anew.
#[test]
fn no_view_is_read_through() {
    wait_for(async {
        let name = database();
        let store = MongoStore::open(&url_of(&name), MongoOptions::default()).await.unwrap();
        let collections = Arc::new(MongoViews::of(&store).await.unwrap());
        let bus = Bus::with_store(Arc::new(store) as Arc<dyn Store>, BusOptions::default());
        let topic = Topic::new("orders.placed").unwrap();
        bus.define(TopicDefinition::new(topic.clone())).await.unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let views = Views::over(&bus, collections, scratch.path().join("views"));
        let client = Client::with_uri_str(url()).await.unwrap();
        client.database(&name).run_command(doc! { "profile": 2 }).await.unwrap();
        let shape = View::new("latest").field(Field::integer("n")).index(["n"]);
        let view = views.changelog(Changelog::new(shape, "orders.placed")).await.unwrap();
        let events = (0..EVENTS).map(|number| {
            let payload = Payload::of(&serde_json::json!({ "n": number })).unwrap();
            NewEvent { payload, ..event(&topic, number) }
        });
        bus.publish_batch(events.collect()).await.unwrap();
        look_up(&view).await;
        view.rebuild().await.unwrap();
        look_up(&view).await;
        client.database(&name).run_command(doc! { "profile": 0 }).await.unwrap();

        let of_view = doc! { "$regex": format!("^{name}\\.(latest|promethean_graves)") };
        let seen = doc! { "ns": of_view.clone(), "planSummary": { "$exists": true } };
        assert!(profiled(&name, seen).await.len() > 10, "the profiler has seen next to nothing");
        let through = doc! { "ns": of_view, "planSummary": { "$regex": "COLLSCAN" } };
        let through = profiled(&name, through).await;
        assert!(through.is_empty(), "read through: {through:#?}");
        bus.close().await;
        drop_database(&name).await;
    });
}

#[test]
fn no_operation_reads_a_collection_through() {
    wait_for(async {
        let name = database();
        let store = MongoStore::open(&url_of(&name), MongoOptions::default()).await.unwrap();
        let store = Arc::new(store);
        let topic = Topic::new("orders.placed").unwrap();
        let compaction = Some(Compaction::default());
        let cleaning =
            Cleaning { age_ms_max: Some(3_600_000), bytes_max: Some(1_000_000), compaction };
        let partitions = PartitionCount::new(2).unwrap();
        let definition = TopicDefinition { topic: topic.clone(), partitions, cleaning };
        let id = store.define(definition).await.unwrap();
        let events: Vec<_> = (0..EVENTS).map(|number| event(&topic, number)).collect();
        let known = events[777].clone();
        store.append(Append { events, ..Append::default() }).await.unwrap();

        let client = Client::with_uri_str(url()).await.unwrap();
        client.database(&name).run_command(doc! { "profile": 2 }).await.unwrap();
        exercise(&store, Lane { topic: id, partition: Partition::ZERO }, &known).await;
        client.database(&name).run_command(doc! { "profile": 0 }).await.unwrap();

        let of = |collection: &str| format!("{name}.{collection}");
        let large = doc! { "$in": [of("events"), of("cursors"), of("entries"), of("lanes")] };
        let seen =
            profiled(&name, doc! { "ns": large.clone(), "planSummary": { "$exists": true } });
        assert!(seen.await.len() > 10, "the profiler has seen next to nothing");
        let through = doc! { "ns": large, "planSummary": { "$regex": "COLLSCAN" } };
        let through = profiled(&name, through).await;
        assert!(through.is_empty(), "read through: {through:#?}");
        // By the right index, too: few documents for few results.
        let sorted = doc! { "ns": of("events"), "hasSortStage": true };
        assert!(profiled(&name, sorted).await.is_empty(), "sorted in memory");
        let wasteful = doc! {
            "ns": of("events"), "op": { "$in": ["query", "getmore"] },
            "$expr": { "$gt": ["$docsExamined", { "$add": [200, { "$multiply": [2, "$nreturned"] }] }] },
        };
        let wasteful = profiled(&name, wasteful).await;
        assert!(wasteful.is_empty(), "far more read than needed: {wasteful:#?}");
        drop_database(&name).await;
    });
}
