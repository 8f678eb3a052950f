//! Events as documents: the fields of an event under their own names, so that users' own queries
//! and readers work, and what the store needs besides.

mod payload;

mod transcode;

use bytes::Bytes;
use mongodb::bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use mongodb::bson::{Bson, DateTime, cstr};
use promethean::store::{ReadError, Stored, TopicId};
use promethean_event::{
    Event, EventId, Headers, Key, NewEvent, Offset, Partition, Payload, SessionId, Tag, Timestamp,
    Topic,
};

use payload::{Kept, keep};
pub(crate) use payload::{PrintError, canonical, print_members, restore, value_of};

/// Where an event stands, and what the store notes of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placing {
    pub(crate) topic: TopicId,
    pub(crate) partition: Partition,
    pub(crate) offset: Offset,
    pub(crate) appended_at: Timestamp,
    pub(crate) bytes: u32,
    /// Bytes of the lane up to and with this event, ever: by them its oldest are found when there
    /// are too many.
    pub(crate) bytes_to_here: u64,
}

/// A number as servers keep it. None of ours comes near the end of the range.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// A whole number, of whichever kind.
pub(crate) fn whole(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(number) => Some(i64::from(*number)),
        Bson::Int64(number) => Some(*number),
        #[expect(clippy::cast_possible_truncation, reason = "settings are small")]
        Bson::Double(number) => Some(*number as i64),
        _ => None,
    }
}

pub(crate) fn date(time: Timestamp) -> DateTime {
    DateTime::from_millis(signed(time.millis()))
}

/// What of an event's document does not depend on its place. Encoded once, however often the event is
/// placed: another hub may be faster.
#[derive(Debug, Clone)]
pub(crate) struct Content {
    document: RawDocumentBuf,
    pub(crate) bytes: usize,
}

impl Content {
    pub(crate) fn of(event: &NewEvent) -> Self {
        let mut document = RawDocumentBuf::new();
        document.append(cstr!("id"), event.id.to_string());
        append_content(&mut document, event);
        if event.key.is_some() && event.payload.is_tombstone() {
            document.append(cstr!("tombstone"), true);
        }
        Self { document, bytes: size(event) }
    }

    /// The document of the event at its place.
    pub(crate) fn at(&self, topic: &Topic, placing: &Placing) -> RawDocumentBuf {
        let mut document = RawDocumentBuf::new();
        document.append(cstr!("topic"), topic.as_str());
        document.append(cstr!("topic_id"), i64::from(placing.topic.get()));
        document.append(cstr!("partition"), i64::from(placing.partition.get()));
        document.append(cstr!("offset"), signed(placing.offset.get()));
        let mut document = joined(&document, &self.document);
        document.append(cstr!("appendedAt"), date(placing.appended_at));
        document.append(cstr!("bytes"), i64::from(placing.bytes));
        document.append(cstr!("bytes_to_here"), signed(placing.bytes_to_here));
        document
    }
}

/// Bytes that [`Content::at`] adds behind what is joined, about.
const BEHIND_BYTES: usize = 64;

/// One document with the fields of two, in order.
fn joined(first: &RawDocumentBuf, second: &RawDocumentBuf) -> RawDocumentBuf {
    let (first, second) = (fields(first), fields(second));
    let length = 4 + first.len() + second.len() + 1;
    let mut bytes = Vec::with_capacity(length + BEHIND_BYTES);
    bytes.extend_from_slice(&i32::try_from(length).unwrap_or(i32::MAX).to_le_bytes());
    bytes.extend_from_slice(first);
    bytes.extend_from_slice(second);
    bytes.push(0);
    RawDocumentBuf::from_bytes(bytes)
        .unwrap_or_else(|error| unreachable!("the fields of two documents are one: {error}"))
}

/// The fields of a document: all but its length, which is four bytes, and the zero at its end.
fn fields(document: &RawDocumentBuf) -> &[u8] {
    let bytes = document.as_bytes();
    bytes.get(4..bytes.len().saturating_sub(1)).unwrap_or_default()
}

/// Everything of an event but its topic and id.
pub(crate) fn append_content(document: &mut RawDocumentBuf, event: &NewEvent) {
    if let Some(sid) = &event.sid {
        document.append(cstr!("sid"), sid.to_string());
    }
    document.append(cstr!("ts"), signed(event.ts.millis()));
    if let Some(key) = &event.key {
        document.append(cstr!("key"), key.as_str());
    }
    if !event.headers.is_empty() {
        document.append(cstr!("headers"), headers(&event.headers));
    }
    match keep(&event.payload) {
        Kept::Value(value) => document.append(cstr!("payload"), value),
        Kept::Text(text) => document.append(cstr!("payload_json"), text),
    }
    if !event.caused_by.is_empty() {
        document
            .append(cstr!("caused_by"), strings(event.caused_by.iter().map(EventId::to_string)));
    }
    if !event.tags.is_empty() {
        let tags = event.tags.iter().map(|tag| tag.as_str().to_owned());
        document.append(cstr!("tags"), strings(tags));
    }
}

/// As a list of pairs: names with dots would be paths to whoever queries them as fields.
fn headers(headers: &Headers) -> RawArrayBuf {
    let mut list = RawArrayBuf::new();
    for (name, value) in headers.iter() {
        let mut pair = RawDocumentBuf::new();
        pair.append(cstr!("name"), name);
        pair.append(cstr!("value"), value);
        list.push(pair);
    }
    list
}

fn strings(texts: impl Iterator<Item = String>) -> RawArrayBuf {
    let mut list = RawArrayBuf::new();
    texts.for_each(|text| list.push(text));
    list
}

/// Why a document is not an event of ours.
#[derive(Debug, thiserror::Error)]
enum DecodeError {
    #[error(transparent)]
    Bson(#[from] mongodb::bson::error::Error),
    #[error(transparent)]
    Payload(#[from] PrintError),
    #[error("its field `{0}` is missing or holds something else")]
    Field(&'static str),
}

/// The event in a document of a topic.
pub(crate) fn decode(document: &RawDocument, topic: &Topic) -> Result<Stored, ReadError> {
    read(document, topic).map_err(|error| {
        let text = |name: &str| document.get_str(name).unwrap_or("?").to_owned();
        let offset = document.get_i64("offset").unwrap_or(-1);
        let (topic, id) = (text("topic"), text("id"));
        ReadError::Damaged(format!("the document of event {id} at {topic}/{offset}: {error}"))
    })
}

fn read(document: &RawDocument, topic: &Topic) -> Result<Stored, DecodeError> {
    let mut draft = Draft::default();
    for field in document.iter() {
        let (name, value) = field?;
        draft.take(name.as_str(), value)?;
    }
    draft.finish(topic)
}

/// An event whose fields are being read, in one pass.
#[derive(Default)]
struct Draft<'a> {
    topic: Option<&'a str>,
    id: Option<&'a str>,
    sid: Option<&'a str>,
    key: Option<&'a str>,
    partition: i64,
    offset: Option<i64>,
    ts: i64,
    appended_at: Option<DateTime>,
    bytes: i64,
    headers: Headers,
    payload: Option<Payload>,
    caused_by: Vec<EventId>,
    tags: Vec<Tag>,
}

impl<'a> Draft<'a> {
    fn take(&mut self, name: &str, value: RawBsonRef<'a>) -> Result<(), DecodeError> {
        match name {
            "topic" => self.topic = value.as_str(),
            "id" => self.id = value.as_str(),
            "sid" => self.sid = value.as_str(),
            "key" => self.key = value.as_str(),
            "partition" => self.partition = number(value).unwrap_or(0),
            "offset" => self.offset = number(value),
            "ts" => self.ts = number(value).unwrap_or(0),
            "appendedAt" => self.appended_at = value.as_datetime(),
            "bytes" => self.bytes = number(value).unwrap_or(0),
            "payload" => self.payload = Some(restore(value)?),
            "payload_json" => {
                let text = value.as_str().ok_or(DecodeError::Field("payload_json"))?;
                self.payload = Some(Payload::from_stored(Bytes::from(text.to_owned())));
            }
            "headers" => self.take_headers(value)?,
            "caused_by" => {
                let parse = |text: &str| text.parse().map_err(|_| DecodeError::Field("caused_by"));
                self.caused_by =
                    texts(value, "caused_by")?.map(|t| parse(t?)).collect::<Result<_, _>>()?;
            }
            "tags" => {
                let parse = |text: &str| Tag::new(text).map_err(|_| DecodeError::Field("tags"));
                self.tags = texts(value, "tags")?.map(|t| parse(t?)).collect::<Result<_, _>>()?;
            }
            // What users have added, and what only queries need.
            _ => {}
        }
        Ok(())
    }

    fn take_headers(&mut self, value: RawBsonRef<'a>) -> Result<(), DecodeError> {
        let wrong = || DecodeError::Field("headers");
        for pair in value.as_array().ok_or_else(wrong)? {
            let pair = pair?.as_document().ok_or_else(wrong)?;
            let text = |name| pair.get_str(name).map_err(|_| DecodeError::Field("headers"));
            self.headers.insert(text("name")?, text("value")?).map_err(|_| wrong())?;
        }
        Ok(())
    }

    fn finish(self, topic: &Topic) -> Result<Stored, DecodeError> {
        let id = self.id.and_then(|id| id.parse().ok()).ok_or(DecodeError::Field("id"))?;
        // Asked for by its name.
        let topic = self.topic.filter(|name| *name == topic.as_str()).map(|_| topic.clone());
        let topic = topic.ok_or(DecodeError::Field("topic"))?;
        let sid = self.sid.map(|sid| sid.parse::<EventId>().map_err(|_| DecodeError::Field("sid")));
        let key = self.key.map(|key| Key::new(key).map_err(|_| DecodeError::Field("key")));
        let partition =
            u32::try_from(self.partition).map_err(|_| DecodeError::Field("partition"))?;
        let event = Event {
            id,
            sid: sid.transpose()?.map(|sid| SessionId::from_bytes(*sid.as_bytes())),
            ts: Timestamp::from_millis(unsigned(self.ts)),
            topic,
            key: key.transpose()?,
            partition: Partition::new(partition),
            offset: Offset::new(unsigned(self.offset.ok_or(DecodeError::Field("offset"))?)),
            headers: self.headers,
            payload: self.payload.ok_or(DecodeError::Field("payload"))?,
            caused_by: self.caused_by,
            tags: self.tags,
        };
        let appended_at = self.appended_at.ok_or(DecodeError::Field("appendedAt"))?;
        let appended_at = Timestamp::from_millis(unsigned(appended_at.timestamp_millis()));
        Ok(Stored { event, appended_at, bytes: u32::try_from(self.bytes).unwrap_or(u32::MAX) })
    }
}

fn number(value: RawBsonRef<'_>) -> Option<i64> {
    value.as_i64().or_else(|| value.as_i32().map(i64::from))
}

fn texts<'a>(
    value: RawBsonRef<'a>,
    field: &'static str,
) -> Result<impl Iterator<Item = Result<&'a str, DecodeError>>, DecodeError> {
    let items = value.as_array().ok_or(DecodeError::Field(field))?.into_iter();
    Ok(items.map(move |item| item?.as_str().ok_or(DecodeError::Field(field))))
}

/// Bytes of an event, about: what limits are held against.
pub(crate) fn size(event: &NewEvent) -> usize {
    const FIXED_BYTES: usize = 70;
    let headers: usize = event.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    FIXED_BYTES
        + event.key.as_ref().map_or(0, |key| key.as_str().len())
        + headers
        + event.caused_by.len() * 16
        + event.payload.as_bytes().len()
}

/// Whether it is the same event: all but the event time, which a publisher that tries again may
/// have taken anew.
pub(crate) fn is_same(first: &Event, again: &NewEvent) -> bool {
    (&first.sid, &first.key, &first.headers) == (&again.sid, &again.key, &again.headers)
        && first.payload == again.payload
        && (&first.caused_by, &first.tags) == (&again.caused_by, &again.tags)
}
