//! Documents that changes come without: images that are not kept for all of them, and changes that
//! are too large.

use mongodb::bson::doc;
use promethean_mongo::changefeed::{HEADER_DOCUMENT, HEADER_OP, HEADER_OVERSIZE};

use super::{Stage, options};
use crate::conformance::wait_for;

/// The feed came to changes from before images were kept, and left each of them out.
#[test]
fn changes_from_before_images_were_kept_are_looked_up() {
    wait_for(async {
        let stage = Stage::new().await;
        stage.items.insert_one(doc! { "_id": { "n": 1 }, "v": 0 }).await.unwrap();
        stage.items.insert_one(doc! { "_id": 2, "v": 0 }).await.unwrap();
        stage.declare(|_| {}).await;
        let running = stage.start(options());
        stage.until_events(2).await;
        stage.until_streaming().await;
        running.crash().await;
        let more = doc! { "$inc": { "v": 1 } };
        let first = doc! { "_id": { "n": 1 } };
        stage.items.update_one(first.clone(), more.clone()).await.unwrap();
        stage.items.update_one(doc! { "_id": 2 }, more.clone()).await.unwrap();
        stage.items.delete_one(doc! { "_id": 2 }).await.unwrap();
        stage.keep_images(true).await;
        stage.items.update_one(first, more).await.unwrap();
        let running = stage.start(options());
        // That of the one that is gone is left out: its delete comes.
        let events = stage.until_events(5).await;
        let told: Vec<_> = events[2..]
            .iter()
            .map(|event| (event.payload.as_str(), event.headers.get(HEADER_DOCUMENT)))
            .collect();
        let newest = r#"{"_id":{"n":1},"v":2}"#;
        assert_eq!(told, [(newest, Some("looked-up")), ("null", None), (newest, None)]);
        stage.end(running).await;
    });
}

/// The same for a feed that runs while somebody switches them off.
#[test]
fn changes_from_after_images_were_kept_are_looked_up() {
    wait_for(async {
        let stage = Stage::new().await;
        stage.items.insert_one(doc! { "_id": 1, "v": 0 }).await.unwrap();
        stage.keep_images(true).await;
        stage.declare(|_| {}).await;
        let running = stage.start(options());
        stage.until_events(1).await;
        stage.until_streaming().await;
        let more = doc! { "$inc": { "v": 1 } };
        stage.items.update_one(doc! { "_id": 1 }, more.clone()).await.unwrap();
        stage.until_events(2).await;
        stage.keep_images(false).await;
        stage.items.update_one(doc! { "_id": 1 }, more).await.unwrap();
        let events = stage.until_events(3).await;
        let told: Vec<_> = events[1..]
            .iter()
            .map(|event| (event.payload.as_str(), event.headers.get(HEADER_DOCUMENT)))
            .collect();
        let expected = [(r#"{"_id":1,"v":1}"#, None), (r#"{"_id":1,"v":2}"#, Some("looked-up"))];
        assert_eq!(told, expected);
        stage.end(running).await;
    });
}

/// A change that no server can send: it comes without its document, and says so.
#[test]
fn a_change_that_is_too_large_is_passed() {
    wait_for(async {
        let stage = Stage::new().await;
        let text = "x".repeat(9 * 1024 * 1024);
        stage.items.insert_one(doc! { "_id": 1, "text": text }).await.unwrap();
        stage.keep_images(true).await;
        stage.declare(|_| {}).await;
        let running = stage.start(options());
        stage.until_events(1).await;
        stage.until_streaming().await;
        stage.items.update_one(doc! { "_id": 1 }, doc! { "$set": { "n": 1 } }).await.unwrap();
        stage.items.insert_one(doc! { "_id": 2 }).await.unwrap();
        let events = stage.until_events(3).await;
        assert_eq!(events[1].payload.as_str(), r#"{"_id":1}"#);
        assert!(events[0].headers.get(HEADER_OVERSIZE).is_some());
        assert!(events[1].headers.get(HEADER_OVERSIZE).is_some());
        assert_eq!(events[2].payload.as_str(), r#"{"_id":2}"#);
        stage.end(running).await;
    });
}

/// Its key was made of no document at all, which stopped the feed for ever; and no filter saw it.
#[test]
fn a_change_that_is_too_large_has_its_key_and_is_filtered() {
    wait_for(async {
        let stage = Stage::new().await;
        let text = "x".repeat(9 * 1024 * 1024);
        let large = |id: i32, who: &str, open: bool| {
            doc! { "_id": id, "who": who, "open": open, "text": &text }
        };
        stage.items.insert_one(large(1, "ann", true)).await.unwrap();
        stage.items.insert_one(large(2, "bob", false)).await.unwrap();
        stage.keep_images(true).await;
        stage
            .declare(|feed| {
                feed.key = Some("document.who".into());
                feed.filter = Some("document.open".into());
            })
            .await;
        let running = stage.start(options());
        stage.until_events(1).await;
        stage.until_streaming().await;
        let set = async |id: i32, change| {
            stage.items.update_one(doc! { "_id": id }, doc! { "$set": change }).await.unwrap();
        };
        set(1, doc! { "n": 1 }).await;
        // One after the other, because what is looked up is the newest.
        stage.until_events(2).await;
        set(2, doc! { "n": 1 }).await;
        set(1, doc! { "open": false }).await;
        let small = doc! { "_id": 3, "who": "cat", "open": true };
        stage.items.insert_one(small).await.unwrap();
        let events = stage.until_events(4).await;
        let told: Vec<_> = events[1..]
            .iter()
            .map(|event| {
                let op = event.headers.get(HEADER_OP).unwrap();
                (op, event.key.as_ref().unwrap().as_str(), event.payload.as_str())
            })
            .collect();
        let cat = r#"{"_id":3,"who":"cat","open":true}"#;
        assert_eq!(
            told,
            [("update", "ann", r#"{"_id":1}"#), ("update", "ann", "null"), ("insert", "cat", cat)]
        );
        assert!(events[1].headers.get(HEADER_OVERSIZE).is_some());
        assert_eq!(events[1].headers.get(HEADER_DOCUMENT), Some("looked-up"));
        stage.end(running).await;
    });
}
