//! Pitfall 138: what a collection does not take, whoever tries. One such event used to hold up its view
//! for ever, as if the database were away.

use std::time::Duration;

use mongodb::bson::doc;
use promethean::projection::{Changelog, Field, ProjectionState, Transactional, View};
use promethean::{DeadLetterQuery, Failure};
use promethean_event::GroupName;
use serde_json::Value;

use super::place::{Hub, MongoPlace, TOPIC, collect, define};
use super::session::one;
use crate::conformance::wait_for;
use crate::hubs::until;

const LONG: Duration = Duration::from_secs(600);

/// By an index over both, MongoDB takes a list in one of them at most.
fn view() -> View {
    View::new("processes")
        .field(Field::text("hosts"))
        .field(Field::text("users"))
        .index(["hosts", "users"])
}

const POISON: &str = r#"{"hosts":["a","b"],"users":["c","d"]}"#;

#[test]
fn an_event_that_the_collection_does_not_take_is_a_dead_letter() {
    wait_for(async {
        let place = MongoPlace::new();
        let hub = Hub::start(&place, LONG).await;
        define(&hub.bus, 2).await;
        let events = (0..60).map(|n| match n {
            7 | 8 | 41 => one(&format!("p{n}"), POISON),
            _ => one(&format!("p{n}"), r#"{"hosts":["a"],"users":"c"}"#),
        });
        hub.bus.publish_batch(events.collect()).await.unwrap();
        let views = hub.views.clone();
        let changelog = Changelog::new(view(), TOPIC).batch(20);
        let projection = hub.run(async move { views.changelog(changelog).await.unwrap() }).await;
        until("it goes past them", async || projection.progress().counts.events == 60).await;
        let counts = projection.progress().counts;
        assert_eq!((counts.dead, counts.unkeyed), (3, 0));
        let rows = place.collection("processes").await;
        let kept = collect(&rows).await;
        assert_eq!(kept.len(), 57);
        assert!(!kept.contains_key("p7") && !kept.contains_key("p8") && !kept.contains_key("p41"));
        let letters = async || {
            let query = DeadLetterQuery::waiting().group(GroupName::new("processes").unwrap());
            hub.bus.dead_letters(&query).await.unwrap()
        };
        let waiting = letters().await;
        assert_eq!(waiting.len(), 3);
        assert!(waiting[0].letter.err.contains("parallel arrays"), "{}", waiting[0].letter.err);
        // Built anew from the newest of each key, they are left out, and are no dead letters again.
        projection.rebuild().await.unwrap();
        assert_eq!(collect(&rows).await.len(), 57);
        hub.bus.publish(one("p7", r#"{"hosts":"a"}"#)).await.unwrap();
        projection.caught_up().await.unwrap();
        assert_eq!(collect(&rows).await.len(), 58, "it goes on");
        assert_eq!(letters().await.len(), 3);
    });
}

/// What a batch was to be is kept where code appends by it. Where such a plan was left (by code that had the
/// projection's name before), a batch that the collection does not take was read by it again and again.
#[test]
fn a_batch_that_was_planned_is_not_rejected_for_ever() {
    wait_for(async {
        let place = MongoPlace::new();
        let hub = Hub::start(&place, LONG).await;
        define(&hub.bus, 1).await;
        let changelog = || Changelog::new(view(), TOPIC).batch(20);
        let views = hub.views.clone();
        let projection = hub.run(async move { views.changelog(changelog()).await.unwrap() }).await;
        projection.caught_up().await.unwrap();
        drop(projection);
        hub.die();
        let kept = place.collection("promethean_projections").await;
        let record = kept.find_one(doc! { "_id": "processes" }).await.unwrap().unwrap();
        let cursors = record.get_document("live").unwrap().get_document("cursors").unwrap();
        let lane: i64 = cursors.keys().next().unwrap().parse().unwrap();
        let plan = doc! { "$set": { "live.plan": [{ "lane": lane, "next": 8_i64 }] } };
        kept.update_one(doc! { "_id": "processes" }, plan).await.unwrap();

        let hub = Hub::start(&place, LONG).await;
        let events = (0..10).map(|n| match n {
            5 => one("p5", POISON),
            _ => one(&format!("p{n}"), r#"{"hosts":["a"],"users":"c"}"#),
        });
        hub.bus.publish_batch(events.collect()).await.unwrap();
        let views = hub.views.clone();
        // The one that died is there, as far as anybody knows, if it could not say otherwise.
        if let Ok(died) = record.get_i64("hub") {
            place.collection("hubs").await.delete_one(doc! { "_id": died }).await.unwrap();
        }
        let projection = hub.run(async move { views.changelog(changelog()).await.unwrap() }).await;
        until("it goes past it", async || projection.progress().counts.events == 10).await;
        assert_eq!(projection.progress().counts.dead, 1);
        assert_eq!(collect(&place.collection("processes").await).await.len(), 9);
    });
}

/// Code decides what it writes by all that it has seen: it is not left out of what it has seen.
#[test]
fn code_whose_document_is_not_taken_stops_and_says_why() {
    wait_for(async {
        let place = MongoPlace::new();
        let hub = Hub::start(&place, LONG).await;
        define(&hub.bus, 1).await;
        hub.bus.publish(one("p", POISON)).await.unwrap();
        let views = hub.views.clone();
        let projection = Transactional::new("txn").topic(TOPIC).view(view()).apply(|tx, event| {
            let value: Value = event.payload.decode().map_err(Failure::park)?;
            tx.put("processes", "p", &value)?;
            Ok(())
        });
        let projection =
            hub.run(async move { views.transactional(projection).await.unwrap() }).await;
        until("it stops", async || {
            let state = projection.progress().state;
            matches!(state, ProjectionState::Failed { error } if error.contains("parallel arrays"))
        })
        .await;
    });
}
