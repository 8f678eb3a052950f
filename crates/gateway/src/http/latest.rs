use std::collections::BTreeMap;

use axum::response::Response;
use futures_util::FutureExt;
use promethean_event::frame::write_event;
use promethean_event::{Key, Topic};

use super::answer;
use super::call::Call;
use super::endpoint::{Endpoint, Guard, Verb};
use super::scan::reader;
use crate::access::Action;
use crate::limits::PAGE_EVENTS_MAX;
use crate::rejection::{Code, Rejection};

pub(super) const ENDPOINT: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/latest-by-key",
    guard: Guard::Topics(Action::Read),
    summary: "The newest event of each key; null for a key that is gone or never was.",
    query: &["topic", "key", "reads"],
    act: |call| latest(call).boxed(),
};

async fn latest(call: Call) -> Result<Response, Rejection> {
    let topic: Topic = call.query.needed("topic")?;
    call.authorize(Action::Read, &topic, None)?;
    let bad = |detail: String| Rejection::new(Code::BadRequest, detail);
    let keys = call.query.all("key").map(Key::new).collect::<Result<Vec<_>, _>>();
    let keys = keys.map_err(|error| bad(error.to_string()))?;
    if keys.is_empty() || keys.len() > PAGE_EVENTS_MAX {
        return Err(bad(format!("name 1 to {PAGE_EVENTS_MAX} keys, as in key=a&key=b")));
    }
    let found = match reader(&call).await? {
        Some(reader) => reader.latest_by_key(&topic, keys.clone()).await?,
        None => {
            let found = call.edge.bus.latest_by_key(&topic, keys.clone()).await?;
            found.into_iter().map(|event| event.map(Ok)).collect()
        }
    };
    let mut unreadable = BTreeMap::new();
    let mut out = b"{\"events\":{".to_vec();
    for (index, (key, event)) in keys.iter().zip(found).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        // Texts always have a JSON form.
        let _ = serde_json::to_writer(&mut out, key);
        out.push(b':');
        match event {
            Some(Ok(event)) => write_event(&mut out, &event),
            Some(Err(error)) => {
                out.extend_from_slice(b"null");
                unreadable.insert(key, error.to_string());
            }
            None => out.extend_from_slice(b"null"),
        }
    }
    out.push(b'}');
    if !unreadable.is_empty() {
        out.extend_from_slice(b",\"unreadable\":");
        let _ = serde_json::to_writer(&mut out, &unreadable);
    }
    out.push(b'}');
    Ok(answer::bytes(200, answer::JSON, out))
}
