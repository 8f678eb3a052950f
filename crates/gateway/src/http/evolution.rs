//! The change of a topic from one version to another, step by step.

use std::collections::BTreeSet;

use axum::response::Response;
use futures_util::FutureExt;
use promethean::{CutOver, Evolution, GroupSettings, Reads, Retained, StartEvolution};
use promethean_event::{GroupName, Topic};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::answer;
use super::call::Call;
use super::endpoint::{Endpoint, Guard, Verb};
use super::registry::{Wish, body, registered, signed, topic};
use crate::access::Action;
use crate::rejection::{Code, Rejection};

pub(super) const ENDPOINTS: [Endpoint; 4] = [
    Endpoint {
        method: Verb::Get,
        path: "/registry/{topic}/evolution",
        guard: Guard::Server(Action::SchemaWrite),
        summary: "Where a change of version stands: events and copies by version, and readers.",
        query: &[],
        act: |call| status(call).boxed(),
    },
    Endpoint {
        method: Verb::Post,
        path: "/registry/{topic}/evolution/start",
        guard: Guard::Server(Action::SchemaWrite),
        summary: "Registers a version and begins to write both forms.",
        query: &[],
        act: |call| start(call).boxed(),
    },
    Endpoint {
        method: Verb::Post,
        path: "/registry/{topic}/evolution/cutover",
        guard: Guard::Server(Action::SchemaWrite),
        summary: "Replays what is stored through the casters, and ends the old version.",
        query: &[],
        act: |call| cut_over(call).boxed(),
    },
    Endpoint {
        method: Verb::Post,
        path: "/registry/{topic}/evolution/rollback",
        guard: Guard::Server(Action::SchemaWrite),
        summary: "Takes the change back: the old version is written again.",
        query: &[],
        act: |call| roll_back(call).boxed(),
    },
];

#[derive(Serialize)]
struct Status {
    topic: Topic,
    evolution: Option<Evolution>,
    retained: Retained,
    counts: Counts,
    readers: Vec<Reading>,
}

/// What has been done since the server was started.
#[derive(Serialize)]
struct Counts {
    checked: u64,
    refused: u64,
    warned: u64,
    copied: u64,
    /// Events whose copy could not be made.
    mismatches: u64,
    cast: u64,
    unreadable: u64,
}

#[derive(Serialize)]
struct Reading {
    group: GroupName,
    reads: Reads,
    /// Events of all its topics that it has not finished.
    behind: u64,
}

async fn status(call: Call) -> Result<Response, Rejection> {
    let topic = topic(&call)?;
    let bus = &call.edge.bus;
    let schemas = bus.schemas();
    if schemas.versions(&topic).await?.is_empty() {
        return Err(Rejection::new(Code::NotFound, format!("{topic} has no schema")));
    }
    let mut readers = Vec::new();
    for group in bus.groups().await? {
        let settings: GroupSettings = bus.group_settings(&group).await?;
        if settings.topics.iter().any(|pattern| pattern.matches(&topic)) {
            let behind = bus.lag(&group).await?.events();
            readers.push(Reading { group, reads: settings.reads_as, behind });
        }
    }
    let counts = schemas.counts(&topic);
    let counts = Counts {
        checked: counts.checked,
        refused: counts.refused,
        warned: counts.warned,
        copied: counts.copied,
        mismatches: counts.uncopied,
        cast: counts.cast,
        unreadable: counts.unreadable,
    };
    let evolution = schemas.evolution(&topic).await?;
    let retained = schemas.retained(&topic).await?;
    answer::json(200, &Status { topic, evolution, retained, counts, readers })
}

/// The schema and its casters, as for a registration, and what is written twice.
#[derive(Deserialize)]
struct Start {
    /// Versions in whose form events are also written. Default: the new one.
    #[serde(default)]
    dual_write: Option<BTreeSet<u32>>,
    #[serde(flatten)]
    rest: serde_json::Map<String, Value>,
}

async fn start(mut call: Call) -> Result<Response, Rejection> {
    let topic = topic(&call)?;
    let start: Start = body(&mut call).await?;
    let bad = |error: serde_json::Error| Rejection::new(Code::BadRequest, error.to_string());
    // By way of its text: a document is kept as it was written only inside of a text.
    let text = serde_json::to_string(&start.rest).map_err(bad)?;
    let wish: Wish = serde_json::from_str(&text).map_err(bad)?;
    let registration = wish.registration(&call)?;
    let start = StartEvolution { dual_write: start.dual_write };
    let started = call.edge.bus.schemas().start_evolution(&topic, registration, start).await?;
    let (done, evolution) = started;
    let subject = call.principal.subject();
    tracing::info!(%topic, from = evolution.from, to = evolution.to, subject, "a change begins");
    let registered = registered(&topic, &done);
    answer::json(200, &serde_json::json!({ "registered": registered, "evolution": evolution }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    #[serde(default)]
    into: Option<Topic>,
    #[serde(default)]
    force: Option<String>,
}

async fn cut_over(mut call: Call) -> Result<Response, Rejection> {
    let topic = topic(&call)?;
    let End { into, force } = body(&mut call).await?;
    if let Some(into) = &into {
        call.authorize(Action::Publish, into, None)?;
    }
    let force = force.map(|reason| signed(&call, &reason)).transpose()?;
    let report = call.edge.bus.cut_over(&topic, &CutOver { into, force }).await?;
    tracing::info!(%topic, subject = call.principal.subject(), "a change is ended");
    answer::json(200, &report)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Back {
    #[serde(default)]
    force: Option<String>,
}

async fn roll_back(mut call: Call) -> Result<Response, Rejection> {
    let topic = topic(&call)?;
    let Back { force } = body(&mut call).await?;
    let force = force.map(|reason| signed(&call, &reason)).transpose()?;
    let evolution = call.edge.bus.schemas().roll_back(&topic, force).await?;
    tracing::info!(%topic, subject = call.principal.subject(), "a change is taken back");
    answer::json(200, &serde_json::json!({ "evolution": evolution }))
}
