//! Bulk replay, and the jobs that do it.

use axum::response::Response;
use futures_util::FutureExt;
use promethean::jobs::{Jobs, ReplaySpec, ReplayTarget};
use promethean_event::EventId;
use serde_json::{Value, json};

use super::answer;
use super::call::Call;
use super::endpoint::{Endpoint, Guard, Verb};
use super::time;
use crate::access::{Action, Resource, authorize};
use crate::limits::BODY_BYTES_MAX;
use crate::rejection::{Code, Rejection};

/// Where a job begins. Whoever may publish may do it, and it is audited all the same: it may publish
/// more at once than a client ever would.
pub(super) const BEGIN: &str = "/replays";

pub(super) const ENDPOINTS: [Endpoint; 6] = [
    Endpoint {
        method: Verb::Post,
        path: BEGIN,
        guard: Guard::Topics(Action::Publish),
        summary: "Begins a bulk replay of topics to another topic or once more for a group; with \
                  dry_run=true only says what it would do.",
        query: &["dry_run"],
        act: |call| begin(call).boxed(),
    },
    Endpoint {
        method: Verb::Get,
        path: "/jobs",
        guard: Guard::Server(Action::OpsRead),
        summary: "All jobs, newest first.",
        query: &[],
        act: |call| list(call).boxed(),
    },
    Endpoint {
        method: Verb::Get,
        path: "/jobs/{id}",
        guard: Guard::Server(Action::OpsRead),
        summary: "One job and how far it is.",
        query: &[],
        act: |call| show(call).boxed(),
    },
    Endpoint {
        method: Verb::Post,
        path: "/jobs/{id}/pause",
        guard: Guard::Server(Action::OpsAdmin),
        summary: "Lets a job wait.",
        query: &[],
        act: |call| turn(call, Turn::Pause).boxed(),
    },
    Endpoint {
        method: Verb::Post,
        path: "/jobs/{id}/resume",
        guard: Guard::Server(Action::OpsAdmin),
        summary: "Lets a job that waits or has failed go on.",
        query: &[],
        act: |call| turn(call, Turn::Resume).boxed(),
    },
    Endpoint {
        method: Verb::Post,
        path: "/jobs/{id}/cancel",
        guard: Guard::Server(Action::OpsAdmin),
        summary: "Gives a job up; what it has published stays.",
        query: &[],
        act: |call| turn(call, Turn::Cancel).boxed(),
    },
];

#[derive(Debug, Clone, Copy)]
enum Turn {
    Pause,
    Resume,
    Cancel,
}

fn jobs(call: &Call) -> Result<Jobs, Rejection> {
    let none = "this server does no jobs";
    call.edge.settings.shelf.jobs.clone().ok_or(Rejection::new(Code::BadRequest, none))
}

/// A replay as a body tells of it, with times as people write them.
fn spec(call: &Call, body: &[u8]) -> Result<ReplaySpec, Rejection> {
    let bad = |error: serde_json::Error| {
        Rejection::new(Code::BadRequest, format!("not a replay: {error}"))
    };
    let mut written: Value = serde_json::from_slice(body).map_err(bad)?;
    for name in ["since", "until"] {
        if let Some(at) = written.get_mut(name).filter(|at| at.is_string()) {
            *at = json!(time::value(call, name, at)?);
        }
    }
    serde_json::from_value(written).map_err(bad)
}

/// Who reads everything that is read and may write where it goes may replay.
async fn begin(mut call: Call) -> Result<Response, Rejection> {
    let jobs = jobs(&call)?;
    let body = call.body(BODY_BYTES_MAX).await?;
    let bad = |detail: String| Rejection::new(Code::BadRequest, detail);
    let spec = spec(&call, &body)?;
    let bus = &call.edge.bus;
    let topics = bus.topics();
    let sources = topics.users().filter(|entry| spec.from.matches(&entry.definition.topic));
    for entry in sources {
        let topic = &entry.definition.topic;
        call.authorize(Action::Read, topic, None)?;
        if matches!(spec.to, ReplayTarget::Group(_)) {
            call.authorize(Action::Publish, topic, None)?;
        }
    }
    authorize(&call.principal, Action::Read, Resource::Pattern(&spec.from, None))?;
    match &spec.to {
        ReplayTarget::To(topic) => call.authorize(Action::Publish, topic, None)?,
        ReplayTarget::Group(group) => {
            if !bus.groups().await?.contains(group) {
                return Err(Rejection::new(Code::NotFound, format!("there is no group {group}")));
            }
        }
    }
    match call.query.text("dry_run") {
        Some("true" | "") => answer::json(200, &jobs.plan(spec).await?),
        None | Some("false") => answer::json(201, &jobs.replay(spec).await?),
        Some(_) => Err(bad("dry_run is true or false".to_owned())),
    }
}

async fn list(call: Call) -> Result<Response, Rejection> {
    let jobs = jobs(&call)?.list().await?;
    answer::json(200, &json!({ "jobs": jobs }))
}

async fn show(call: Call) -> Result<Response, Rejection> {
    let id: EventId = call.param("id")?;
    answer::json(200, &jobs(&call)?.get(id).await?)
}

async fn turn(call: Call, turn: Turn) -> Result<Response, Rejection> {
    let id: EventId = call.param("id")?;
    let jobs = jobs(&call)?;
    let job = match turn {
        Turn::Pause => jobs.pause(id).await?,
        Turn::Resume => jobs.resume(id).await?,
        Turn::Cancel => jobs.cancel(id).await?,
    };
    answer::json(200, &job)
}
