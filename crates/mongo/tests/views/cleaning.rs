//! Cleaning leaves alone what a projection has not read, wherever it runs, and while it does not.

use std::time::Duration;

use mongodb::Collection;
use mongodb::bson::{DateTime, Document, doc};
use promethean::Failure;
use promethean::projection::{Projection, ProjectionState};
use promethean::store::{Lane, TopicDefinition};
use promethean_event::Topic;

use super::place::{Hub, MongoPlace, TOPIC, publish};
use super::session::start_with;
use crate::conformance::wait_for;
use crate::hubs::until;

const SHORT: Duration = Duration::from_secs(1);
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// A hub that knows nothing of the projection, and cleans all that it may.
struct Cleaner {
    hub: Hub,
    lane: Lane,
    projections: Collection<Document>,
}

impl Cleaner {
    async fn start(place: &MongoPlace) -> Self {
        let hub = Hub::start(place, SHORT).await;
        let mut definition = TopicDefinition::new(Topic::new(TOPIC).unwrap());
        definition.cleaning.bytes_max = Some(1);
        hub.bus.define(definition).await.unwrap();
        let topics = hub.bus.topics();
        let lane = topics.get(&Topic::new(TOPIC).unwrap()).unwrap().lanes().next().unwrap();
        Self { hub, lane, projections: place.collection("promethean_projections").await }
    }

    /// Cleans, and tells what is left from where on.
    async fn clean(&self) -> u64 {
        self.hub.bus.store().clean(Vec::new()).await.unwrap();
        self.hub.bus.store().bounds(self.lane).await.unwrap().start.get()
    }

    async fn is_away(&self) -> bool {
        let away = doc! { "away_since": { "$exists": true } };
        self.projections.find_one(away).await.unwrap().is_some()
    }
}

/// A projection that has done the first four events, and does not come past the next one.
async fn stuck(hub: &Hub) -> Projection {
    let projection = start_with(hub, 1, |_, event| {
        Box::pin(async move {
            match event.offset.get() {
                0..4 => Ok(()),
                _ => Err(Failure::retry("not today").into()),
            }
        })
    })
    .await;
    let is_stuck = || async {
        let progress = projection.progress();
        progress.counts.events == 4 && matches!(progress.state, ProjectionState::Retrying { .. })
    };
    until("it has come to the fifth event", is_stuck).await;
    projection
}

/// Cleaning knew only the projections of its own process: what one of another process, which writes
/// by a session, had still to read was deleted under it.
#[test]
fn cleaning_knows_the_projections_of_other_processes() {
    wait_for(async {
        let place = MongoPlace::new();
        let cleaner = Cleaner::start(&place).await;
        publish(&cleaner.hub.bus, 0..10).await;
        let worker = Hub::start(&place, SHORT).await;
        let projection = stuck(&worker).await;
        assert_eq!(cleaner.clean().await, 4);
        assert!(!cleaner.is_away().await, "a hub keeps it");
        // It is killed, and missed after its lease: it may come back.
        drop(projection);
        worker.die();
        until("nobody keeps it", async || {
            assert_eq!(cleaner.clean().await, 4);
            cleaner.is_away().await
        })
        .await;
        // Which is waited for, and not for ever.
        let since =
            |days: i64| DateTime::from_millis(DateTime::now().timestamp_millis() - days * DAY_MS);
        let set = |days| doc! { "$set": { "away_since": since(days) } };
        cleaner.projections.update_one(doc! {}, set(6)).await.unwrap();
        assert_eq!(cleaner.clean().await, 4);
        // It comes back, and is waited for anew from when it goes.
        cleaner.projections.update_one(doc! {}, set(8)).await.unwrap();
        let worker = Hub::start(&place, SHORT).await;
        let projection = stuck(&worker).await;
        assert!(!cleaner.is_away().await, "a hub keeps it");
        assert_eq!(cleaner.clean().await, 4);
        worker.run(async move { projection.stop().await }).await;
        assert!(cleaner.is_away().await);
        assert_eq!(cleaner.clean().await, 4);
        cleaner.projections.update_one(doc! {}, set(8)).await.unwrap();
        assert_eq!(cleaner.clean().await, 10);
    });
}

/// One that is forgotten wants nothing any more.
#[test]
fn what_is_forgotten_holds_nothing() {
    wait_for(async {
        let place = MongoPlace::new();
        let cleaner = Cleaner::start(&place).await;
        publish(&cleaner.hub.bus, 0..10).await;
        let worker = Hub::start(&place, SHORT).await;
        let projection = stuck(&worker).await;
        let views = worker.views.clone();
        worker.run(async move { projection.stop().await }).await;
        assert_eq!(cleaner.clean().await, 4);
        worker.run(async move { views.forget("processes-txn").await }).await.unwrap();
        assert_eq!(cleaner.clean().await, 10);
    });
}
