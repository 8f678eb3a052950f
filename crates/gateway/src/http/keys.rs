//! What a topic has by key: its keys, and the past of one.

use axum::response::Response;
use futures_util::FutureExt;
use promethean::store::Stored;
use promethean_event::frame::write_event;
use promethean_event::{Key, Topic};

use super::answer;
use super::call::Call;
use super::endpoint::{Endpoint, Guard, Verb};
use super::portion::Portion;
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

async fn keys(call: Call) -> Result<Response, Rejection> {
    let topic: Topic = call.param("topic")?;
    call.authorize(Action::Read, &topic, None)?;
    let (mut after, limit) = (call.query.parsed::<Key>("after")?, call.query.limit()?);
    let prefix = call.query.text("prefix").unwrap_or_default();
    let mut found: Vec<Stored> = Vec::new();
    let mut portion = Portion::new();
    let more = loop {
        let wanted = portion.next().min(limit - found.len());
        let page = call.edge.bus.keys(&topic, prefix, after, wanted).await?;
        let is_over = !page.more || page.events.is_empty();
        portion.add(page.events.iter().map(bytes));
        found.extend(page.events);
        if is_over || found.len() >= limit || portion.is_full() {
            break page.more;
        }
        after = found.last().and_then(|last| last.event.key.clone());
    };
    Ok(answered(&found, more))
}

async fn history(call: Call) -> Result<Response, Rejection> {
    let topic: Topic = call.param("topic")?;
    call.authorize(Action::Read, &topic, None)?;
    let (key, limit) = (call.query.needed::<Key>("key")?, call.query.limit()?);
    let (mut wanted, mut known) = (0, 0);
    let mut portion = Portion::new();
    loop {
        // From the newest each time: a key has no other places to go on at.
        wanted = limit.min(wanted + portion.next());
        let mut found = call.edge.bus.history(&topic, key.clone(), wanted).await?;
        portion.add(found.iter().skip(known).map(bytes));
        known = found.len();
        let is_over = found.len() < wanted || wanted == limit;
        if is_over || portion.is_full() {
            let fitting = fitting(&found);
            let more = fitting < found.len() || !is_over;
            found.truncate(fitting);
            return Ok(answered(&found, more));
        }
    }
}

/// Bytes of an event, without what little stands around its payload.
fn bytes(stored: &Stored) -> usize {
    stored.event.payload.as_str().len()
}

/// How many of them an answer has: up to the one with which it is full.
fn fitting(found: &[Stored]) -> usize {
    let mut sum = 0;
    let full = found.iter().position(|stored| {
        sum += bytes(stored);
        sum >= PAGE_BYTES_MAX
    });
    full.map_or(found.len(), |last| last + 1)
}

fn answered(found: &[Stored], more: bool) -> Response {
    let mut out = b"{\"events\":[".to_vec();
    for (index, stored) in found.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_event(&mut out, &stored.event);
    }
    out.extend_from_slice(format!("],\"more\":{more}}}").as_bytes());
    answer::bytes(200, answer::JSON, out)
}
