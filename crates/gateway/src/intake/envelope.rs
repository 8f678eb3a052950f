use bytes::Bytes;
use promethean_event::limits::FRAME_EVENTS_MAX;
use promethean_event::{
    EventId, Headers, Key, NewEvent, Payload, SessionId, Tag, Timestamp, Topic,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Attributes, Intake, Request, blank, carried, check_headers, payload, refused};
use crate::limits::BODY_BYTES_MAX;
use crate::rejection::{Code, Rejection};

/// What a client may say about one event.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Described {
    /// Identity. Default: the server makes one.
    pub id: Option<EventId>,
    /// Event time, epoch milliseconds. Default: now.
    pub ts: Option<Timestamp>,
    /// The key. Default: none.
    pub key: Option<Key>,
    /// The session of the publisher. Default: none.
    pub sid: Option<SessionId>,
    /// Free labels. Default: none.
    pub tags: Vec<Tag>,
    /// The events that led to it. Default: none.
    pub caused_by: Vec<EventId>,
}

/// An event of a list or line. Unknown members are refused: a payload that was meant to be sent
/// as it is would otherwise lose them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(borrow)]
    payload: &'a RawValue,
    #[serde(default)]
    topic: Option<Topic>,
    #[serde(default)]
    headers: Headers,
    #[serde(default)]
    id: Option<EventId>,
    #[serde(default)]
    ts: Option<Timestamp>,
    #[serde(default)]
    key: Option<Key>,
    #[serde(default)]
    sid: Option<SessionId>,
    #[serde(default)]
    tags: Vec<Tag>,
    #[serde(default)]
    caused_by: Vec<EventId>,
}

/// One event, as it was described.
pub(super) struct Envelope {
    pub(super) described: Described,
    pub(super) headers: Headers,
    pub(super) payload: Payload,
}

impl Envelope {
    pub(super) fn into_event(self, request: &Request<'_>) -> NewEvent {
        let Self { described, headers, payload } = self;
        let mut event = blank(request, payload, headers);
        event.id = described.id.unwrap_or(event.id);
        event.ts = described.ts.unwrap_or(event.ts);
        event.key = described.key;
        event.sid = described.sid;
        event.tags = described.tags;
        event.caused_by = described.caused_by;
        event
    }
}

pub(super) fn array(request: &Request<'_>, body: &Bytes) -> Result<Intake, Rejection> {
    let list: Vec<Line<'_>> = serde_json::from_slice(body).map_err(|error| {
        Rejection::new(Code::BadRequest, format!("array of envelopes: {error}"))
    })?;
    let inherited = carried(request.headers, Attributes::AreHeaders)?;
    let events = list
        .into_iter()
        .enumerate()
        .map(|(index, line)| event(request, body, line, &inherited).map_err(at("entry", index)))
        .collect::<Result<Vec<_>, _>>()?;
    many(events)
}

pub(super) fn lines(request: &Request<'_>, body: &Bytes) -> Result<Intake, Rejection> {
    let inherited = carried(request.headers, Attributes::AreHeaders)?;
    let mut events = Vec::new();
    for (index, text) in body.split(|byte| *byte == b'\n').enumerate() {
        if text.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        if events.len() == FRAME_EVENTS_MAX {
            return Err(too_many());
        }
        let line: Line<'_> = serde_json::from_slice(text).map_err(|error| {
            Rejection::new(Code::BadRequest, format!("line {}: {error}", index + 1))
        })?;
        events.push(event(request, body, line, &inherited).map_err(at("line", index))?);
    }
    many(events)
}

/// Says which of many was refused, counted from 1.
fn at(what: &'static str, index: usize) -> impl FnOnce(Rejection) -> Rejection {
    move |mut refusal| {
        refusal.detail = format!("{what} {}: {}", index + 1, refusal.detail).into();
        refusal
    }
}

pub(super) fn many(events: Vec<NewEvent>) -> Result<Intake, Rejection> {
    match events.len() {
        0 => Err(Rejection::new(Code::BadRequest, "there is no event in it")),
        1..=FRAME_EVENTS_MAX => Ok(Intake { events, batch: true }),
        _ => Err(too_many()),
    }
}

fn too_many() -> Rejection {
    Rejection::new(Code::TooLarge, "1,000 events at a time")
}

fn event(
    request: &Request<'_>,
    body: &Bytes,
    line: Line<'_>,
    inherited: &Headers,
) -> Result<NewEvent, Rejection> {
    if line.topic.as_ref().is_some_and(|topic| topic != request.topic) {
        return Err(Rejection::new(Code::BadRequest, "topic is not the one of the address"));
    }
    if line.payload.get().len() > BODY_BYTES_MAX {
        return Err(Rejection::new(Code::TooLarge, "one event has 1 MiB at most"));
    }
    check_headers(&line.headers)?;
    let mut headers = line.headers;
    for (name, value) in inherited.iter() {
        if headers.get(name).is_none() {
            headers.insert(name, value).map_err(refused)?;
        }
    }
    let described = Described {
        id: line.id,
        ts: line.ts,
        key: line.key,
        sid: line.sid,
        tags: line.tags,
        caused_by: line.caused_by,
    };
    let payload = payload(body.slice_ref(line.payload.get().as_bytes()))?;
    Ok(Envelope { described, headers, payload }.into_event(request))
}
