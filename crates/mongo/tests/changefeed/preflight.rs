//! What is seen of a feed's MongoDB before it is added.

use mongodb::bson::doc;
use promethean::changefeed::Definition;
use promethean_mongo::outbox::MongoOutbox;
use promethean_mongo::{Verdict, changefeed};

use super::Stage;
use crate::conformance::wait_for;
use crate::replica_set::{drop_database, url};

impl Stage {
    /// What is found, by check.
    async fn examined(
        &self,
        change: impl FnOnce(&mut Definition),
    ) -> Vec<(&'static str, Verdict, String)> {
        let mut definition = Definition {
            url: url(),
            collection: format!("{}.items", self.database.name()),
            topic: "items.changed".into(),
            key: None,
            filter: None,
            map: None,
            snapshot: true,
        };
        change(&mut definition);
        let findings = changefeed::examine("items", &definition).await.unwrap();
        findings.into_iter().map(|found| (found.check, found.verdict, found.text)).collect()
    }
}

fn verdict(found: &[(&'static str, Verdict, String)], check: &str) -> Verdict {
    let found = found.iter().find(|found| found.0 == check);
    found.unwrap_or_else(|| panic!("{check} was not looked at")).1
}

#[test]
fn a_feed_is_examined_before_it_is_added() {
    wait_for(async {
        let stage = Stage::new().await;
        let found = stage.examined(|_| {}).await;
        for check in ["replica_set", "collection", "images", "access"] {
            assert_eq!(verdict(&found, check), Verdict::Good, "{check}: {found:?}");
        }
        // A set that was just made has no long history.
        assert_eq!(verdict(&found, "oplog"), Verdict::Warning);
        let by_document = |feed: &mut Definition| feed.key = Some("document.who".into());
        let found = stage.examined(by_document).await;
        assert_eq!(verdict(&found, "images"), Verdict::Warning);
        assert!(found.iter().any(|found| found.2.contains("collMod")), "{found:?}");
        let filtered = |feed: &mut Definition| feed.filter = Some("document.open".into());
        assert_eq!(verdict(&stage.examined(filtered).await, "images"), Verdict::Warning);
        stage.items.insert_one(doc! { "_id": 1 }).await.unwrap();
        stage.keep_images(true).await;
        assert_eq!(verdict(&stage.examined(by_document).await, "images"), Verdict::Good);
        // What can never work is an error; what cannot be seen from here is none.
        MongoOutbox::install(&stage.database).await.unwrap();
        let outbox = format!("{}.outbox", stage.database.name());
        let found = stage.examined(|feed| feed.collection = outbox).await;
        assert_eq!(verdict(&found, "collection"), Verdict::Error);
        let nowhere = "mongodb://127.0.0.1:1/?replicaSet=rs&serverSelectionTimeoutMS=100";
        let found = stage.examined(|feed| feed.url = nowhere.into()).await;
        assert_eq!(verdict(&found, "replica_set"), Verdict::Warning);
        let stranger = url().replacen("mongodb://", "mongodb://nobody:wrong@", 1);
        let found = stage.examined(|feed| feed.url = stranger).await;
        assert!(found.iter().all(|found| found.1 != Verdict::Error), "{found:?}");
        drop_database(stage.database.name()).await;
    });
}
