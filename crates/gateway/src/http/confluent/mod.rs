//! The part of the REST interface of Confluent's Schema Registry that tools use, so that they work
//! with this one: subjects, versions, compatibility, config, mode. A subject is a topic; the name
//! `<topic>-value`, which many tools make, is the same subject. Schemas are JSON Schemas.

mod compatibility;

mod config;

mod ids;

mod refusal;

mod subjects;

use std::future::Future;

use axum::response::Response;
use promethean_event::Topic;
use serde::{Deserialize, Serialize};

use super::answer;
use super::call::{Call, object};
use super::endpoint::{Act, Endpoint, Guard, Verb};
use super::registry::may_see;
use crate::access::{Action, Resource, authorize};
use crate::limits::BATCH_BODY_BYTES_MAX;
use crate::rejection::Rejection;
use refusal::Trouble;

const KIND: &str = "application/vnd.schemaregistry.v1+json";

/// The one kind of schema.
const JSON: &str = "JSON";

pub(super) fn endpoints() -> Vec<Endpoint> {
    let mut all = subjects::ENDPOINTS.to_vec();
    all.extend(ids::ENDPOINTS);
    all.extend(compatibility::ENDPOINTS);
    all.extend(config::ENDPOINTS);
    all
}

const fn shows(
    path: &'static str,
    query: &'static [&'static str],
    summary: &'static str,
    act: Act,
) -> Endpoint {
    let guard = Guard::Topics(Action::Read);
    Endpoint { method: Verb::Get, path, guard, summary, query, act }
}

/// What is asked with a body, but changes nothing.
const fn asks(
    path: &'static str,
    query: &'static [&'static str],
    summary: &'static str,
    act: Act,
) -> Endpoint {
    Endpoint { method: Verb::Post, ..shows(path, query, summary, act) }
}

const fn changes(
    (method, path): (Verb, &'static str),
    query: &'static [&'static str],
    summary: &'static str,
    act: Act,
) -> Endpoint {
    let guard = Guard::Server(Action::SchemaWrite);
    Endpoint { method, path, guard, summary, query, act }
}

/// Answers in the form of the interface, refusals included.
async fn answered<T: Serialize>(
    work: impl Future<Output = Result<T, Trouble>>,
) -> Result<Response, Rejection> {
    let (status, body) = match work.await {
        Ok(value) => (200, serde_json::to_vec(&value)),
        Err(trouble) => (trouble.status(), serde_json::to_vec(&trouble)),
    };
    let body = body.map_err(|_| Rejection::plain(crate::rejection::Code::Internal))?;
    Ok(answer::bytes(status, KIND, body))
}

/// The topic of a subject. `a-value` is the topic `a`, unless there is a topic of just that name.
async fn topic(call: &Call) -> Result<Topic, Trouble> {
    let subject: String = call.param("subject")?;
    let named = |name: &str| Topic::new(name).map_err(|_| Trouble::invalid_subject(&subject));
    let topic = named(&subject)?;
    let topic = match subject.strip_suffix("-value") {
        Some(short) if call.edge.bus.schemas().versions(&topic).await?.is_empty() => named(short)?,
        _ => topic,
    };
    may_see(call, &topic).map_err(Trouble::from)?;
    Ok(topic)
}

/// The subject as it was asked for.
fn subject(call: &Call) -> Result<String, Trouble> {
    Ok(call.param("subject")?)
}

/// A schema in a body.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Given {
    schema: String,
    #[serde(default)]
    schema_type: Option<String>,
    #[serde(default)]
    references: Vec<serde_json::Value>,
}

async fn body<T: serde::de::DeserializeOwned>(call: &mut Call) -> Result<T, Trouble> {
    let body = call.body(BATCH_BODY_BYTES_MAX).await?;
    object(&body).map_err(|error| Trouble::new(422, error.to_string()))
}

impl Given {
    async fn read(call: &mut Call) -> Result<Self, Trouble> {
        let given: Self = body(call).await?;
        if given.schema_type.as_deref().is_some_and(|kind| kind != JSON) {
            return Err(Trouble::invalid_schema("only schemas of type JSON are kept here"));
        }
        if !given.references.is_empty() {
            return Err(Trouble::invalid_schema(
                "references are not kept; put what is referred to under $defs",
            ));
        }
        Ok(given)
    }

    fn document(&self) -> Result<promethean::schema::Document, Trouble> {
        promethean::schema::Document::parse(&self.schema)
            .map_err(|error| Trouble::invalid_schema(&error.to_string()))
    }
}

/// Whether the caller may change schemas; for what is asked and told by one address.
fn may_change(call: &Call) -> Result<(), Trouble> {
    authorize(&call.principal, Action::SchemaWrite, Resource::Server).map_err(Trouble::from)
}
