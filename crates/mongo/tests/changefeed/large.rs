//! Documents that are large: what is in memory at once is bounded by bytes, and not by their number
//! alone.

use std::time::Duration;

use mongodb::bson::doc;
use promethean::changefeed::Phase;
use promethean_mongo::changefeed::FeedOptions;

use super::{Stage, options};
use crate::conformance::wait_for;

const DOCUMENTS: i32 = 8;

/// All of them may be in one batch, by their number; progress is saved after each.
fn in_one_batch() -> FeedOptions {
    FeedOptions { batch: 500, save_every: Duration::ZERO, ..options() }
}

impl Stage {
    /// Documents of 3 MiB each, and one behind them that stops the feed.
    async fn insert_large(&self) {
        for id in 0..DOCUMENTS {
            let text = "x".repeat(3 * 1024 * 1024);
            self.items.insert_one(doc! { "_id": id, "n": 1, "text": text }).await.unwrap();
        }
        self.items.insert_one(doc! { "_id": DOCUMENTS }).await.unwrap();
    }

    /// Where the feed was before the batch that it has stopped in.
    async fn until_stopped_in_batch(&self) -> Phase {
        self.until_stopped().await;
        assert_eq!(self.events().await.len(), usize::try_from(DOCUMENTS).unwrap());
        match self.status().await.unwrap().phase {
            Phase::Stopped { before, .. } => *before,
            other => panic!("{other:?}"),
        }
    }
}

/// A page was 500 documents, which may have 16 MiB each.
#[test]
fn a_page_of_a_snapshot_is_bounded_by_bytes() {
    wait_for(async {
        let stage = Stage::new().await;
        stage.insert_large().await;
        stage.declare(|feed| feed.map = Some("{'n': document.n}".into())).await;
        let running = stage.start(in_one_batch());
        match stage.until_stopped_in_batch().await {
            Phase::Snapshot { after, .. } => assert!(after.is_some(), "all were read at once"),
            other => panic!("{other:?}"),
        }
        stage.end(running).await;
    });
}

/// A batch was 500 changes.
#[test]
fn a_batch_of_changes_is_bounded_by_bytes() {
    wait_for(async {
        let stage = Stage::new().await;
        stage.declare(|feed| feed.map = Some("{'n': document.n}".into())).await;
        let running = stage.start(in_one_batch());
        stage.until_streaming().await;
        running.crash().await;
        let began = stage.status().await.unwrap().reached;
        stage.insert_large().await;
        let running = stage.start(in_one_batch());
        stage.until_stopped_in_batch().await;
        // What was saved is of the batches before.
        let reached = stage.status().await.unwrap().reached;
        assert!(reached > began, "all were read at once");
        stage.end(running).await;
    });
}
