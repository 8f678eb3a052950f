//! Schemas over HTTP.

mod confluent;
mod evolution;
mod registry;

use serde_json::json;

/// A heartbeat with one name for its memory.
fn heartbeat(memory: &str) -> serde_json::Value {
    json!({
        "type": "object",
        "required": ["host", memory],
        "properties": {"host": {"type": "string"}, memory: {"type": "number"}}
    })
}

/// Renames the memory.
fn rename(from: &str, to: &str) -> serde_json::Value {
    let operations = json!([{"op": "rename", "pointer": format!("/{from}"), "to": to}]);
    json!({"by": "operations", "operations": operations})
}
