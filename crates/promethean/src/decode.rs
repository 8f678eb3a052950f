//! The one way from stored bytes to what a reader asked for: which version the event was written
//! by, the hops from there, and the check at the end.
//!
//! Live delivery, replay, look-ups and dead letters all come through here. The stored event is
//! never changed: a reader gets a copy. Where no hop changes anything the payload stays the bytes
//! that were published. Tombstones have no form to change: they pass.

use std::collections::BTreeMap;

use promethean_event::{Event, EventId, NewEvent, NotOfType, Payload, SCHEMA_VERSION, Topic};
use promethean_schema::Mismatch;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::registry::{Found, PayloadPolicy, Registry, Unversioned, walk};

/// The form in which a reader gets events.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Reads {
    /// As they were written. The default.
    #[default]
    Written,
    /// In the latest version, when they are read.
    Latest,
    /// In this version.
    Version(u32),
    /// In one version of each topic; others as they were written.
    Each(BTreeMap<Topic, u32>),
}

/// The form of one event that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    Written,
    Latest,
    Version(u32),
}

impl Reads {
    /// What is wanted of a topic. The version of a type wins: nothing else fits it.
    pub(crate) fn of(&self, topic: &Topic, typed: Option<u32>) -> Want {
        match (typed, self) {
            (Some(version), _) => Want::Version(version),
            (None, Self::Version(version)) => Want::Version(*version),
            (None, Self::Written) => Want::Written,
            (None, Self::Latest) => Want::Latest,
            (None, Self::Each(each)) => {
                each.get(topic).map_or(Want::Written, |v| Want::Version(*v))
            }
        }
    }
}

/// Why an event is not what the reader takes it for. Trying again changes nothing.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{} {reason}", name_of(.event.as_ref()))]
pub struct DecodeError {
    /// The event and its topic; `None` if not even that is known.
    pub event: Option<(EventId, Topic)>,
    /// What does not fit.
    pub reason: WhyUnreadable,
}

fn name_of(event: Option<&(EventId, Topic)>) -> String {
    event.map_or_else(|| "the event".to_owned(), |(id, topic)| format!("event {id} of {topic}"))
}

impl DecodeError {
    pub(crate) fn of(event: &Event, reason: WhyUnreadable) -> Self {
        Self { event: Some((event.id, event.topic.clone())), reason }
    }
}

impl From<NotOfType> for DecodeError {
    fn from(error: NotOfType) -> Self {
        let NotOfType { id, topic, wanted, error } = error;
        Self { event: Some((id, topic)), reason: WhyUnreadable::Type { wanted, error } }
    }
}

/// What of an event does not fit its reader.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WhyUnreadable {
    /// It makes no sense at all.
    #[error("was stored by a faulty program and cannot be understood")]
    Senseless,
    /// It is not of the type.
    #[error("is not a {wanted}: {error}")]
    Type {
        /// The type that was asked for.
        wanted: &'static str,
        /// What does not fit.
        error: String,
    },
    /// Its topic's schemas cannot be understood.
    #[error("has schemas that cannot be understood: {0}")]
    Registry(String),
    /// It does not say its version, and its topic asks for it.
    #[error("does not say by which version it was written, and its topic asks for that")]
    NoVersion,
    /// Its version is no version.
    #[error("says that it was written by version {0:?}, which is no version")]
    BadVersion(String),
    /// Its version, or the one that is wanted, is not registered.
    #[error("needs version {0}, which is not registered")]
    UnknownVersion(u32),
    /// There is no way from its version to the one that is wanted.
    #[error(
        "was written by version {written} and cannot be brought to {wanted}: there is no caster \
         from {from} to {to}"
    )]
    MissingHop {
        /// The version it was written by.
        written: u32,
        /// The version that is wanted.
        wanted: u32,
        /// Where the missing caster would begin.
        from: u32,
        /// Where it would end.
        to: u32,
    },
    /// A caster failed.
    #[error("was written by version {written} and could not be brought to {wanted}: {error}")]
    Cast {
        /// The version it was written by.
        written: u32,
        /// The version that is wanted.
        wanted: u32,
        /// What went wrong.
        error: String,
    },
    /// It does not match the version that is wanted.
    #[error("does not match version {version}{}", places(.mismatches))]
    Invalid {
        /// The version.
        version: u32,
        /// Where and why.
        mismatches: Vec<Mismatch>,
    },
}

/// Keywords of which the sentence has only what the schema says; those of others may name what
/// stands in the payload.
const TOLD: [&str; 16] = [
    "const",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "required",
    "type",
];

/// Longest such sentence: a list of values may be a long one.
const TOLD_BYTES_MAX: usize = 160;

/// Where a payload does not match and what it lacks, without what stands there: it may be personal.
pub(crate) fn places(mismatches: &[Mismatch]) -> String {
    let mut text = String::new();
    for Mismatch { pointer, keyword, expected, .. } in mismatches.iter().take(4) {
        let at = if pointer.is_empty() { "the payload" } else { pointer };
        text.push_str(if text.is_empty() { ": " } else { "; " });
        if TOLD.contains(&keyword.as_str()) && expected.len() <= TOLD_BYTES_MAX {
            text.push_str(&format!("{at} {expected}"));
        } else {
            text.push_str(&format!("{at} fails {keyword}"));
        }
    }
    if mismatches.len() > 4 {
        text.push_str(&format!("; and {} more", mismatches.len() - 4));
    }
    text
}

/// A version as it stands in a header: digits, without a sign or leading zeroes, 1 at least.
pub(crate) fn parse_version(text: &str) -> Option<u32> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| plain)
}

impl Registry {
    /// Lets an event that is published again say the version that it was written by: without one
    /// it would be taken for one of today.
    pub(crate) fn label(&self, event: &mut NewEvent) {
        if event.headers.get(SCHEMA_VERSION).is_some() {
            return;
        }
        let found = self.seen().and_then(|catalog| catalog.find(&event.topic).ok().flatten());
        let oldest = found.and_then(|found| {
            found.only.or_else(|| found.subject.oldest().map(|version| version.number))
        });
        if let Some(version) = oldest {
            // One with as many headers as there may be is checked by today's rule.
            drop(event.headers.set(SCHEMA_VERSION, &version.to_string()));
        }
    }

    /// Whether all events of a topic are good as they were written.
    pub(crate) fn leaves(&self, topic: &Topic, want: Want) -> bool {
        let has_no_schema = || self.seen().is_some_and(|seen| matches!(seen.find(topic), Ok(None)));
        want == Want::Written || has_no_schema()
    }

    /// The event in the form that is wanted.
    pub(crate) fn decode(&self, event: Event, want: Want) -> Result<Event, DecodeError> {
        if want == Want::Written || (event.key.is_some() && event.payload.is_tombstone()) {
            return Ok(event);
        }
        let error = |reason| DecodeError::of(&event, reason);
        let Some(catalog) = self.seen() else {
            return Err(error(WhyUnreadable::Registry("they were not read yet".to_owned())));
        };
        let found = catalog.find(&event.topic);
        let found = found.map_err(|why| error(WhyUnreadable::Registry(why.to_string())))?;
        let Some(found) = found else {
            return Ok(event);
        };
        let cast = self.cast(&event, want, &found);
        let counters = &found.subject.counters;
        match cast {
            Ok(None) => Ok(event),
            Ok(Some((payload, version))) => {
                counters.cast.add(1);
                let mut event = event;
                event.payload = payload;
                // The copy says what it is, unless it has as many headers as there may be.
                drop(event.headers.set(SCHEMA_VERSION, &version.to_string()));
                Ok(event)
            }
            Err(reason) => {
                counters.unreadable.add(1);
                Err(error(reason))
            }
        }
    }

    /// The payload in another version; `None` if it is good as it is.
    fn cast(
        &self,
        event: &Event,
        want: Want,
        found: &Found,
    ) -> Result<Option<(Payload, u32)>, WhyUnreadable> {
        let subject = &found.subject;
        let written = written_by(event, found)?;
        let wanted = match want {
            Want::Version(version) => version,
            Want::Latest | Want::Written => subject.latest().map_or(written, |v| v.number),
        };
        for version in [written, wanted] {
            if !subject.versions.contains_key(&version) {
                return Err(WhyUnreadable::UnknownVersion(version));
            }
        }
        let path = subject.path(written, wanted).map_err(|hop| WhyUnreadable::MissingHop {
            written,
            wanted,
            from: hop.from,
            to: hop.to,
        })?;
        let cast = |error: String| WhyUnreadable::Cast { written, wanted, error };
        let payload: Value = event.payload.decode().map_err(|error| cast(error.to_string()))?;
        let changes = path.iter().any(|hop| !hop.is_same());
        let payload = if changes {
            walk(&path, payload, &|name| self.function(name)).map_err(cast)?
        } else {
            payload
        };
        if subject.policy.payload == PayloadPolicy::Enforce {
            let version = subject.versions.get(&wanted);
            let version = version.ok_or(WhyUnreadable::UnknownVersion(wanted))?;
            let rules = version.document.validator();
            if !rules.is_valid(&payload) {
                let mismatches = rules.mismatches(&payload);
                return Err(WhyUnreadable::Invalid { version: wanted, mismatches });
            }
        }
        if !changes {
            let says = event.headers.get(SCHEMA_VERSION).and_then(parse_version);
            return Ok((says != Some(wanted)).then(|| (event.payload.clone(), wanted)));
        }
        let payload = Payload::of(&payload).map_err(|error| cast(error.to_string()))?;
        Ok(Some((payload, wanted)))
    }
}

/// The version that an event was written by. One that does not say so is from before its topic had
/// versions: what is published since says it.
pub(crate) fn written_by(event: &Event, found: &Found) -> Result<u32, WhyUnreadable> {
    let subject = &found.subject;
    match event.headers.get(SCHEMA_VERSION) {
        Some(text) => parse_version(text).ok_or_else(|| WhyUnreadable::BadVersion(text.to_owned())),
        None if found.only.is_some() => found.only.ok_or(WhyUnreadable::NoVersion),
        None if subject.policy.unversioned == Unversioned::Refuse => Err(WhyUnreadable::NoVersion),
        None => subject.oldest().map(|version| version.number).ok_or(WhyUnreadable::NoVersion),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_one_spelling() {
        assert_eq!(parse_version("1"), Some(1));
        assert_eq!(parse_version("4294967295"), Some(u32::MAX));
        for text in ["", "0", "01", "+1", "-1", " 1", "1.0", "NaN", "latest", "4294967296", "١"] {
            assert_eq!(parse_version(text), None, "{text:?}");
        }
    }

    #[test]
    fn what_is_read_survives_as_json() {
        for (reads, text) in [
            (Reads::Written, r#""written""#),
            (Reads::Latest, r#""latest""#),
            (Reads::Version(3), r#"{"version":3}"#),
            (Reads::Each([(Topic::new("a.b").unwrap(), 2)].into()), r#"{"each":{"a.b":2}}"#),
        ] {
            assert_eq!(serde_json::to_string(&reads).unwrap(), text);
            assert_eq!(serde_json::from_str::<Reads>(text).unwrap(), reads);
        }
    }
}
