//! Schemas over several hubs: what is registered at one holds at all.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use promethean::{Bus, PublishError, Registration, SCHEMA_VERSION, WhyRefused};
use promethean_event::{EventId, NewEvent, Payload, Timestamp, Topic};
use serde_json::{Value, json};

use super::hub::{Hub, Place};
use super::{on_every_store, until};

const LEASE: Duration = Duration::from_secs(5);

on_every_store!(what_one_registers_all_enforce, racing_registrars_of_two_hubs_lose_nothing);

fn orders() -> Topic {
    Topic::new("orders").unwrap()
}

fn event(topic: &Topic, version: Option<u32>, payload: &Value) -> NewEvent {
    let (id, ts) = (EventId::generate(), Timestamp::from_millis(1));
    let mut event = NewEvent::new(id, ts, topic.clone(), Payload::of(payload).unwrap());
    if let Some(version) = version {
        event.headers.insert(SCHEMA_VERSION, &version.to_string()).unwrap();
    }
    event
}

/// A schema with fields that may be there, each a number.
fn with_fields(fields: &[String]) -> Registration {
    let number = json!({"type": "number"});
    let properties: serde_json::Map<_, _> =
        fields.iter().map(|field| (field.clone(), number.clone())).collect();
    Registration::new(json!({"type": "object", "properties": properties}).to_string())
}

fn is_refused<T>(published: Result<T, PublishError>) -> bool {
    match published {
        Ok(_) => false,
        Err(PublishError::Refused(refusal)) => {
            assert!(matches!(refusal.events[0].why, WhyRefused::Invalid { .. }), "{refusal}");
            true
        }
        Err(error) => panic!("{error}"),
    }
}

async fn what_one_registers_all_enforce(place: Place) {
    let place = Arc::new(place);
    let (a, b) = (Hub::start(&place, 0, LEASE).await, Hub::start(&place, 1, LEASE).await);
    let (orders, returns) = (orders(), Topic::new("returns").unwrap());
    // Both have looked, and found nothing to hold events to.
    for hub in [&a, &b] {
        hub.bus.publish(event(&orders, None, &json!({"total": 1}))).await.unwrap();
    }
    let total = ["total".to_owned()];
    let wrong = || event(&orders, None, &json!({"total": "text"}));
    a.bus.schemas().register(&orders, with_fields(&total)).await.unwrap();
    assert!(is_refused(a.bus.publish(wrong()).await), "where it was registered");
    let refuses = async || is_refused(b.bus.publish(wrong()).await);
    until("the other hub holds events to it", refuses).await;
    // Versions from both sides. Who says that he writes by one is understood at once.
    let first = a.bus.schemas().register(&returns, with_fields(&total)).await.unwrap();
    let both = ["total".to_owned(), "tax".to_owned()];
    let second = b.bus.schemas().register(&returns, with_fields(&both)).await.unwrap();
    assert_eq!((first.version, second.version), (1, 2));
    let right = event(&returns, Some(2), &json!({"total": 1, "tax": 2}));
    a.bus.publish(right).await.unwrap();
    let wrong = |version| event(&returns, version, &json!({"tax": "text"}));
    assert!(is_refused(a.bus.publish(wrong(Some(2))).await));
    let refuses = async || is_refused(a.bus.publish(wrong(None)).await);
    until("the newest is what those are held to who say nothing", refuses).await;
    a.leave().await;
    b.leave().await;
    Arc::into_inner(place).unwrap().end().await;
}

/// Registers versions, one after the other, of which none is in the way of another; gives their numbers.
async fn register_all(bus: Bus, name: &'static str) -> Vec<u32> {
    let mut versions = Vec::new();
    for number in 0..6 {
        let wish = with_fields(&[format!("{name}_{number}")]);
        versions.push(bus.schemas().register(&orders(), wish).await.unwrap().version);
    }
    versions
}

async fn racing_registrars_of_two_hubs_lose_nothing(place: Place) {
    let place = Arc::new(place);
    let (a, b) = (Hub::start(&place, 0, LEASE).await, Hub::start(&place, 1, LEASE).await);
    let of_a = tokio::spawn(register_all(a.bus.clone(), "a"));
    let of_b = tokio::spawn(register_all(b.bus.clone(), "b"));
    let given: Vec<u32> = [of_a.await.unwrap(), of_b.await.unwrap()].concat();
    let distinct: BTreeSet<u32> = given.iter().copied().collect();
    assert_eq!(distinct.len(), 12, "two registrations are one version: {given:?}");
    assert_eq!(distinct, (1..=12).collect(), "numbers were left out");
    let seen = async |hub: &Hub| {
        let versions = hub.bus.schemas().versions(&orders()).await.unwrap();
        versions
            .into_iter()
            .map(|version| (version.version, version.fingerprint))
            .collect::<Vec<_>>()
    };
    until("both know all of them", async || {
        let (at_a, at_b) = (seen(&a).await, seen(&b).await);
        at_a.len() == 12 && at_a == at_b
    })
    .await;
    a.leave().await;
    b.leave().await;
    Arc::into_inner(place).unwrap().end().await;
}
