//! Schemas of topics, as resources of our own. Who may read or write a topic may see its schemas;
//! changing them is for administrators of schemas.

use axum::response::Response;
use futures_util::FutureExt;
use promethean::schema::Inference;
use promethean::store::{PageLimit, Read};
use promethean::{
    Evolution, Hop, Registered, Registration, RegistryPolicy, Sample, SchemaVersion, TopicPolicy,
};
use promethean_event::{Offset, Timestamp, Topic};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::answer;
use super::call::{Call, object};
use super::endpoint::{Act, Endpoint, Guard, Verb};
use crate::access::{Action, Resource, authorize};
use crate::limits::{BATCH_BODY_BYTES_MAX, INFERRED_EVENTS, INFERRED_EVENTS_MAX};
use crate::rejection::{Code, Rejection};

/// A resource that shows something.
const fn shows(path: &'static str, summary: &'static str, act: Act) -> Endpoint {
    let guard = Guard::Topics(Action::Read);
    Endpoint { method: Verb::Get, path, guard, summary, query: &[], act }
}

/// A resource that changes something.
const fn changes(method: Verb, path: &'static str, summary: &'static str, act: Act) -> Endpoint {
    let guard = Guard::Server(Action::SchemaWrite);
    Endpoint { method, path, guard, summary, query: &[], act }
}

pub(super) const ENDPOINTS: [Endpoint; 14] = [
    shows("/registry", "The topics that have schemas, and what holds for all.", |call| {
        list(call).boxed()
    }),
    changes(Verb::Put, "/registry", "Sets what holds where topics say nothing.", |call| {
        set_registry_policy(call).boxed()
    }),
    shows("/registry/{topic}", "The versions and the policy of a topic.", |call| {
        versions(call).boxed()
    }),
    shows("/registry/{topic}/versions/{version}", "One version, or `latest`.", |call| {
        version(call).boxed()
    }),
    changes(Verb::Post, "/registry/{topic}/versions", "Registers a schema.", |call| {
        register(call).boxed()
    }),
    changes(
        Verb::Post,
        "/registry/{topic}/plan",
        "What registering a schema would do: to versions, groups and stored events.",
        |call| plan(call).boxed(),
    ),
    changes(
        Verb::Put,
        "/registry/{topic}/versions/{version}/casters",
        "Gives a version other casters.",
        |call| recast(call).boxed(),
    ),
    changes(
        Verb::Post,
        "/registry/{topic}/versions/{version}/retire",
        "New events of a version are refused from now on.",
        |call| set_retired(call, true).boxed(),
    ),
    changes(
        Verb::Post,
        "/registry/{topic}/versions/{version}/restore",
        "New events of a retired version are taken again.",
        |call| set_retired(call, false).boxed(),
    ),
    changes(
        Verb::Delete,
        "/registry/{topic}/versions/{version}",
        "Removes a retired version that nothing needs any more.",
        |call| remove(call).boxed(),
    ),
    shows("/registry/{topic}/policy", "What holds for a topic.", |call| policy(call).boxed()),
    changes(Verb::Put, "/registry/{topic}/policy", "Sets what holds for a topic.", |call| {
        set_policy(call).boxed()
    }),
    shows("/registry/{topic}/retained", "Counts stored events by version.", |call| {
        retained(call).boxed()
    }),
    Endpoint {
        query: &["sample"],
        ..shows("/registry/{topic}/inferred", "A schema that stored events match.", |call| {
            inferred(call).boxed()
        })
    },
];

/// Whether a caller may see the schemas of a topic.
pub(super) fn may_see(call: &Call, topic: &Topic) -> Result<(), Rejection> {
    let schemas = authorize(&call.principal, Action::SchemaWrite, Resource::Server);
    let writes = || call.authorize(Action::Publish, topic, None);
    schemas.or_else(|_| writes()).or_else(|_| call.authorize(Action::Read, topic, None))
}

/// The topic of the address, if the caller may see its schemas.
pub(super) fn topic(call: &Call) -> Result<Topic, Rejection> {
    let topic = call.param("topic")?;
    may_see(call, &topic)?;
    Ok(topic)
}

/// The body as what it should be.
pub(super) async fn body<T: DeserializeOwned>(call: &mut Call) -> Result<T, Rejection> {
    let body = call.body(BATCH_BODY_BYTES_MAX).await?;
    let body = if body.is_empty() { b"{}".as_slice() } else { &body };
    object(body).map_err(|error| Rejection::new(Code::BadRequest, error.to_string()))
}

#[derive(Serialize)]
struct Topics {
    policy: RegistryPolicy,
    topics: Vec<Listed>,
}

#[derive(Serialize)]
struct Listed {
    topic: Topic,
    versions: Vec<u32>,
    latest: Option<u32>,
    policy: TopicPolicy,
}

async fn list(call: Call) -> Result<Response, Rejection> {
    let schemas = call.edge.bus.schemas();
    let mut topics = Vec::new();
    for topic in schemas.topics().await? {
        if may_see(&call, &topic).is_err() {
            continue;
        }
        let versions: Vec<u32> =
            schemas.versions(&topic).await?.iter().map(|version| version.version).collect();
        let policy = schemas.policy(&topic).await?;
        topics.push(Listed { topic, latest: versions.last().copied(), versions, policy });
    }
    answer::json(200, &Topics { policy: schemas.registry_policy().await?, topics })
}

async fn set_registry_policy(mut call: Call) -> Result<Response, Rejection> {
    let policy: RegistryPolicy = body(&mut call).await?;
    call.edge.bus.schemas().set_registry_policy(policy.clone()).await?;
    answer::json(200, &policy)
}

#[derive(Serialize)]
struct Versions {
    topic: Topic,
    policy: TopicPolicy,
    #[serde(skip_serializing_if = "Option::is_none")]
    evolution: Option<Evolution>,
    versions: Vec<Head>,
}

/// A version without its document.
#[derive(Serialize)]
struct Head {
    version: u32,
    fingerprint: String,
    registered_at: Timestamp,
    retired: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    forced: Option<String>,
    up: Option<Hop>,
    down: Option<Hop>,
}

impl From<&SchemaVersion> for Head {
    fn from(version: &SchemaVersion) -> Self {
        Self {
            version: version.version,
            fingerprint: version.fingerprint.clone(),
            registered_at: version.registered_at,
            retired: version.retired,
            forced: version.forced.clone(),
            up: version.up.clone(),
            down: version.down.clone(),
        }
    }
}

async fn versions(call: Call) -> Result<Response, Rejection> {
    let topic = topic(&call)?;
    let schemas = call.edge.bus.schemas();
    let known = schemas.versions(&topic).await?;
    if known.is_empty() && schemas.own_policy(&topic).await?.is_none() {
        return Err(Rejection::new(Code::NotFound, format!("{topic} has no schema")));
    }
    let versions = known.iter().map(Head::from).collect();
    let policy = schemas.policy(&topic).await?;
    let evolution = schemas.evolution(&topic).await?;
    answer::json(200, &Versions { topic, policy, evolution, versions })
}

/// The version of the address: a number, or `latest`.
async fn named(call: &Call, topic: &Topic) -> Result<SchemaVersion, Rejection> {
    let schemas = call.edge.bus.schemas();
    let text: String = call.param("version")?;
    let found = match text.as_str() {
        "latest" => schemas.latest(topic).await?,
        _ => schemas.version(topic, call.param("version")?).await?,
    };
    found.ok_or_else(|| Rejection::new(Code::NotFound, format!("{topic} has no version {text}")))
}

#[derive(Serialize)]
struct Full<'a> {
    topic: &'a Topic,
    #[serde(flatten)]
    head: Head,
    dialect: &'static str,
    /// The document as it was written.
    schema: &'a RawValue,
}

async fn version(call: Call) -> Result<Response, Rejection> {
    let topic = topic(&call)?;
    let version = named(&call, &topic).await?;
    let document = &version.document;
    let schema: &RawValue =
        serde_json::from_str(document.text()).map_err(|_| Rejection::plain(Code::Internal))?;
    let dialect = document.dialect().uri();
    answer::json(200, &Full { topic: &topic, head: Head::from(&version), dialect, schema })
}

/// A schema to be registered.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wish {
    /// As JSON, or as a text that is JSON.
    schema: Box<RawValue>,
    #[serde(default)]
    up: Option<Hop>,
    #[serde(default)]
    down: Option<Hop>,
    #[serde(default)]
    version: Option<u32>,
    /// Why it is to be registered against objections.
    #[serde(default)]
    force: Option<String>,
    /// How many stored events it is tried on: a number, or `"all"`.
    #[serde(default)]
    sample: Option<Value>,
}

impl Wish {
    /// The registration; who forces it is kept with the reason.
    pub(super) fn registration(self, call: &Call) -> Result<Registration, Rejection> {
        let text = match serde_json::from_str::<Value>(self.schema.get()) {
            Ok(Value::String(text)) => text,
            _ => self.schema.get().to_owned(),
        };
        let mut registration = Registration::new(text);
        if let Some(up) = self.up {
            registration = registration.up(up);
        }
        if let Some(down) = self.down {
            registration = registration.down(down);
        }
        if let Some(version) = self.version {
            registration = registration.version(version);
        }
        if let Some(reason) = self.force {
            registration = registration.force(signed(call, &reason)?);
        }
        if let Some(sample) = self.sample {
            registration = registration.sample(read_sample(&sample)?);
        }
        Ok(registration)
    }
}

/// A reason with who gives it.
pub(super) fn signed(call: &Call, reason: &str) -> Result<String, Rejection> {
    if reason.trim().is_empty() {
        return Err(Rejection::new(Code::BadRequest, "say why it is forced"));
    }
    let subject = call.principal.subject();
    let subject = if subject.is_empty() { "anonymous" } else { subject };
    Ok(format!("{subject}: {reason}"))
}

fn read_sample(sample: &Value) -> Result<Sample, Rejection> {
    match (sample.as_u64().and_then(|count| usize::try_from(count).ok()), sample.as_str()) {
        (Some(0), _) => Ok(Sample::None),
        (Some(events), _) => Ok(Sample::Newest(events)),
        (None, Some("all")) => Ok(Sample::All),
        _ => Err(Rejection::new(Code::BadRequest, "sample is a number of events, or \"all\"")),
    }
}

#[derive(Serialize)]
struct Done<'a> {
    topic: &'a Topic,
    version: u32,
    fingerprint: &'a str,
    added: bool,
    plan: &'a promethean::Plan,
}

/// The answer to a registration.
pub(super) fn registered(topic: &Topic, registered: &Registered) -> impl Serialize {
    let Registered { version, fingerprint, added, plan, .. } = registered;
    let done = Done { topic, version: *version, fingerprint, added: *added, plan };
    serde_json::to_value(&done).unwrap_or_default()
}

async fn register(mut call: Call) -> Result<Response, Rejection> {
    let topic = topic(&call)?;
    let wish: Wish = body(&mut call).await?;
    let registration = wish.registration(&call)?;
    let done = call.edge.bus.schemas().register(&topic, registration).await?;
    let subject = call.principal.subject();
    tracing::info!(%topic, version = done.version, added = done.added, subject, "a schema");
    answer::json(if done.added { 201 } else { 200 }, &registered(&topic, &done))
}

async fn plan(mut call: Call) -> Result<Response, Rejection> {
    let topic = topic(&call)?;
    let wish: Wish = body(&mut call).await?;
    let registration = wish.registration(&call)?;
    answer::json(200, &call.edge.bus.schemas().plan(&topic, &registration).await?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Casters {
    #[serde(default)]
    up: Option<Hop>,
    #[serde(default)]
    down: Option<Hop>,
}

async fn recast(mut call: Call) -> Result<Response, Rejection> {
    let topic = topic(&call)?;
    let version = named(&call, &topic).await?.version;
    let Casters { up, down } = body(&mut call).await?;
    answer::json(200, &call.edge.bus.schemas().recast(&topic, version, up, down).await?)
}

async fn set_retired(call: Call, retired: bool) -> Result<Response, Rejection> {
    let topic = topic(&call)?;
    let version = named(&call, &topic).await?.version;
    let schemas = call.edge.bus.schemas();
    match retired {
        true => schemas.retire(&topic, version).await?,
        false => schemas.restore(&topic, version).await?,
    }
    answer::json(200, &serde_json::json!({ "version": version, "retired": retired }))
}

async fn remove(call: Call) -> Result<Response, Rejection> {
    let topic = topic(&call)?;
    let version = named(&call, &topic).await?.version;
    call.edge.bus.schemas().remove(&topic, version).await?;
    answer::json(200, &serde_json::json!({ "version": version, "removed": true }))
}

async fn policy(call: Call) -> Result<Response, Rejection> {
    let topic = topic(&call)?;
    answer::json(200, &call.edge.bus.schemas().policy(&topic).await?)
}

async fn set_policy(mut call: Call) -> Result<Response, Rejection> {
    let topic = topic(&call)?;
    let policy: TopicPolicy = body(&mut call).await?;
    call.edge.bus.schemas().set_policy(&topic, policy.clone()).await?;
    answer::json(200, &policy)
}

async fn retained(call: Call) -> Result<Response, Rejection> {
    let topic = topic(&call)?;
    answer::json(200, &call.edge.bus.schemas().retained(&topic).await?)
}

/// Shows what is in events: for those who may read them.
async fn inferred(call: Call) -> Result<Response, Rejection> {
    let topic: Topic = call.param("topic")?;
    call.authorize(Action::Read, &topic, None)?;
    let mut left: usize = call.query.parsed("sample")?.unwrap_or(INFERRED_EVENTS);
    left = left.min(INFERRED_EVENTS_MAX);
    let none = || Rejection::new(Code::NotFound, format!("{topic} has no events to infer from"));
    let topics = call.edge.bus.topics();
    let entry = topics.get(&topic).ok_or_else(none)?;
    let mut inference = Inference::default();
    for lane in entry.lanes() {
        let bounds = call.edge.bus.store().bounds(lane).await?;
        let mut before = bounds.next;
        while left > 0 && before > bounds.start && before > Offset::ZERO {
            let limit = PageLimit { events: left.min(1_000), ..PageLimit::default() };
            let page = call.edge.bus.store().read(Read::Before { lane, before, limit }).await?;
            for stored in &page.events {
                if let Ok(value) = stored.event.payload.decode::<Value>()
                    && !stored.event.payload.is_tombstone()
                {
                    inference.see(&value);
                }
            }
            left = left.saturating_sub(page.events.len());
            if page.next >= before {
                break;
            }
            before = page.next;
        }
    }
    let schema = inference.schema().ok_or_else(none)?;
    answer::json(200, &serde_json::json!({ "events": inference.values(), "schema": schema }))
}
