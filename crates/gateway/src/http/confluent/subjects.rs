use futures_util::FutureExt;
use promethean::{Registration, SchemaVersion};
use promethean_event::Topic;
use serde::Serialize;

use super::super::endpoint::{Endpoint, Verb};
use super::refusal::Trouble;
use super::{Call, Given, JSON, answered, asks, changes, shows, subject, topic};
use crate::http::registry::may_see;

const LISTING: &[&str] = &["subjectPrefix", "deleted", "deletedOnly", "offset", "limit"];

pub(super) const ENDPOINTS: [Endpoint; 8] = [
    shows("/subjects", LISTING, "Topics with schemas, as Confluent's tools ask.", |call| {
        answered(list(call)).boxed()
    }),
    asks(
        "/subjects/{subject}",
        &["normalize", "deleted", "format"],
        "Whether a schema is registered, as Confluent's tools ask.",
        |call| answered(look_up(call)).boxed(),
    ),
    changes(
        (Verb::Delete, "/subjects/{subject}"),
        &["permanent"],
        "Refused: a topic keeps one version that can be written.",
        |call| answered(remove_all(call)).boxed(),
    ),
    shows(
        "/subjects/{subject}/versions",
        &["deleted", "deletedOnly", "offset", "limit"],
        "Versions that can be written, as Confluent's tools ask.",
        |call| answered(versions(call)).boxed(),
    ),
    changes(
        (Verb::Post, "/subjects/{subject}/versions"),
        &["normalize"],
        "Registers a schema, as Confluent's tools do.",
        |call| answered(register(call)).boxed(),
    ),
    shows(
        "/subjects/{subject}/versions/{version}",
        &["deleted", "format"],
        "One version, as Confluent's tools ask.",
        |call| answered(version(call)).boxed(),
    ),
    changes(
        (Verb::Delete, "/subjects/{subject}/versions/{version}"),
        &["permanent"],
        "Retires a version; removes a retired one with permanent=true.",
        |call| answered(remove(call)).boxed(),
    ),
    shows(
        "/subjects/{subject}/versions/{version}/schema",
        &["deleted", "format"],
        "The document of a version, as Confluent's tools ask.",
        |call| answered(document(call)).boxed(),
    ),
];

fn flag(call: &Call, name: &str) -> bool {
    call.query.text(name) == Some("true")
}

/// The part of a list that was asked for.
fn part<T>(call: &Call, all: Vec<T>) -> Result<Vec<T>, Trouble> {
    let offset: usize = call.query.parsed("offset")?.unwrap_or(0);
    let limit: i64 = call.query.parsed("limit")?.unwrap_or(-1);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    Ok(all.into_iter().skip(offset).take(limit).collect())
}

async fn list(call: Call) -> Result<Vec<String>, Trouble> {
    let schemas = call.edge.bus.schemas();
    let prefix = call.query.text("subjectPrefix").unwrap_or_default();
    let prefix = prefix.strip_prefix(":*:").unwrap_or(prefix);
    let mut found = Vec::new();
    for topic in schemas.topics().await? {
        let known = topic.as_str().starts_with(prefix) && may_see(&call, &topic).is_ok();
        if known && !schemas.versions(&topic).await?.is_empty() {
            found.push(topic.as_str().to_owned());
        }
    }
    part(&call, found)
}

/// All versions of the subject; at least one.
pub(super) async fn all(call: &Call, topic: &Topic) -> Result<Vec<SchemaVersion>, Trouble> {
    let versions = call.edge.bus.schemas().versions(topic).await?;
    if versions.is_empty() {
        return Err(Trouble::no_subject(&subject(call)?));
    }
    Ok(versions)
}

async fn versions(call: Call) -> Result<Vec<u32>, Trouble> {
    let topic = topic(&call).await?;
    let (with_retired, only) = (flag(&call, "deleted"), flag(&call, "deletedOnly"));
    let known = all(&call, &topic).await?.into_iter();
    let wanted = known.filter(|version| match version.retired {
        true => with_retired || only,
        false => !only,
    });
    part(&call, wanted.map(|version| version.version).collect())
}

/// The version of the address: a number, `latest`, or -1 for the same.
pub(super) async fn named(call: &Call, topic: &Topic) -> Result<SchemaVersion, Trouble> {
    let text: String = call.param("version")?;
    let versions = all(call, topic).await?;
    let latest = matches!(text.as_str(), "latest" | "-1");
    if latest {
        let live = versions.into_iter().rev().find(|version| !version.retired);
        return live.ok_or_else(|| Trouble::no_version(&text));
    }
    let number = text.parse::<u32>().ok().filter(|number| (1..=i32::MAX as u32).contains(number));
    let number = number.ok_or_else(|| Trouble::invalid_version(&text))?;
    let found = versions.into_iter().find(|version| version.version == number);
    found.ok_or_else(|| Trouble::no_version(&text))
}

/// A version as the interface shows it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shown {
    subject: String,
    id: u32,
    version: u32,
    schema_type: &'static str,
    schema: String,
}

async fn shown(call: &Call, version: &SchemaVersion) -> Result<Shown, Trouble> {
    Ok(Shown {
        subject: subject(call)?,
        id: call.edge.bus.schemas().number(&version.fingerprint).await?,
        version: version.version,
        schema_type: JSON,
        schema: version.document.text().to_owned(),
    })
}

async fn version(call: Call) -> Result<Shown, Trouble> {
    let topic = topic(&call).await?;
    let version = named(&call, &topic).await?;
    shown(&call, &version).await
}

async fn document(call: Call) -> Result<serde_json::Value, Trouble> {
    let topic = topic(&call).await?;
    Ok(named(&call, &topic).await?.document.value().clone())
}

async fn look_up(mut call: Call) -> Result<Shown, Trouble> {
    let topic = topic(&call).await?;
    let document = Given::read(&mut call).await?.document()?;
    let (dialect, text) = (document.dialect(), document.canonical());
    let known = all(&call, &topic).await?;
    let found = known.iter().find(|version| {
        version.document.dialect() == dialect && version.document.canonical() == text
    });
    shown(&call, found.ok_or_else(Trouble::no_schema)?).await
}

#[derive(Serialize)]
struct Id {
    id: u32,
}

async fn register(mut call: Call) -> Result<Id, Trouble> {
    let topic = topic(&call).await?;
    let given = Given::read(&mut call).await?;
    let schemas = call.edge.bus.schemas();
    let done = schemas.register(&topic, Registration::new(given.schema)).await?;
    let subject = call.principal.subject();
    tracing::info!(%topic, version = done.version, added = done.added, subject, "a schema");
    Ok(Id { id: schemas.number(&done.fingerprint).await? })
}

async fn remove(call: Call) -> Result<u32, Trouble> {
    let topic = topic(&call).await?;
    let version = named(&call, &topic).await?.version;
    let schemas = call.edge.bus.schemas();
    match flag(&call, "permanent") {
        true => schemas.remove(&topic, version).await?,
        false => schemas.retire(&topic, version).await?,
    }
    Ok(version)
}

async fn remove_all(call: Call) -> Result<(), Trouble> {
    let topic = topic(&call).await?;
    all(&call, &topic).await?;
    Err(Trouble::not_permitted(
        "a topic with a schema keeps one version that can be written; retire the others one by one, \
         or set the payload policy of the topic to off",
    ))
}
