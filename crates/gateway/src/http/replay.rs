use axum::response::Response;
use futures_util::FutureExt;
use promethean_event::frame::write_event;

use super::answer;
use super::call::Call;
use super::endpoint::{Endpoint, Guard, Verb};
use super::scan::{Found, QUERY, Scan};
use crate::access::Action;
use crate::rejection::Rejection;

pub(super) const ENDPOINT: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/replay",
    guard: Guard::Topics(Action::Read),
    summary: "Stored events of a topic or pattern, page by page, with a place to go on from.",
    query: QUERY,
    act: |call| replay(call).boxed(),
};

async fn replay(call: Call) -> Result<Response, Rejection> {
    let limit = call.query.limit()?;
    let mut scan = Scan::of(&call).await?;
    call.may_read(scan.topic())?;
    let found = scan.page(&call.edge, limit).await?;
    call.has_read(found.topics());
    Ok(answer::bytes(200, answer::JSON, page(&found)))
}

/// `{"events":[…],"gaps":[…],"next":"…"}`, payloads as they were stored.
pub(super) fn page(found: &Found) -> Vec<u8> {
    let mut out = b"{\"events\":[".to_vec();
    for (index, stored) in found.events.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_event(&mut out, &stored.event);
    }
    out.extend_from_slice(b"],\"gaps\":");
    // Names and numbers always have a JSON form.
    let _ = serde_json::to_writer(&mut out, &found.gaps);
    if !found.unreadable.is_empty() {
        out.extend_from_slice(b",\"unreadable\":");
        let _ = serde_json::to_writer(&mut out, &found.unreadable);
    }
    out.extend_from_slice(b",\"next\":");
    let _ = serde_json::to_writer(&mut out, &found.next);
    out.push(b'}');
    out
}
