//! Events that others have put into a collection, without offsets, as lines for `prom import`.

use std::io::Write;
use std::time::Duration;

use mongodb::Client;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{DateTime, doc};
use mongodb::options::ReadConcern;
use promethean_event::EventId;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::clock::Deadline;
use crate::document::{PrintError, canonical};
use crate::fault::{describe, too_late};

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

/// How long MongoDB may take for the first events, before which it sorts all of them.
const SORTING_TIME: Duration = Duration::from_secs(600);
/// And for the next ones.
const READING_TIME: Duration = Duration::from_secs(60);

/// Writes the events of a collection, one per line, in the order of `ts` and `id`; tells how many.
///
/// A document has `topic`, `payload` (or `payload_json`), and what else an event has. An `id` that is
/// no UUID, or the `_id` of a document that has none, becomes one that is made of it, so that
/// importing again adds nothing; so do `sid` and `caused_by`, which thereby still name the same events.
pub async fn write_events(
    url: &str,
    collection: &str,
    out: &mut (impl Write + Send),
) -> Result<u64, ImportError> {
    let (database, name) =
        collection.split_once('.').ok_or_else(|| ImportError::Collection(collection.to_owned()))?;
    let client = within(READING_TIME, Client::with_uri_str(url)).await?;
    let all = client.database(database).collection::<RawDocumentBuf>(name);
    // What is not with a majority could be taken back after it was imported.
    let find = all.find(doc! {}).read_concern(ReadConcern::majority());
    let find = find.sort(doc! { "ts": 1, "id": 1 }).allow_disk_use(true);
    let mut cursor = within(SORTING_TIME, find).await?;
    let mut events = 0;
    while within(READING_TIME, cursor.advance()).await? {
        let line = line(collection, cursor.current())?;
        writeln!(out, "{line}")?;
        events += 1;
    }
    Ok(events)
}

async fn within<T>(
    time: Duration,
    call: impl IntoFuture<Output = mongodb::error::Result<T>>,
) -> Result<T, ImportError> {
    let answer = Deadline::after(time).hold(call).await;
    let answer = answer.ok_or_else(|| ImportError::Mongo(too_late().to_string()))?;
    answer.map_err(|error| ImportError::Mongo(describe(&error)))
}

fn line(collection: &str, document: &RawDocument) -> Result<String, ImportError> {
    let part =
        |name: &str| document.get(name).ok().flatten().filter(|value| *value != RawBsonRef::Null);
    let own = part("_id").map(canonical).transpose().ok().flatten().unwrap_or_default();
    let not = |why: String| ImportError::NotAnEvent { id: own.clone(), why };
    let text = |value: RawBsonRef<'_>| canonical(value).map_err(|e: PrintError| e.to_string());
    let id_of = |value: RawBsonRef<'_>| id_of(collection, value).map_err(not);
    let mut event = Map::new();
    let id = part("id").or_else(|| part("_id")).ok_or_else(|| not("it has no id".to_owned()))?;
    event.insert("id".into(), json!(id_of(id)?));
    if let Some(sid) = part("sid") {
        event.insert("sid".into(), json!(id_of(sid)?));
    }
    let causes = match part("caused_by") {
        Some(RawBsonRef::Array(causes)) => {
            let causes: Result<Vec<_>, _> = causes.into_iter().collect();
            causes.map_err(|error| not(error.to_string()))?
        }
        one => one.into_iter().collect(),
    };
    if !causes.is_empty() {
        let causes: Result<Vec<_>, _> = causes.into_iter().map(id_of).collect();
        event.insert("caused_by".into(), json!(causes?));
    }
    for name in ["topic", "key", "tags"] {
        if let Some(value) = part(name) {
            let value = serde_json::from_str::<Value>(&text(value).map_err(not)?);
            event.insert(name.into(), value.map_err(|error| not(error.to_string()))?);
        }
    }
    if let Some(ts) = part("ts").or_else(|| part("appendedAt")) {
        event.insert("ts".into(), json!(millis_of(ts).map_err(not)?));
    }
    event.insert("headers".into(), Value::Object(headers(part("headers")).map_err(not)?));
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

/// The id that stands for what others have called an event or a session: a UUID is itself, and
/// everything else is what it is made of, wherever it is said.
fn id_of(collection: &str, value: RawBsonRef<'_>) -> Result<EventId, String> {
    let own = match value {
        RawBsonRef::String(text) => text.parse::<EventId>().ok(),
        RawBsonRef::Binary(binary) if binary.subtype == BinarySubtype::Uuid => {
            binary.bytes.try_into().ok().map(EventId::from_bytes)
        }
        _ => None,
    };
    if let Some(id) = own {
        return Ok(id);
    }
    let value = match value {
        // Others write the id of a document as it is in one place and as its digits in another.
        RawBsonRef::String(text) => ObjectId::parse_str(text).map_or(value, RawBsonRef::ObjectId),
        other => other,
    };
    let text = canonical(value).map_err(|error| error.to_string())?;
    Ok(EventId::derived("mongo import", format!("{collection}\0{text}").as_bytes()))
}

/// When something happened: milliseconds, a date, a timestamp of a server, or a text as of RFC 3339.
fn millis_of(ts: RawBsonRef<'_>) -> Result<i64, String> {
    let millis = match ts {
        RawBsonRef::String(text) => {
            DateTime::parse_rfc3339_str(text).ok().map(DateTime::timestamp_millis)
        }
        RawBsonRef::Timestamp(time) => Some(i64::from(time.time) * 1000),
        other => crate::outbox::whole_number(other),
    };
    millis.ok_or_else(|| format!("its ts is no time: {}", canonical(ts).unwrap_or_default()))
}

/// An event whose payload stays as it is spelled.
#[derive(Serialize)]
struct Line {
    #[serde(flatten)]
    event: Map<String, Value>,
    payload: Box<RawValue>,
}

/// As pairs, as we keep them, or as an object, as others do. What is no text becomes the text of its
/// JSON.
fn headers(value: Option<RawBsonRef<'_>>) -> Result<Map<String, Value>, String> {
    let mut headers = Map::new();
    let mut add = |name: &str, value: RawBsonRef<'_>| {
        let text = match value {
            RawBsonRef::String(text) => text.to_owned(),
            other => canonical(other).map_err(|error| error.to_string())?,
        };
        headers.insert(name.to_owned(), json!(text));
        Ok::<(), String>(())
    };
    match value {
        None => {}
        Some(RawBsonRef::Document(object)) => {
            for member in object {
                let (name, value) = member.map_err(|error| error.to_string())?;
                add(name.as_str(), value)?;
            }
        }
        Some(RawBsonRef::Array(pairs)) => {
            for pair in pairs {
                let pair = pair.map_err(|error| error.to_string())?.as_document();
                let name = pair.and_then(|pair| pair.get_str("name").ok());
                let value = pair.and_then(|pair| pair.get("value").ok().flatten());
                let both = name.zip(value).ok_or("a header is not a name and a value")?;
                add(both.0, both.1)?;
            }
        }
        Some(_) => return Err("its headers are neither an object nor pairs".to_owned()),
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use mongodb::bson::raw::RawBson;
    use mongodb::bson::{Binary, Timestamp, cstr, rawdoc};

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

    fn event(document: &RawDocument) -> Value {
        serde_json::from_str(&line("db.events", document).unwrap()).unwrap()
    }

    /// Causes stayed as they were while the ids that they named did not, which stopped the import.
    #[test]
    fn causes_and_sessions_are_made_as_ids_are() {
        let cause = event(&rawdoc! { "_id": 1, "id": "a-1", "topic": "a", "payload": 1 });
        let effect = rawdoc! {
            "_id": 2, "id": "a-2", "topic": "a", "payload": 1, "caused_by": ["a-1"], "sid": "s-1",
        };
        assert_eq!(event(&effect)["caused_by"], json!([cause["id"]]));
        assert_ne!(event(&effect)["id"], cause["id"]);
        let beginning = event(&rawdoc! { "id": "s-1", "topic": "a", "payload": 1 });
        assert_eq!(event(&effect)["sid"], beginning["id"]);
        // Without an id, an event is known by its `_id`; as it is or as its digits.
        let id = ObjectId::parse_str("65f000000000000000000001").unwrap();
        let cause = event(&rawdoc! { "_id": id, "topic": "a", "payload": 1 });
        for name in [RawBson::from(id), RawBson::from(id.to_hex())] {
            let effect = rawdoc! { "_id": 2, "topic": "a", "payload": 1, "caused_by": name };
            assert_eq!(event(&effect)["caused_by"], json!([cause["id"]]));
        }
        // A UUID is itself, in both of its forms.
        let id = EventId::generate();
        let binary = Binary { subtype: BinarySubtype::Uuid, bytes: id.as_bytes().to_vec() };
        let uuids = rawdoc! { "id": binary, "topic": "a", "payload": 1, "sid": id.to_string() };
        assert_eq!((&event(&uuids)["id"], &event(&uuids)["sid"]), (&json!(id), &json!(id)));
    }

    /// They were left out, and nobody was told.
    #[test]
    fn headers_that_are_no_text_are_kept_as_text() {
        let object = rawdoc! {
            "_id": 1, "topic": "a", "payload": 1, "headers": { "n": 7, "t": true, "s": "x" },
        };
        assert_eq!(event(&object)["headers"], json!({ "n": "7", "t": "true", "s": "x" }));
        let pairs = rawdoc! {
            "_id": 1, "topic": "a", "payload": 1, "headers": [{ "name": "n", "value": 1.5 }],
        };
        assert_eq!(event(&pairs)["headers"], json!({ "n": "1.5" }));
        for bad in [rawdoc! { "headers": [7] }, rawdoc! { "headers": "n: 7" }] {
            let mut document = rawdoc! { "_id": 1, "topic": "a", "payload": 1 };
            document.append(cstr!("headers"), RawBson::from(bad.get("headers").unwrap().unwrap()));
            assert!(line("db.events", &document).is_err());
        }
    }

    /// A time in another form was left out, and the event happened when it was imported.
    #[test]
    fn times_are_kept_in_whatever_form() {
        let at = |ts: RawBson| {
            let mut document = rawdoc! { "_id": 1, "topic": "a", "payload": 1 };
            document.append(cstr!("ts"), ts);
            line("db.events", &document)
                .map(|line| serde_json::from_str::<Value>(&line).unwrap()["ts"].as_i64().unwrap())
        };
        let text = "2026-01-02T03:04:05.678Z";
        let millis = DateTime::parse_rfc3339_str(text).unwrap().timestamp_millis();
        let forms = [
            RawBson::Int64(millis),
            RawBson::DateTime(DateTime::from_millis(millis)),
            RawBson::String(text.to_owned()),
        ];
        for form in forms {
            assert_eq!(at(form.clone()).unwrap(), millis, "{form:?}");
        }
        let seconds = Timestamp { time: u32::try_from(millis / 1000).unwrap(), increment: 1 };
        assert_eq!(at(RawBson::Timestamp(seconds)).unwrap(), millis / 1000 * 1000);
        for bad in [RawBson::String("yesterday".to_owned()), RawBson::Boolean(true)] {
            assert!(
                at(bad.clone()).is_err_and(|error| error.to_string().contains("ts")),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn payloads_stay_as_they_are_spelled() {
        let id = EventId::generate().to_string();
        let document = rawdoc! { "id": id, "topic": "a", "payload_json": r#"{"n":1.10}"# };
        assert!(line("db.events", &document).unwrap().ends_with(r#""payload":{"n":1.10}}"#));
    }
}
