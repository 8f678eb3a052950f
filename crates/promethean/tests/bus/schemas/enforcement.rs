use promethean::event::{EventId, Key, Payload};
use promethean::{
    Bus, PayloadPolicy, PublishError, RegistryPolicy, SCHEMA_VERSION, TopicPolicy, Unregistered,
    Unversioned, WhyRefused,
};
use serde_json::json;

use super::{beat, both, event, first, heartbeat, register, schema, second, topic, up};

fn why(error: PublishError) -> WhyRefused {
    match error {
        PublishError::Refused(refusal) => refusal.events[0].why.clone(),
        other => panic!("{other}"),
    }
}

async fn stored(bus: &Bus, name: &str) -> u64 {
    let topics = bus.topics();
    let Some(entry) = topics.get(&topic(name)) else { return 0 };
    let mut sum = 0;
    for lane in entry.lanes() {
        sum += bus.store().bounds(lane).await.unwrap().next.get();
    }
    sum
}

/// 94: the writer declares, the broker checks; an old writer keeps its label.
#[tokio::test]
async fn a_writer_is_held_to_the_version_it_says() {
    let bus = Bus::memory();
    both(&bus).await;
    let (old, new) = (json!({"host": "a", "mem_mb": 4}), json!({"host": "a", "mem_mib": 4}));
    let published = bus.publish(beat(Some("1"), &old)).await.unwrap();
    let kept = bus.find(&heartbeat(), published.id).await.unwrap().unwrap();
    assert_eq!(kept.event.headers.get(SCHEMA_VERSION), Some("1"), "not overwritten with 2");
    bus.publish(beat(Some("2"), &new)).await.unwrap();
    // 95: the stamp is checked, not believed.
    let error = why(bus.publish(beat(Some("2"), &old)).await.unwrap_err());
    let WhyRefused::Invalid { version: 2, mismatches } = error else { panic!("{error}") };
    assert_eq!((mismatches[0].keyword.as_str(), mismatches[0].pointer.as_str()), ("required", ""));
    assert_eq!(stored(&bus, "heartbeat.received").await, 2);
    let counts = bus.schemas().counts(&heartbeat());
    assert_eq!((counts.checked, counts.refused, counts.warned), (3, 1, 0));
}

/// What is said goes into logs: what the payload lacks, never what stands in it.
#[tokio::test]
async fn a_refusal_says_what_is_missing_and_nothing_of_the_payload() {
    let bus = Bus::memory();
    let strict = json!({
        "type": "object", "required": ["host"], "additionalProperties": false,
        "properties": {"host": {"type": "string"}, "mem_mb": {"type": "number"}}
    });
    register(&bus, schema(&strict)).await;
    let payload = json!({"mem_mb": "s3cret", "a-name": 1});
    let said = bus.publish(beat(None, &payload)).await.unwrap_err().to_string();
    assert!(said.contains(r#"the payload lacks "host", which is required"#), "{said}");
    assert!(said.contains(r#"/mem_mb is not of type "number""#), "{said}");
    assert!(said.contains("the payload fails additionalProperties"), "{said}");
    assert!(!said.contains("s3cret") && !said.contains("a-name"), "{said}");
}

/// The refusal lists some of them; all of them are counted.
#[tokio::test]
async fn every_refused_event_of_a_batch_is_counted() {
    let bus = Bus::memory();
    both(&bus).await;
    let bad = json!({"host": "a", "mem_mb": 4});
    let batch = (0..40).map(|_| beat(Some("2"), &bad)).collect();
    let PublishError::Refused(refusal) = bus.publish_batch(batch).await.unwrap_err() else {
        panic!("refused by the schema")
    };
    assert_eq!(refusal.count, 40);
    assert!(refusal.events.len() < 40, "a list for people");
    assert_eq!(bus.schemas().counts(&heartbeat()).refused, 40);
    let shown = bus.metrics().encode().await;
    let refused = format!(
        r#"promethean_schema_events_total{{topic="{}",outcome="refused"}} 40"#,
        heartbeat().as_str()
    );
    assert!(shown.lines().any(|line| line == refused), "{shown}");
}

/// 91: an unknown version, 0 or NaN does not mean anything goes.
#[tokio::test]
async fn strange_versions_are_refused() {
    let bus = Bus::memory();
    register(&bus, schema(&first())).await;
    let good = json!({"host": "a", "mem_mb": 4});
    for version in ["0", "NaN", "", "latest", "-1", "01", "1.0"] {
        let error = why(bus.publish(beat(Some(version), &good)).await.unwrap_err());
        assert!(matches!(error, WhyRefused::BadVersion { .. }), "{version}: {error}");
    }
    let error = why(bus.publish(beat(Some("2"), &good)).await.unwrap_err());
    assert!(matches!(error, WhyRefused::UnknownVersion { version: 2, .. }), "{error}");
    assert_eq!(stored(&bus, "heartbeat.received").await, 0);
}

/// Nothing of a batch is stored if one event of it is refused; not even topics are made.
#[tokio::test]
async fn a_refused_event_takes_its_batch_with_it() {
    let bus = Bus::memory();
    register(&bus, schema(&first())).await;
    let batch = vec![
        event("other", None, &json!(1)),
        beat(Some("1"), &json!({"host": "a", "mem_mb": 4})),
        beat(Some("1"), &json!({"host": "a", "mem_mb": "much"})),
        beat(Some("1"), &json!({"host": 7, "mem_mb": -1})),
    ];
    let error = bus.publish_batch(batch).await.unwrap_err();
    let PublishError::Refused(refusal) = &error else { panic!("{error}") };
    assert_eq!(refusal.count, 2);
    assert_eq!(refusal.events.iter().map(|e| e.number).collect::<Vec<_>>(), [2, 3]);
    let json = serde_json::to_value(refusal).unwrap();
    assert_eq!(json["events"][0]["why"]["code"], "invalid");
    assert_eq!(json["events"][0]["why"]["mismatches"][0]["pointer"], "/mem_mb");
    assert_eq!(json["events"][1]["why"]["mismatches"].as_array().unwrap().len(), 2);
    assert!(!error.to_string().contains("much"), "values stay out of messages: {error}");
    assert!(bus.topics().get(&topic("other")).is_none());
    assert_eq!(stored(&bus, "heartbeat.received").await, 0);
}

#[tokio::test]
async fn warnings_are_counted_and_off_is_off() {
    let bus = Bus::memory();
    register(&bus, schema(&first())).await;
    let bad = json!({"host": "a"});
    let set = async |payload| {
        let policy = TopicPolicy { payload, ..TopicPolicy::default() };
        bus.schemas().set_policy(&heartbeat(), policy).await.unwrap();
    };
    set(PayloadPolicy::Warn).await;
    bus.publish(beat(Some("1"), &bad)).await.unwrap();
    bus.publish(beat(Some("9"), &bad)).await.unwrap();
    assert_eq!(bus.schemas().counts(&heartbeat()).warned, 2);
    set(PayloadPolicy::Off).await;
    bus.publish(beat(None, &bad)).await.unwrap();
    let counts = bus.schemas().counts(&heartbeat());
    assert_eq!((counts.checked, counts.warned), (2, 2));
    set(PayloadPolicy::Enforce).await;
    assert!(bus.publish(beat(Some("1"), &bad)).await.is_err());
    assert_eq!(stored(&bus, "heartbeat.received").await, 3);
}

/// 97: what an absent version means is the topic's rule, and is written down when it is applied:
/// it does not change its meaning with the next version.
#[tokio::test]
async fn an_event_without_a_version_gets_the_one_it_was_checked_by() {
    let bus = Bus::memory();
    register(&bus, schema(&first())).await;
    let old = json!({"host": "a", "mem_mb": 4});
    let one = bus.publish(beat(None, &old)).await.unwrap();
    register(&bus, schema(&second()).up(up())).await;
    let label = async |id| {
        let kept = bus.find(&heartbeat(), id).await.unwrap().unwrap();
        kept.event.headers.get(SCHEMA_VERSION).unwrap().to_owned()
    };
    assert_eq!(label(one.id).await, "1");
    assert!(bus.publish(beat(None, &old)).await.is_err(), "the latest is another one");
    let set = async |unversioned| {
        let policy = TopicPolicy { unversioned, ..TopicPolicy::default() };
        bus.schemas().set_policy(&heartbeat(), policy).await.unwrap();
    };
    set(Unversioned::Oldest).await;
    let two = bus.publish(beat(None, &old)).await.unwrap();
    assert_eq!(label(two.id).await, "1");
    set(Unversioned::Refuse).await;
    let error = why(bus.publish(beat(None, &old)).await.unwrap_err());
    assert_eq!(error, WhyRefused::NoVersion);
}

/// Publishing again with the same id is answered with the first place, also if the event did not
/// say a version and there is a later one by now that would refuse it.
#[tokio::test]
async fn a_retry_over_a_new_version_is_still_a_retry() {
    for payload in
        [json!({"host": "a", "mem_mb": 4}), json!({"host": "a", "mem_mb": 4, "mem_mib": 2})]
    {
        let bus = Bus::memory();
        register(&bus, schema(&first())).await;
        let event = beat(None, &payload);
        let one = bus.publish(event.clone()).await.unwrap();
        let free = super::operations(&json!([
            {"op": "remove", "pointer": "/mem_mib"},
            {"op": "rename", "pointer": "/mem_mb", "to": "mem_mib"}
        ]));
        register(&bus, schema(&second()).up(free)).await;
        let again = bus.publish(event.clone()).await.unwrap();
        assert!(again.duplicate);
        assert_eq!(again.offset, one.offset);
        let mut other = event;
        other.payload = Payload::of(&json!({"host": "b", "mem_mb": 4})).unwrap();
        assert!(bus.publish(other).await.is_err(), "other content is not a retry");
    }
}

#[tokio::test]
async fn topics_without_a_schema_are_taken_or_refused() {
    let bus = Bus::memory();
    register(&bus, schema(&first())).await;
    bus.publish(event("free", None, &json!(1))).await.unwrap();
    let policy = RegistryPolicy { unregistered: Unregistered::Refuse, ..RegistryPolicy::default() };
    bus.schemas().set_registry_policy(policy).await.unwrap();
    let error = why(bus.publish(event("free", None, &json!(1))).await.unwrap_err());
    assert_eq!(error, WhyRefused::Unregistered);
    bus.publish(beat(None, &json!({"host": "a", "mem_mb": 1}))).await.unwrap();
}

/// A key can be deleted whatever its schema; without a key `null` is a payload like any other.
#[tokio::test]
async fn tombstones_pass() {
    let bus = Bus::memory();
    register(&bus, schema(&first())).await;
    let mut gone = beat(None, &json!(null));
    assert!(bus.publish(gone.clone()).await.is_err());
    gone.key = Some(Key::new("a").unwrap());
    gone.id = EventId::generate();
    bus.publish(gone).await.unwrap();
}

/// A payload that cannot be checked is not let through.
#[tokio::test]
async fn numbers_beyond_all_bounds_are_refused() {
    let bus = Bus::memory();
    register(&bus, schema(&first())).await;
    let mut huge = beat(Some("1"), &json!({}));
    if let Ok(payload) = Payload::parse(&br#"{"host":"a","mem_mb":1e999}"#[..]) {
        huge.payload = payload;
        let error = why(bus.publish(huge).await.unwrap_err());
        assert!(matches!(error, WhyRefused::Invalid { .. }), "{error}");
    }
}
