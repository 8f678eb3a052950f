//! What `prom doctor --production` finds in a database, as far as one replica set can show it.

use mongodb::Client;
use mongodb::bson::{Document, doc};
use promethean_mongo::{Finding, MongoOptions, MongoStore, Verdict, examine};

use crate::conformance::wait_for;
use crate::replica_set::{database, drop_database, url, url_of};

async fn found(name: &str, check: &str) -> Vec<Finding> {
    let findings = examine(&url_of(name), MongoOptions::default()).await.unwrap();
    findings.into_iter().filter(|finding| finding.check == check).collect()
}

/// What a cluster of shards says of its collections is written here as it would be there.
#[test]
fn a_sharded_collection_is_found() {
    wait_for(async {
        let name = database();
        drop(MongoStore::open(&url_of(&name), MongoOptions::default()).await.unwrap());
        let client = Client::with_uri_str(url()).await.unwrap();
        let known = client.database("config").collection::<Document>("collections");
        let events = format!("{name}.events");
        let unsharded = found(&name, "sharding").await;
        assert_eq!(unsharded.len(), 1);
        assert_eq!(unsharded[0].verdict, Verdict::Good, "{unsharded:?}");
        let sharded = async |key: Document, more: Document| {
            let mut entry = doc! { "_id": &events, "key": key };
            entry.extend(more);
            known.replace_one(doc! { "_id": &events }, entry).upsert(true).await.unwrap();
            found(&name, "sharding").await
        };
        let parted = sharded(doc! { "_id": "hashed" }, doc! {}).await;
        assert_eq!(parted[0].verdict, Verdict::Error, "{parted:?}");
        assert!(parted[0].text.contains("(topic, topic_id, id)"), "{parted:?}");
        let whole = sharded(doc! { "topic": 1, "topic_id": 1 }, doc! {}).await;
        assert_eq!(whole[0].verdict, Verdict::Warning, "{whole:?}");
        let listed = sharded(doc! { "_id": 1 }, doc! { "unsplittable": true }).await;
        assert_eq!(listed[0].verdict, Verdict::Good, "{listed:?}");
        known.delete_one(doc! { "_id": &events }).await.unwrap();
        drop_database(&name).await;
    });
}

#[test]
fn projections_that_nobody_keeps_are_named() {
    wait_for(async {
        let name = database();
        drop(MongoStore::open(&url_of(&name), MongoOptions::default()).await.unwrap());
        let none = found(&name, "projections").await;
        assert_eq!(none[0].verdict, Verdict::Good, "{none:?}");
        let client = Client::with_uri_str(url()).await.unwrap();
        let projections = client.database(&name).collection::<Document>("promethean_projections");
        let hub = 7_i64;
        projections
            .insert_one(doc! { "_id": "billing", "hub": hub, "claim": 1_i64 })
            .await
            .unwrap();
        let unkept = found(&name, "projections").await;
        assert_eq!(unkept[0].verdict, Verdict::Warning, "{unkept:?}");
        assert!(unkept[0].text.contains("billing"), "{unkept:?}");
        let hubs = client.database(&name).collection::<Document>("hubs");
        hubs.insert_one(doc! { "_id": hub }).await.unwrap();
        let kept = found(&name, "projections").await;
        assert_eq!(kept[0].verdict, Verdict::Good, "{kept:?}");
        drop_database(&name).await;
    });
}

/// What is missing or otherwise is told with the command that makes it, of all collections.
#[test]
fn indexes_that_are_missing_or_otherwise_are_named_with_what_to_do() {
    wait_for(async {
        let name = database();
        let nothing = found(&name, "indexes").await;
        assert!(nothing[0].text.contains("there is nothing yet"), "{nothing:?}");
        drop(MongoStore::open(&url_of(&name), MongoOptions::default()).await.unwrap());
        let good = found(&name, "indexes").await;
        assert_eq!(good[0].verdict, Verdict::Good, "{good:?}");
        let database = Client::with_uri_str(url()).await.unwrap().database(&name);
        let (events, cursors) =
            (database.collection::<Document>("events"), database.collection::<Document>("cursors"));
        cursors.drop_index("cursors_of_group").await.unwrap();
        events.drop_index("by_key").await.unwrap();
        let by_key = mongodb::options::IndexOptions::builder().name("by_key".to_owned()).build();
        let by_key = mongodb::IndexModel::builder().keys(doc! { "key": 1 }).options(by_key).build();
        events.create_index(by_key).await.unwrap();
        let bad = found(&name, "indexes").await;
        assert_eq!(bad[0].verdict, Verdict::Error, "{bad:?}");
        for told in [
            r#"db.events.dropIndex("by_key"), then db.events.createIndex({ "topic": 1, "topic_id": 1, "key": 1, "offset": -1 }, { "name": "by_key" })"#,
            r#"db.cursors.createIndex({ "group": 1, "lane": 1 }, { "name": "cursors_of_group", "unique": true })"#,
        ] {
            assert!(bad[0].text.contains(told), "{told} is not in {}", bad[0].text);
        }
        drop_database(&name).await;
    });
}
