use futures_util::FutureExt;
use promethean::SchemaVersion;
use promethean_event::Topic;
use serde::Serialize;

use super::super::endpoint::Endpoint;
use super::refusal::Trouble;
use super::{Call, JSON, answered, shows};
use crate::http::registry::may_see;

pub(super) const ENDPOINTS: [Endpoint; 5] = [
    shows("/schemas/types", &[], "The kinds of schemas, as Confluent's tools ask.", |_| {
        answered(async { Ok([JSON]) }).boxed()
    }),
    shows(
        "/schemas/ids/{id}",
        &["subject", "format", "fetchMaxId"],
        "The schema with a number, as Confluent's tools ask.",
        |call| answered(schema(call)).boxed(),
    ),
    shows(
        "/schemas/ids/{id}/schema",
        &["subject", "format"],
        "The document with a number, as Confluent's tools ask.",
        |call| answered(document(call)).boxed(),
    ),
    shows(
        "/schemas/ids/{id}/subjects",
        &["deleted", "subject"],
        "The topics that have the schema with a number, as Confluent's tools ask.",
        |call| answered(subjects(call)).boxed(),
    ),
    shows(
        "/schemas/ids/{id}/versions",
        &["deleted", "subject"],
        "The versions that are the schema with a number, as Confluent's tools ask.",
        |call| answered(versions(call)).boxed(),
    ),
];

/// The schemas with the number of the address that the caller may see; at least one.
async fn numbered(call: &Call) -> Result<Vec<(Topic, SchemaVersion)>, Trouble> {
    let text: String = call.param("id")?;
    let number: u32 = text.parse().map_err(|_| Trouble::no_schema())?;
    let mut found = call.edge.bus.schemas().numbered(number).await?;
    found.retain(|(topic, _)| may_see(call, topic).is_ok());
    if found.is_empty() { Err(Trouble::no_schema()) } else { Ok(found) }
}

async fn first(call: &Call) -> Result<SchemaVersion, Trouble> {
    let found = numbered(call).await?.into_iter().next();
    found.map(|(_, version)| version).ok_or_else(Trouble::no_schema)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Schema {
    schema_type: &'static str,
    schema: String,
}

async fn schema(call: Call) -> Result<Schema, Trouble> {
    let version = first(&call).await?;
    Ok(Schema { schema_type: JSON, schema: version.document.text().to_owned() })
}

async fn document(call: Call) -> Result<serde_json::Value, Trouble> {
    Ok(first(&call).await?.document.value().clone())
}

async fn subjects(call: Call) -> Result<Vec<Topic>, Trouble> {
    let mut topics: Vec<Topic> =
        numbered(&call).await?.into_iter().map(|(topic, _)| topic).collect();
    topics.dedup();
    Ok(topics)
}

#[derive(Serialize)]
struct Place {
    subject: Topic,
    version: u32,
}

async fn versions(call: Call) -> Result<Vec<Place>, Trouble> {
    let found = numbered(&call).await?.into_iter();
    Ok(found.map(|(subject, version)| Place { subject, version: version.version }).collect())
}
