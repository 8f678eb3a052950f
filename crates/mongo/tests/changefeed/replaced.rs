//! Another collection in the place of the one that is fed. Pitfall 117.

use mongodb::bson::doc;
use promethean::changefeed::{Phase, Recovery};

use super::{Running, Stage, options};
use crate::conformance::wait_for;

impl Stage {
    /// A feed that has published what is there.
    async fn streaming(&self) -> Running {
        self.items.insert_one(doc! { "_id": 1 }).await.unwrap();
        self.declare(|_| {}).await;
        let running = self.start(options());
        self.until_events(1).await;
        self.until_streaming().await;
        running
    }

    async fn rename(&self, from: &str, to: &str, replaces: bool) {
        let name = self.database.name();
        let command = doc! {
            "renameCollection": format!("{name}.{from}"), "to": format!("{name}.{to}"),
            "dropTarget": replaces,
        };
        self.database.client().database("admin").run_command(command).await.unwrap();
    }

    /// Waits until it has stopped for this; has it publish what is there now.
    async fn take_up(&self, what: &str, expected: &[&str]) {
        let (reason, can_skip) = self.until_stopped().await;
        assert!(reason.contains(what) && reason.contains("--recover resnapshot"), "{reason}");
        assert!(!can_skip, "there is nothing to pass over");
        self.feeds.resume("items", Some(Recovery::Resnapshot)).await.unwrap();
        let is_there = async || {
            let newest = self.newest().await;
            expected.iter().all(|key| newest.contains_key(*key))
        };
        self.until("what is there now", is_there).await;
        self.until_streaming().await;
        assert_eq!(self.status().await.unwrap().alarm, None);
    }
}

/// It went on without a word but an alarm: what was dropped stayed in the topic, and nobody could ask
/// for what is there now.
#[test]
fn a_dropped_collection_stops_the_feed_which_goes_on_by_order() {
    wait_for(async {
        let stage = Stage::new().await;
        let running = stage.streaming().await;
        stage.items.drop().await.unwrap();
        stage.items.insert_one(doc! { "_id": 2 }).await.unwrap();
        let (reason, _) = stage.until_stopped().await;
        assert!(reason.contains("dropped"), "{reason}");
        assert_eq!(stage.events().await.len(), 1);
        // Not even an instance that begins there passes over it.
        running.crash().await;
        let running = stage.start(options());
        let beat = stage.status().await.unwrap().beat;
        stage.until("it looks", async || stage.status().await.unwrap().beat > beat + 2).await;
        assert!(matches!(stage.status().await.unwrap().phase, Phase::Stopped { .. }));
        stage.feeds.resume("items", None).await.unwrap();
        let events = stage.until_events(2).await;
        assert_eq!(events[1].payload.as_str(), r#"{"_id":2}"#);
        assert!(stage.status().await.unwrap().alarm.unwrap().contains("dropped"));
        stage.items.insert_one(doc! { "_id": 3 }).await.unwrap();
        stage.until_events(3).await;
        stage.items.drop().await.unwrap();
        stage.items.insert_one(doc! { "_id": 4 }).await.unwrap();
        stage.take_up("dropped", &["4"]).await;
        stage.end(running).await;
    });
}

#[test]
fn a_renamed_collection_stops_the_feed() {
    wait_for(async {
        let stage = Stage::new().await;
        let running = stage.streaming().await;
        stage.rename("items", "elsewhere", false).await;
        stage.items.insert_one(doc! { "_id": 2 }).await.unwrap();
        stage.take_up("was renamed", &["2"]).await;
        stage.end(running).await;
    });
}

/// Nothing of the other one was ever published.
#[test]
fn a_collection_that_another_one_replaces_is_published_by_order() {
    wait_for(async {
        let stage = Stage::new().await;
        let running = stage.streaming().await;
        let next = stage.database.collection("next");
        next.insert_many([doc! { "_id": 5 }, doc! { "_id": 6 }]).await.unwrap();
        stage.rename("next", "items", true).await;
        stage.take_up("given its name", &["5", "6"]).await;
        next.insert_one(doc! { "_id": 7 }).await.unwrap();
        let mut written = next.aggregate([doc! { "$out": "items" }]).await.unwrap();
        assert!(!written.advance().await.unwrap());
        stage.take_up("given its name", &["7"]).await;
        stage.items.insert_one(doc! { "_id": 8 }).await.unwrap();
        stage.until("it goes on", async || stage.newest().await.contains_key("8")).await;
        stage.end(running).await;
    });
}
