//! What a topic has by key: its keys, and the past of one.

use axum::response::Response;
use futures_util::FutureExt;
use promethean::store::Stored;
use promethean_event::frame::write_event;
use promethean_event::{Key, Topic};

use super::answer;
use super::call::Call;
use super::endpoint::{Endpoint, Guard, Verb};
use crate::access::Action;
use crate::rejection::Rejection;

pub(super) const KEYS: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/keys/{topic}",
    guard: Guard::Topics(Action::Read),
    summary: "The keys of a topic in order, each with its newest event, tombstones included.",
    query: &["prefix", "after", "limit"],
    act: |call| keys(call).boxed(),
};

pub(super) const HISTORY: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/history/{topic}",
    guard: Guard::Topics(Action::Read),
    summary: "The newest events of a key, newest first.",
    query: &["key", "limit"],
    act: |call| history(call).boxed(),
};

async fn keys(call: Call) -> Result<Response, Rejection> {
    let topic: Topic = call.param("topic")?;
    call.authorize(Action::Read, &topic, None)?;
    let (after, limit) = (call.query.parsed::<Key>("after")?, call.query.limit()?);
    let prefix = call.query.text("prefix").unwrap_or_default();
    let page = call.edge.bus.keys(&topic, prefix, after, limit).await?;
    let mut out = events(&page.events);
    out.extend_from_slice(format!(",\"more\":{}}}", page.more).as_bytes());
    Ok(answer::bytes(200, answer::JSON, out))
}

async fn history(call: Call) -> Result<Response, Rejection> {
    let topic: Topic = call.param("topic")?;
    call.authorize(Action::Read, &topic, None)?;
    let (key, limit) = (call.query.needed::<Key>("key")?, call.query.limit()?);
    let mut out = events(&call.edge.bus.history(&topic, key, limit).await?);
    out.push(b'}');
    Ok(answer::bytes(200, answer::JSON, out))
}

fn events(found: &[Stored]) -> Vec<u8> {
    let mut out = b"{\"events\":[".to_vec();
    for (index, stored) in found.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_event(&mut out, &stored.event);
    }
    out.push(b']');
    out
}
