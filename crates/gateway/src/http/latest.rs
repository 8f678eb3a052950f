use std::collections::BTreeMap;

use axum::response::Response;
use futures_util::FutureExt;
use promethean::store::ReadError;
use promethean::{DecodeError, Reader};
use promethean_event::frame::write_event;
use promethean_event::{Event, Key, Topic};

use super::answer;
use super::call::Call;
use super::endpoint::{Endpoint, Guard, Verb};
use super::portion::Portion;
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

/// The newest event of a key, if there is one and it could be brought to the form asked for.
type Newest = Option<Result<Event, DecodeError>>;

async fn newest(
    call: &Call,
    reader: Option<&Reader>,
    topic: &Topic,
    keys: Vec<Key>,
) -> Result<Vec<Newest>, ReadError> {
    if let Some(reader) = reader {
        return reader.latest_by_key(topic, keys).await;
    }
    let found = call.edge.bus.latest_by_key(topic, keys).await?;
    Ok(found.into_iter().map(|event| event.map(Ok)).collect())
}

fn bytes(newest: &Newest) -> usize {
    let event = newest.as_ref().and_then(|event| event.as_ref().ok());
    event.map_or(0, |event| event.payload.as_bytes().len())
}

async fn latest(call: Call) -> Result<Response, Rejection> {
    let topic: Topic = call.query.needed("topic")?;
    call.authorize(Action::Read, &topic, None)?;
    let bad = |detail: String| Rejection::new(Code::BadRequest, detail);
    let keys = call.query.all("key").map(Key::new).collect::<Result<Vec<_>, _>>();
    let keys = keys.map_err(|error| bad(error.to_string()))?;
    if keys.is_empty() || keys.len() > PAGE_EVENTS_MAX {
        return Err(bad(format!("name 1 to {PAGE_EVENTS_MAX} keys, as in key=a&key=b")));
    }
    let reader = reader(&call).await?;
    let mut found = Vec::new();
    let mut portion = Portion::new();
    while found.len() < keys.len() && !portion.is_full() {
        let some = keys.iter().skip(found.len()).take(portion.next()).cloned().collect();
        let newest = newest(&call, reader.as_ref(), &topic, some).await?;
        portion.add(newest.iter().map(bytes));
        found.extend(newest);
    }
    let left = keys.get(found.len()..).unwrap_or_default();
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
    if !left.is_empty() {
        out.extend_from_slice(b",\"left\":");
        let _ = serde_json::to_writer(&mut out, left);
    }
    out.push(b'}');
    Ok(answer::bytes(200, answer::JSON, out))
}
