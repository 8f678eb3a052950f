//! Code that writes by a session: its writes and the cursor are one transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mongodb::bson::{Document, doc};
use mongodb::options::ReturnDocument;
use mongodb::{ClientSession, Collection};
use promethean::projection::{Projection, ProjectionState};
use promethean::{DeadLetterQuery, Failure};
use promethean_event::{Event, EventId, GroupName, Key, NewEvent, Payload, Timestamp, Topic};
use promethean_harness::stopwatch::Stopwatch;
use promethean_mongo::views::{Handled, HandlingError, SessionProjection};
use serde_json::Value;

use super::place::{Hub, MongoPlace, TOPIC, collect, define, publish};
use crate::conformance::wait_for;
use crate::hubs::until;

const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(600);

pub(super) fn one(key: &str, payload: &str) -> NewEvent {
    let payload = Payload::parse(payload.to_owned()).unwrap();
    let topic = Topic::new(TOPIC).unwrap();
    let event = NewEvent::new(EventId::generate(), Timestamp::from_millis(5), topic, payload);
    event.with_key(Key::new(key).unwrap())
}

/// The user's collections.
#[derive(Clone)]
pub(super) struct Tables {
    processes: Collection<Document>,
    host_stats: Collection<Document>,
}

impl Tables {
    pub(super) fn of(hub: &Hub) -> Self {
        let database = hub.store.database();
        let (processes, host_stats) =
            (database.collection("my_processes"), database.collection("my_host_stats"));
        Self { processes, host_stats }
    }

    /// The notes' example, with the increment that is none of idempotent.
    pub(super) async fn count(
        &self,
        session: &mut ClientSession,
        event: &Event,
    ) -> Result<(), HandlingError> {
        let key = event.key.as_ref().ok_or_else(|| Failure::park("no key"))?.as_str();
        let by_key = doc! { "_id": key };
        if event.payload.is_tombstone() {
            self.processes.delete_one(by_key).session(session).await?;
            return Ok(());
        }
        let process: Value = event.payload.decode().map_err(Failure::park)?;
        let host = process["host"].as_str().ok_or_else(|| Failure::park("no host"))?;
        let set = doc! { "$set": { "host": host } };
        self.processes.update_one(by_key, set).upsert(true).session(&mut *session).await?;
        let more = doc! { "$inc": { "seen": 1_i64 } };
        let counting = self.host_stats.find_one_and_update(doc! { "_id": host }, more);
        let counting = counting.upsert(true).return_document(ReturnDocument::After);
        counting.session(session).await?;
        Ok(())
    }

    pub(super) async fn seen(&self) -> i64 {
        let stats = collect(&self.host_stats).await;
        stats.values().map(|stats| stats.get_i64("seen").unwrap()).sum()
    }
}

async fn start(hub: &Hub) -> Projection {
    let tables = Tables::of(hub);
    start_with(hub, 25, move |session, event| {
        let tables = tables.clone();
        Box::pin(async move { tables.count(session, event).await })
    })
    .await
}

pub(super) async fn start_with(
    hub: &Hub,
    batch: usize,
    handler: impl for<'a> Fn(&'a mut ClientSession, &'a Event) -> Handled<'a> + Send + Sync + 'static,
) -> Projection {
    let (views, store) = (hub.views.clone(), hub.store.clone());
    hub.run(async move {
        let projection = SessionProjection::new("processes-txn").topic(TOPIC).batch(batch);
        projection.start(&views, &store, handler).await.unwrap()
    })
    .await
}

pub(super) fn counted(numbers: std::ops::Range<u64>) -> i64 {
    numbers.filter(|n| n % 11 != 10).count() as i64
}

/// Pitfall 136: `$inc` counts every event once, whatever dies when.
#[test]
fn an_increment_counts_once_whoever_dies() {
    wait_for(async {
        let place = MongoPlace::new();
        let witness = Hub::start(&place, SHORT).await;
        define(&witness.bus, 2).await;
        let tables = Tables::of(&witness);
        let mut hub = Hub::start(&place, SHORT).await;
        let mut projection = start(&hub).await;
        for round in 0..4_u64 {
            publish(&witness.bus, round * 200..(round + 1) * 200).await;
            let some = round * 200 + 10 + round * 45;
            until("it is at work", async || projection.progress().counts.events >= some).await;
            let next = Hub::start(&place, SHORT).await;
            let following = start(&next).await;
            hub.die();
            (hub, projection) = (next, following);
        }
        projection.caught_up().await.unwrap();
        assert_eq!(tables.seen().await, counted(0..800));
        assert_eq!(projection.progress().counts.events, 800);
        // What is the user's is not ours to build or to check.
        assert!(projection.rebuild().await.unwrap_err().to_string().contains("its own"));
        drop(hub);
    });
}

/// A zombie in the middle of a transaction: what it wrote is taken back, and what it commits after
/// another one took over is refused. Nobody took over for fifteen seconds, because the zombie is connected,
/// and its transaction could have been one of a handler that takes its time.
#[test]
fn a_hub_that_slept_in_a_transaction_adds_nothing() {
    wait_for(async {
        let place = MongoPlace::new();
        let (a, b) = (Hub::start(&place, SHORT).await, Hub::start(&place, SHORT).await);
        define(&a.bus, 1).await;
        let tables = Tables::of(&b);
        let (asleep, sleeps) = tokio::sync::oneshot::channel();
        let (wake, woken) = std::sync::mpsc::sync_channel::<()>(1);
        let once = std::sync::Mutex::new(Some((asleep, woken)));
        let (counting, once) = (Tables::of(&a), Arc::new(once));
        let at_a = start_with(&a, 25, move |session, event| {
            let (tables, once) = (counting.clone(), Arc::clone(&once));
            Box::pin(async move {
                tables.count(session, event).await?;
                if event.offset.get() == 12
                    && let Some((asleep, woken)) = once.lock().unwrap().take()
                {
                    asleep.send(()).unwrap();
                    // The whole hub sleeps: it has one thread.
                    let _ = woken.recv();
                }
                Ok(())
            })
        })
        .await;
        publish(&b.bus, 0..100).await;
        sleeps.await.unwrap();
        let asleep = Stopwatch::start();
        let at_b = start(&b).await;
        at_b.caught_up().await.unwrap();
        let taken_over = asleep.elapsed();
        assert!(taken_over < Duration::from_secs(10), "after {taken_over:?}");
        assert_eq!(tables.seen().await, counted(0..100));
        drop(wake);
        until("it stands by", async || at_a.progress().state == ProjectionState::Elsewhere).await;
        publish(&b.bus, 100..150).await;
        at_b.caught_up().await.unwrap();
        assert_eq!(tables.seen().await, counted(0..150));
    });
}

/// Pitfalls 137 and 138, P29: what will not go by itself is a dead letter, and leaves nothing else.
#[test]
fn a_permanent_error_is_a_dead_letter_and_leaves_nothing() {
    wait_for(async {
        let place = MongoPlace::new();
        let hub = Hub::start(&place, LONG).await;
        define(&hub.bus, 1).await;
        let done = hub.store.database().collection::<Document>("done");
        done.insert_one(doc! { "_id": 3_i64 }).await.unwrap();
        let (writing, tries) = (done.clone(), Arc::new(AtomicU32::new(0)));
        let counting = Arc::clone(&tries);
        let projection = start_with(&hub, 100, move |session, event| {
            let (done, tries) = (writing.clone(), Arc::clone(&counting));
            Box::pin(async move {
                let n = event.offset.get();
                // A key that is there already, at 3.
                done.insert_one(doc! { "_id": n as i64 }).session(session).await?;
                match n {
                    5 => Err(Failure::park("this one is bad").into()),
                    6 => panic!("and this one worse"),
                    7 => Err(Failure::skip().into()),
                    8 if tries.fetch_add(1, Ordering::SeqCst) < 2 => {
                        Err(Failure::retry("not today").into())
                    }
                    _ => Ok(()),
                }
            })
        })
        .await;
        for n in 0..10 {
            hub.bus.publish(one("k", &n.to_string())).await.unwrap();
        }
        projection.caught_up().await.unwrap();
        let mut cursor = done.find(doc! {}).sort(doc! { "_id": 1 }).await.unwrap();
        let mut ids = Vec::new();
        while cursor.advance().await.unwrap() {
            ids.push(cursor.deserialize_current().unwrap().get_i64("_id").unwrap());
        }
        assert_eq!(ids, [0, 1, 2, 3, 4, 8, 9]);
        assert_eq!(tries.load(Ordering::SeqCst), 3, "tried again until it went");
        let query = DeadLetterQuery::waiting().group(GroupName::new("processes-txn").unwrap());
        let letters = hub.bus.dead_letters(&query).await.unwrap();
        let errors: Vec<_> = letters.iter().map(|entry| entry.letter.err.as_str()).collect();
        assert_eq!(errors.len(), 3, "{errors:?}");
        assert!(errors[0].contains("E11000"), "{errors:?}");
        assert_eq!(errors[1..], ["this one is bad", "panicked: and this one worse"]);
    });
}
