//! A feed that begins once more: added again, of another collection, or by order.

use mongodb::bson::doc;
use promethean::changefeed::{Phase, Recovery};
use promethean_mongo::changefeed::HEADER_OP;

use super::{FeedEnd, Running, Stage, options};
use crate::conformance::wait_for;

impl Stage {
    /// Removes the feed, and waits until who ran it has noticed.
    async fn remove(&self, running: Running) {
        self.feeds.remove("items").await.unwrap();
        let ended = tokio::time::timeout(std::time::Duration::from_secs(30), running.task).await;
        assert_eq!(ended.unwrap().unwrap(), FeedEnd::Removed);
    }

    async fn told(&self) -> Vec<(String, String)> {
        let told = |event: promethean_event::Event| {
            (event.headers.get(HEADER_OP).unwrap().to_owned(), event.payload.as_str().to_owned())
        };
        self.events().await.into_iter().map(told).collect()
    }
}

/// Pitfall 120 the other way round: ids were those of the first time, and everything was taken for
/// published already.
#[test]
fn a_feed_that_is_added_again_publishes_what_is_there() {
    wait_for(async {
        let stage = Stage::new().await;
        stage.items.insert_one(doc! { "_id": 1, "n": 1 }).await.unwrap();
        stage.declare(|_| {}).await;
        let running = stage.start(options());
        stage.until_events(1).await;
        stage.until_streaming().await;
        stage.remove(running).await;
        // At once, so that the server's time may be the same as before.
        stage.declare(|feed| feed.map = Some("{'twice': document.n * 2}".into())).await;
        let running = stage.start(options());
        let events = stage.until_events(2).await;
        assert_eq!(events[1].payload.as_str(), r#"{"twice":2}"#);
        stage.until_streaming().await;
        let status = stage.status().await.unwrap();
        assert_eq!((status.snapshots, status.published, status.already_there), (2, 1, 0));
        assert_eq!(status.epoch, 2, "it goes on from that of the feed before");
        stage.end(running).await;
    });
}

/// A document that was changed, and changed back while no feed ran, stayed in the topic as it was in
/// between; one that was deleted and came back stayed deleted.
#[test]
fn what_came_back_while_no_feed_ran_is_published() {
    wait_for(async {
        let stage = Stage::new().await;
        let (one, two) = (doc! { "_id": 1, "v": "a" }, doc! { "_id": 2, "v": "a" });
        stage.items.insert_many([one.clone(), two.clone()]).await.unwrap();
        stage.declare(|_| {}).await;
        let running = stage.start(options());
        stage.until_events(2).await;
        stage.until_streaming().await;
        let by_id = |id: i32| doc! { "_id": id };
        stage.items.replace_one(by_id(1), doc! { "v": "b" }).await.unwrap();
        stage.items.delete_one(by_id(2)).await.unwrap();
        stage.until_events(4).await;
        stage.remove(running).await;
        stage.items.replace_one(by_id(1), one).await.unwrap();
        stage.items.insert_one(two).await.unwrap();
        stage.declare(|_| {}).await;
        let running = stage.start(options());
        stage.until_events(6).await;
        let newest: Vec<_> = stage.newest().await.into_values().collect();
        assert_eq!(newest, [r#"{"_id":1,"v":"a"}"#, r#"{"_id":2,"v":"a"}"#]);
        stage.end(running).await;
    });
}

/// It went on in the other collection from where it was in the first one, and published nothing of
/// what was there.
#[test]
fn a_feed_of_another_collection_begins_anew() {
    wait_for(async {
        let stage = Stage::new().await;
        stage.items.insert_one(doc! { "_id": 1 }).await.unwrap();
        stage.database.collection("others").insert_one(doc! { "_id": 2 }).await.unwrap();
        stage.declare(|_| {}).await;
        let running = stage.start(options());
        stage.until_events(1).await;
        stage.until_streaming().await;
        let others = format!("{}.others", stage.database.name());
        stage.declare(|feed| feed.collection.clone_from(&others)).await;
        let events = stage.until_events(2).await;
        assert_eq!(events[1].payload.as_str(), r#"{"_id":2}"#);
        stage.until_streaming().await;
        // Another way to the same one, and another topic or map, change nothing about its place.
        stage
            .declare(|feed| {
                feed.collection.clone_from(&others);
                feed.url.push_str("&appName=other");
                feed.map = Some("{'n': document._id}".into());
            })
            .await;
        let is_told = async || {
            stage.database.collection("others").insert_one(doc! {}).await.unwrap();
            stage.events().await.iter().any(|event| event.payload.as_str().starts_with(r#"{"n""#))
        };
        stage.until("the other map is used", is_told).await;
        assert_eq!(stage.status().await.unwrap().snapshots, 2);
        let is_snapshot = |told: &(String, String)| told.0 == "snapshot";
        assert_eq!(stage.told().await.iter().filter(|told| is_snapshot(told)).count(), 2);
        stage.end(running).await;
    });
}

/// Everything once more, of a feed that nothing is wrong with; changes that it had not read come, too.
#[test]
fn a_feed_publishes_everything_once_more_by_order() {
    wait_for(async {
        let stage = Stage::new().await;
        stage.items.insert_many((1..=3).map(|id| doc! { "_id": id })).await.unwrap();
        stage.declare(|_| {}).await;
        let running = stage.start(options());
        stage.until_events(3).await;
        stage.until_streaming().await;
        running.crash().await;
        stage.items.delete_one(doc! { "_id": 1 }).await.unwrap();
        stage.items.insert_one(doc! { "_id": 4 }).await.unwrap();
        stage.feeds.resume("items", Some(Recovery::Resnapshot)).await.unwrap();
        let running = stage.start(options());
        stage.until_events(3 + 3 + 2).await;
        stage.until_streaming().await;
        let newest: Vec<_> = stage.newest().await.into_keys().collect();
        assert_eq!(newest, ["2", "3", "4"], "a delete is missing");
        let status = stage.status().await.unwrap();
        assert_eq!((status.snapshots, status.gap), (2, None));
        assert!(stage.feeds.wanted("items").await.unwrap().unwrap().value.recover.is_none());
        // While it runs, and while it is in the middle of it.
        stage.feeds.resume("items", Some(Recovery::Resnapshot)).await.unwrap();
        let has_begun = async || stage.status().await.unwrap().snapshots == 3;
        stage.until("it begins again", has_begun).await;
        stage.feeds.resume("items", Some(Recovery::Resnapshot)).await.unwrap();
        let is_done = async || {
            let status = stage.status().await.unwrap();
            status.snapshots == 4 && matches!(status.phase, Phase::Stream { .. })
        };
        stage.until("it is done", is_done).await;
        assert_eq!(stage.newest().await.into_keys().collect::<Vec<_>>(), ["2", "3", "4"]);
        stage.end(running).await;
    });
}
