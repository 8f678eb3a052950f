//! An event as a row, and back.

use promethean_event::{
    EventId, Headers, Key, NewEvent, Payload, SessionId, Tag, Timestamp, Topic,
};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, named_params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::AddError;
use super::table::{Malformed, OrderKey};

/// The envelope, in the order in which [`read`] takes it.
pub(super) const ENVELOPE: &str = "id, sid, ts, topic, key, headers, payload, caused_by, tags";

const INSERT: &str = "
INSERT INTO promethean_outbox
    (id, sid, ts, topic, key, headers, payload, caused_by, tags, added_at)
VALUES (:id, :sid, :ts, :topic, :key, :headers, :payload, :caused_by, :tags, :added_at)
ON CONFLICT (id) DO NOTHING";

/// Adds the event; `false` if there is a row with its id.
pub(super) fn insert(
    connection: &Connection,
    event: &NewEvent,
    now: Timestamp,
) -> Result<bool, AddError> {
    let ts = i64::try_from(event.ts.millis()).map_err(|_| AddError::Time(event.ts.millis()))?;
    let added = connection.prepare_cached(INSERT)?.execute(named_params! {
        ":id": event.id.to_string(),
        ":sid": event.sid.map(|sid| sid.to_string()),
        ":ts": ts,
        ":topic": event.topic.as_str(),
        ":key": event.key.as_ref().map(Key::as_str),
        ":headers": text_of(&event.headers)?,
        ":payload": event.payload.as_str(),
        ":caused_by": text_of(&event.caused_by)?,
        ":tags": text_of(&event.tags)?,
        ":added_at": to_millis(now),
    })?;
    Ok(added == 1)
}

fn text_of(value: &impl Serialize) -> Result<String, AddError> {
    serde_json::to_string(value).map_err(|error| AddError::Text(error.to_string()))
}

/// A time as SQLite holds it.
pub(super) fn to_millis(time: Timestamp) -> i64 {
    i64::try_from(time.millis()).unwrap_or(i64::MAX)
}

/// A time as SQLite holds it; what lies before the epoch is the epoch.
pub(super) fn from_millis(millis: i64) -> Timestamp {
    Timestamp::from_millis(u64::try_from(millis).unwrap_or(0))
}

/// Reads an envelope that begins at a column.
pub(super) fn read(row: &rusqlite::Row<'_>, first: usize) -> Result<NewEvent, Malformed> {
    let text = |at, column| required(optional(row, first + at, column)?, column);
    let parsed = |at, column| -> Result<EventId, Malformed> { parse(text(at, column)?, column) };
    let sid = optional(row, first + 1, "sid")?;
    let key = optional(row, first + 4, "key")?;
    let payload = text(6, "payload")?.as_bytes().to_vec();
    let event = NewEvent {
        id: parsed(0, "id")?,
        sid: sid.map(|sid| parse::<EventId, _>(sid, "sid")).transpose()?.map(session),
        ts: time(row, first + 2)?,
        topic: Topic::new(text(3, "topic")?).map_err(|error| malformed("topic", error))?,
        key: key.map(|key| parse(key, "key")).transpose()?,
        headers: from_json::<Headers>(text(5, "headers")?, "headers")?,
        payload: Payload::parse(payload).map_err(|error| malformed("payload", error))?,
        caused_by: from_json::<Vec<EventId>>(text(7, "caused_by")?, "caused_by")?,
        tags: from_json::<Vec<Tag>>(text(8, "tags")?, "tags")?,
    };
    event.check().map_err(|error| malformed("tags or caused_by", error))?;
    Ok(event)
}

/// The topic and key of an envelope that begins at a column, whatever they say.
pub(super) fn read_order(row: &rusqlite::Row<'_>, first: usize) -> Option<OrderKey> {
    let topic = lossy(row, first + 3).unwrap_or_default();
    lossy(row, first + 4).map(|key| OrderKey { topic, key })
}

/// A text column, whatever it says; `None` if it is null.
pub(super) fn lossy(row: &rusqlite::Row<'_>, at: usize) -> Option<String> {
    match row.get_ref(at) {
        Ok(ValueRef::Text(bytes) | ValueRef::Blob(bytes)) => {
            Some(String::from_utf8_lossy(bytes).into_owned())
        }
        Ok(ValueRef::Integer(number)) => Some(number.to_string()),
        Ok(ValueRef::Real(number)) => Some(number.to_string()),
        Ok(ValueRef::Null) | Err(_) => None,
    }
}

fn optional<'a>(
    row: &'a rusqlite::Row<'_>,
    at: usize,
    column: &'static str,
) -> Result<Option<&'a str>, Malformed> {
    row.get_ref(at)
        .map_err(|error| malformed(column, error))?
        .as_str_or_null()
        .map_err(|error| malformed(column, error))
}

fn required<'a>(text: Option<&'a str>, column: &'static str) -> Result<&'a str, Malformed> {
    text.ok_or_else(|| malformed(column, "there is nothing in it"))
}

fn parse<T, E>(text: &str, column: &'static str) -> Result<T, Malformed>
where
    T: std::str::FromStr<Err = E>,
    E: ToString,
{
    text.parse().map_err(|error: E| malformed(column, error))
}

fn from_json<T: DeserializeOwned>(text: &str, column: &'static str) -> Result<T, Malformed> {
    serde_json::from_str(text).map_err(|error| malformed(column, error))
}

fn time(row: &rusqlite::Row<'_>, at: usize) -> Result<Timestamp, Malformed> {
    let millis: i64 = row.get(at).map_err(|error| malformed("ts", error))?;
    let millis = u64::try_from(millis).map_err(|_| malformed("ts", "it is negative"))?;
    Ok(Timestamp::from_millis(millis))
}

fn session(id: EventId) -> SessionId {
    SessionId::from_bytes(*id.as_bytes())
}

#[expect(clippy::needless_pass_by_value, reason = "errors are made on the spot")]
fn malformed(column: &'static str, reason: impl ToString) -> Malformed {
    Malformed { part: column, reason: reason.to_string() }
}
