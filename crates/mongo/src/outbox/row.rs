//! An event as a row, and back.

use std::fmt::Display;

use bytes::Bytes;
use mongodb::bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use mongodb::bson::{Timestamp as ServerTime, cstr};
use promethean::outbox::{Malformed, OrderKey, Row};
use promethean_event::{
    EventId, Headers, Key, NewEvent, Payload, SessionId, Tag, Timestamp, Topic,
};

use crate::document::{self, signed, unsigned};

/// The place of rows whose `added` is not a time of the server's.
pub(super) const UNPLACED: i64 = i64::MIN;

/// The place of a row as a number: what the server compares without a sign, with one.
pub(super) fn place_of(added: Option<ServerTime>) -> i64 {
    let Some(ServerTime { time, increment }) = added else { return UNPLACED };
    let number = u64::from(time) << 32 | u64::from(increment);
    (number ^ (1 << 63)).cast_signed()
}

/// The time of the server's at a place.
pub(super) fn time_at(place: i64) -> ServerTime {
    let number = place.cast_unsigned() ^ (1 << 63);
    let [time, increment] = [number >> 32, number & u64::from(u32::MAX)];
    ServerTime {
        time: u32::try_from(time).unwrap_or(u32::MAX),
        increment: u32::try_from(increment).unwrap_or(u32::MAX),
    }
}

/// The row of an event; the server fills in when it was added.
pub(super) fn encode(event: &NewEvent) -> RawDocumentBuf {
    let mut row = RawDocumentBuf::new();
    row.append(cstr!("_id"), event.id.to_string());
    row.append(cstr!("topic"), event.topic.as_str());
    document::append_content(&mut row, event);
    row.append(cstr!("added"), ServerTime { time: 0, increment: 0 });
    row
}

/// A claimed row.
pub(super) fn read(row: &RawDocument) -> Row {
    let added = row.get_timestamp("added").ok();
    let attempts = row.get("attempts").ok().flatten().and_then(number).unwrap_or(0);
    Row {
        seq: place_of(added),
        attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
        order: order(row),
        content: content(row, added),
    }
}

/// The topic and key of a row, whatever they say.
pub(super) fn order(row: &RawDocument) -> Option<OrderKey> {
    let topic = row.get("topic").ok().flatten().map(lossy).unwrap_or_default();
    let key = row.get("key").ok().flatten().filter(|key| *key != RawBsonRef::Null)?;
    Some(OrderKey { topic, key: lossy(key) })
}

/// A value as text, whatever it is.
pub(super) fn lossy(value: RawBsonRef<'_>) -> String {
    match value {
        RawBsonRef::String(text) => text.to_owned(),
        other => document::canonical(other).unwrap_or_default(),
    }
}

/// A whole number, of whatever kind; of a date, its milliseconds.
pub(crate) fn number(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(number) => Some(i64::from(number)),
        RawBsonRef::Int64(number) => Some(number),
        #[expect(clippy::cast_possible_truncation, reason = "checked: it is a whole number")]
        RawBsonRef::Double(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
            Some(number as i64)
        }
        RawBsonRef::DateTime(time) => Some(time.timestamp_millis()),
        _ => None,
    }
}

/// The event in a row.
pub(super) fn content(row: &RawDocument, added: Option<ServerTime>) -> Result<NewEvent, Malformed> {
    let added = added.ok_or_else(|| {
        malformed("field `added`", "it is not a timestamp; give an empty one, Timestamp(0, 0)")
    })?;
    let id = parse::<EventId, _>(required(row, "_id")?, "field `_id`")?;
    let topic = Topic::new(required(row, "topic")?).map_err(|e| malformed("field `topic`", e))?;
    let sid = text(row, "sid", "field `sid`")?;
    let sid = sid.map(|sid| parse::<EventId, _>(sid, "field `sid`")).transpose()?;
    let key = text(row, "key", "field `key`")?;
    let event = NewEvent {
        id,
        sid: sid.map(|sid| SessionId::from_bytes(*sid.as_bytes())),
        ts: event_time(row, added)?,
        topic,
        key: key.map(|key| parse::<Key, _>(key, "field `key`")).transpose()?,
        headers: headers(row)?,
        payload: payload(row)?,
        caused_by: list(row, "caused_by", "field `caused_by`", str::parse::<EventId>)?,
        tags: list(row, "tags", "field `tags`", |tag| Tag::new(tag))?,
    };
    event.check().map_err(|error| malformed("fields `tags` or `caused_by`", error))?;
    Ok(event)
}

/// When it happened; when it was added, if nobody says.
fn event_time(row: &RawDocument, added: ServerTime) -> Result<Timestamp, Malformed> {
    let part = "field `ts`";
    let millis = match value(row, "ts") {
        None => i64::from(added.time) * 1000,
        Some(value) => {
            number(value).ok_or_else(|| malformed(part, "it is neither milliseconds nor a date"))?
        }
    };
    u64::try_from(millis).map(Timestamp::from_millis).map_err(|_| malformed(part, "it is negative"))
}

fn payload(row: &RawDocument) -> Result<Payload, Malformed> {
    if let Some(text) = text(row, "payload_json", "field `payload_json`")? {
        return Payload::parse(text.as_bytes().to_vec())
            .map_err(|error| malformed("field `payload_json`", error));
    }
    let value = row.get("payload").ok().flatten();
    let value = value.ok_or_else(|| malformed("field `payload`", "there is nothing in it"))?;
    let text = document::canonical(value).map_err(|error| malformed("field `payload`", error))?;
    Payload::parse(Bytes::from(text)).map_err(|error| malformed("field `payload`", error))
}

/// Headers are a list of pairs, as we write them, or an object, as others find it easier.
fn headers(row: &RawDocument) -> Result<Headers, Malformed> {
    let part = "field `headers`";
    let mut headers = Headers::default();
    let mut insert = |name: &str, value: Option<&str>| {
        let value = value.ok_or_else(|| malformed(part, "a value is not text"))?;
        headers.insert(name, value).map_err(|error| malformed(part, error))
    };
    match value(row, "headers") {
        None => {}
        Some(RawBsonRef::Document(object)) => {
            for member in object {
                let (name, value) = member.map_err(|error| malformed(part, error))?;
                insert(name.as_str(), value.as_str())?;
            }
        }
        Some(RawBsonRef::Array(pairs)) => {
            for pair in pairs {
                let pair = pair.map_err(|error| malformed(part, error))?;
                let pair = pair.as_document();
                let get = |name| pair.and_then(|pair| pair.get_str(name).ok());
                let name = get("name").ok_or_else(|| malformed(part, "a pair has no name"))?;
                insert(name, get("value"))?;
            }
        }
        Some(_) => return Err(malformed(part, "it is neither an object nor a list of pairs")),
    }
    Ok(headers)
}

fn list<T, E: Display>(
    row: &RawDocument,
    name: &str,
    part: &'static str,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<Vec<T>, Malformed> {
    let Some(value) = value(row, name) else { return Ok(Vec::new()) };
    let items = value.as_array().ok_or_else(|| malformed(part, "it is not a list"))?;
    let item = |item: RawBsonRef<'_>| {
        let text = item.as_str().ok_or_else(|| malformed(part, "not all of it is text"))?;
        parse(text).map_err(|error| malformed(part, error))
    };
    items.into_iter().map(|found| item(found.map_err(|error| malformed(part, error))?)).collect()
}

/// What is in a field; nothing if it is null.
fn value<'a>(row: &'a RawDocument, name: &str) -> Option<RawBsonRef<'a>> {
    row.get(name).ok().flatten().filter(|value| *value != RawBsonRef::Null)
}

fn text<'a>(
    row: &'a RawDocument,
    name: &str,
    part: &'static str,
) -> Result<Option<&'a str>, Malformed> {
    value(row, name)
        .map(|value| value.as_str().ok_or_else(|| malformed(part, "it is not text")))
        .transpose()
}

fn required<'a>(row: &'a RawDocument, name: &'static str) -> Result<&'a str, Malformed> {
    let part = if name == "_id" { "field `_id`" } else { "field `topic`" };
    text(row, name, part)?.ok_or_else(|| malformed(part, "there is nothing in it"))
}

fn parse<T, E>(text: &str, part: &'static str) -> Result<T, Malformed>
where
    T: std::str::FromStr<Err = E>,
    E: Display,
{
    text.parse().map_err(|error: E| malformed(part, error))
}

fn malformed(part: &'static str, reason: impl Display) -> Malformed {
    Malformed { part, reason: reason.to_string() }
}

/// A time in milliseconds.
pub(super) fn millis(row: &RawDocument, name: &str) -> Option<Timestamp> {
    let time = row.get(name).ok().flatten().and_then(number)?;
    Some(Timestamp::from_millis(unsigned(time)))
}

/// A moment of the server's, in milliseconds.
pub(super) fn moment(added: ServerTime) -> Timestamp {
    Timestamp::from_millis(u64::from(added.time) * 1000)
}

/// A span as servers add it to their time.
pub(super) fn span(time: std::time::Duration) -> i64 {
    signed(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_ordered_as_the_server_orders_times() {
        let times = [(0, 0), (0, 1), (1, 0), (1, u32::MAX), (1_800_000_000, 3), (u32::MAX, 1)];
        let times = times.map(|(time, increment)| ServerTime { time, increment });
        for time in times {
            assert_eq!(time_at(place_of(Some(time))), time);
        }
        assert!(times.map(Some).map(place_of).is_sorted());
    }
}
