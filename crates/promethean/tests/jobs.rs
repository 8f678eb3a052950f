//! Bulk replay.

use promethean::Bus;
use promethean::event::{EventId, Key, NewEvent, Payload, Timestamp, Topic};
use promethean::jobs::{EventFilter, JobError, JobState, Jobs, ReplaySpec, SpecError};
use serde_json::json;

fn filters(source: &str) -> Result<EventFilter, String> {
    match source.strip_prefix("key=") {
        Some(key) => {
            let key = key.to_owned();
            Ok(Box::new(move |event| event.key.as_ref().is_some_and(|k| k.as_str() == key)))
        }
        None => Err("not a filter".to_owned()),
    }
}

fn spec(value: serde_json::Value) -> ReplaySpec {
    serde_json::from_value(value).unwrap()
}

async fn filled() -> (Bus, Jobs) {
    let bus = Bus::memory();
    for n in 0..1_200_u64 {
        let payload = Payload::of(&json!({ "n": n })).unwrap();
        let topic = Topic::new("orders").unwrap();
        let ts = Timestamp::from_millis(n);
        let event = NewEvent::new(EventId::generate(), ts, topic, payload);
        bus.publish(event.with_key(Key::new(format!("k{}", n % 2)).unwrap())).await.unwrap();
    }
    let jobs = Jobs::new(&bus, filters);
    (bus, jobs)
}

async fn payloads(bus: &Bus, topic: &str) -> Vec<String> {
    let pattern = promethean::event::Pattern::new(topic).unwrap();
    let mut replaying = bus.replay(promethean::Replay::of(pattern)).await.unwrap();
    let mut found = Vec::new();
    while let Some(step) = replaying.next().await.unwrap() {
        if let promethean::Replayed::Event(stored) = step {
            found.push(stored.event.payload.as_str().to_owned());
        }
    }
    found
}

#[tokio::test]
async fn a_replay_filters_maps_and_adds_nothing_the_second_time() {
    let (bus, jobs) = filled().await;
    let wish = spec(json!({
        "from": "orders", "to": "odd", "where": "key=k1", "map": "{'double': payload.n * 2}",
    }));
    let plan = jobs.plan(wish.clone()).await.unwrap();
    assert_eq!((plan.read, plan.wanted, plan.duplicates), (1_200, 600, 0));
    assert_eq!(plan.examples[0].payload.as_str(), r#"{"double":2}"#);
    assert!(bus.topics().get(&Topic::new("odd").unwrap()).is_none(), "a plan changes nothing");

    let job = jobs.replay(wish.clone()).await.unwrap();
    let done = jobs.finished(job.id).await.unwrap();
    assert_eq!((&done.state, done.published, done.left()), (&JobState::Done, 600, 0));
    let seen = payloads(&bus, "odd").await;
    assert_eq!((seen.len(), seen[599].as_str()), (600, r#"{"double":2398}"#));

    let again = jobs.replay(wish.clone()).await.unwrap();
    let again = jobs.finished(again.id).await.unwrap();
    assert_eq!((again.published, again.duplicates), (0, 600));
    assert_eq!(payloads(&bus, "odd").await.len(), 600);
    assert_eq!(jobs.plan(wish).await.unwrap().duplicates, 600);
    assert_eq!(jobs.list().await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_job_waits_goes_on_and_is_given_up() {
    let (bus, jobs) = filled().await;
    let wish = spec(json!({ "from": "orders", "to": "copy", "rate": 100 }));
    let job = jobs.replay(wish).await.unwrap();
    let paused = jobs.pause(job.id).await.unwrap();
    assert_eq!(paused.state, JobState::Paused);
    let published = paused.published;
    assert!(published < 1_200 && paused.left() > 0);
    // Another process, after a restart.
    let jobs = Jobs::new(&bus, filters);
    assert_eq!(jobs.resume_all().await.unwrap(), 0, "what waits, waits");
    jobs.resume(job.id).await.unwrap();
    let cancelled = jobs.cancel(job.id).await.unwrap();
    assert_eq!(cancelled.state, JobState::Cancelled);
    assert!(cancelled.published >= published);
    assert!(matches!(jobs.resume(job.id).await, Err(JobError::Over("cancelled"))));
    assert_eq!(payloads(&bus, "copy").await.len() as u64, cancelled.published);
    let unknown = EventId::generate();
    assert!(matches!(jobs.get(unknown).await, Err(JobError::Unknown(_))));
}

#[tokio::test]
async fn events_that_the_target_refuses_are_counted_and_told() {
    let (bus, jobs) = filled().await;
    let schema = json!({ "type": "object", "properties": { "n": { "maximum": 999 } } });
    let registration = promethean::Registration::new(schema.to_string());
    let target = Topic::new("checked").unwrap();
    bus.schemas().register(&target, registration).await.unwrap();
    let wish = spec(json!({ "from": "orders", "to": "checked" }));
    let plan = jobs.plan(wish.clone()).await.unwrap();
    assert_eq!((plan.wanted, plan.refused), (1_200, 200));
    let job = jobs.replay(wish).await.unwrap();
    let done = jobs.finished(job.id).await.unwrap();
    assert_eq!((done.published, done.refused), (1_000, 200));
    assert!(done.refusals[0].position.starts_with("orders/0/"), "{:?}", done.refusals[0]);
}

#[tokio::test]
async fn what_makes_no_sense_is_refused() {
    let (_bus, jobs) = filled().await;
    let nowhere = spec(json!({ "from": "nothing.*", "to": "copy" }));
    assert!(matches!(jobs.plan(nowhere).await, Err(JobError::Spec(SpecError::NoSource(_)))));
    let circular = spec(json!({ "from": "**", "to": "copy" }));
    assert!(matches!(jobs.plan(circular).await, Err(JobError::Spec(SpecError::Circular(_)))));
    for bad in [
        json!({ "from": "orders", "to": "x", "where": "nonsense" }),
        json!({ "from": "orders", "to": "x", "map": "nonsense" }),
        json!({ "from": "orders", "to": "x", "rate": 0 }),
        json!({ "from": "orders", "to": "x", "since": 5, "until": 5 }),
    ] {
        assert!(jobs.replay(spec(bad.clone())).await.is_err(), "{bad}");
    }
    for bad in [
        json!({ "from": "orders" }),
        json!({ "from": "orders", "to": "x", "group": "g" }),
        json!({ "from": "orders", "to": "x", "wher": "key=k1" }),
    ] {
        assert!(serde_json::from_value::<ReplaySpec>(bad.clone()).is_err(), "{bad}");
    }
    assert!(jobs.list().await.unwrap().is_empty());
}
