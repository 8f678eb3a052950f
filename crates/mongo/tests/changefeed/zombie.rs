//! An instance that is held up for longer than its lease, and comes back.

use std::sync::Arc;
use std::time::Duration;

use mongodb::bson::doc;
use promethean::{Bus, BusOptions};
use promethean_harness::conformance::bus::FragileStore;
use promethean_mongo::changefeed::FeedOptions;

use super::{Stage, options};
use crate::conformance::wait_for;

/// Pitfall 123: one that had read a document and could not publish it did so when it came back. By
/// then another one had published its delete, and after it the document was there again for ever.
#[test]
fn what_was_read_before_another_took_over_is_not_published_after_it() {
    wait_for(async {
        let mut stage = Stage::new().await;
        stage.items.insert_many([doc! { "_id": 1 }, doc! { "_id": 2 }]).await.unwrap();
        stage.declare(|_| {}).await;
        let options = FeedOptions { alone: false, lease: Duration::from_millis(700), ..options() };
        let fragile = Arc::new(FragileStore::new(Arc::clone(stage.bus.store())));
        let whole = std::mem::replace(
            &mut stage.bus,
            Bus::with_store(fragile.clone(), BusOptions::default()),
        );
        fragile.leave_at_append();
        let zombie = stage.start(options.clone());
        // It has read both documents.
        fragile.has_left().await;
        stage.bus = whole;
        stage.items.delete_one(doc! { "_id": 1 }).await.unwrap();
        stage.items.replace_one(doc! { "_id": 2 }, doc! { "v": 2 }).await.unwrap();
        let other = stage.start(options);
        let is_told = async || stage.newest().await.values().any(|text| text.contains(r#""v":2"#));
        stage.until("the other one has taken over", is_told).await;
        let deleted = async || stage.events().await.iter().any(|e| e.payload.is_tombstone());
        stage.until("the delete is told", deleted).await;
        stage.until_streaming().await;
        assert_eq!(stage.status().await.unwrap().epoch, 2);
        fragile.come_back();
        other.stop().await;
        let is_back = async || stage.status().await.unwrap().epoch >= 3;
        stage.until("it is back, and has it again", is_back).await;
        stage.items.insert_one(doc! { "_id": 3 }).await.unwrap();
        let goes_on = async || stage.newest().await.contains_key("3");
        stage.until("it goes on", goes_on).await;
        let newest: Vec<_> = stage.newest().await.into_values().collect();
        assert_eq!(newest, [r#"{"_id":2,"v":2}"#, r#"{"_id":3}"#], "it brought back what is old");
        stage.end(zombie).await;
    });
}
