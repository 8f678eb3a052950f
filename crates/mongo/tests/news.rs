//! What hubs tell each other, and what becomes of what they do not.

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, Document, doc};
use mongodb::{Client, Database};
use promethean::store::{Append, Lane, Store, TopicDefinition};
use promethean_event::{EventId, NewEvent, Offset, Partition, Payload, Timestamp, Topic};
use promethean_mongo::{MongoOptions, MongoStore};

use crate::conformance::wait_for;
use crate::replica_set::{database, drop_database, url, url_of};

fn events(count: u64) -> Append {
    let topic = Topic::new("orders").unwrap();
    let event = |number| {
        let payload = Payload::of(&number).unwrap();
        NewEvent::new(EventId::generate(), Timestamp::from_millis(1), topic.clone(), payload)
    };
    Append { events: (0..count).map(event).collect(), ..Append::default() }
}

async fn open(name: &str) -> MongoStore {
    MongoStore::open(&url_of(name), MongoOptions::default()).await.unwrap()
}

async fn defined(store: &MongoStore) -> Lane {
    let definition = TopicDefinition::new(Topic::new("orders").unwrap());
    let topic = store.define(definition).await.unwrap();
    Lane { topic, partition: Partition::ZERO }
}

/// Waits until a hub knows that the lane reaches there.
async fn heard(hub: &MongoStore, lane: Lane, end: u64) {
    let mut mark = 0;
    loop {
        let growth = hub.grown(mark).await;
        let lanes = growth.lanes.unwrap_or_default();
        if lanes.contains(&(lane, Offset::new(end))) {
            return;
        }
        mark = growth.mark;
    }
}

async fn said(database: &Database, filter: Document) -> Vec<Document> {
    let news = database.collection::<Document>("news");
    news.find(filter).await.unwrap().try_collect().await.unwrap()
}

/// With its events if it is small; behind it, for all lanes at once, if it is large, so that whoever
/// listens does not have the server take it apart.
#[test]
fn a_small_commit_is_told_with_it_and_a_large_one_behind_it() {
    wait_for(async {
        let name = database();
        let (hub, other) = (open(&name).await, open(&name).await);
        let client = Client::with_uri_str(url()).await.unwrap();
        let database = client.database(&name);
        let lane = defined(&hub).await;
        let id = Bson::Int64(lane.id().get() as i64);
        hub.append(events(3)).await.unwrap();
        heard(&other, lane, 3).await;
        let small = said(&database, doc! { "_id": &id }).await;
        assert_eq!(small[0].get_i64("next").unwrap(), 3);
        assert!(small[0].contains_key("tail"), "{small:?}");

        hub.append(events(500)).await.unwrap();
        heard(&other, lane, 503).await;
        // Not in the transaction, which has changed where the lane ends.
        let small = said(&database, doc! { "_id": &id }).await;
        assert_eq!(small[0].get_i64("next").unwrap(), 3);
        hub.close().await;
        let large = said(&database, doc! { "lanes.lane": &id }).await;
        let lanes = large[0].get_array("lanes").unwrap();
        assert_eq!(lanes[0].as_document().unwrap().get_i64("next").unwrap(), 503);

        // What is deleted must not stay there, in whatever was told of it.
        other.remove(lane.topic).await.unwrap();
        assert!(said(&database, doc! { "tail": { "$exists": true } }).await.is_empty());
        other.close().await;
        drop_database(&name).await;
    });
}

/// A hub that is killed right behind a large commit has told nobody.
#[test]
fn what_nobody_has_told_is_seen() {
    wait_for(async {
        let name = database();
        let hub = open(&name).await;
        let client = Client::with_uri_str(url()).await.unwrap();
        let database = client.database(&name);
        let lane = defined(&hub).await;
        hub.append(events(3)).await.unwrap();
        heard(&hub, lane, 3).await;

        let all = database.collection::<Document>("events");
        let mut event = all.find_one(doc! { "offset": 2_i64 }).await.unwrap().unwrap();
        event.remove("_id");
        event.insert("offset", 3_i64);
        event.insert("id", EventId::generate().to_string());
        all.insert_one(event).await.unwrap();
        let lanes = database.collection::<Document>("lanes");
        lanes.update_one(doc! {}, doc! { "$set": { "next": 4_i64 } }).await.unwrap();
        heard(&hub, lane, 4).await;
        hub.close().await;
        drop_database(&name).await;
    });
}
