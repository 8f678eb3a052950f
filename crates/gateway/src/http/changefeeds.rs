//! Changefeeds: what is declared, how far it is, and orders for those who run them.

use axum::response::Response;
use futures_util::FutureExt;
use promethean::changefeed::{Definition, Feeds, Listed, Recovery};
use serde_json::{Value, json};

use super::answer;
use super::call::Call;
use super::endpoint::{Endpoint, Guard, Verb};
use crate::access::Action;
use crate::limits::BODY_BYTES_MAX;
use crate::rejection::{Code, Rejection};

pub(super) const ENDPOINTS: [Endpoint; 5] = [
    Endpoint {
        method: Verb::Get,
        path: "/changefeeds",
        guard: Guard::Server(Action::OpsRead),
        summary: "All changefeeds, and how far they have come.",
        query: &[],
        act: |call| list(call).boxed(),
    },
    Endpoint {
        method: Verb::Put,
        path: "/changefeeds/{name}",
        guard: Guard::Server(Action::OpsAdmin),
        summary: "Adds a changefeed, or changes one; how far it has come stays, unless it is to read \
                  another collection or another MongoDB.",
        query: &[],
        act: |call| add(call).boxed(),
    },
    Endpoint {
        method: Verb::Delete,
        path: "/changefeeds/{name}",
        guard: Guard::Server(Action::OpsAdmin),
        summary: "Removes a changefeed; what it has published stays.",
        query: &[],
        act: |call| remove(call).boxed(),
    },
    Endpoint {
        method: Verb::Post,
        path: "/changefeeds/{name}/pause",
        guard: Guard::Server(Action::OpsAdmin),
        summary: "Lets a changefeed wait.",
        query: &[],
        act: |call| pause(call).boxed(),
    },
    Endpoint {
        method: Verb::Post,
        path: "/changefeeds/{name}/resume",
        guard: Guard::Server(Action::OpsAdmin),
        summary: "Lets a changefeed go on; recover says how, if its history is lost: resnapshot, \
                  accept-gap, or from-time with from in seconds since 1970; if it has stopped at a \
                  change: skip, which passes over that one. resnapshot publishes every document once \
                  more, at any time.",
        query: &["recover", "from"],
        act: |call| resume(call).boxed(),
    },
];

fn feeds(call: &Call) -> Feeds {
    Feeds::new(call.edge.bus.store())
}

fn shown(feed: &Listed) -> Value {
    let definition = Definition { url: feed.definition.shown_url(), ..feed.definition.clone() };
    json!({
        "name": feed.name,
        "definition": definition,
        "paused": feed.paused,
        "status": feed.status,
    })
}

async fn list(call: Call) -> Result<Response, Rejection> {
    let found = feeds(&call).list().await?;
    let shown: Vec<_> = found.iter().map(shown).collect();
    answer::json(200, &json!({ "changefeeds": shown }))
}

async fn add(mut call: Call) -> Result<Response, Rejection> {
    let name: String = call.param("name")?;
    let body = call.body(BODY_BYTES_MAX).await?;
    let definition: Definition = serde_json::from_slice(&body)
        .map_err(|error| Rejection::new(Code::BadRequest, error.to_string()))?;
    feeds(&call).add(&name, definition).await?;
    told(&call, &name).await
}

async fn remove(call: Call) -> Result<Response, Rejection> {
    let name: String = call.param("name")?;
    feeds(&call).remove(&name).await?;
    answer::json(200, &json!({ "removed": name }))
}

async fn pause(call: Call) -> Result<Response, Rejection> {
    let name: String = call.param("name")?;
    feeds(&call).pause(&name).await?;
    told(&call, &name).await
}

async fn resume(call: Call) -> Result<Response, Rejection> {
    let name: String = call.param("name")?;
    let bad = |detail: &str| Rejection::new(Code::BadRequest, detail.to_owned());
    let from = call.query.text("from").map(str::parse::<u32>).transpose();
    let from = from.map_err(|_| bad("from is a number of seconds since 1970"))?;
    let recover = match (call.query.text("recover"), from) {
        (None, None) => None,
        (Some("resnapshot"), None) => Some(Recovery::Resnapshot),
        (Some("accept-gap"), None) => Some(Recovery::AcceptGap),
        (Some("skip"), None) => Some(Recovery::Skip),
        (Some("from-time"), Some(from)) => Some(Recovery::FromTime(from)),
        (Some("from-time"), None) => return Err(bad("recover=from-time needs from")),
        _ => return Err(bad("recover is resnapshot, accept-gap, skip, or from-time with from")),
    };
    feeds(&call).resume(&name, recover).await?;
    told(&call, &name).await
}

async fn told(call: &Call, name: &str) -> Result<Response, Rejection> {
    let found = feeds(call).list().await?;
    let feed = found.iter().find(|feed| feed.name == name);
    answer::json(200, &feed.map_or(Value::Null, shown))
}
