//! What comes in over HTTP, as events: one payload, a list, lines, or CloudEvents in their three
//! forms. Payloads stay slices of the body. All of a request is read, or none of it.
//!
//! - `application/json`: anything but an array is the payload of one event, whose key, id and time
//!   come from the query. An array holds envelopes: `{"payload": …, "key": …, "id": …, …}`.
//! - `application/x-ndjson`: an envelope on every line.
//! - `application/cloudevents+json`, `application/cloudevents-batch+json`, and `ce-` headers.

mod envelope;

mod carried;

mod cloud_event;

mod time;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use promethean_event::{EventId, Headers, NewEvent, Payload, Timestamp, Topic};

pub use carried::{Attributes, carried, check_headers};
pub use cloud_event::write_cloud_event;
pub use time::{read_time, write_time};

use crate::limits::{BATCH_BODY_BYTES_MAX, BODY_BYTES_MAX, IDEMPOTENCY_KEY_BYTES_MAX};
use crate::rejection::{Code, Rejection};
use envelope::Envelope;

/// What a request says about the events in it, besides its body.
#[derive(Debug)]
pub struct Request<'a> {
    /// The topic, from the address.
    pub topic: &'a Topic,
    /// Who sends it, so that idempotency keys of two clients do not meet.
    pub subject: &'a str,
    /// Query parameters that describe one event.
    pub described: envelope::Described,
    /// The headers of the request.
    pub headers: &'a HeaderMap,
    /// Event time of events that have none.
    pub now: Timestamp,
}

pub use envelope::Described;

/// The events of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Intake {
    /// At least one.
    pub events: Vec<NewEvent>,
    /// Whether the request was for many, and wants an answer for many.
    pub batch: bool,
}

/// How a body is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One payload or an array of envelopes.
    Json,
    /// An envelope on each line.
    Lines,
    /// A CloudEvent whose attributes are in the headers.
    CloudBinary,
    /// A CloudEvent in the body.
    CloudStructured,
    /// An array of CloudEvents.
    CloudBatch,
}

impl Form {
    /// What the headers say, before the body is read.
    pub fn of(headers: &HeaderMap) -> Result<Self, Rejection> {
        if let Some(encoding) = headers.get(CONTENT_ENCODING)
            && !encoding.as_bytes().eq_ignore_ascii_case(b"identity")
        {
            return Err(Rejection::new(
                Code::UnsupportedMediaType,
                "compressed bodies are not read; send it as it is",
            ));
        }
        let kind = headers.get(CONTENT_TYPE).map(|value| value.to_str().unwrap_or("?"));
        let (kind, parameters) =
            kind.map_or(("", ""), |kind| kind.split_once(';').unwrap_or((kind, "")));
        let utf8 = parameters.is_empty()
            || matches!(
                parameters.trim().to_ascii_lowercase().replace('"', "").as_str(),
                "charset=utf-8" | "charset=utf8"
            );
        let form = match kind.trim().to_ascii_lowercase().as_str() {
            "application/json" if headers.contains_key("ce-specversion") => Self::CloudBinary,
            "application/json" => Self::Json,
            "application/x-ndjson" => Self::Lines,
            "application/cloudevents+json" => Self::CloudStructured,
            "application/cloudevents-batch+json" => Self::CloudBatch,
            _ => {
                return Err(Rejection::new(
                    Code::UnsupportedMediaType,
                    "send application/json, application/x-ndjson or application/cloudevents+json",
                ));
            }
        };
        if utf8 {
            return Ok(form);
        }
        Err(Rejection::new(Code::UnsupportedMediaType, "JSON is UTF-8"))
    }

    /// How large its body may be.
    pub const fn body_bytes_max(self) -> usize {
        match self {
            Self::CloudBinary | Self::CloudStructured => BODY_BYTES_MAX,
            // Whether it is one event or many shows only in the body.
            Self::Json | Self::Lines | Self::CloudBatch => BATCH_BODY_BYTES_MAX,
        }
    }
}

/// Reads a body.
pub fn read(request: &Request<'_>, form: Form, body: &Bytes) -> Result<Intake, Rejection> {
    let mut intake = match form {
        Form::Json if is_array(body) => envelope::array(request, body)?,
        Form::Json => one(request, body)?,
        Form::Lines => envelope::lines(request, body)?,
        Form::CloudBinary => cloud_event::binary(request, body)?,
        Form::CloudStructured => cloud_event::structured(request, body)?,
        Form::CloudBatch => cloud_event::batch(request, body)?,
    };
    name_by_key(&mut intake, request)?;
    for event in &intake.events {
        event.check().map_err(refused)?;
    }
    Ok(intake)
}

fn is_array(body: &[u8]) -> bool {
    body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[')
}

fn one(request: &Request<'_>, body: &Bytes) -> Result<Intake, Rejection> {
    if body.len() > BODY_BYTES_MAX {
        return Err(Rejection::new(Code::TooLarge, "one event has 1 MiB at most"));
    }
    let payload = payload(body.clone())?;
    let headers = carried(request.headers, Attributes::AreHeaders)?;
    let envelope = Envelope { described: request.described.clone(), headers, payload };
    Ok(Intake { events: vec![envelope.into_event(request)], batch: false })
}

fn payload(bytes: Bytes) -> Result<Payload, Rejection> {
    use promethean_event::JsonError as E;
    Payload::parse(bytes).map_err(|error| {
        let code = match error {
            E::TooDeep | E::TooManyMembers => Code::TooComplex,
            E::TooLarge(_) => Code::TooLarge,
            _ => Code::BadRequest,
        };
        Rejection::new(code, error.to_string())
    })
}

fn refused(error: impl std::fmt::Display) -> Rejection {
    Rejection::new(Code::InvalidEvent, error.to_string())
}

/// An `Idempotency-Key` that is a UUID is the id of the event; any other text leads to one, the
/// same for the same client, topic and text. Events that have an id of their own keep it.
fn name_by_key(intake: &mut Intake, request: &Request<'_>) -> Result<(), Rejection> {
    let Some(key) = request.headers.get("idempotency-key") else {
        return Ok(());
    };
    let key = key.to_str().unwrap_or_default().trim_matches('"');
    if key.is_empty() || key.len() > IDEMPOTENCY_KEY_BYTES_MAX {
        return Err(Rejection::new(
            Code::BadRequest,
            "Idempotency-Key is 1 to 128 visible ASCII characters",
        ));
    }
    let given = key.parse::<EventId>().ok().filter(|_| !intake.batch);
    for (index, event) in intake.events.iter_mut().enumerate() {
        if event.id != UNNAMED {
            continue;
        }
        event.id = given.unwrap_or_else(|| {
            let parts = [request.subject, request.topic.as_str(), key, &index.to_string()];
            EventId::derived("idempotency-key", parts.join("\0").as_bytes())
        });
    }
    Ok(())
}

/// The id of events that have none yet: never published as it is.
const UNNAMED: EventId = EventId::from_bytes([0; 16]);

/// Gives every event that has no id yet a new one.
pub fn name_events(intake: &mut Intake) {
    for event in &mut intake.events {
        if event.id == UNNAMED {
            event.id = EventId::generate();
        }
    }
}

/// An event with nothing but what it needs, to be filled in.
fn blank(request: &Request<'_>, payload: Payload, headers: Headers) -> NewEvent {
    let mut event = NewEvent::new(UNNAMED, request.now, request.topic.clone(), payload);
    event.headers = headers;
    event
}

#[cfg(test)]
#[path = "intake_tests.rs"]
mod tests;
