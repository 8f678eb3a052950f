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
use crate::limits::PAGE_BYTES_MAX;
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

/// Keys that are asked for before it is known how large their events are.
const FIRST_KEYS: usize = 8;

async fn keys(call: Call) -> Result<Response, Rejection> {
    let topic: Topic = call.param("topic")?;
    call.authorize(Action::Read, &topic, None)?;
    let (mut after, limit) = (call.query.parsed::<Key>("after")?, call.query.limit()?);
    let prefix = call.query.text("prefix").unwrap_or_default();
    let mut found: Vec<Stored> = Vec::new();
    let mut bytes = 0;
    let mut wanted = FIRST_KEYS;
    let more = loop {
        let wanted_now = wanted.min(limit - found.len());
        let page = call.edge.bus.keys(&topic, prefix, after, wanted_now).await?;
        let is_over = !page.more || page.events.is_empty();
        bytes += page.events.iter().map(|one| one.event.payload.as_str().len()).sum::<usize>();
        found.extend(page.events);
        if is_over || found.len() >= limit || bytes >= PAGE_BYTES_MAX {
            break page.more;
        }
        after = found.last().and_then(|last| last.event.key.clone());
        // As many as fit if the rest is alike, and not so many that it could not be borne if not.
        let fitting = (PAGE_BYTES_MAX - bytes) * found.len() / bytes.max(1);
        wanted = fitting.clamp(1, wanted * 4);
    };
    let mut out = events(&found);
    out.extend_from_slice(format!(",\"more\":{more}}}").as_bytes());
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
