use std::time::Duration;

use promethean::store::{Cleaning, TopicDefinition};
use promethean::{Bus, PublishError, Reads, RetireError, WhyRefused};
use serde_json::json;

use super::{beat, both, heartbeat, register, schema};

/// A retired version is not written any more, and stays readable.
#[tokio::test]
async fn a_retired_version_is_read_but_not_written() {
    let bus = Bus::memory();
    both(&bus).await;
    let old = json!({"host": "a", "mem_mb": 4});
    let published = bus.publish(beat(Some("1"), &old)).await.unwrap();
    bus.schemas().retire(&heartbeat(), 1).await.unwrap();
    let error = bus.publish(beat(Some("1"), &old)).await.unwrap_err();
    let PublishError::Refused(refusal) = error else { panic!("{error}") };
    assert_eq!(refusal.events[0].why, WhyRefused::Retired { version: 1, current: Some(2) });
    let reader = bus.reader(Reads::Latest).await.unwrap();
    let found = reader.find(&heartbeat(), published.id).await.unwrap().unwrap();
    assert!(found.event().is_ok());
    let error = bus.schemas().retire(&heartbeat(), 2).await.unwrap_err();
    assert!(matches!(error, RetireError::LastOne(2)), "{error}");
    bus.schemas().restore(&heartbeat(), 1).await.unwrap();
    bus.publish(beat(Some("1"), &old)).await.unwrap();
}

/// A version goes only when nothing needs it, and its number never comes back.
#[tokio::test]
async fn a_version_is_removed_only_if_nothing_is_lost() {
    let bus = Bus::memory();
    let mut definition = TopicDefinition::new(heartbeat());
    definition.cleaning = Cleaning { age_ms_max: Some(1), ..Cleaning::default() };
    bus.define(definition).await.unwrap();
    both(&bus).await;
    let schemas = bus.schemas();
    let topic = heartbeat();
    bus.publish(beat(Some("1"), &json!({"host": "a", "mem_mb": 4}))).await.unwrap();
    assert!(matches!(schemas.remove(&topic, 1).await, Err(RetireError::NotRetired(1))));
    assert!(matches!(schemas.remove(&topic, 9).await, Err(RetireError::Unknown { .. })));
    schemas.retire(&topic, 1).await.unwrap();
    let error = schemas.remove(&topic, 1).await.unwrap_err();
    assert!(matches!(error, RetireError::StillStored { version: 1, events: 1 }), "{error}");
    tokio::time::sleep(Duration::from_millis(20)).await;
    bus.publish(beat(Some("2"), &json!({"host": "a", "mem_mib": 4}))).await.unwrap();
    bus.store().clean(Vec::new()).await.unwrap();
    let group = bus.subscribe_to(["heartbeat.*"], "old").reads(Reads::Version(1));
    let stream = group.stream().await.unwrap();
    let error = schemas.remove(&topic, 1).await.unwrap_err();
    assert!(matches!(error, RetireError::StillRead { version: 1, .. }), "{error}");
    drop(stream);
    bus.remove_group(&promethean::event::GroupName::new("old").unwrap()).await.unwrap();
    schemas.remove(&topic, 1).await.unwrap();
    let left: Vec<u32> =
        schemas.versions(&topic).await.unwrap().iter().map(|v| v.version).collect();
    assert_eq!(left, [2]);
    let reader = bus.reader(Reads::Latest).await.unwrap();
    let pattern = promethean::event::Pattern::new("heartbeat.*").unwrap();
    let mut replay = reader.replay(promethean::Replay::of(pattern)).await.unwrap();
    while let Some(step) = replay.next().await.unwrap() {
        step.event().unwrap();
    }
    // The document of version 1 again is another version.
    let again = register(&bus, schema(&super::first()).up(super::down())).await;
    assert_eq!(again.version, 3);
}
