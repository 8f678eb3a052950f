//! CloudEvents 1.0 at the edge. Inside, events stay as they are; what has no place in an event
//! travels as `ce-` headers, what has no place in a CloudEvent as `prom…` attributes.
//!
//! | CloudEvent | event |
//! | --- | --- |
//! | `id` | `id` if it is a UUID; otherwise an id made from `source` and `id`, and header `ce-id` |
//! | `type` | the topic of the address; another type is header `ce-type` |
//! | `source`, `dataschema`, extensions | headers `ce-…` |
//! | `partitionkey`, or else `subject` | `key` |
//! | `time` | `ts` |
//! | `traceparent` | header `traceparent` |
//! | `causedby` | `caused_by` |
//! | `data` | `payload` |

use std::collections::BTreeMap;

use bytes::Bytes;
use promethean_event::{Event, EventId, Headers, Key, NewEvent, Tag, Topic};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::envelope::many;
use super::time::{read_time, write_time};
use super::{Attributes, Intake, Request, blank, carried, check_headers, payload, refused};
use crate::rejection::{Code, Rejection};

/// A CloudEvent in JSON: attributes are texts, numbers or booleans; `data` is anything.
type Structured<'a> = BTreeMap<String, &'a RawValue>;

pub(super) fn structured(request: &Request<'_>, body: &Bytes) -> Result<Intake, Rejection> {
    let event = one(request, body, &parse(body)?)?;
    Ok(Intake { events: vec![event], batch: false })
}

pub(super) fn batch(request: &Request<'_>, body: &Bytes) -> Result<Intake, Rejection> {
    let list: Vec<Structured<'_>> = serde_json::from_slice(body)
        .map_err(|error| bad(format!("array of CloudEvents: {error}")))?;
    let events = list.iter().map(|event| one(request, body, event)).collect::<Result<_, _>>()?;
    many(events)
}

pub(super) fn binary(request: &Request<'_>, body: &Bytes) -> Result<Intake, Rejection> {
    let mut attributes = BTreeMap::new();
    for (name, value) in request.headers {
        let Some(name) = name.as_str().strip_prefix("ce-") else {
            continue;
        };
        let value = value.to_str().map_err(|_| bad(format!("ce-{name} is not ASCII")))?;
        if attributes.insert(name.to_owned(), percent_decoded(value)?).is_some() {
            return Err(bad(format!("ce-{name} is there twice")));
        }
    }
    let headers = carried(request.headers, Attributes::AreRead)?;
    let payload =
        if body.is_empty() { promethean_event::Payload::null() } else { payload(body.clone())? };
    let event = made(request, attributes, blank(request, payload, headers))?;
    Ok(Intake { events: vec![event], batch: false })
}

fn parse(body: &Bytes) -> Result<Structured<'_>, Rejection> {
    serde_json::from_slice(body).map_err(|error| bad(format!("CloudEvent: {error}")))
}

fn one(request: &Request<'_>, body: &Bytes, event: &Structured<'_>) -> Result<NewEvent, Rejection> {
    if event.contains_key("data_base64") {
        return Err(not_json());
    }
    let mut attributes = BTreeMap::new();
    for (name, value) in event {
        if name == "data" {
            continue;
        }
        let text = match value.get().as_bytes().first() {
            Some(b'"') => {
                serde_json::from_str(value.get()).map_err(|_| bad("a bad text".into()))?
            }
            // Numbers and booleans as they are spelled; `null` is as if it were not there.
            Some(b'n') => continue,
            Some(b'{' | b'[') | None => return Err(bad(format!("{name} is not a text"))),
            Some(_) => value.get().to_owned(),
        };
        attributes.insert(name.clone(), text);
    }
    let payload = match event.get("data") {
        Some(data) => payload(body.slice_ref(data.get().as_bytes()))?,
        None => promethean_event::Payload::null(),
    };
    made(request, attributes, blank(request, payload, Headers::new()))
}

/// The event that these attributes describe.
fn made(
    request: &Request<'_>,
    mut attributes: BTreeMap<String, String>,
    mut event: NewEvent,
) -> Result<NewEvent, Rejection> {
    if attributes.remove("specversion").as_deref() != Some("1.0") {
        return Err(bad("specversion is not 1.0".into()));
    }
    let mut needed = |name: &str| {
        attributes
            .remove(name)
            .filter(|value| !value.is_empty())
            .ok_or_else(|| bad(format!("{name} is missing")))
    };
    let (id, source, kind) = (needed("id")?, needed("source")?, needed("type")?);
    if let Some(name) = attributes.keys().find(|name| !is_attribute(name)) {
        return Err(bad(format!("{name:?} cannot be the name of an attribute")));
    }
    if attributes.remove("datacontenttype").is_some_and(|kind| !is_json(&kind)) {
        return Err(not_json());
    }
    event.id = match id.parse() {
        Ok(id) => id,
        Err(_) => {
            event.headers.set("ce-id", &id).map_err(refused)?;
            EventId::derived("cloudevents", format!("{source}\0{id}").as_bytes())
        }
    };
    if let Some(time) = attributes.remove("time") {
        event.ts = read_time(&time).ok_or_else(|| bad("time is not RFC 3339".into()))?;
    }
    event.key = key(&mut attributes)?;
    if let Some(causes) = attributes.remove("causedby") {
        let causes = causes.split(' ').map(str::parse).collect::<Result<_, _>>();
        event.caused_by = causes.map_err(|_| bad("causedby is not ids".into()))?;
    }
    own_attributes(&mut attributes, &mut event)?;
    if kind != request.topic.as_str() {
        attributes.insert("type".into(), kind);
    }
    if source != own_source(request.topic) {
        attributes.insert("source".into(), source);
    }
    for (name, value) in attributes {
        let name = if name == "traceparent" { name } else { format!("ce-{name}") };
        event.headers.set(&name, &value).map_err(refused)?;
    }
    Ok(event)
}

fn key(attributes: &mut BTreeMap<String, String>) -> Result<Option<Key>, Rejection> {
    let subject = attributes.remove("subject");
    let Some(text) = attributes.remove("partitionkey") else {
        return subject.map(Key::new).transpose().map_err(refused);
    };
    // A subject that is not the key has to be kept somewhere.
    if let Some(subject) = subject.filter(|subject| *subject != text) {
        attributes.insert("subject".into(), subject);
    }
    Key::new(text).map(Some).map_err(refused)
}

/// Attributes that we wrote ourselves, and those that say where an event stood elsewhere.
fn own_attributes(
    attributes: &mut BTreeMap<String, String>,
    event: &mut NewEvent,
) -> Result<(), Rejection> {
    if let Some(text) = attributes.remove("promheaders") {
        let headers: Headers = own(&text)?;
        check_headers(&headers)?;
        for (name, value) in headers.iter() {
            event.headers.set(name, value).map_err(refused)?;
        }
    }
    if let Some(text) = attributes.remove("promtags") {
        event.tags = own::<Vec<Tag>>(&text)?;
    }
    if let Some(text) = attributes.remove("promsid") {
        event.sid = Some(own(&format!("\"{text}\""))?);
    }
    attributes.remove("sequence");
    attributes.remove("promoffset");
    Ok(())
}

fn own<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, Rejection> {
    serde_json::from_str(text).map_err(|error| bad(format!("a prom attribute: {error}")))
}

/// `[a-z0-9]`, as the specification wants it.
fn is_attribute(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 64
        && name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
}

fn is_json(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || kind.ends_with("+json") || kind == "text/json"
}

fn bad(detail: String) -> Rejection {
    Rejection::new(Code::BadRequest, detail)
}

fn not_json() -> Rejection {
    Rejection::new(Code::UnsupportedMediaType, "the data of a CloudEvent has to be JSON here")
}

/// Values of `ce-` headers are percent-encoded UTF-8 (HTTP binding, 3.1.3.2).
fn percent_decoded(value: &str) -> Result<String, Rejection> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let hex = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(byte.ok_or_else(|| bad("a bad percent sign in a ce- header".into()))?);
        rest = tail.get(2..).unwrap_or_default();
    }
    String::from_utf8(bytes).map_err(|_| bad("a ce- header is not UTF-8".into()))
}

fn own_source(topic: &Topic) -> String {
    format!("/topics/{topic}")
}

/// Appends an event as a CloudEvent in JSON.
pub fn write_cloud_event(out: &mut Vec<u8>, event: &Event) {
    let mut before = b'{';
    let mut text = |name: &str, value: &str| {
        out.push(before);
        before = b',';
        // Texts always have a JSON form, and a vector takes them all.
        let _ = serde_json::to_writer(&mut *out, name);
        out.push(b':');
        let _ = serde_json::to_writer(&mut *out, value);
    };
    let header = |name: &str| event.headers.get(name);
    text("specversion", "1.0");
    text("id", header("ce-id").unwrap_or(&event.id.to_string()));
    text("source", header("ce-source").unwrap_or(&own_source(&event.topic)));
    text("type", header("ce-type").unwrap_or(event.topic.as_str()));
    text("time", &write_time(event.ts));
    text("datacontenttype", "application/json");
    if let Some(key) = &event.key {
        text("subject", header("ce-subject").unwrap_or(key.as_str()));
        text("partitionkey", key.as_str());
    }
    if !event.caused_by.is_empty() {
        let causes: Vec<String> = event.caused_by.iter().map(ToString::to_string).collect();
        text("causedby", &causes.join(" "));
    }
    if let Some(sid) = event.sid {
        text("promsid", &sid.to_string());
    }
    if !event.tags.is_empty() {
        text("promtags", &serde_json::to_string(&event.tags).unwrap_or_default());
    }
    // Zero-padded, so that it compares as text.
    text("sequence", &format!("{:05}-{:020}", event.partition.get(), event.offset.get()));
    let mut others = Headers::new();
    for (name, value) in event.headers.iter() {
        match name.strip_prefix("ce-") {
            Some("id" | "source" | "type" | "subject") => {}
            Some(attribute) if is_attribute(attribute) => text(attribute, value),
            None if name == "traceparent" => text(name, value),
            _ => {
                let _ = others.insert(name, value);
            }
        }
    }
    if !others.is_empty() {
        text("promheaders", &serde_json::to_string(&others).unwrap_or_default());
    }
    out.extend_from_slice(b",\"data\":");
    out.extend_from_slice(event.payload.as_bytes());
    out.push(b'}');
}
