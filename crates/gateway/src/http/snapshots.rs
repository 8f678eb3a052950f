//! The newest state of each key of a topic, and where the topic goes on after it.

use axum::response::Response;
use futures_util::FutureExt;
use promethean_event::frame::write_event;
use promethean_event::{Key, Topic};
use serde_json::json;

use super::answer;
use super::call::Call;
use super::endpoint::{Endpoint, Guard, Verb};
use crate::access::Action;
use crate::rejection::Rejection;

pub(super) const ENDPOINT: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/snapshots/{topic}",
    guard: Guard::Topics(Action::Read),
    summary: "The newest state of each key, by key, with the offset that it comes from; cursors says \
              where the topic goes on after it. For topics with snapshot = true.",
    query: &["after", "limit"],
    act: |call| snapshot(call).boxed(),
};

async fn snapshot(call: Call) -> Result<Response, Rejection> {
    let topic: Topic = call.param("topic")?;
    call.authorize(Action::Read, &topic, None)?;
    let limit = call.query.limit()?;
    let after: Option<Key> = call.query.parsed("after")?;
    let page = call.edge.bus.snapshot_page(&topic, after, limit).await?;
    let cursors: Vec<_> = page
        .reaches
        .iter()
        .map(|(partition, next)| json!({ "topic": topic, "partition": partition, "next": next }))
        .collect();
    let mut out = b"{\"states\":[".to_vec();
    for (index, (stored, offset)) in page.states.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(format!("{{\"offset\":{offset},\"event\":").as_bytes());
        write_event(&mut out, &stored.event);
        out.push(b'}');
    }
    // Names and numbers always have a JSON form.
    let rest = json!({ "cursors": cursors, "next": page.next }).to_string();
    out.extend_from_slice(b"],");
    out.extend_from_slice(rest.get(1..).unwrap_or("}").as_bytes());
    Ok(answer::bytes(200, answer::JSON, out))
}
