//! How views stand: for operators, for programs that scrape, and for health checks.

use std::fmt::Write;

use axum::response::Response;
use futures_util::FutureExt;
use promethean::projection::{Difference, Projection, ProjectionState, ProjectionStatus};
use serde::Serialize;
use serde_json::json;

use super::{may_read, named, views};
use crate::access::Action;
use crate::edge::Edge;
use crate::http::answer;
use crate::http::call::Call;
use crate::http::endpoint::{Endpoint, Guard, Verb};
use crate::rejection::Rejection;

pub(super) const LIST: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/views",
    guard: Guard::Topics(Action::Read),
    summary: "The views that may be read, with their fields and how they stand.",
    query: &[],
    act: |call| list(call).boxed(),
};

pub(super) const SHOW: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/views/{view}",
    guard: Guard::Topics(Action::Read),
    summary: "One view: its fields, what it reads, and how it stands.",
    query: &[],
    act: |call| show(call).boxed(),
};

pub(super) const REBUILD: Endpoint = Endpoint {
    method: Verb::Post,
    path: "/views/{view}/rebuild",
    guard: Guard::Server(Action::OpsAdmin),
    summary: "Builds a view anew beside the live one, then switches; the view shows how far it is.",
    query: &[],
    act: |call| rebuild(call).boxed(),
};

pub(super) const VERIFY: Endpoint = Endpoint {
    method: Verb::Post,
    path: "/views/{view}/verify",
    guard: Guard::Server(Action::OpsAdmin),
    summary: "Compares a view with a fold of the log.",
    query: &[],
    act: |call| verify(call).boxed(),
};

pub(super) const WARM: Endpoint = Endpoint {
    method: Verb::Post,
    path: "/views/{view}/warm",
    guard: Guard::Server(Action::OpsAdmin),
    summary: "Brings a view to the end of the log: from the newest event of each key, if it is far \
              behind.",
    query: &[],
    act: |call| warm(call).boxed(),
};

pub(super) const RESUME: Endpoint = Endpoint {
    method: Verb::Post,
    path: "/views/{view}/resume",
    guard: Guard::Server(Action::OpsAdmin),
    summary: "Lets a projection that has failed try again.",
    query: &[],
    act: |call| resume(call).boxed(),
};

#[derive(Serialize)]
struct Field<'a> {
    name: &'a str,
    kind: promethean::projection::FieldKind,
}

#[derive(Serialize)]
struct Standing<'a> {
    view: &'a str,
    projection: &'a str,
    topics: &'a [promethean_event::Topic],
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    lag: u64,
    events: u64,
    stale: u64,
    unkeyed: u64,
    dead: u64,
    missed: u64,
    positions: Vec<String>,
    definition: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    rebuilding: Option<serde_json::Value>,
    fields: Vec<Field<'a>>,
    indexes: &'a [Vec<String>],
}

fn state_of(state: &ProjectionState) -> (&'static str, Option<String>) {
    match state {
        ProjectionState::Waiting => ("waiting", None),
        ProjectionState::Running => ("running", None),
        ProjectionState::Elsewhere => ("elsewhere", None),
        ProjectionState::Retrying { error, attempts } => {
            ("retrying", Some(format!("{error} (attempt {attempts})")))
        }
        ProjectionState::Rebuilding => ("rebuilding", None),
        ProjectionState::Failed { error } => ("failed", Some(error.clone())),
        ProjectionState::Stopped => ("stopped", None),
        _ => ("other", None),
    }
}

fn standings<'a>(
    edge: &Edge,
    projection: &'a Projection,
    status: &ProjectionStatus,
) -> Vec<Standing<'a>> {
    let progress = &status.progress;
    let topics = edge.bus.topics();
    let mut positions: Vec<String> = progress
        .cursors
        .iter()
        .filter_map(|(lane, next)| {
            let topic = &topics.by_id(lane.topic)?.definition.topic;
            Some(format!("{topic}/{}/{next}", lane.partition))
        })
        .collect();
    positions.sort();
    let (state, error) = state_of(&progress.state);
    let rebuilding = status.rebuilding.as_ref().map(|rebuilding| {
        json!({ "done": rebuilding.done, "left": rebuilding.left, "from_keys": rebuilding.from_keys })
    });
    let standing = |view: &'a promethean::projection::View| Standing {
        view: &view.name,
        projection: projection.name(),
        topics: projection.topics(),
        state,
        error: error.clone(),
        lag: status.lag,
        events: progress.counts.events,
        stale: progress.counts.stale,
        unkeyed: progress.counts.unkeyed,
        dead: progress.counts.dead,
        missed: progress.missed,
        positions: positions.clone(),
        definition: progress.definition.clone(),
        rebuilding: rebuilding.clone(),
        fields: view.fields.iter().map(|f| Field { name: &f.name, kind: f.kind }).collect(),
        indexes: &view.indexes,
    };
    projection.views().iter().map(standing).collect()
}

async fn list(call: Call) -> Result<Response, Rejection> {
    let Ok(views) = views(&call) else {
        return answer::json(200, &json!({ "views": [] }));
    };
    let keepers = views.keepers();
    let mut found = Vec::new();
    for projection in keepers.iter().filter(|projection| may_read(&call, projection)) {
        let status = projection.status().await?;
        found.extend(standings(&call.edge, projection, &status));
    }
    answer::json(200, &json!({ "views": found }))
}

async fn show(call: Call) -> Result<Response, Rejection> {
    let named = named(&call)?;
    let status = named.projection.status().await?;
    let found = standings(&call.edge, &named.projection, &status);
    answer::json(200, &found.into_iter().find(|standing| standing.view == named.view))
}

/// Waits until it is done: the request may be given up, the building goes on.
async fn rebuild(call: Call) -> Result<Response, Rejection> {
    let named = named(&call)?;
    let projection = named.projection.clone();
    if projection.status().await?.rebuilding.is_some() {
        let detail = format!("the views of {} are being built anew already", projection.name());
        return Err(Rejection::new(crate::rejection::Code::Conflict, detail));
    }
    let building = tokio::spawn(async move { projection.rebuild().await });
    building.await.map_err(|_| Rejection::plain(crate::rejection::Code::Internal))??;
    let counts = named.projection.progress().counts;
    answer::json(200, &json!({ "view": named.view, "rebuilt": true, "events": counts.events }))
}

/// With more events to read than this, a view is made from the newest event of each key.
const FAR_BEHIND_EVENTS: u64 = 100_000;

async fn warm(call: Call) -> Result<Response, Rejection> {
    let named = named(&call)?;
    let projection = named.projection.clone();
    let lag = projection.status().await?.lag;
    let is_rebuilt = lag > FAR_BEHIND_EVENTS && projection.is_by_key();
    let warming = tokio::spawn(async move {
        if is_rebuilt {
            projection.rebuild().await?;
        }
        projection.caught_up().await
    });
    warming.await.map_err(|_| Rejection::plain(crate::rejection::Code::Internal))??;
    answer::json(200, &json!({ "view": named.view, "read": lag, "from_keys": is_rebuilt }))
}

#[derive(Serialize)]
struct Differing {
    key: String,
    found: Option<String>,
    expected: Option<String>,
}

async fn verify(call: Call) -> Result<Response, Rejection> {
    let named = named(&call)?;
    let found = named.projection.verify().await?;
    let differing = |difference: Difference| {
        let Difference { key, found, expected, .. } = difference;
        Differing { key, found, expected }
    };
    let differences: Vec<Differing> = found.differences.into_iter().map(differing).collect();
    answer::json(
        200,
        &json!({
            "view": named.view, "documents": found.documents, "different": found.different,
            "missed": found.missed, "differences": differences,
        }),
    )
}

async fn resume(call: Call) -> Result<Response, Rejection> {
    let named = named(&call)?;
    named.projection.resume().await?;
    answer::json(200, &json!({ "view": named.view, "resumed": true }))
}

/// A projection that does not go on.
#[derive(Debug, Serialize)]
pub(in crate::http) struct FailedView {
    projection: String,
    error: String,
}

pub(in crate::http) fn failed(edge: &Edge) -> Vec<FailedView> {
    let keepers = edge.settings.shelf.views.as_ref().map(|views| views.keepers());
    keepers
        .unwrap_or_default()
        .iter()
        .filter_map(|projection| match projection.progress().state {
            ProjectionState::Failed { error } => {
                Some(FailedView { projection: projection.name().to_owned(), error })
            }
            _ => None,
        })
        .collect()
}

/// How projections stand, in Prometheus text.
pub(in crate::http) async fn figures(edge: &Edge, out: &mut String) {
    let Some(views) = &edge.settings.shelf.views else {
        return;
    };
    let mut statuses = Vec::new();
    for projection in views.keepers() {
        // One that is stopped just now is not worth failing for.
        statuses.extend(projection.status().await.ok());
    }
    type Value = fn(&ProjectionStatus) -> u64;
    let families: [(&str, &str, &str, Value); 5] = [
        ("promethean_projection_lag_events", "gauge", "Events that it has not read.", |s| s.lag),
        ("promethean_projection_failed", "gauge", "1 if it has stopped after a failure.", |s| {
            u64::from(matches!(s.progress.state, ProjectionState::Failed { .. }))
        }),
        ("promethean_projection_events_total", "counter", "Events in its views.", |s| {
            s.progress.counts.events
        }),
        ("promethean_projection_unkeyed_total", "counter", "Events without a key.", |s| {
            s.progress.counts.unkeyed
        }),
        ("promethean_projection_missed_events", "gauge", "Gone before they were read.", |s| {
            s.progress.missed
        }),
    ];
    for (name, kind, help, value) in families {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for status in &statuses {
            let _ = writeln!(out, "{name}{{projection=\"{}\"}} {}", status.name, value(status));
        }
    }
}
