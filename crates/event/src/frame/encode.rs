//! Events as JSON text, by hand: serde would check a payload anew each time it is sent, and it is
//! sent once per group. The text is the same, byte for byte; a property test holds it to that.

use std::io::Write;

use serde::Serialize;

use super::{Context, Corr, Place};
use crate::{Event, EventId, GroupName};

/// Appends `event` as JSON.
pub fn write_event(out: &mut Vec<u8>, event: &Event) {
    out.reserve(event.payload.as_bytes().len() + 256);
    out.extend_from_slice(b"{\"id\":\"");
    write_id(out, event.id);
    if let Some(sid) = event.sid {
        out.extend_from_slice(b"\",\"sid\":\"");
        display(out, sid);
    }
    out.extend_from_slice(b"\",\"ts\":");
    display(out, event.ts);
    // A topic has no character that JSON escapes.
    out.extend_from_slice(b",\"topic\":\"");
    out.extend_from_slice(event.topic.as_str().as_bytes());
    out.push(b'"');
    if let Some(key) = &event.key {
        out.extend_from_slice(b",\"key\":");
        json(out, key.as_str());
    }
    out.extend_from_slice(b",\"partition\":");
    display(out, event.partition);
    out.extend_from_slice(b",\"offset\":");
    display(out, event.offset);
    if !event.headers.is_empty() {
        out.extend_from_slice(b",\"headers\":");
        json(out, &event.headers);
    }
    out.extend_from_slice(b",\"payload\":");
    out.extend_from_slice(event.payload.as_bytes());
    if !event.caused_by.is_empty() {
        out.extend_from_slice(b",\"caused_by\":");
        json(out, &event.caused_by);
    }
    if !event.tags.is_empty() {
        out.extend_from_slice(b",\"tags\":");
        json(out, &event.tags);
    }
    out.push(b'}');
}

/// Appends an `EVENT` frame.
pub fn write_event_frame(
    out: &mut Vec<u8>,
    group: Option<&GroupName>,
    event: &Event,
    ctx: &Context,
) {
    out.extend_from_slice(b"{\"op\":\"EVENT\",\"topic\":\"");
    out.extend_from_slice(event.topic.as_str().as_bytes());
    if let Some(group) = group {
        // Nor has a group name.
        out.extend_from_slice(b"\",\"group\":\"");
        out.extend_from_slice(group.as_str().as_bytes());
    }
    out.extend_from_slice(b"\",\"event\":");
    write_event(out, event);
    out.extend_from_slice(b",\"ctx\":");
    json(out, ctx);
    out.push(b'}');
}

/// Appends the `OK` of a publish, which names a durability that is less than a disk.
pub fn write_ok(
    out: &mut Vec<u8>,
    corr: Option<&Corr>,
    id: Option<EventId>,
    places: &[Place],
    durability: Option<&str>,
) {
    out.reserve(64 + 128 * places.len());
    out.extend_from_slice(b"{\"op\":\"OK\"");
    if let Some(corr) = corr {
        out.extend_from_slice(b",\"corr\":");
        out.extend_from_slice(corr.as_json().as_bytes());
    }
    if let Some(id) = id {
        out.extend_from_slice(b",\"id\":\"");
        write_id(out, id);
        out.push(b'"');
    }
    for (number, place) in places.iter().enumerate() {
        out.extend_from_slice(if number == 0 { b",\"places\":[{" } else { b",{" });
        out.extend_from_slice(b"\"id\":\"");
        write_id(out, place.id);
        out.extend_from_slice(b"\",\"partition\":");
        display(out, place.partition);
        out.extend_from_slice(b",\"offset\":");
        display(out, place.offset);
        if place.duplicate {
            out.extend_from_slice(b",\"duplicate\":true");
        }
        out.push(b'}');
    }
    if !places.is_empty() {
        out.push(b']');
    }
    if let Some(durability) = durability {
        out.extend_from_slice(b",\"durability\":");
        json(out, durability);
    }
    out.push(b'}');
}

fn write_id(out: &mut Vec<u8>, id: EventId) {
    let mut text = [0; EventId::TEXT_BYTES];
    out.extend_from_slice(id.encode(&mut text).as_bytes());
}

fn display(out: &mut Vec<u8>, value: impl std::fmt::Display) {
    // Writing to a vector cannot fail.
    let _ = write!(out, "{value}");
}

/// Values without a JSON form do not occur among names, headers, ids and tags.
fn json(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    let _ = serde_json::to_writer(out, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{DeliveryToken, ServerFrame};
    use crate::{EventId, Headers, Key, Offset, Partition, Payload, SessionId, Tag, Timestamp};
    use proptest::prelude::*;

    fn events() -> impl Strategy<Value = Event> {
        let headers = proptest::collection::btree_map("[a-z-]{1,8}", "[ -~é]{0,12}", 0..4);
        let payload = prop_oneof![
            Just(r#"{"z":1.50,"a":["\u00e9",null]}"#.to_owned()),
            Just("null".to_owned()),
            "[a-z\\\\\"\u{e9}]{0,20}".prop_map(|text| serde_json::to_string(&text).unwrap()),
        ];
        (any::<[u8; 16]>(), any::<Option<[u8; 16]>>(), any::<u64>(), ".{0,20}", headers, payload)
            .prop_map(|(id, sid, ts, key, pairs, payload)| {
                let mut headers = Headers::new();
                for (name, value) in pairs {
                    headers.insert(&name, &value).unwrap();
                }
                let caused_by = sid.map(EventId::from_bytes).into_iter().collect();
                Event {
                    id: EventId::from_bytes(id),
                    sid: sid.map(SessionId::from_bytes),
                    ts: Timestamp::from_millis(ts),
                    topic: "a.b-c_d".parse().unwrap(),
                    tags: Tag::new(key.clone()).into_iter().collect(),
                    key: Key::new(key).ok(),
                    partition: Partition::new(3),
                    offset: Offset::new(ts / 2),
                    headers,
                    payload: Payload::parse(payload).unwrap(),
                    caused_by,
                }
            })
    }

    proptest! {
        #[test]
        fn is_what_serde_writes(event in events(), token in any::<bool>(), grouped in any::<bool>()) {
            let mut out = Vec::new();
            write_event(&mut out, &event);
            prop_assert_eq!(String::from_utf8(out).unwrap(), serde_json::to_string(&event).unwrap());

            let place = Place {
                id: event.id,
                partition: event.partition,
                offset: event.offset,
                duplicate: grouped,
            };
            let corr = token.then(|| Corr::from_json("\"a\\u00e9\"").unwrap());
            let id = grouped.then_some(event.id);
            let durability = (token != grouped).then_some("written");
            for count in 0..3 {
                let places = vec![place; count];
                let mut out = Vec::new();
                write_ok(&mut out, corr.as_ref(), id, &places, durability);
                let frame = ServerFrame::Ok {
                    corr: corr.as_ref(),
                    id,
                    places: &places,
                    durability,
                    sub: None,
                    accepted: None,
                    refused: &[],
                    expires_at: None,
                };
                let wanted = serde_json::to_string(&frame).unwrap();
                prop_assert_eq!(String::from_utf8(out).unwrap(), wanted);
            }

            let token = token.then(|| "1-2-3-4-5-6-7".parse::<DeliveryToken>().unwrap());
            let ctx = Context { attempt: 1, max_attempts: 5, ack_deadline_ms: Some(7), token };
            let group = grouped.then(|| GroupName::new("g").unwrap());
            let mut out = Vec::new();
            write_event_frame(&mut out, group.as_ref(), &event, &ctx);
            let frame =
                ServerFrame::Event { topic: &event.topic, group: group.as_ref(), event: &event, ctx };
            prop_assert_eq!(String::from_utf8(out).unwrap(), serde_json::to_string(&frame).unwrap());
        }
    }
}
