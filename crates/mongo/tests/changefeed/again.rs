//! A feed that begins once more: added again.

use mongodb::bson::doc;

use super::{FeedEnd, Running, Stage, options};
use crate::conformance::wait_for;

impl Stage {
    /// Removes the feed, and waits until who ran it has noticed.
    async fn remove(&self, running: Running) {
        self.feeds.remove("items").await.unwrap();
        let ended = tokio::time::timeout(std::time::Duration::from_secs(30), running.task).await;
        assert_eq!(ended.unwrap().unwrap(), FeedEnd::Removed);
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
