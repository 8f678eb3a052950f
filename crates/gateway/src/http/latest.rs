use axum::response::Response;
use futures_util::FutureExt;
use promethean_event::frame::write_event;
use promethean_event::{Key, Topic};

use super::answer;
use super::call::Call;
use super::endpoint::{Endpoint, Guard, Verb};
use crate::access::Action;
use crate::limits::PAGE_EVENTS_MAX;
use crate::rejection::{Code, Rejection};

pub(super) const ENDPOINT: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/latest-by-key",
    guard: Guard::Topics(Action::Read),
    summary: "The newest event of each key; null for a key that is gone or never was.",
    query: &["topic", "key"],
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
    let found = call.edge.bus.latest_by_key(&topic, keys.clone()).await?;
    let mut out = b"{\"events\":{".to_vec();
    for (index, (key, event)) in keys.iter().zip(found).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        // Texts always have a JSON form.
        let _ = serde_json::to_writer(&mut out, key);
        out.push(b':');
        match event {
            Some(event) => write_event(&mut out, &event),
            None => out.extend_from_slice(b"null"),
        }
    }
    out.extend_from_slice(b"}}");
    Ok(answer::bytes(200, answer::JSON, out))
}
