//! Code that writes by a session, while something is wrong that is not its event's: in replica sets of
//! their own, because fail points, and transactions that are ended, meet whoever comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::Client;
use mongodb::bson::{Document, doc};
use promethean::DeadLetterQuery;
use promethean::projection::ProjectionState;
use promethean::store::Put;
use promethean_event::{GroupName, Key, Payload};
use promethean_mongo::MongoOptions;
use tokio::sync::watch;

use super::place::{Hub, MongoPlace, define};
use super::session::{one, start_with};
use crate::conformance::wait_for;
use crate::faults::set::Set;
use crate::hubs::until;

const LONG: Duration = Duration::from_secs(600);

/// A role that is missing, and time that has run out, used to turn every event of the topic into a dead
/// letter.
#[test]
fn what_is_not_the_events_fault_makes_no_dead_letters() {
    let set = Set::start(&["--members", "1"]);
    wait_for(async {
        let place = MongoPlace::at(&set.url);
        let hub = Hub::start(&place, LONG).await;
        define(&hub.bus, 1).await;
        let done = hub.store.database().collection::<Document>("done");
        let writing = done.clone();
        let projection = start_with(&hub, 100, move |session, event| {
            let done = writing.clone();
            Box::pin(async move {
                let n = event.offset.get() as i64;
                done.insert_one(doc! { "_id": n }).session(session).await?;
                Ok(())
            })
        })
        .await;
        let query = DeadLetterQuery::waiting().group(GroupName::new("processes-txn").unwrap());
        for (round, code) in (0_u64..).zip([13, 50]) {
            let how = doc! { "errorCode": code, "namespace": format!("{}.done", place.name) };
            set.fail("insert", "alwaysOn", how).await;
            for n in 0..5 {
                hub.bus.publish(one("k", &n.to_string())).await.unwrap();
            }
            until("it says what is wrong", async || {
                matches!(projection.progress().state, ProjectionState::Retrying { .. })
                    || !hub.bus.dead_letters(&query).await.unwrap().is_empty()
            })
            .await;
            let letters = hub.bus.dead_letters(&query).await.unwrap();
            assert!(letters.is_empty(), "code {code}: {letters:?}");
            set.fail("insert", "off", doc! {}).await;
            projection.caught_up().await.unwrap();
            assert_eq!(done.count_documents(doc! {}).await.unwrap(), (round + 1) * 5);
        }
        drop(hub);
    });
}

/// A collection of another client with the session, which the driver refuses: a slip of the code, with every
/// event. It used to turn every event of the topic into a dead letter, too.
#[test]
fn what_the_code_gets_wrong_with_every_event_makes_no_dead_letters() {
    wait_for(async {
        let place = MongoPlace::new();
        let hub = Hub::start(&place, LONG).await;
        define(&hub.bus, 1).await;
        let ours = hub.store.database().collection::<Document>("done");
        let others = place.collection("done").await;
        let is_ours = watch::Sender::new(false);
        let (writing, choice) = (ours.clone(), is_ours.subscribe());
        let projection = start_with(&hub, 100, move |session, event| {
            let done = if *choice.borrow() { writing.clone() } else { others.clone() };
            Box::pin(async move {
                let n = event.offset.get() as i64;
                done.insert_one(doc! { "_id": n }).session(session).await?;
                Ok(())
            })
        })
        .await;
        for n in 0..5 {
            hub.bus.publish(one("k", &n.to_string())).await.unwrap();
        }
        let query = DeadLetterQuery::waiting().group(GroupName::new("processes-txn").unwrap());
        until("it says what is wrong", async || {
            matches!(projection.progress().state, ProjectionState::Retrying { .. })
                || !hub.bus.dead_letters(&query).await.unwrap().is_empty()
        })
        .await;
        let letters = hub.bus.dead_letters(&query).await.unwrap();
        assert!(letters.is_empty(), "{letters:?}");
        is_ours.send_replace(true);
        projection.caught_up().await.unwrap();
        assert_eq!(ours.count_documents(doc! {}).await.unwrap(), 5);
        drop(hub);
    });
}

/// Pitfall 137: after any transaction of ours had been tried for a second, the sessions of all handlers
/// that had rested for one were ended, though they may take fifteen.
#[test]
fn a_handler_that_takes_its_time_is_left_alone() {
    let set = Set::start(&["--members", "1"]);
    wait_for(async {
        let place = MongoPlace::at(&set.url);
        let options = MongoOptions { deadline: Duration::from_secs(3), ..MongoOptions::default() };
        let hub = Hub::start_with(&place, LONG, options).await;
        define(&hub.bus, 1).await;
        let put = async || {
            let (key, value) = (Key::new("k").unwrap(), Some(Payload::null()));
            hub.bus.store().put(vec![Put { space: "test", key, value, expect: None }]).await
        };
        put().await.unwrap();
        let done = hub.store.database().collection::<Document>("done");
        let (calls, go_on) = (Arc::new(AtomicU32::new(0)), watch::Sender::new(false));
        let (counted, waiting, writing) = (Arc::clone(&calls), go_on.clone(), done.clone());
        let projection = start_with(&hub, 100, move |session, _| {
            let (calls, done) = (Arc::clone(&counted), writing.clone());
            let mut goes_on = waiting.subscribe();
            Box::pin(async move {
                done.insert_one(doc! { "_id": 1 }).session(session).await?;
                calls.fetch_add(1, Ordering::SeqCst);
                goes_on.wait_for(|goes_on| *goes_on).await.unwrap();
                Ok(())
            })
        })
        .await;
        hub.bus.publish(one("k", "1")).await.unwrap();
        until("it is at work", async || calls.load(Ordering::SeqCst) == 1).await;
        let client = Client::with_uri_str(&set.url).await.unwrap();
        let rests = [
            doc! { "$currentOp": { "idleSessions": true } },
            doc! { "$match": { "transaction.timeInactiveMicros": { "$gt": 1_200_000_i64 } } },
        ];
        until("it has rested for longer than ours do", async || {
            let found = client.database("admin").aggregate(rests.clone()).await.unwrap();
            !found.try_collect::<Vec<_>>().await.unwrap().is_empty()
        })
        .await;
        // Somebody else is in the way of another one, for as long as that is tried.
        let mut session = client.start_session().await.unwrap();
        session.start_transaction().await.unwrap();
        let counters = client.database(&place.name).collection::<Document>("counters");
        let taken = counters.update_one(doc! { "_id": "entries" }, doc! { "$inc": { "next": 1 } });
        assert_eq!(taken.session(&mut session).await.unwrap().matched_count, 1);
        put().await.unwrap_err();
        session.abort_transaction().await.unwrap();
        go_on.send_replace(true);
        projection.caught_up().await.unwrap();
        assert_eq!(calls.load(Ordering::SeqCst), 1, "it was ended, and done once more");
        assert_eq!(done.count_documents(doc! {}).await.unwrap(), 1);
        drop(hub);
    });
}
