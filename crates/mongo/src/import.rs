//! Events that others have put into a collection, without offsets, as lines for `prom import`.

use std::io::Write;

use mongodb::Client;
use mongodb::bson::doc;
use mongodb::bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use promethean_event::EventId;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::document::{PrintError, canonical};
use crate::fault::describe;

/// Why a collection could not be read as events.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// Not a collection.
    #[error("{0:?} is not a collection; write it as database.collection")]
    Collection(String),
    /// MongoDB refused.
    #[error("{0}")]
    Mongo(String),
    /// A document is no event.
    #[error("document {id}: {why}")]
    NotAnEvent {
        /// Its `_id`.
        id: String,
        /// Why.
        why: String,
    },
    /// The lines could not be written.
    #[error("the events could not be written")]
    Write(#[from] std::io::Error),
}

/// Writes the events of a collection, one per line, in the order of `ts` and `id`; tells how many.
///
/// A document has `topic`, `payload` (or `payload_json`), and what else an event has. One without a
/// UUID in `id` gets one that is made of its `_id`, so that importing again adds nothing.
pub async fn write_events(
    url: &str,
    collection: &str,
    out: &mut (impl Write + Send),
) -> Result<u64, ImportError> {
    let (database, name) =
        collection.split_once('.').ok_or_else(|| ImportError::Collection(collection.to_owned()))?;
    let refused = |error: mongodb::error::Error| ImportError::Mongo(describe(&error));
    let client = Client::with_uri_str(url).await.map_err(refused)?;
    let all = client.database(database).collection::<RawDocumentBuf>(name);
    let find = all.find(doc! {}).sort(doc! { "ts": 1, "id": 1 }).allow_disk_use(true);
    let mut cursor = find.await.map_err(refused)?;
    let mut events = 0;
    while cursor.advance().await.map_err(refused)? {
        let line = line(collection, cursor.current())?;
        writeln!(out, "{line}")?;
        events += 1;
    }
    Ok(events)
}

fn line(collection: &str, document: &RawDocument) -> Result<String, ImportError> {
    let part =
        |name: &str| document.get(name).ok().flatten().filter(|value| *value != RawBsonRef::Null);
    let own = part("_id").map(canonical).transpose().ok().flatten().unwrap_or_default();
    let not = |why: String| ImportError::NotAnEvent { id: own.clone(), why };
    let text = |value: RawBsonRef<'_>| canonical(value).map_err(|e: PrintError| e.to_string());
    let mut event = Map::new();
    let id = part("id").and_then(|id| id.as_str()?.parse::<EventId>().ok());
    let derived = || EventId::derived("mongo import", format!("{collection}\0{own}").as_bytes());
    event.insert("id".into(), json!(id.unwrap_or_else(derived)));
    for name in ["topic", "key", "sid", "caused_by", "tags"] {
        if let Some(value) = part(name) {
            let value = serde_json::from_str::<Value>(&text(value).map_err(not)?);
            event.insert(name.into(), value.map_err(|error| not(error.to_string()))?);
        }
    }
    let ts = part("ts").or_else(|| part("appendedAt"));
    if let Some(millis) = ts.and_then(crate::outbox::whole_number) {
        event.insert("ts".into(), json!(millis));
    }
    event.insert("headers".into(), Value::Object(headers(part("headers"))));
    // Not parsed, so that numbers stay as they are spelled.
    let payload = match document.get("payload_json").ok().flatten() {
        Some(RawBsonRef::String(text)) => text.to_owned(),
        _ => {
            let payload = document.get("payload").ok().flatten();
            text(payload.ok_or_else(|| not("it has no payload".to_owned()))?).map_err(not)?
        }
    };
    let payload = RawValue::from_string(payload).map_err(|error| not(error.to_string()))?;
    serde_json::to_string(&Line { event, payload }).map_err(|error| not(error.to_string()))
}

/// An event whose payload stays as it is spelled.
#[derive(Serialize)]
struct Line {
    #[serde(flatten)]
    event: Map<String, Value>,
    payload: Box<RawValue>,
}

/// As pairs, as we keep them, or as an object, as others do.
fn headers(value: Option<RawBsonRef<'_>>) -> Map<String, Value> {
    let mut headers = Map::new();
    match value {
        Some(RawBsonRef::Document(object)) => {
            for (name, value) in object.iter().filter_map(Result::ok) {
                let value = value.as_str().map(str::to_owned);
                headers.extend(value.map(|value| (name.as_str().to_owned(), json!(value))));
            }
        }
        Some(RawBsonRef::Array(pairs)) => {
            for pair in pairs.into_iter().filter_map(Result::ok) {
                let pair = pair.as_document();
                let get = |name: &str| pair.and_then(|pair| pair.get_str(name).ok());
                let both = get("name").zip(get("value"));
                headers.extend(both.map(|(name, value)| (name.to_owned(), json!(value))));
            }
        }
        _ => {}
    }
    headers
}

#[cfg(test)]
mod tests {
    use mongodb::bson::{DateTime, rawdoc};

    use super::*;

    #[test]
    fn documents_of_others_are_events() {
        let old = rawdoc! {
            "_id": 7, "id": "not a uuid", "topic": "a.b", "key": "k", "ts": DateTime::from_millis(5),
            "headers": { "x-a": "1" }, "payload": { "n": 1.5, "at": DateTime::from_millis(0) },
        };
        let first = line("db.events", &old).unwrap();
        assert_eq!(first, line("db.events", &old).unwrap(), "importing again adds nothing");
        let event: Value = serde_json::from_str(&first).unwrap();
        assert!(event["id"].as_str().unwrap().parse::<EventId>().is_ok());
        assert_eq!((&event["topic"], &event["ts"]), (&json!("a.b"), &json!(5)));
        assert_eq!(event["headers"], json!({ "x-a": "1" }));
        assert_eq!(event["payload"]["n"], json!(1.5));
        assert!(line("db.events", &rawdoc! { "_id": 7, "topic": "a" }).is_err());
    }

    #[test]
    fn payloads_stay_as_they_are_spelled() {
        let id = EventId::generate().to_string();
        let document = rawdoc! { "id": id, "topic": "a", "payload_json": r#"{"n":1.10}"# };
        assert!(line("db.events", &document).unwrap().ends_with(r#""payload":{"n":1.10}}"#));
    }
}
