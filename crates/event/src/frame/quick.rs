//! `PUBLISH` frames as nearly all clients write them, in one pass that checks the payload too. What is
//! unusual in any way is left to the general reader, and so is everything that is wrong: it knows why.

use std::cell::RefCell;

use bytes::Bytes;

use super::client::{ClientFrame, Publish};
use super::{Corr, PublishOpts};
use crate::json::{Passed, Scan};
use crate::limits::{FRAME_EVENTS_MAX, PATTERN_SEGMENTS_MAX, TOPIC_BYTES_MAX};
use crate::{Payload, Topic};

#[derive(Default)]
struct Members {
    topic: Option<Topic>,
    payload: Option<Payload>,
    opts: Option<PublishOpts>,
    corr: Option<Option<Corr>>,
    events: Option<Vec<Publish>>,
    is_publish: bool,
}

/// The frame, if it is such a one.
pub(super) fn publish(frame: &Bytes) -> Option<(Option<Corr>, ClientFrame)> {
    let text = std::str::from_utf8(frame).ok()?;
    let mut scan = Scan::new(text);
    let members = members(frame, text, &mut scan, true)?;
    if !members.is_publish || !scan.is_at_end() {
        return None;
    }
    let corr = members.corr.flatten();
    match (members.events, members.topic, members.payload) {
        (Some(events), None, None) if members.opts.is_none() => {
            Some((corr, ClientFrame::Publish { events, batch: true }))
        }
        (None, Some(topic), Some(payload)) => {
            let opts = members.opts.unwrap_or_default();
            let events = vec![Publish { topic, payload, opts }];
            Some((corr, ClientFrame::Publish { events, batch: false }))
        }
        _ => None,
    }
}

/// The members of a frame, or of one of its events: each known, each once.
fn members(frame: &Bytes, text: &str, scan: &mut Scan<'_>, is_frame: bool) -> Option<Members> {
    let mut members = Members::default();
    if !scan.take(b'{') {
        return None;
    }
    loop {
        let name = scan.plain_string()?;
        if !scan.take(b':') {
            return None;
        }
        match name {
            b"op" if is_frame && !members.is_publish => {
                members.is_publish = scan.plain_string()? == b"PUBLISH";
                members.is_publish.then_some(())?;
            }
            b"topic" if members.topic.is_none() => {
                members.topic = Some(topic(scan.plain_string()?)?);
            }
            b"payload" if members.payload.is_none() => {
                members.payload = Some(Payload::passed(frame, &scan.pass()?)?);
            }
            b"opts" if members.opts.is_none() => members.opts = Some(opts(text, &scan.pass()?)?),
            b"corr" if is_frame && members.corr.is_none() => {
                members.corr = Some(Corr::from_json(text.get(scan.pass()?.range)?));
            }
            b"events" if is_frame && members.events.is_none() => {
                members.events = Some(events(frame, text, scan)?);
            }
            _ => return None,
        }
        if scan.take(b'}') {
            return Some(members);
        }
        if !scan.take(b',') {
            return None;
        }
    }
}

fn events(frame: &Bytes, text: &str, scan: &mut Scan<'_>) -> Option<Vec<Publish>> {
    let mut events = Vec::new();
    if !scan.take(b'[') {
        return None;
    }
    loop {
        let Members { topic, payload, opts, .. } = members(frame, text, scan, false)?;
        let opts = opts.unwrap_or_default();
        events.push(Publish { topic: topic?, payload: payload?, opts });
        if scan.take(b']') {
            return (events.len() <= FRAME_EVENTS_MAX).then_some(events);
        }
        if !scan.take(b',') || events.len() == FRAME_EVENTS_MAX {
            return None;
        }
    }
}

thread_local! {
    /// The topic that was read last. Those of a client are mostly one, which is not made anew then.
    static LAST: RefCell<Option<Topic>> = const { RefCell::new(None) };
}

fn topic(name: &[u8]) -> Option<Topic> {
    LAST.with_borrow_mut(|last| {
        if let Some(topic) = last.as_ref().filter(|last| last.as_str().as_bytes() == name) {
            return Some(topic.clone());
        }
        let topic = new_topic(name)?;
        *last = Some(topic.clone());
        Some(topic)
    })
}

/// A name that is a pattern as well: the general reader takes it for one first.
fn new_topic(name: &[u8]) -> Option<Topic> {
    let name = std::str::from_utf8(name).ok()?;
    let segments = name.split('.').count();
    if name.len() > TOPIC_BYTES_MAX || segments > PATTERN_SEGMENTS_MAX {
        return None;
    }
    Topic::new(name).ok()
}

fn opts(text: &str, passed: &Passed) -> Option<PublishOpts> {
    let opts = text.get(passed.range.clone())?;
    // `null` is no options, but not in a list.
    if opts.starts_with('{') { serde_json::from_str(opts).ok() } else { None }
}
