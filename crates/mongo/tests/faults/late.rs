//! What the primary has done and a majority has not yet, while a hub begins to listen.

use std::collections::BTreeSet;

use mongodb::Client;
use mongodb::bson::{Document, doc};
use mongodb::options::ReadConcern;
use promethean::store::TopicDefinition;
use promethean_event::Topic;

use super::set::Set;
use crate::conformance::wait_for;
use crate::hubs::until;

/// Halts or goes on with what secondaries copy from the primary.
async fn halt_copying(set: &Set, primary: usize, halted: bool) {
    for (number, member) in set.members().iter().enumerate().filter(|(n, _)| *n != primary) {
        let client = Client::with_uri_str(member).await.unwrap();
        let mode = if halted { "alwaysOn" } else { "off" };
        let order = doc! { "configureFailPoint": "stopReplProducer", "mode": mode };
        let done = client.database("admin").run_command(order).await;
        assert!(done.is_ok(), "member {number}: {done:?}");
    }
}

/// The change streams that are open, by the numbers of their cursors. Nobody else uses this set.
pub(super) async fn streams(admin: &mongodb::Database) -> BTreeSet<i64> {
    let is_stream =
        doc! { "cursor.originatingCommand.pipeline.0.$changeStream": { "$exists": true } };
    let pipeline = [
        doc! { "$currentOp": { "allUsers": true, "idleCursors": true } },
        doc! { "$match": is_stream },
    ];
    let mut found = admin.aggregate(pipeline).read_concern(ReadConcern::local()).await.unwrap();
    let mut cursors = BTreeSet::new();
    while found.advance().await.unwrap() {
        let found: Document = found.deserialize_current().unwrap();
        cursors.insert(found.get_document("cursor").unwrap().get_i64("cursorId").unwrap());
    }
    cursors
}

#[test]
fn a_hub_hears_of_what_was_not_certain_when_it_began_to_listen() {
    // A primary whose others copy nothing is not to be voted out for it.
    let mut set = Set::start(&["--members", "3", "--election-ms", "30000"]);
    wait_for(async {
        let (a, b) = (set.bus().await, set.bus().await);
        let primary = set.primary().await;
        let client = Client::with_uri_str(&set.url).await.unwrap();
        let admin = client.database("admin");
        until("both listen", async || streams(&admin).await.len() == 2).await;
        halt_copying(&set, primary, true).await;
        // Done by the primary, and answered only when a majority has it.
        let topic = Topic::new("orders").unwrap();
        let defining = tokio::spawn({
            let (a, topic) = (a.clone(), topic.clone());
            async move { a.define(TopicDefinition::new(topic)).await }
        });
        let topics = client.database("faults").collection::<Document>("topics");
        until("the primary has it", async || {
            let by_name = topics.find_one(doc! { "name": "orders" });
            by_name.read_concern(ReadConcern::local()).await.unwrap().is_some()
        })
        .await;
        // Streams that end for good (280 says so) are opened anew: behind it.
        let before = streams(&admin).await;
        let end = doc! { "failCommands": ["getMore"], "errorCode": 280, "appName": "promethean" };
        let end = doc! { "configureFailPoint": "failCommand", "mode": "alwaysOn", "data": end };
        admin.run_command(end).await.unwrap();
        until("the streams of before have ended", async || {
            streams(&admin).await.is_disjoint(&before)
        })
        .await;
        let off = doc! { "configureFailPoint": "failCommand", "mode": "off" };
        admin.run_command(off).await.unwrap();
        until("both listen again", async || streams(&admin).await.len() == 2).await;
        halt_copying(&set, primary, false).await;
        // It may have waited for too long to say so.
        drop(defining.await.unwrap());
        until("the other hub knows it", async || b.topics().get(&topic).is_some()).await;
        a.close().await;
        b.close().await;
    });
}
