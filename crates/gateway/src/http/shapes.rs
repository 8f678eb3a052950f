//! What requests and answers look like, for the description of the interface. Limits and names are
//! those that the resources check; what only they can judge is not repeated here.

use promethean_event::limits::{GROUP_BYTES_MAX, TOPIC_BYTES_MAX};
use serde_json::{Value, json};

use super::endpoint::{Endpoint, Verb};
use crate::limits::PAGE_EVENTS_MAX;

/// As Confluent's tools want it.
const REGISTRY: &str = "application/vnd.schemaregistry.v1+json";
const JSON: &str = "application/json";
const SEGMENTS: &str = "[a-z0-9_-]+(\\.[a-z0-9_-]+)*";

fn topic() -> Value {
    json!({ "type": "string", "pattern": format!("^{SEGMENTS}$"), "maxLength": TOPIC_BYTES_MAX })
}

fn group() -> Value {
    let pattern = format!("^[A-Za-z0-9_.-]{{1,{GROUP_BYTES_MAX}}}$");
    json!({ "type": "string", "pattern": pattern })
}

fn number(min: u64) -> Value {
    json!({ "type": "integer", "minimum": min, "maximum": u32::MAX })
}

/// A time, in any of its spellings.
fn time() -> Value {
    json!({
        "type": "string", "minLength": 1,
        "description": "Epoch milliseconds, 2026-11-16T12:00:00Z, or as people write it: 15m ago, \
                        yesterday 14:00, last tuesday; UTC where it names no zone",
    })
}

/// A parameter of the address.
pub(super) fn in_path(endpoint: &Endpoint, name: &str) -> Value {
    let numbered = is_confluent(endpoint) || endpoint.method == Verb::Get;
    match name {
        "topic" | "subject" => topic(),
        "group" => group(),
        "id" if is_confluent(endpoint) => number(1),
        "id" => json!({ "type": "string", "format": "uuid" }),
        "version" if numbered => {
            json!({ "type": "string", "pattern": "^([1-9][0-9]{0,8}|latest)$" })
        }
        "version" => number(1),
        _ => json!({ "type": "string" }),
    }
}

/// A parameter after the question mark, and whether it has to be there.
pub(super) fn in_query(endpoint: &Endpoint, name: &str) -> (Value, bool) {
    let one = endpoint.path == "/latest-by-key";
    let schema = match name {
        "topic" if one => topic(),
        // Patterns, separated by commas.
        "topic" => json!({ "type": "string", "minLength": 1 }),
        "group" => group(),
        "id" => json!({ "type": "string", "format": "uuid" }),
        "after" if endpoint.path == "/dead-letters" => {
            json!({ "type": "string", "format": "uuid" })
        }
        "after" if endpoint.path == "/keys/{topic}" => json!({ "type": "string", "minLength": 1 }),
        "key" => json!({ "type": "string", "minLength": 1 }),
        "limit" if is_confluent(endpoint) => json!({ "type": "integer" }),
        "limit" => json!({ "type": "integer", "minimum": 1, "maximum": PAGE_EVENTS_MAX }),
        "from" | "before" if endpoint.path == "/audit" => {
            json!({ "type": "integer", "minimum": 0 })
        }
        "offset" => json!({ "type": "integer", "minimum": 0 }),
        "from" if endpoint.path.starts_with("/changefeeds") => number(0),
        // Of a view also a position.
        "from" | "to" | "at" | "until" | "ts" => time(),
        "state" => {
            json!({ "type": "string", "enum": ["waiting", "replayed", "discarded", "all"] })
        }
        "direction" => json!({ "type": "string", "enum": ["up", "down"] }),
        "by" => json!({ "type": "string", "enum": ["append", "event"] }),
        "partition" => number(0),
        "sample" => number(1),
        "filter" => json!({ "type": "string", "minLength": 1 }),
        "reads" => json!({ "anyOf": [
            number(1),
            { "type": "string", "enum": ["written", "latest"] },
        ] }),
        _ => json!({ "type": "string" }),
    };
    let needed = matches!(
        (endpoint.path, name),
        ("/replay" | "/export" | "/events", "topic")
            | ("/latest-by-key", "topic" | "key")
            | ("/history/{topic}", "key")
            | ("/cursors", "group")
    );
    (schema, needed)
}

/// Any field that a view declares, alone or with a comparison.
pub(super) fn fields() -> Value {
    json!({
        "name": "fields", "in": "query", "required": false, "style": "form", "explode": true,
        "description": "Conditions on declared fields: FIELD=VALUE or FIELD.OP=VALUE, OP one of \
                        eq, ne, lt, le, gt, ge",
        "schema": { "type": "object", "additionalProperties": { "type": "string" } },
    })
}

/// The body of a request, if it has one: what it may be, and whether it has to be there.
pub(super) fn body(endpoint: &Endpoint) -> Option<(Value, bool)> {
    if !matches!(endpoint.method, Verb::Post | Verb::Put) {
        return None;
    }
    let schema = if is_confluent(endpoint) { confluent_body(endpoint) } else { own_body(endpoint) };
    let needed = schema.get("required").is_some() || endpoint.path == "/publish/{topic}";
    let bare = [
        "/discard",
        "/retire",
        "/restore",
        "/rollback",
        "/rebuild",
        "/verify",
        "/warm",
        "/resume",
        "/pause",
        "/cancel",
        "/tickets",
    ];
    let bare = bare.iter().any(|ending| endpoint.path.ends_with(ending));
    (!bare).then_some((schema, needed))
}

fn own_body(endpoint: &Endpoint) -> Value {
    let object = json!({ "type": "object" });
    match endpoint.path {
        "/publish/{topic}" => json!({}),
        "/groups/{group}" => json!({
            "type": "object", "required": ["settings"],
            "properties": {
                "settings": { "type": "object", "required": ["topics"] },
                "from": { "enum": ["latest", "earliest"] },
            },
        }),
        "/groups/{group}/seek" => json!({
            "type": "object", "required": ["to"],
            "properties": { "apply": { "type": "boolean" }, "topics": { "type": "string" } },
        }),
        "/dead-letters/{id}/replay" => json!({
            "type": "object",
            "properties": { "to": { "enum": ["failing_group", "all_groups"] } },
        }),
        "/tokens" => json!({
            "type": "object", "required": ["subject", "scopes"],
            "properties": {
                "subject": { "type": "string" },
                "scopes": { "type": "array", "items": { "type": "string" } },
                "ttl_ms": { "type": "integer", "minimum": 0 },
            },
        }),
        path if path.ends_with("/versions")
            || path.ends_with("/plan")
            || path.ends_with("/start") =>
        {
            json!({
                "type": "object", "required": ["schema"],
                "properties": { "schema": { "type": ["object", "boolean"] } },
            })
        }
        _ => object,
    }
}

fn confluent_body(endpoint: &Endpoint) -> Value {
    let (member, of) = match endpoint.path {
        path if path.starts_with("/config") => ("compatibility", json!({ "type": "string" })),
        path if path.starts_with("/mode") => ("mode", json!({ "type": "string" })),
        _ => ("schema", json!({ "type": "string" })),
    };
    json!({ "type": "object", "required": [member], "properties": { member: of } })
}

pub(super) fn is_confluent(endpoint: &Endpoint) -> bool {
    ["/subjects", "/schemas", "/compatibility", "/config", "/mode"]
        .iter()
        .any(|first| endpoint.path.starts_with(first))
}

/// The content types of an answer.
pub(super) fn answers(endpoint: &Endpoint) -> Vec<&'static str> {
    match endpoint.path {
        "/livez" | "/healthz" => vec!["text/plain"],
        "/readyz" => vec!["text/plain", JSON],
        "/metrics" => vec!["text/plain"],
        "/events" => vec!["text/event-stream"],
        "/events/{topic}" => {
            vec![JSON, "text/event-stream", "application/cloudevents-batch+json"]
        }
        "/export" | "/views/{view}/at" => vec!["application/x-ndjson"],
        "/views/{view}/snap/{key}" | "/snap/{key}" => vec![JSON, "text/event-stream"],
        _ if is_confluent(endpoint) => vec![REGISTRY],
        _ => vec![JSON],
    }
}

/// The content types of a refusal.
pub(super) fn refusals(endpoint: &Endpoint) -> Vec<&'static str> {
    let mut types = vec!["application/problem+json"];
    types.extend(is_confluent(endpoint).then_some(REGISTRY));
    types
}
