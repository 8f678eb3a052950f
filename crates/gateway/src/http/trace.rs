//! What led to an event, and what it led to.

use axum::response::Response;
use futures_util::FutureExt;
use promethean::causality::{TraceNode, TraceWish};
use promethean_event::{EventId, Topic};
use serde::Serialize;
use serde_json::{Value, json};

use super::answer;
use super::call::Call;
use super::endpoint::{Endpoint, Guard, Verb};
use crate::access::Action;
use crate::limits::{TRACE_DEPTH_MAX, TRACE_EVENTS_MAX};
use crate::rejection::{Code, Rejection};

pub(super) const ENDPOINT: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/trace/{id}",
    guard: Guard::Topics(Action::Read),
    summary: "The causes of an event and its effects, of topics that may be read; direction=up|down.",
    query: &["direction", "depth", "limit"],
    act: |call| trace(call).boxed(),
};

#[derive(Serialize)]
struct Node {
    id: EventId,
    depth: i64,
    causes: Vec<EventId>,
    effects: Vec<EventId>,
    /// Nothing if it is not there any more, or not to be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<Value>,
}

impl Node {
    fn of(node: TraceNode) -> Self {
        let event = node.stored.map(|stored| {
            let event = &stored.event;
            json!({
                "topic": event.topic, "partition": event.partition, "offset": event.offset,
                "key": event.key, "ts": event.ts, "appended_at": stored.appended_at,
            })
        });
        let TraceNode { id, depth, causes, effects, .. } = node;
        Self { id, depth, causes, effects, event }
    }
}

async fn trace(call: Call) -> Result<Response, Rejection> {
    let id: EventId = call.param("id")?;
    let bad = |detail: String| Rejection::new(Code::BadRequest, detail);
    let none = "this server keeps no index of causes";
    let causes = call.edge.settings.shelf.causes.clone().ok_or(bad(none.to_owned()))?;
    let (up, down) = match call.query.text("direction") {
        None => (true, true),
        Some("up") => (true, false),
        Some("down") => (false, true),
        Some(_) => return Err(bad("direction is up, towards causes, or down".to_owned())),
    };
    let depth: u32 = call.query.parsed("depth")?.unwrap_or(TRACE_DEPTH_MAX);
    if depth > TRACE_DEPTH_MAX {
        return Err(bad(format!("depth is {TRACE_DEPTH_MAX} at most")));
    }
    let events = match call.query.parsed("limit")? {
        None => TRACE_EVENTS_MAX,
        Some(limit @ 1..=TRACE_EVENTS_MAX) => limit,
        Some(_) => return Err(bad(format!("limit is 1 to {TRACE_EVENTS_MAX}"))),
    };
    let readable: Vec<Topic> = call
        .edge
        .bus
        .topics()
        .users()
        .map(|entry| entry.definition.topic.clone())
        .filter(|topic| call.authorize(Action::Read, topic, None).is_ok())
        .collect();
    let may_read = move |topic: &Topic| readable.contains(topic);
    let wish = TraceWish { up, down, depth, events };
    let Some(trace) = causes.trace(id, wish, &may_read).await? else {
        return Err(Rejection::new(Code::NotFound, format!("there is no event {id}")));
    };
    let is_seen = trace.nodes.iter().any(|node| node.stored.is_some());
    if !is_seen {
        return Err(Rejection::new(Code::NotFound, format!("there is no event {id}")));
    }
    let nodes: Vec<Node> = trace.nodes.into_iter().map(Node::of).collect();
    answer::json(200, &json!({ "id": id, "complete": !trace.is_cut, "events": nodes }))
}
