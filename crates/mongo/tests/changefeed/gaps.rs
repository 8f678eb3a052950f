//! What is missing when a feed goes on that was lost, and who is told.

use mongodb::bson::doc;
use promethean::changefeed::{ClusterTime, Gap, Phase, Recovery};
use promethean::store::{Lane, PageLimit, Read};
use promethean_event::{Offset, Partition, Topic};
use promethean_mongo::changefeed::GAP_TOPIC;
use serde_json::{Value, json};

use super::{Running, Stage, options};
use crate::conformance::wait_for;

impl Stage {
    pub(super) async fn time(&self) -> ClusterTime {
        let hello = self.database.run_command(doc! { "hello": 1 }).await.unwrap();
        let time = hello.get_timestamp("operationTime").unwrap();
        ClusterTime { seconds: time.time, increment: time.increment }
    }

    /// A feed whose history is lost, as the record says. A server that is as young as this one has
    /// forgotten nothing yet.
    async fn lost(&self, from: ClusterTime) -> Running {
        self.declare(|feed| feed.snapshot = false).await;
        let running = self.start(options());
        self.until_streaming().await;
        running.crash().await;
        let mut status = self.feeds.status("items").await.unwrap().unwrap();
        status.value.phase = Phase::Lost { gap: Gap { from: Some(from), to: Some(from) }, run: 0 };
        self.feeds.save("items", &status.value, status.version).await.unwrap();
        self.start(options())
    }

    /// Waits until what is to be told of a gap is.
    async fn until_told(&self) -> Vec<Value> {
        let is_told = async || self.status().await.is_some_and(|status| status.untold.is_none());
        self.until("it is told", is_told).await;
        self.told_gaps().await
    }

    pub(super) async fn told_gaps(&self) -> Vec<Value> {
        let topic = Topic::new(GAP_TOPIC).unwrap();
        let Some(entry) = self.bus.topics().get(&topic).cloned() else { return Vec::new() };
        let lane = Lane { topic: entry.id, partition: Partition::ZERO };
        let read = Read::From { lane, from: Offset::new(0), limit: PageLimit::default() };
        let page = self.bus.store().read(read).await.unwrap();
        page.events.iter().map(|stored| stored.event.payload.decode().unwrap()).collect()
    }
}

/// The gap ended where the server's history begins; what came after that was passed over, too, and
/// nobody was told.
#[test]
fn a_gap_ends_where_the_feed_goes_on() {
    wait_for(async {
        let stage = Stage::new().await;
        stage.items.insert_one(doc! { "_id": 0 }).await.unwrap();
        let from = stage.time().await;
        let running = stage.lost(from).await;
        stage.items.insert_one(doc! { "_id": 1 }).await.unwrap();
        let passed = stage.time().await;
        stage.feeds.resume("items", Some(Recovery::AcceptGap)).await.unwrap();
        stage.until_streaming().await;
        let gap = stage.status().await.unwrap().gap.unwrap();
        assert_eq!(gap.from, Some(from));
        assert!(gap.to.unwrap() >= passed, "{gap:?} does not say that {passed} is missing");
        let told = stage.until_told().await;
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(
            (&told[0]["feed"], &told[0]["topic"]),
            (&json!("items"), &json!("items.changed"))
        );
        assert_eq!((&told[0]["from"], &told[0]["to"]), (&json!(gap.from), &json!(gap.to)));
        assert_eq!(told[0]["recovery"], "accept-gap");
        stage.items.insert_one(doc! { "_id": 2 }).await.unwrap();
        stage.until_events(1).await;
        stage.end(running).await;
    });
}

#[test]
fn a_feed_that_goes_on_from_a_time_has_the_gap_before_it() {
    wait_for(async {
        let stage = Stage::new().await;
        let now = stage.time().await;
        let long_ago = ClusterTime { seconds: now.seconds - 7_200, increment: 1 };
        let running = stage.lost(long_ago).await;
        // Further back than the server remembers: it would be lost again.
        stage.feeds.resume("items", Some(Recovery::FromTime(long_ago.seconds))).await.unwrap();
        let alarm = async || stage.status().await.unwrap().alarm;
        stage.until("it cannot", async || alarm().await.is_some()).await;
        assert!(alarm().await.unwrap().contains("history begins at"));
        assert!(matches!(stage.status().await.unwrap().phase, Phase::Lost { .. }));
        assert!(stage.told_gaps().await.is_empty());
        stage.feeds.resume("items", Some(Recovery::FromTime(now.seconds))).await.unwrap();
        stage.until_streaming().await;
        let to = ClusterTime { seconds: now.seconds, increment: 1 };
        let gap = Gap { from: Some(long_ago), to: Some(to) };
        assert_eq!(stage.status().await.unwrap().gap, Some(gap));
        assert_eq!(stage.until_told().await.len(), 1);
        stage.end(running).await;
    });
}

/// One that begins before its place has none.
#[test]
fn a_feed_that_goes_on_from_before_its_place_has_no_gap() {
    wait_for(async {
        let stage = Stage::new().await;
        let now = stage.time().await;
        let running = stage.lost(ClusterTime { seconds: now.seconds + 3_600, increment: 1 }).await;
        stage.items.insert_one(doc! { "_id": 1 }).await.unwrap();
        stage.feeds.resume("items", Some(Recovery::FromTime(now.seconds))).await.unwrap();
        stage.until_events(1).await;
        stage.until_streaming().await;
        assert_eq!(stage.status().await.unwrap().gap, None);
        assert!(stage.until_told().await.is_empty());
        stage.end(running).await;
    });
}

/// Whoever crashed after telling told it once more when it came back, with another end.
#[test]
fn a_gap_is_told_once_whoever_crashes() {
    wait_for(async {
        let stage = Stage::new().await;
        let from = stage.time().await;
        let running = stage.lost(from).await;
        stage.items.insert_one(doc! { "_id": 1 }).await.unwrap();
        stage.feeds.resume("items", Some(Recovery::AcceptGap)).await.unwrap();
        stage.until_streaming().await;
        let told = stage.until_told().await;
        let gap = stage.status().await.unwrap().gap;
        running.crash().await;
        // As it was before it noted that it had told.
        let mut status = stage.feeds.status("items").await.unwrap().unwrap();
        status.value.untold = Some(json!(Recovery::AcceptGap));
        stage.feeds.save("items", &status.value, status.version).await.unwrap();
        let running = stage.start(options());
        assert_eq!(stage.until_told().await, told);
        let status = stage.status().await.unwrap();
        assert_eq!((status.gap, status.already_there), (gap, 0), "it is the same event");
        stage.end(running).await;
    });
}
