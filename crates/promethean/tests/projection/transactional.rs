use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use promethean::event::{Event, EventId, GroupName, NewEvent, Pattern, Payload, Timestamp, Topic};
use promethean::projection::{
    ProjectionState, Transaction, Transactional, TransactionalProjection, View,
};
use promethean::{DeadLetterQuery, Failure, Replay, Replayed};
use serde_json::{Value, json};

use super::scenario::{Scenario, TOPIC, all};

/// The notes' example: `processes`, and a counter for each host.
pub(crate) fn count(tx: &mut Transaction<'_>, event: &Event) -> Result<(), Failure> {
    let Some(key) = event.key.as_ref().map(|key| key.as_str()) else {
        return Err(Failure::park("no key"));
    };
    if event.payload.is_tombstone() {
        tx.delete("processes", key)?;
        return Ok(());
    }
    let process: Value = event.payload.decode().map_err(Failure::park)?;
    let host = process.get("host").and_then(Value::as_str);
    let host = host.ok_or_else(|| Failure::park("no host"))?.to_owned();
    tx.put("processes", key, &process)?;
    let seen = tx.read::<Value>("host_stats", &host)?;
    let seen = seen.and_then(|stats| stats.get("seen")?.as_u64()).unwrap_or(0) + 1;
    tx.put("host_stats", &host, &json!({ "seen": seen, "last_ts": event.ts }))?;
    if seen.is_multiple_of(10) {
        let topic = Topic::new("host.milestone").map_err(Failure::park)?;
        let payload = Payload::of(&json!({ "host": host, "seen": seen })).map_err(Failure::park)?;
        tx.emit(NewEvent::new(EventId::generate(), event.ts, topic, payload))?;
    }
    Ok(())
}

pub(crate) fn counting() -> TransactionalProjection {
    named("processes-txn", 4096).apply(count)
}

fn named(name: &str, batch: usize) -> Transactional {
    Transactional::new(name)
        .topic(TOPIC)
        .view(View::new("processes"))
        .view(View::new("host_stats"))
        .batch(batch)
}

async fn milestones(scenario: &Scenario) -> Vec<Event> {
    let replay = Replay::of(Pattern::new("host.milestone").unwrap());
    let mut replaying = scenario.bus.replay(replay).await.unwrap();
    let mut events = Vec::new();
    while let Some(Replayed::Event(stored)) = replaying.next().await.unwrap() {
        events.push(stored.event);
    }
    events
}

async fn publish(scenario: &Scenario, events: u32) {
    for n in 0..events {
        let payload = format!(r#"{{"host":"h{}","n":{n}}}"#, n % 3);
        scenario.publish(&format!("p{}", n % 8), &payload).await;
    }
}

/// Pitfall 136, and emitted events once: also when everything is done again from the beginning.
#[tokio::test]
async fn it_counts_once_and_emits_once() {
    for batch in [1, 7, 4096] {
        let scenario = Scenario::new().await;
        let projection = named("processes-txn", batch).apply(count);
        let projection = scenario.views.transactional(projection).await.unwrap();
        publish(&scenario, 60).await;
        projection.caught_up().await.unwrap();
        let stats = projection.get("host_stats", "h1").await.unwrap().unwrap();
        assert_eq!(stats.decode::<Value>().unwrap()["seen"], 20);
        let emitted = milestones(&scenario).await;
        assert_eq!(emitted.len(), 6);
        assert!(emitted.iter().all(|event| event.caused_by.len() == 1));
        let before = (all(&projection, "processes").await, all(&projection, "host_stats").await);

        // The whole database is lost, as if a power cut had gone back to the beginning.
        let Scenario { bus, views, folder } = scenario;
        views.stop().await;
        drop((views, projection));
        let path = folder.path().join("new.db");
        let views = promethean::projection::Views::open(&bus, path).await.unwrap();
        let scenario = Scenario { bus, views, folder };
        let projection = scenario.views.transactional(counting()).await.unwrap();
        projection.caught_up().await.unwrap();
        let after = (all(&projection, "processes").await, all(&projection, "host_stats").await);
        assert_eq!(before, after);
        assert_eq!(milestones(&scenario).await, emitted);
    }
}

/// Pitfalls 137 and 138, P29: a permanent failure leaves nothing but a dead letter, and the rest of
/// its batch goes on.
#[tokio::test]
async fn a_permanent_failure_leaves_a_dead_letter_and_nothing_else() {
    for batch in [1, 4096] {
        let scenario = Scenario::new().await;
        let projection = named("txn", batch).apply(|tx, event| {
            let n = event.offset.get();
            tx.put("processes", &format!("p{n}"), &json!({ "n": n }))?;
            let seen = tx.read::<u64>("host_stats", "all")?.unwrap_or(0);
            tx.put("host_stats", "all", &(seen + 1))?;
            let topic = Topic::new("out").unwrap();
            tx.emit(NewEvent::new(
                EventId::generate(),
                Timestamp::from_millis(1),
                topic,
                Payload::null(),
            ))?;
            match n {
                3 => Err(Failure::park("this one is bad")),
                5 => panic!("and this one worse"),
                7 => Err(Failure::skip()),
                _ => Ok(()),
            }
        });
        let projection = scenario.views.transactional(projection).await.unwrap();
        publish(&scenario, 10).await;
        projection.caught_up().await.unwrap();
        let stats = projection.get("host_stats", "all").await.unwrap().unwrap();
        assert_eq!(stats.value.as_str(), "7");
        for bad in ["p3", "p5", "p7"] {
            assert!(projection.get("processes", bad).await.unwrap().is_none(), "{bad}");
        }
        let query = DeadLetterQuery::waiting().group(GroupName::new("txn").unwrap());
        let letters = scenario.bus.dead_letters(&query).await.unwrap();
        let errors: Vec<_> = letters.iter().map(|entry| entry.letter.err.as_str()).collect();
        assert_eq!(errors, ["this one is bad", "panicked: and this one worse"]);
        let out = Topic::new("out").unwrap();
        let lane = scenario.bus.topics().get(&out).unwrap().lanes().next().unwrap();
        assert_eq!(scenario.bus.store().bounds(lane).await.unwrap().next.get(), 7);
        assert_eq!(projection.progress().counts.dead, 2);
    }
}

/// Pitfall 137: what may go by itself is tried again, in order, and what came before it is
/// committed meanwhile.
#[tokio::test(start_paused = true)]
async fn a_transient_failure_is_tried_again_and_nothing_overtakes_it() {
    let scenario = Scenario::new().await;
    let failures = Arc::new(AtomicU32::new(6));
    let left = Arc::clone(&failures);
    let projection = named("txn", 4096).apply(move |tx, event| {
        let n = event.offset.get();
        if n == 4 && left.load(Ordering::SeqCst) > 0 {
            left.fetch_sub(1, Ordering::SeqCst);
            return Err(Failure::retry("the network is down"));
        }
        let last = tx.read::<u64>("host_stats", "last")?;
        assert_eq!(last.map_or(0, |last| last + 1), n, "in order, each once");
        tx.put("host_stats", "last", &n)?;
        Ok(())
    });
    publish(&scenario, 10).await;
    let projection = scenario.views.transactional(projection).await.unwrap();
    let mut seen = projection.watch();
    let retrying = seen
        .wait_for(|progress| matches!(progress.state, ProjectionState::Retrying { .. }))
        .await
        .unwrap()
        .clone();
    assert_eq!(retrying.counts.events, 4, "what came before is committed");
    assert!(format!("{:?}", retrying.state).contains("the network is down"));
    projection.caught_up().await.unwrap();
    assert_eq!(failures.load(Ordering::SeqCst), 0);
    let progress = projection.progress();
    assert_eq!((progress.state, progress.counts.dead), (ProjectionState::Running, 0));
    assert_eq!(projection.get("host_stats", "last").await.unwrap().unwrap().value.as_str(), "9");
}

#[tokio::test]
async fn only_declared_views_can_be_touched_and_what_is_bad_is_said() {
    let scenario = Scenario::new().await;
    let projection = named("txn", 1).apply(|tx, _| {
        assert!(tx.get("other", "a").is_err());
        assert!(tx.put("processes", "", &1).is_err());
        let topic = Topic::new("out").unwrap();
        let event = || {
            let ts = Timestamp::from_millis(1);
            NewEvent::new(EventId::generate(), ts, topic.clone(), Payload::null())
        };
        for _ in 0..1000 {
            tx.emit(event())?;
        }
        assert!(tx.emit(event()).is_err());
        Ok(())
    });
    let projection = scenario.views.transactional(projection).await.unwrap();
    publish(&scenario, 1).await;
    projection.caught_up().await.unwrap();
    assert_eq!(projection.progress().counts.dead, 0);
}
