use std::collections::BTreeSet;

use promethean::event::{Event, Key, Offset, Partition, PartitionCount};
use promethean::store::{PageLimit, TopicDefinition};
use promethean::{
    Bus, DUAL_OF, PayloadPolicy, PolicyError, PublishError, SCHEMA_VERSION, TopicPolicy, WhyRefused,
};
use serde_json::{Value, json};

use super::{beat, both, down, event, first, heartbeat, register, schema, second, topic, up};

async fn dual(bus: &Bus, versions: &[u32], payload: PayloadPolicy) -> Result<(), PolicyError> {
    let dual_write = versions.iter().copied().collect::<BTreeSet<u32>>();
    let policy = TopicPolicy { dual_write, payload, ..TopicPolicy::default() };
    bus.schemas().set_policy(&heartbeat(), policy).await
}

async fn all(bus: &Bus, name: &str) -> Vec<Event> {
    if bus.topics().get(&topic(name)).is_none() {
        return Vec::new();
    }
    let page = bus.read(&topic(name), Partition::new(0), Offset::ZERO, PageLimit::default()).await;
    page.unwrap().events.into_iter().map(|stored| stored.event).collect()
}

/// 103, 104: the copy has the old form, an id of its own, and a link.
#[tokio::test]
async fn the_copy_is_converted_and_linked() {
    let bus = Bus::memory();
    both(&bus).await;
    dual(&bus, &[1], PayloadPolicy::Enforce).await.unwrap();
    let mut new = beat(Some("2"), &json!({"host": "a", "mem_mib": 4}));
    new.key = Some(Key::new("a").unwrap());
    let published = bus.publish_batch(vec![new.clone()]).await.unwrap();
    assert_eq!(published.len(), 1, "copies are not answered for");
    let copies = all(&bus, "heartbeat.received.v1").await;
    assert_eq!(copies.len(), 1);
    let copy = &copies[0];
    assert_eq!(copy.payload.decode::<Value>().unwrap(), json!({"host": "a", "mem_mb": 8.0}));
    assert_eq!(copy.headers.get(SCHEMA_VERSION), Some("1"));
    assert_eq!(copy.headers.get(DUAL_OF), Some(new.id.to_string().as_str()));
    assert_ne!(copy.id, new.id);
    assert_eq!((&copy.key, copy.ts), (&new.key, new.ts));
    // Again: neither the event nor its copy is there twice.
    assert!(bus.publish(new).await.unwrap().duplicate);
    assert_eq!(all(&bus, "heartbeat.received.v1").await.len(), 1);
    assert_eq!(bus.schemas().counts(&heartbeat()).copied, 2);
}

/// 105: the version's own form is copied too, under a name with the number in it.
#[tokio::test]
async fn both_forms_can_be_written() {
    let bus = Bus::memory();
    both(&bus).await;
    dual(&bus, &[1, 2], PayloadPolicy::Enforce).await.unwrap();
    bus.publish(beat(Some("1"), &json!({"host": "a", "mem_mb": 8}))).await.unwrap();
    let names: Vec<String> =
        bus.topics().users().map(|entry| entry.definition.topic.to_string()).collect();
    assert_eq!(names, ["heartbeat.received", "heartbeat.received.v1", "heartbeat.received.v2"]);
    let new = &all(&bus, "heartbeat.received.v2").await[0];
    assert_eq!(new.payload.decode::<Value>().unwrap(), json!({"host": "a", "mem_mib": 4.0}));
    // What needs no change is not printed anew.
    let old = &all(&bus, "heartbeat.received.v1").await[0];
    assert_eq!(old.payload.as_str(), r#"{"host":"a","mem_mb":8}"#);
}

/// 102: no copy, no event: nothing diverges silently.
#[tokio::test]
async fn a_copy_that_cannot_be_made_refuses_the_event() {
    let bus = Bus::memory();
    register(&bus, schema(&first())).await;
    // Goes down only if there are few.
    bus.schemas().provide("few", |mut value: Value| {
        let mib = value["mem_mib"].as_f64().unwrap_or(0.0);
        if mib > 100.0 {
            return Err("too many for version 1".to_owned());
        }
        value["mem_mb"] = value.as_object_mut().and_then(|map| map.remove("mem_mib")).unwrap();
        Ok(value)
    });
    let wish = schema(&second()).up(up()).down(promethean::Hop::function("few"));
    // The trial finds that it does not go down for all, too.
    assert!(bus.schemas().register(&heartbeat(), wish.clone()).await.is_err());
    register(&bus, wish.force("there are never that many")).await;
    dual(&bus, &[1], PayloadPolicy::Enforce).await.unwrap();
    let much = json!({"host": "a", "mem_mib": 101});
    let batch = vec![beat(Some("2"), &json!({"host": "a", "mem_mib": 1})), beat(Some("2"), &much)];
    let error = bus.publish_batch(batch).await.unwrap_err();
    let PublishError::Refused(refusal) = error else { panic!("{error}") };
    let why = &refusal.events[0].why;
    assert!(matches!(why, WhyRefused::Dual { version: 1, .. }), "{why}");
    assert!(all(&bus, "heartbeat.received").await.is_empty());
    // A topic that only warns counts what it could not copy.
    dual(&bus, &[1], PayloadPolicy::Warn).await.unwrap();
    bus.publish(beat(Some("2"), &much)).await.unwrap();
    assert_eq!(all(&bus, "heartbeat.received").await.len(), 1);
    assert!(all(&bus, "heartbeat.received.v1").await.is_empty());
    assert_eq!(bus.schemas().counts(&heartbeat()).uncopied, 1);
}

#[tokio::test]
async fn a_dual_write_without_a_way_is_refused_when_it_is_set() {
    let bus = Bus::memory();
    register(&bus, schema(&first())).await;
    register(&bus, schema(&second()).up(up())).await;
    for (versions, payload) in [
        (&[1][..], PayloadPolicy::Enforce),
        (&[3], PayloadPolicy::Enforce),
        (&[2], PayloadPolicy::Off),
    ] {
        let error = dual(&bus, versions, payload).await.unwrap_err();
        assert!(matches!(error, PolicyError::DualWrite { .. }), "{error}");
    }
    bus.schemas().recast(&heartbeat(), 2, None, Some(down())).await.unwrap();
    dual(&bus, &[1], PayloadPolicy::Enforce).await.unwrap();
}

/// Copies lie in the partitions of their originals, and tombstones reach them.
#[tokio::test]
async fn copies_keep_keys_in_their_partitions() {
    let bus = Bus::memory();
    let mut definition = TopicDefinition::new(heartbeat());
    definition.partitions = PartitionCount::new(8).unwrap();
    bus.define(definition).await.unwrap();
    both(&bus).await;
    dual(&bus, &[1], PayloadPolicy::Enforce).await.unwrap();
    for payload in [json!({"host": "a", "mem_mib": 1}), json!(null)] {
        let mut new = beat(Some("2"), &payload);
        new.key = Some(Key::new("a key").unwrap());
        let published = bus.publish(new).await.unwrap();
        let (copies, partition) = (topic("heartbeat.received.v1"), published.partition);
        let page = bus.read(&copies, partition, Offset::ZERO, PageLimit::default()).await.unwrap();
        assert_eq!(page.events.len() as u64, published.offset.get() + 1);
    }
    let (copies, key) = (topic("heartbeat.received.v1"), Key::new("a key").unwrap());
    assert_eq!(bus.latest_by_key(&copies, vec![key]).await.unwrap(), [None]);
}

/// A header is not a policy: nobody makes topics with it.
#[tokio::test]
async fn only_dual_writes_make_topics_of_copies() {
    use promethean::memory::MemoryStore;
    use promethean::{BusOptions, UnknownTopics};
    let options = BusOptions::default().unknown_topics(UnknownTopics::Refuse);
    let bus = Bus::with_store(std::sync::Arc::new(MemoryStore::new()), options);
    bus.define(TopicDefinition::new(heartbeat())).await.unwrap();
    both(&bus).await;
    let mut forged = event("heartbeat.received.v1", None, &json!({"host": "a", "mem_mb": 1}));
    forged.headers.set(DUAL_OF, "something").unwrap();
    let error = bus.publish(forged).await.unwrap_err();
    assert!(matches!(error, PublishError::UnknownTopic(_)), "{error}");
    dual(&bus, &[1], PayloadPolicy::Enforce).await.unwrap();
    bus.publish(beat(Some("2"), &json!({"host": "a", "mem_mib": 1}))).await.unwrap();
}

/// The topic of a version's form is for that version only.
#[tokio::test]
async fn a_versioned_topic_takes_its_version_only() {
    let bus = Bus::memory();
    both(&bus).await;
    let name = "heartbeat.received.v1";
    bus.publish(event(name, None, &json!({"host": "a", "mem_mb": 1}))).await.unwrap();
    for (version, payload) in [
        (Some("2"), json!({"host": "a", "mem_mib": 1})),
        (None, json!({"host": "a", "mem_mib": 1})),
    ] {
        assert!(bus.publish(event(name, version, &payload)).await.is_err());
    }
}
