//! Views and changefeeds: what a projection writes does not become events again. Pitfall 122: with
//! a view over the topic of its own feed, each row was a change, and each change wrote the row anew.

use std::time::Duration;

use promethean::changefeed::{Definition, Feeds, Phase};
use promethean::store::{Lane, PageLimit, Read};
use promethean_event::{Offset, Partition, Topic};
use promethean_mongo::changefeed::{Changefeed, FeedOptions};
use tokio::task::JoinHandle;

use super::place::{Hub, MongoPlace, TOPIC, collect, define, is_keeper};
use super::session::one;
use crate::conformance::wait_for;
use crate::hubs::until;
use crate::replica_set::url;

/// A feed from the collection of the view into the topic of the view.
async fn feed(hub: &Hub, place: &MongoPlace) -> JoinHandle<promethean_mongo::changefeed::FeedEnd> {
    let definition = Definition {
        url: url(),
        collection: format!("{}.processes", place.name),
        topic: TOPIC.into(),
        key: None,
        filter: None,
        map: None,
        snapshot: true,
    };
    Feeds::new(hub.bus.store()).add("processes", definition).await.unwrap();
    let save_every = Duration::from_millis(20);
    let options = FeedOptions { save_every, alone: true, ..FeedOptions::default() };
    tokio::spawn(Changefeed::new("processes", &hub.bus, options).run(std::future::pending()))
}

async fn phase(hub: &Hub) -> Option<Phase> {
    let status = Feeds::new(hub.bus.store()).status("processes").await.unwrap();
    status.map(|status| status.value.phase)
}

async fn is_refused(hub: &Hub) -> bool {
    matches!(phase(hub).await, Some(Phase::Stopped { reason, .. }) if reason.contains("is a view"))
}

async fn events(hub: &Hub) -> usize {
    let entry = hub.bus.topics().get(&Topic::new(TOPIC).unwrap()).cloned().unwrap();
    let lane = Lane { topic: entry.id, partition: Partition::ZERO };
    let read = Read::From { lane, from: Offset::new(0), limit: PageLimit::default() };
    hub.bus.store().read(read).await.unwrap().events.len()
}

#[test]
fn a_view_is_not_fed() {
    wait_for(async {
        let place = MongoPlace::new();
        let hub = Hub::start(&place, Duration::from_secs(600)).await;
        define(&hub.bus, 1).await;
        let projection = hub.changelog().await;
        hub.bus.publish(one("p1", r#"{"host":"a"}"#)).await.unwrap();
        let rows = place.collection("processes").await;
        until("the row is there", async || collect(&rows).await.len() == 1).await;
        let feeding = feed(&hub, &place).await;
        until("it is refused", async || is_refused(&hub).await).await;
        assert_eq!(events(&hub).await, 1, "the row came back as an event");
        feeding.abort();
        drop(projection);
    });
}

/// The collection was nobody's when the feed began.
#[test]
fn a_collection_that_becomes_a_view_is_fed_no_more() {
    wait_for(async {
        let place = MongoPlace::new();
        let hub = Hub::start(&place, Duration::from_secs(600)).await;
        define(&hub.bus, 1).await;
        let feeding = feed(&hub, &place).await;
        until("it streams", async || matches!(phase(&hub).await, Some(Phase::Stream { .. }))).await;
        let projection = hub.changelog().await;
        until("it is kept", async || is_keeper(&projection)).await;
        hub.bus.publish(one("p1", r#"{"host":"a"}"#)).await.unwrap();
        until("it is refused", async || is_refused(&hub).await).await;
        assert_eq!(events(&hub).await, 1, "the row came back as an event");
        feeding.abort();
        drop(projection);
    });
}
