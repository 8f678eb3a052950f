//! What a feed's record says while nothing is published.

use std::time::Duration;

use mongodb::bson::doc;
use promethean::changefeed::{ClusterTime, FeedsError, Phase, Recovery};

use super::{Stage, options};
use crate::conformance::wait_for;
use crate::replica_set::url;

async fn headroom(stage: &Stage) -> Option<u64> {
    stage.status().await.and_then(|status| status.oplog_headroom_seconds)
}

/// The headroom was told from the last change, and fell to nothing where there were none.
#[test]
fn the_headroom_of_a_quiet_collection_is_that_of_its_stream() {
    wait_for(async {
        let stage = Stage::new().await;
        stage.declare(|feed| feed.snapshot = false).await;
        let running = stage.start(options());
        stage.until_streaming().await;
        stage.until("it is told", async || headroom(&stage).await.is_some()).await;
        let before = headroom(&stage).await;
        // Two seconds of the server's time go by; nothing of it in this collection.
        let other = stage.database.collection("other");
        let has_grown = async || {
            other.insert_one(doc! {}).await.unwrap();
            headroom(&stage).await >= before.map(|seconds| seconds + 2)
        };
        stage.until("it grows", has_grown).await;
        assert!(stage.status().await.unwrap().reached.is_none(), "there was a change");
        stage.end(running).await;
    });
}

/// Nobody looked while a feed was paused, which is when it is asked for.
#[test]
fn the_headroom_of_a_paused_feed_is_told() {
    wait_for(async {
        let stage = Stage::new().await;
        stage.declare(|_| {}).await;
        let running = stage.start(options());
        stage.until_streaming().await;
        running.crash().await;
        stage.feeds.pause("items").await.unwrap();
        let mut status = stage.feeds.status("items").await.unwrap().unwrap();
        status.value.oplog_headroom_seconds = Some(u64::MAX);
        stage.feeds.save("items", &status.value, status.version).await.unwrap();
        let running = stage.start(options());
        let is_told = async || headroom(&stage).await.is_some_and(|seconds| seconds < u64::MAX);
        stage.until("it is told", is_told).await;
        stage.items.insert_one(doc! { "_id": 1 }).await.unwrap();
        let beat = stage.status().await.unwrap().beat;
        stage.until("it looks", async || stage.status().await.unwrap().beat > beat + 1).await;
        assert!(stage.events().await.is_empty(), "it is paused");
        stage.end(running).await;
    });
}

/// The gauge alone is looked at by nobody: less than half of the history is said.
#[test]
fn a_feed_that_is_far_behind_says_so() {
    wait_for(async {
        let stage = Stage::new().await;
        stage.declare(|feed| feed.snapshot = false).await;
        let running = stage.start(options());
        stage.until_streaming().await;
        let window = async || stage.status().await.and_then(|status| status.oplog_window_seconds);
        stage.until("the window is told", async || window().await.is_some()).await;
        assert_eq!(stage.status().await.unwrap().behind, None);
        running.crash().await;
        // As if it had been paused for two hours.
        stage.feeds.pause("items").await.unwrap();
        let mut status = stage.feeds.status("items").await.unwrap().unwrap();
        let seconds = super::now(&stage).await - 7_200;
        let since = ClusterTime { seconds, increment: 1 };
        status.value.phase = Phase::Stream { since, token: None, run: 0 };
        stage.feeds.save("items", &status.value, status.version).await.unwrap();
        let running = stage.start(options());
        let behind = async || stage.status().await.and_then(|status| status.behind);
        stage.until("it says so", async || behind().await.is_some()).await;
        assert!(behind().await.unwrap().contains("s back"));
        stage.end(running).await;
    });
}

/// It said nothing, but for a line in the log twice a second.
#[test]
fn a_feed_that_reaches_nobody_says_why() {
    wait_for(async {
        let stage = Stage::new().await;
        stage.items.insert_one(doc! { "_id": 1 }).await.unwrap();
        // Nobody of that name: the login is refused.
        let stranger = url().replacen("mongodb://", "mongodb://nobody:wrong@", 1);
        stage.declare(|feed| feed.url = stranger).await;
        let running = stage.start(options());
        let trouble = async || stage.status().await.and_then(|status| status.trouble);
        stage.until("it says why", async || trouble().await.is_some()).await;
        let status = stage.status().await.unwrap();
        assert_eq!(status.phase, Phase::New);
        assert!(status.owner.is_empty(), "another hub may come further");
        let why = status.trouble.unwrap();
        assert!(why.to_lowercase().contains("auth"), "{why}");
        stage.declare(|_| {}).await;
        stage.until_events(1).await;
        stage.until("all is well", async || trouble().await.is_none()).await;
        stage.end(running).await;
    });
}

/// It was taken for done, and nothing happened.
#[test]
fn what_is_not_lost_is_not_recovered() {
    wait_for(async {
        let stage = Stage::new().await;
        stage.declare(|_| {}).await;
        let refused = async || stage.feeds.resume("items", Some(Recovery::AcceptGap)).await;
        assert!(matches!(refused().await, Err(FeedsError::NotLost(_))), "it never ran");
        let running = stage.start(options());
        stage.until_streaming().await;
        assert!(matches!(refused().await, Err(FeedsError::NotLost(_))), "it streams");
        let from_time = stage.feeds.resume("items", Some(Recovery::FromTime(1))).await;
        assert!(matches!(from_time, Err(FeedsError::NotLost(_))), "it streams");
        let wanted = stage.feeds.wanted("items").await.unwrap().unwrap().value;
        assert!(wanted.recover.is_none());
        stage.end(running).await;
    });
}

#[test]
fn a_feed_is_paused_resumed_and_removed() {
    wait_for(async {
        let stage = Stage::new().await;
        stage.items.insert_one(doc! { "_id": 0 }).await.unwrap();
        stage.declare(|_| {}).await;
        let running = stage.start(options());
        stage.until_streaming().await;
        stage.feeds.pause("items").await.unwrap();
        // Its place rests when it has noticed, whatever happens; signs of life go on.
        let rests = async || {
            stage.database.collection("other").insert_one(doc! {}).await.unwrap();
            let before = stage.status().await.unwrap();
            let later = async || stage.status().await.unwrap().beat > before.beat + 3;
            stage.until("it lives", later).await;
            stage.status().await.unwrap().phase == before.phase
        };
        stage.until("it rests", rests).await;
        stage.items.insert_one(doc! { "_id": 1 }).await.unwrap();
        assert!(rests().await, "it went on");
        assert_eq!(stage.events().await.len(), 1);
        stage.feeds.resume("items", None).await.unwrap();
        stage.until_events(2).await;
        stage.feeds.remove("items").await.unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(30), running.task).await;
        assert_eq!(ended.unwrap().unwrap(), super::FeedEnd::Removed);
        let unknown = stage.feeds.pause("items").await;
        assert!(matches!(unknown, Err(FeedsError::Unknown(_))));
        super::drop_database(stage.database.name()).await;
    });
}
