//! Changes that a feed cannot make an event of: it stops, says why, and there is a way on.

use std::time::Duration;

use mongodb::bson::doc;
use promethean::changefeed::{FeedsError, Phase, Recovery};
use promethean::store::{Compaction, TopicDefinition};
use promethean_event::Topic;
use promethean_mongo::changefeed::FeedOptions;

use super::{Stage, options};
use crate::conformance::wait_for;

impl Stage {
    /// Waits until it has stopped; tells why, and whether what it stopped at can be passed over.
    pub(super) async fn until_stopped(&self) -> (String, bool) {
        let stopped = async || match self.status().await?.phase {
            Phase::Stopped { reason, past, .. } => Some((reason, past.is_some())),
            _ => None,
        };
        self.until("it stops", async || stopped().await.is_some()).await;
        stopped().await.unwrap()
    }

    async fn keys(&self) -> Vec<(String, bool)> {
        let told = |event: promethean_event::Event| {
            (event.key.unwrap().as_str().to_owned(), event.payload.is_tombstone())
        };
        self.events().await.into_iter().map(told).collect()
    }
}

fn keys<const N: usize>(expected: [(&str, bool); N]) -> Vec<(String, bool)> {
    expected.into_iter().map(|(key, gone)| (key.to_owned(), gone)).collect()
}

/// A key of the document is refused before anything is published, with what to do about it.
#[test]
fn a_key_of_the_document_needs_pre_images() {
    wait_for(async {
        let stage = Stage::new().await;
        stage.items.insert_one(doc! { "_id": 1, "who": "ann" }).await.unwrap();
        stage.declare(|feed| feed.key = Some("document.who".into())).await;
        let running = stage.start(options());
        let (reason, can_skip) = stage.until_stopped().await;
        let command = r#"collMod: "items", changeStreamPreAndPostImages: { enabled: true }"#;
        assert!(reason.contains(command), "{reason}");
        assert!(!can_skip && stage.events().await.is_empty());
        let skipped = stage.feeds.resume("items", Some(Recovery::Skip)).await;
        assert!(matches!(skipped, Err(FeedsError::NothingToSkip(_))), "{skipped:?}");
        stage.keep_images(true).await;
        stage.feeds.resume("items", None).await.unwrap();
        stage.until_events(1).await;
        stage.until_streaming().await;
        stage.items.delete_one(doc! { "_id": 1 }).await.unwrap();
        stage.until_events(2).await;
        assert_eq!(stage.keys().await, keys([("ann", false), ("ann", true)]));
        let skipped = stage.feeds.resume("items", Some(Recovery::Skip)).await;
        assert!(matches!(skipped, Err(FeedsError::NothingToSkip(_))), "{skipped:?}");
        stage.end(running).await;
        // One that is made of the `_id` alone needs nothing.
        let stage = Stage::new().await;
        stage.declare(|feed| feed.key = Some("'item-' + key".into())).await;
        let running = stage.start(options());
        stage.until_streaming().await;
        stage.items.insert_one(doc! { "_id": 1 }).await.unwrap();
        stage.items.delete_one(doc! { "_id": 1 }).await.unwrap();
        stage.until_events(2).await;
        assert_eq!(stage.keys().await, keys([("item-1", false), ("item-1", true)]));
        stage.end(running).await;
    });
}

/// A delete from while the collection kept no pre-images: resuming stopped at it again, for ever.
#[test]
fn a_delete_that_has_no_key_is_passed_over_on_order() {
    wait_for(async {
        let stage = Stage::new().await;
        let people = [(1, "ann"), (2, "bob")].map(|(id, who)| doc! { "_id": id, "who": who });
        stage.items.insert_many(people).await.unwrap();
        stage.keep_images(true).await;
        stage.declare(|feed| feed.key = Some("document.who".into())).await;
        let running = stage.start(options());
        stage.until_events(2).await;
        stage.until_streaming().await;
        running.crash().await;
        stage.items.insert_one(doc! { "_id": 3, "who": "cat" }).await.unwrap();
        stage.keep_images(false).await;
        stage.items.delete_one(doc! { "_id": 1 }).await.unwrap();
        stage.keep_images(true).await;
        stage.items.delete_one(doc! { "_id": 2 }).await.unwrap();
        let running = stage.start(options());
        let (reason, can_skip) = stage.until_stopped().await;
        assert!(reason.contains("document 1") && reason.contains("pre-image"), "{reason}");
        assert!(can_skip);
        // What came before it is there; resuming alone does not help.
        let before = [("ann", false), ("bob", false), ("cat", false)];
        assert_eq!(stage.keys().await, keys(before));
        stage.feeds.resume("items", None).await.unwrap();
        stage.until_stopped().await;
        stage.feeds.resume("items", Some(Recovery::Skip)).await.unwrap();
        stage.until_events(4).await;
        let after = [("ann", false), ("bob", false), ("cat", false), ("bob", true)];
        assert_eq!(stage.keys().await, keys(after));
        let alarm = stage.status().await.unwrap().alarm.unwrap();
        assert!(alarm.contains("passed over") && alarm.contains("document 1"), "{alarm}");
        stage.end(running).await;
    });
}

/// A document of the snapshot that the expression fails on: those before it were not published, and
/// nothing but another expression helped.
#[test]
fn a_document_that_stops_the_snapshot_is_passed_over_on_order() {
    wait_for(async {
        let stage = Stage::new().await;
        let items = [doc! { "_id": 1, "n": 1 }, doc! { "_id": 2 }, doc! { "_id": 3, "n": 3 }];
        stage.items.insert_many(items).await.unwrap();
        stage.declare(|feed| feed.map = Some("{'n': document.n}".into())).await;
        let running = stage.start(options());
        assert!(stage.until_stopped().await.1);
        assert_eq!(stage.keys().await, keys([("1", false)]));
        stage.feeds.resume("items", Some(Recovery::Skip)).await.unwrap();
        stage.until_events(2).await;
        stage.until_streaming().await;
        assert_eq!(stage.keys().await, keys([("1", false), ("3", false)]));
        stage.end(running).await;
    });
}

/// It went on from where it had saved last, and read again what it had published since. In a compacted
/// topic that is gone, together with its ids: what was old came once more, and was the newest.
#[test]
fn a_feed_that_goes_on_brings_back_nothing_old() {
    wait_for(async {
        let stage = Stage::new().await;
        let mut definition = TopicDefinition::new(Topic::new("items.changed").unwrap());
        definition.cleaning.compaction = Some(Compaction { age_ms_min: 0, tombstone_ms: 0 });
        stage.bus.store().define(definition).await.unwrap();
        stage
            .declare(|feed| {
                feed.snapshot = false;
                feed.map = Some("{'n': document.n}".into());
            })
            .await;
        // It does not save by itself.
        let hour = Duration::from_secs(3600);
        let running = stage.start(FeedOptions { save_every: hour, ..options() });
        stage.until_streaming().await;
        stage.items.insert_one(doc! { "_id": 1, "n": 1 }).await.unwrap();
        stage.until_events(1).await;
        stage.items.update_one(doc! { "_id": 1 }, doc! { "$set": { "n": 2 } }).await.unwrap();
        stage.until_events(2).await;
        stage.items.insert_one(doc! { "_id": 2 }).await.unwrap();
        stage.until_stopped().await;
        stage.bus.store().clean(Vec::new()).await.unwrap();
        assert_eq!(stage.events().await.len(), 1, "what is old is gone");
        stage.feeds.resume("items", None).await.unwrap();
        stage.until_stopped().await;
        assert_eq!(stage.events().await.len(), 1, "it came once more");
        stage.feeds.resume("items", Some(Recovery::Skip)).await.unwrap();
        stage.items.insert_one(doc! { "_id": 3, "n": 3 }).await.unwrap();
        stage.until_events(2).await;
        let newest: Vec<_> = stage.newest().await.into_values().collect();
        assert_eq!(newest, [r#"{"n":2}"#, r#"{"n":3}"#]);
        stage.end(running).await;
    });
}

/// The same in a snapshot, which began again where its last page had.
#[test]
fn a_snapshot_that_has_stopped_goes_on_behind_what_it_has_published() {
    wait_for(async {
        let stage = Stage::new().await;
        let items = [doc! { "_id": 1, "n": 1 }, doc! { "_id": 2, "n": 2 }, doc! { "_id": 3 }];
        stage.items.insert_many(items).await.unwrap();
        stage.declare(|feed| feed.map = Some("{'n': document.n}".into())).await;
        let running = stage.start(options());
        stage.until_stopped().await;
        let Phase::Stopped { before, past, .. } = stage.status().await.unwrap().phase else {
            panic!("it goes on");
        };
        let (Phase::Snapshot { after: Some(before), .. }, Some(Phase::Snapshot { after, .. })) =
            (*before, past.map(|past| *past))
        else {
            panic!("it begins at the beginning again");
        };
        assert!(after.is_some_and(|after| after != before));
        stage.end(running).await;
    });
}
