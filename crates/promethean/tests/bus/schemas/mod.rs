//! Schemas on the bus: each trap of the notes has a test that fails on it.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test reports")]

mod change;
mod dual_write;
mod enforcement;
mod evolution;
mod histories;
mod registry;
mod retirement;

use promethean::event::{EventId, NewEvent, Payload, Timestamp, Topic};
use promethean::schema::Operation;
use promethean::{Bus, Hop, Registered, Registration, SCHEMA_VERSION};
use serde_json::{Value, json};

pub(crate) fn topic(name: &str) -> Topic {
    Topic::new(name).unwrap()
}

pub(crate) fn heartbeat() -> Topic {
    topic("heartbeat.received")
}

/// The first version of the notes' heartbeat.
pub(crate) fn first() -> Value {
    json!({
        "type": "object",
        "required": ["host", "mem_mb"],
        "properties": {"host": {"type": "string"}, "mem_mb": {"type": "number", "minimum": 0}}
    })
}

/// The second: `mem_mb` is `mem_mib`.
pub(crate) fn second() -> Value {
    json!({
        "type": "object",
        "required": ["host", "mem_mib"],
        "properties": {"host": {"type": "string"}, "mem_mib": {"type": "number", "minimum": 0}}
    })
}

pub(crate) fn operations(list: &Value) -> Hop {
    let operations: Vec<Operation> = serde_json::from_value(list.clone()).unwrap();
    Hop::operations(operations)
}

pub(crate) fn up() -> Hop {
    operations(&json!([
        {"op": "rename", "pointer": "/mem_mb", "to": "mem_mib"},
        {"op": "convert", "pointer": "/mem_mib", "expression": "double(value) * 0.5"}
    ]))
}

pub(crate) fn down() -> Hop {
    operations(&json!([
        {"op": "rename", "pointer": "/mem_mib", "to": "mem_mb"},
        {"op": "convert", "pointer": "/mem_mb", "expression": "double(value) * 2.0"}
    ]))
}

pub(crate) fn schema(document: &Value) -> Registration {
    Registration::new(document.to_string())
}

pub(crate) async fn register(bus: &Bus, wish: Registration) -> Registered {
    bus.schemas().register(&heartbeat(), wish).await.unwrap()
}

/// Both versions, with casters both ways.
pub(crate) async fn both(bus: &Bus) {
    register(bus, schema(&first())).await;
    register(bus, schema(&second()).up(up()).down(down())).await;
}

/// A heartbeat that says its version, if one is given.
pub(crate) fn beat(version: Option<&str>, payload: &Value) -> NewEvent {
    event("heartbeat.received", version, payload)
}

pub(crate) fn event(name: &str, version: Option<&str>, payload: &Value) -> NewEvent {
    let payload = Payload::of(payload).unwrap();
    let now = Timestamp::from_millis(1_700_000_000_000);
    let mut event = NewEvent::new(EventId::generate(), now, topic(name), payload);
    if let Some(version) = version {
        event.headers.set(SCHEMA_VERSION, version).unwrap();
    }
    event
}
