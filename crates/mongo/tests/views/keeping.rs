//! Several hubs with the same views: one keeps them, the others show them and stand by.

use std::time::Duration;

use mongodb::bson::doc;
use promethean::projection::query::ListQuery;
use promethean::projection::{ProjectionState, Transaction, Transactional, View};
use promethean::{Failure, Replay, Replayed};
use promethean_event::{Event, EventId, NewEvent, Pattern, Payload, Topic};
use serde_json::{Value, json};

use super::place::{Hub, MongoPlace, TOPIC, collect, define, is_keeper, processes, publish};
use crate::conformance::wait_for;
use crate::hubs::until;

/// So short that others take over within the test.
const SHORT: Duration = Duration::from_secs(1);
/// So long that nobody takes over because of it.
const LONG: Duration = Duration::from_secs(600);

/// The documents are what users see, with what the declarations say.
#[test]
fn a_view_is_a_collection_that_users_query() {
    wait_for(async {
        let place = MongoPlace::new();
        let hub = Hub::start(&place, LONG).await;
        define(&hub.bus, 2).await;
        publish(&hub.bus, 0..100).await;
        let projection = hub.changelog().await;
        projection.caught_up().await.unwrap();
        let collection = place.collection("processes").await;
        let found = collection.find_one(doc! { "_key": "p3" }).await.unwrap().unwrap();
        assert_eq!((found.get_str("host").unwrap(), found.get_i32("n").unwrap()), ("h3", 83));
        assert!(found.get_str("_pos").unwrap().starts_with("process.state/"), "{found}");
        assert_eq!(found.get_i64("_ts").unwrap(), 83);
        let indexes = collection.list_index_names().await.unwrap();
        assert!(indexes.contains(&"_key".to_owned()), "{indexes:?}");
        assert!(indexes.contains(&"declared_host".to_owned()), "{indexes:?}");
        let twice = collection.insert_one(doc! { "_key": "p3" }).await;
        assert!(twice.is_err(), "a key is there once");
        // What the bus gives back is what was published, to the last byte.
        let document = projection.get("processes", "p3").await.unwrap().unwrap();
        assert_eq!(document.value.as_str(), r#"{"host":"h3","n":83,"cpu":1.50}"#);
        let verified = projection.verify().await.unwrap();
        assert_eq!((verified.different, verified.missed), (0, 0), "{verified:?}");
        // Somebody meddles.
        let meddle = doc! { "$set": { "host": "elsewhere", "_meta.json": "{}" } };
        collection.update_one(doc! { "_id": "p3" }, meddle).await.unwrap();
        let verified = projection.verify().await.unwrap();
        assert_eq!(verified.different, 1, "{verified:?}");
        projection.rebuild().await.unwrap();
        assert_eq!(projection.verify().await.unwrap().different, 0);
        hub.views.stop().await;
    });
}

/// What was the user's before is not touched, nor is what the store itself has.
#[test]
fn a_collection_of_somebody_else_is_left_alone() {
    wait_for(async {
        let place = MongoPlace::new();
        let hub = Hub::start(&place, LONG).await;
        define(&hub.bus, 1).await;
        let collection = place.collection("processes").await;
        collection.insert_one(doc! { "precious": true }).await.unwrap();
        let projection = hub.changelog_refused().await;
        assert!(projection.contains("left alone"), "{projection}");
        assert_eq!(collect(&collection).await.len(), 1);
        for name in ["events", "lanes", "outbox"] {
            let view = promethean::projection::Changelog::new(View::new(name), TOPIC);
            let refused = hub.refused(view).await;
            assert!(refused.contains("choose another one"), "{refused}");
        }
    });
}

/// Building anew takes away what is left of builds that came to nothing. It used to take with it whatever
/// had a name that begins like theirs.
#[test]
fn what_is_only_named_like_a_build_is_left_alone() {
    wait_for(async {
        let place = MongoPlace::new();
        let hub = Hub::start(&place, LONG).await;
        define(&hub.bus, 1).await;
        publish(&hub.bus, 0..30).await;
        let projection = hub.changelog().await;
        projection.caught_up().await.unwrap();
        let names =
            ["processes__build_notes", "processes__build_7_of_mine", "processes__build_999999"];
        for name in names {
            place.collection(name).await.insert_one(doc! { "precious": true }).await.unwrap();
        }
        projection.rebuild().await.unwrap();
        let mut left = Vec::new();
        for name in names {
            left.push(collect(&place.collection(name).await).await.len());
        }
        assert_eq!(left, [1, 1, 0], "the last one is what is left of a build");
    });
}

#[test]
fn one_hub_keeps_a_view_and_all_show_it() {
    wait_for(async {
        let place = MongoPlace::new();
        let (a, b) = (Hub::start(&place, LONG).await, Hub::start(&place, LONG).await);
        define(&a.bus, 2).await;
        until("the topic is known", async || {
            b.bus.topics().get(&Topic::new(TOPIC).unwrap()).is_some()
        })
        .await;
        let at_a = a.changelog().await;
        at_a.caught_up().await.unwrap();
        let at_b = b.changelog().await;
        publish(&b.bus, 0..200).await;
        for projection in [&at_a, &at_b] {
            projection.caught_up().await.unwrap();
        }
        assert!(is_keeper(&at_a), "{:?}", at_a.progress());
        assert_eq!(at_b.progress().state, ProjectionState::Elsewhere);
        assert_eq!(at_a.progress().counts.events, 200);
        assert_eq!(at_b.progress().counts, at_a.progress().counts);
        let query = |projection: &promethean::projection::Projection| {
            ListQuery::parse(projection.view("processes").unwrap(), [("host", "h1")]).unwrap()
        };
        let (left, right) = (
            at_a.list("processes", query(&at_a)).await.unwrap(),
            at_b.list("processes", query(&at_b)).await.unwrap(),
        );
        assert!(!left.documents.is_empty());
        assert_eq!(left, right);
        // To read one's own writes at a hub that does not keep the view.
        let published =
            b.bus.publish(super::session::one("p1", r#"{"host":"new"}"#)).await.unwrap();
        let position = format!("{TOPIC}/{}/{}", published.partition.get(), published.offset);
        at_b.wait_for(&position.parse().unwrap(), Duration::from_secs(60)).await.unwrap();
        let document = at_b.get("processes", "p1").await.unwrap().unwrap();
        assert_eq!(document.value.as_str(), r#"{"host":"new"}"#);
        // Built anew by the one that does not keep them: it does from then on.
        at_b.rebuild().await.unwrap();
        publish(&a.bus, 200..250).await;
        at_b.caught_up().await.unwrap();
        assert!(is_keeper(&at_b), "{:?}", at_b.progress());
        until("the other stands by", async || at_a.progress().state == ProjectionState::Elsewhere)
            .await;
        assert_eq!(at_b.verify().await.unwrap().different, 0);
        // It goes in good order: the other takes over at once.
        at_b.stop().await;
        until("the other keeps them", async || is_keeper(&at_a)).await;
    });
}

#[test]
fn a_hub_that_dies_is_followed_and_every_event_counts_once() {
    wait_for(async {
        let place = MongoPlace::new();
        let witness = Hub::start(&place, SHORT).await;
        define(&witness.bus, 2).await;
        let mut published = 0;
        let mut hub = Hub::start(&place, SHORT).await;
        let mut projection = hub.changelog().await;
        for round in 0..4 {
            publish(&witness.bus, published..published + 300).await;
            published += 300;
            let some = published - 290 + round * 40;
            until("it is at work", async || projection.progress().counts.events >= some).await;
            let next = Hub::start(&place, SHORT).await;
            let following = next.changelog().await;
            hub.die();
            (hub, projection) = (next, following);
        }
        projection.caught_up().await.unwrap();
        // The one that died may have done everything before.
        until("it keeps them", async || is_keeper(&projection)).await;
        assert_eq!(projection.progress().counts.events, published);
        let verified = projection.verify().await.unwrap();
        assert_eq!((verified.different, verified.missed), (0, 0), "{verified:?}");
        assert!(verified.documents > 30);
    });
}

/// A zombie: it sleeps beyond its lease in the middle of its work, and goes on as if nothing had been.
#[test]
fn a_hub_that_slept_writes_nothing_that_is_anothers() {
    wait_for(async {
        let place = MongoPlace::new();
        let (a, b) = (Hub::start(&place, SHORT).await, Hub::start(&place, SHORT).await);
        define(&a.bus, 2).await;
        until("the topic is known", async || {
            b.bus.topics().get(&Topic::new(TOPIC).unwrap()).is_some()
        })
        .await;
        let at_a = a.changelog().await;
        at_a.caught_up().await.unwrap();
        let at_b = b.changelog().await;
        let (mut published, mut keeps) = (0, [&at_a, &at_b]);
        for _ in 0..3 {
            let [keeper, other] = keeps;
            let (hub, awake) = if std::ptr::eq(keeper, &at_a) { (&a, &b) } else { (&b, &a) };
            until("it keeps them", async || is_keeper(keeper)).await;
            publish(&awake.bus, published..published + 300).await;
            published += 300;
            let some = published - 250;
            until("it is at work", async || keeper.progress().counts.events >= some).await;
            let thaw = hub.freeze().await;
            until("the other keeps them", async || is_keeper(other)).await;
            publish(&awake.bus, published..published + 100).await;
            published += 100;
            drop(thaw);
            until("it stands by", async || keeper.progress().state == ProjectionState::Elsewhere)
                .await;
            keeps = [other, keeper];
        }
        keeps[0].caught_up().await.unwrap();
        assert_eq!(keeps[0].progress().counts.events, published);
        let verified = keeps[0].verify().await.unwrap();
        assert_eq!((verified.different, verified.missed), (0, 0), "{verified:?}");
    });
}

/// The notes' example by the transaction of the bus: `processes`, a counter for each host, and an
/// event at every tenth.
fn count(tx: &mut Transaction<'_>, event: &Event) -> Result<(), Failure> {
    let key = event.key.as_ref().map(|key| key.as_str().to_owned()).unwrap_or_default();
    if event.payload.is_tombstone() {
        tx.delete("processes", &key)?;
        return Ok(());
    }
    let process: Value = event.payload.decode().map_err(Failure::park)?;
    let host = process["host"].as_str().unwrap_or_default().to_owned();
    tx.put("processes", &key, &process)?;
    let seen = tx.read::<Value>("host_stats", &host)?;
    let seen = seen.and_then(|stats| stats["seen"].as_u64()).unwrap_or(0) + 1;
    tx.put("host_stats", &host, &json!({ "seen": seen }))?;
    if seen.is_multiple_of(10) {
        let payload = Payload::of(&json!({ "host": host, "seen": seen })).map_err(Failure::park)?;
        let topic = Topic::new("host.milestone").map_err(Failure::park)?;
        tx.emit(NewEvent::new(EventId::generate(), event.ts, topic, payload))?;
    }
    Ok(())
}

#[test]
fn counters_and_emitted_events_are_exact_whoever_dies() {
    wait_for(async {
        let place = MongoPlace::new();
        let witness = Hub::start(&place, SHORT).await;
        define(&witness.bus, 2).await;
        let start = async |hub: &Hub| {
            let views = hub.views.clone();
            let projection = Transactional::new("processes-txn")
                .topic(TOPIC)
                .view(View::new("processes"))
                .view(View::new("host_stats"))
                .batch(25)
                .apply(count);
            hub.run(async move { views.transactional(projection).await.unwrap() }).await
        };
        let (mut published, mut counted) = (0_u64, 0_u64);
        let mut hub = Hub::start(&place, SHORT).await;
        let mut projection = start(&hub).await;
        for round in 0..3 {
            publish(&witness.bus, published..published + 200).await;
            counted += (published..published + 200).filter(|n| n % 11 != 10).count() as u64;
            published += 200;
            let some = published - 190 + round * 50;
            until("it is at work", async || projection.progress().counts.events >= some).await;
            let next = Hub::start(&place, SHORT).await;
            let following = start(&next).await;
            hub.die();
            (hub, projection) = (next, following);
        }
        projection.caught_up().await.unwrap();
        let stats = projection.scan("host_stats", None, 100).await.unwrap();
        let seen = stats.iter().map(|document| document.decode::<Value>().unwrap());
        let seen: Vec<u64> = seen.map(|stats| stats["seen"].as_u64().unwrap()).collect();
        assert_eq!(seen.iter().sum::<u64>(), counted);
        let replay = Replay::of(Pattern::new("host.milestone").unwrap());
        let mut replaying = witness.bus.replay(replay).await.unwrap();
        let mut milestones = Vec::new();
        while let Some(Replayed::Event(stored)) = replaying.next().await.unwrap() {
            milestones.push(stored.event.payload.as_str().to_owned());
        }
        let expected: u64 = seen.iter().map(|seen| seen / 10).sum();
        assert_eq!(milestones.len() as u64, expected, "each once");
        milestones.sort();
        milestones.dedup();
        assert_eq!(milestones.len() as u64, expected, "each another one");
        drop(hub);
    });
}

/// Killed between the note that a switch is to be made and its end: whoever is next ends it.
#[test]
fn a_switch_that_was_broken_off_is_ended_by_the_next() {
    wait_for(async {
        let place = MongoPlace::new();
        let a = Hub::start(&place, LONG).await;
        define(&a.bus, 1).await;
        publish(&a.bus, 0..100).await;
        let projection = a.changelog().await;
        projection.caught_up().await.unwrap();
        projection.rebuild().await.unwrap();
        a.views.stop().await;
        drop(projection);
        a.die();
        // As if the rename had happened and the note of its end had not.
        let records = place.collection("promethean_projections").await;
        let turn = vec![doc! { "$set": { "building": "$live", "pending": "switch" } }];
        records.update_one(doc! { "_id": "processes" }, turn).await.unwrap();
        let b = Hub::start(&place, LONG).await;
        let projection = b.changelog().await;
        publish(&b.bus, 100..150).await;
        projection.caught_up().await.unwrap();
        assert_eq!(projection.verify().await.unwrap().different, 0);
        let record = records.find_one(doc! { "_id": "processes" }).await.unwrap().unwrap();
        assert!(!record.contains_key("pending") && !record.contains_key("building"), "{record}");
    });
}

/// A declaration that has changed is built anew by whoever keeps the view, once.
#[test]
fn another_declaration_is_built_anew_by_the_keeper() {
    wait_for(async {
        let place = MongoPlace::new();
        let a = Hub::start(&place, LONG).await;
        define(&a.bus, 1).await;
        publish(&a.bus, 0..60).await;
        let projection = a.changelog().await;
        projection.caught_up().await.unwrap();
        let before = projection.definition();
        projection.stop().await;
        let views = a.views.clone();
        let projection =
            a.run(async move { views.changelog(processes().version(2)).await.unwrap() }).await;
        until("it was built anew", async || {
            is_keeper(&projection) && projection.definition() != before
        })
        .await;
        assert_eq!(projection.verify().await.unwrap().different, 0);
    });
}

impl Hub {
    async fn refused(&self, changelog: promethean::projection::Changelog) -> String {
        let views = self.views.clone();
        // Until the hub is among those that are there, nothing is its to make.
        let name = format!("{changelog:?}");
        for _ in 0..1_000 {
            let (views, changelog) = (views.clone(), changelog.clone());
            let started = self.run(async move { views.changelog(changelog).await }).await;
            match started {
                Err(error) => return error.to_string(),
                Ok(projection) => {
                    until("it has failed", async || {
                        matches!(projection.progress().state, ProjectionState::Failed { .. })
                    })
                    .await;
                    if let ProjectionState::Failed { error } = projection.progress().state {
                        return error;
                    }
                }
            }
        }
        panic!("{name} was not refused")
    }

    async fn changelog_refused(&self) -> String {
        self.refused(processes()).await
    }
}
