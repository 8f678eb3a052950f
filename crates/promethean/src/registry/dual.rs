//! Dual writes: the same event in the form of another version, in a topic of its own, in the same
//! atomic batch.
//!
//! A copy has an id that is made from the original's, so that publishing again adds nothing, and a
//! header that says which event it is a copy of.

use std::borrow::Cow;

use promethean_event::{EventId, NewEvent, Payload, SCHEMA_VERSION, Topic};
use serde_json::Value;

use super::catalog::Found;
use super::enforce::WhyRefused;
use super::subject::walk;
use super::{DUAL_OF, Registry};
use crate::decode::places;

/// The topic of one version's form of a topic's events; `None` if its name would be too long.
pub(crate) fn topic_of(topic: &Topic, version: u32) -> Option<Topic> {
    Topic::new(&format!("{topic}.v{version}")).ok()
}

/// The copies of an event that was checked.
pub(super) fn copies(
    registry: &Registry,
    event: &NewEvent,
    found: &Found,
    (written, payload): (u32, Value),
) -> Result<Vec<NewEvent>, WhyRefused> {
    let subject = &found.subject;
    // What is published to a topic of copies has none of its own.
    if found.only.is_some() || subject.policy.dual_write.is_empty() {
        return Ok(Vec::new());
    }
    let mut copies = Vec::with_capacity(subject.policy.dual_write.len());
    for &version in &subject.policy.dual_write {
        let fail = |reason: String| WhyRefused::Dual { version, reason };
        let path = subject
            .path(written, version)
            .map_err(|hop| fail(format!("there is no caster from {} to {}", hop.from, hop.to)))?;
        let is_same = path.iter().all(|hop| hop.is_same());
        let value = if is_same {
            Cow::Borrowed(&payload)
        } else {
            let cast = walk(&path, payload.clone(), &|name| registry.function(name));
            Cow::Owned(cast.map_err(fail)?)
        };
        let target = subject.versions.get(&version);
        let target = target.ok_or_else(|| fail("it is not registered".to_owned()))?;
        let rules = target.document.validator();
        if !rules.is_valid(&value) {
            let mismatches = rules.mismatches(&value);
            return Err(fail(format!("the result does not match{}", places(&mismatches))));
        }
        // What needs no change is not printed anew.
        let payload = if is_same { Ok(event.payload.clone()) } else { Payload::of(&*value) };
        let payload = payload.map_err(|error| fail(error.to_string()))?;
        copies.push(copy(event, version, payload).map_err(fail)?);
    }
    Ok(copies)
}

/// The copies of a tombstone: it says the same in every version.
pub(super) fn tombstones(event: &NewEvent, found: &Found) -> Vec<NewEvent> {
    if found.only.is_some() {
        return Vec::new();
    }
    let versions = found.subject.policy.dual_write.iter();
    versions.filter_map(|&version| copy(event, version, event.payload.clone()).ok()).collect()
}

fn copy(event: &NewEvent, version: u32, payload: Payload) -> Result<NewEvent, String> {
    let topic = topic_of(&event.topic, version).ok_or("the name of its topic is too long")?;
    let mut name = event.id.as_bytes().to_vec();
    name.extend_from_slice(event.topic.as_str().as_bytes());
    name.extend_from_slice(&version.to_be_bytes());
    let mut copy = event.clone();
    copy.id = EventId::derived("promethean dual write", &name);
    copy.topic = topic;
    copy.payload = payload;
    let said = copy.headers.set(SCHEMA_VERSION, &version.to_string());
    let linked = said.and_then(|()| copy.headers.set(DUAL_OF, &event.id.to_string()));
    linked.map_err(|error| error.to_string())?;
    Ok(copy)
}
