//! The check on the way in: the writer says by which version it writes, and is held to it.

use std::collections::{BTreeMap, HashMap};

use promethean_event::{EventId, NewEvent, SCHEMA_VERSION, Topic};
use promethean_schema::Mismatch;
use serde::Serialize;
use serde_json::Value;

use super::catalog::{Catalog, Found};
use super::policy::{PayloadPolicy, Unregistered, Unversioned};
use super::{Registry, dual};
use crate::decode::{parse_version, places};
use crate::limits::REFUSED_EVENTS_MAX;
use crate::store::ReadError;

/// Events that do not match the schemas of their topics. Nothing of their batch was stored.
#[derive(Debug, Clone, PartialEq, Serialize, thiserror::Error)]
#[error("{}", said(.events, *.count))]
pub struct SchemaRefusal {
    /// The first of them, with reasons.
    pub events: Vec<RefusedEvent>,
    /// How many there were.
    pub count: usize,
    /// How many of each topic.
    #[serde(skip)]
    topics: BTreeMap<Topic, u64>,
}

fn said(events: &[RefusedEvent], count: usize) -> String {
    match (events, count) {
        ([one], 1) => one.to_string(),
        ([one, ..], _) => format!("{one}; and {} more", count.saturating_sub(1)),
        ([], _) => "refused".to_owned(),
    }
}

/// An event that does not match the schemas of its topic.
#[derive(Debug, Clone, PartialEq, Serialize, thiserror::Error)]
#[error("event {id} (number {number} of the batch) {why}")]
pub struct RefusedEvent {
    /// Which of the batch, counted from 0.
    pub number: usize,
    /// Its id.
    pub id: EventId,
    /// Its topic.
    pub topic: Topic,
    /// Why.
    pub why: WhyRefused,
}

/// Why an event was refused by its topic's schemas.
#[derive(Debug, Clone, PartialEq, Serialize, thiserror::Error)]
#[serde(tag = "code", rename_all = "snake_case")]
#[non_exhaustive]
pub enum WhyRefused {
    /// The topic has no schema, and topics must have one.
    #[error("is of a topic without a schema; register one first")]
    Unregistered,
    /// The topic's schemas cannot be understood.
    #[error("is of a topic whose schemas cannot be understood: {reason}")]
    Registry {
        /// What is wrong with them.
        reason: String,
    },
    /// It does not say its version.
    #[error("does not say its version; set the header {SCHEMA_VERSION}")]
    NoVersion,
    /// What it says is no version.
    #[error("says that its version is {text:?}; write a number from 1")]
    BadVersion {
        /// What it says.
        text: String,
    },
    /// The version is not registered.
    #[error("is of version {version}, which is not registered; there are {known:?}")]
    UnknownVersion {
        /// What it says.
        version: u32,
        /// The versions that there are.
        known: Vec<u32>,
    },
    /// The topic is for one version.
    #[error("is of version {version}; its topic is for version {only}")]
    WrongVersion {
        /// What it says.
        version: u32,
        /// What its topic is for.
        only: u32,
    },
    /// The version is not written any more.
    #[error("is of version {version}, which is retired{}", instead(*.current))]
    Retired {
        /// What it says.
        version: u32,
        /// The latest version that is written.
        current: Option<u32>,
    },
    /// The payload does not match.
    #[error("does not match version {version}{}", places(.mismatches))]
    Invalid {
        /// The version.
        version: u32,
        /// Where and why.
        mismatches: Vec<Mismatch>,
    },
    /// A version's form of it could not be made.
    #[error("could not be written as version {version} too: {reason}")]
    Dual {
        /// The version.
        version: u32,
        /// What went wrong.
        reason: String,
    },
    /// It has as many headers as there may be, and needs one more.
    #[error("has no room for the header {SCHEMA_VERSION}; leave one header out")]
    NoRoom,
}

/// What to write by instead, if there is something.
fn instead(current: Option<u32>) -> String {
    current.map(|version| format!("; write by version {version}")).unwrap_or_default()
}

/// What the check of a batch has found.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    /// The versions that events were taken to be of, by place.
    stamps: Vec<(usize, u32)>,
    /// What dual writes add.
    copies: Vec<NewEvent>,
    refused: Vec<RefusedEvent>,
    refused_topics: BTreeMap<Topic, u64>,
}

/// Versions that events without one are known to be of: they were stored before.
pub(crate) type KnownStamps = HashMap<(Topic, EventId), u32>;

/// The answer for one event.
#[derive(Debug, Default)]
struct Passed {
    stamp: Option<u32>,
    copies: Vec<NewEvent>,
}

impl Checked {
    /// Whether a schema that is not known here may be known elsewhere by now.
    fn may_be_unknown(&self) -> bool {
        let unknown = |event: &RefusedEvent| {
            matches!(event.why, WhyRefused::UnknownVersion { .. } | WhyRefused::Unregistered)
        };
        self.refused.iter().any(unknown)
    }

    pub(crate) fn refusal(&self) -> Option<SchemaRefusal> {
        let topics = self.refused_topics.clone();
        let count = usize::try_from(topics.values().sum::<u64>()).unwrap_or(usize::MAX);
        (count > 0).then(|| SchemaRefusal { events: self.refused.clone(), count, topics })
    }

    /// Whether events were stamped here, not by their writers.
    pub(crate) const fn has_stamps(&self) -> bool {
        !self.stamps.is_empty()
    }

    /// The events as they are to be stored.
    pub(crate) fn apply(&self, mut events: Vec<NewEvent>) -> Vec<NewEvent> {
        for &(number, version) in &self.stamps {
            if let Some(event) = events.get_mut(number) {
                // There is room: that was checked.
                drop(event.headers.set(SCHEMA_VERSION, &version.to_string()));
            }
        }
        events.extend(self.copies.iter().cloned());
        events
    }
}

impl Registry {
    /// Checks a batch. `None` if no event of it has to be looked at.
    pub(crate) async fn check(
        &self,
        events: &[NewEvent],
        known: &KnownStamps,
    ) -> Result<Option<Checked>, ReadError> {
        let catalog = self.catalog().await?;
        if catalog.is_idle() {
            return Ok(None);
        }
        let mut checked = self.check_by(&catalog, events, known);
        if checked.may_be_unknown()
            && let Some(catalog) = self.refresh_for_unknown().await?
        {
            checked = self.check_by(&catalog, events, known);
        }
        Ok(Some(checked))
    }

    /// Counts what the last check of a batch has refused.
    pub(crate) fn count_refused(&self, refusal: &SchemaRefusal) {
        for (topic, count) in &refusal.topics {
            self.counters(topic).refused.add(*count);
        }
    }

    fn check_by(&self, catalog: &Catalog, events: &[NewEvent], known: &KnownStamps) -> Checked {
        let mut checked = Checked::default();
        for (number, event) in events.iter().enumerate() {
            match self.check_one(catalog, event, known) {
                Ok(Passed { stamp, copies }) => {
                    checked.stamps.extend(stamp.map(|version| (number, version)));
                    checked.copies.extend(copies);
                }
                Err(why) => {
                    *checked.refused_topics.entry(event.topic.clone()).or_default() += 1;
                    if checked.refused.len() < REFUSED_EVENTS_MAX {
                        let (id, topic) = (event.id, event.topic.clone());
                        checked.refused.push(RefusedEvent { number, id, topic, why });
                    }
                }
            }
        }
        checked
    }

    fn check_one(
        &self,
        catalog: &Catalog,
        event: &NewEvent,
        known: &KnownStamps,
    ) -> Result<Passed, WhyRefused> {
        let found = catalog.find(&event.topic);
        let found = found.map_err(|why| WhyRefused::Registry { reason: why.to_string() })?;
        let Some(found) = found else {
            return match catalog.policy.unregistered {
                Unregistered::Allow => Ok(Passed::default()),
                Unregistered::Refuse => Err(WhyRefused::Unregistered),
            };
        };
        let policy = &found.subject.policy;
        if policy.payload == PayloadPolicy::Off {
            return Ok(Passed::default());
        }
        let counters = &found.subject.counters;
        counters.checked.add(1);
        let result = self.pass(event, &found, known);
        match result {
            Ok(passed) => {
                counters.copied.add(passed.copies.len() as u64);
                Ok(passed)
            }
            Err(why) if policy.payload == PayloadPolicy::Warn => {
                let dual = matches!(why, WhyRefused::Dual { .. });
                if dual { &counters.uncopied } else { &counters.warned }.add(1);
                let stamp = stamp(event, &found, known).ok().flatten();
                Ok(Passed { stamp, copies: Vec::new() })
            }
            Err(why) => Err(why),
        }
    }

    fn pass(
        &self,
        event: &NewEvent,
        found: &Found,
        known: &KnownStamps,
    ) -> Result<Passed, WhyRefused> {
        if event.key.is_some() && event.payload.is_tombstone() {
            let copies = dual::tombstones(event, found);
            return Ok(Passed { stamp: None, copies });
        }
        let stamp = stamp(event, found, known)?;
        let number = version_of(event, found, stamp)?;
        let subject = &found.subject;
        let unknown = || WhyRefused::UnknownVersion {
            version: number,
            known: subject.versions.keys().copied().collect(),
        };
        let version = subject.versions.get(&number).ok_or_else(unknown)?;
        // What is known to be stored was good when it was stored.
        if subject.is_retired(number) && !known.contains_key(&(event.topic.clone(), event.id)) {
            let current = subject.current().map(|version| version.number);
            return Err(WhyRefused::Retired { version: number, current });
        }
        let invalid = |mismatches| WhyRefused::Invalid { version: number, mismatches };
        let payload: Value =
            event.payload.decode().map_err(|error| invalid(vec![unreadable(&error)]))?;
        let rules = version.document.validator();
        if !rules.is_valid(&payload) {
            return Err(invalid(rules.mismatches(&payload)));
        }
        let copies = dual::copies(self, event, found, (number, payload))?;
        Ok(Passed { stamp, copies })
    }
}

/// The version that an event without one is taken to be of; `None` if it says one.
fn stamp(event: &NewEvent, found: &Found, known: &KnownStamps) -> Result<Option<u32>, WhyRefused> {
    if event.headers.get(SCHEMA_VERSION).is_some() {
        return Ok(None);
    }
    let subject = &found.subject;
    let version = match subject.policy.unversioned {
        _ if found.only.is_some() => found.only,
        // Only an event that has a version when it is stored is ever known.
        _ if !known.is_empty() && known.contains_key(&(event.topic.clone(), event.id)) => {
            known.get(&(event.topic.clone(), event.id)).copied()
        }
        Unversioned::Latest => subject.current().map(|version| version.number),
        Unversioned::Oldest => subject.oldest().map(|version| version.number),
        Unversioned::Refuse => None,
    };
    let version = version.ok_or(WhyRefused::NoVersion)?;
    let mut headers = event.headers.clone();
    match headers.set(SCHEMA_VERSION, &version.to_string()) {
        Ok(()) => Ok(Some(version)),
        Err(_) => Err(WhyRefused::NoRoom),
    }
}

/// The version that an event says, or was taken to be of.
fn version_of(event: &NewEvent, found: &Found, stamp: Option<u32>) -> Result<u32, WhyRefused> {
    let said = event.headers.get(SCHEMA_VERSION);
    let version = match (stamp, said) {
        (Some(version), _) => version,
        (None, Some(text)) => parse_version(text)
            .ok_or_else(|| WhyRefused::BadVersion { text: text.chars().take(64).collect() })?,
        (None, None) => return Err(WhyRefused::NoVersion),
    };
    match found.only.filter(|only| *only != version) {
        Some(only) => Err(WhyRefused::WrongVersion { version, only }),
        None => Ok(version),
    }
}

/// A payload that is good JSON, but not for this: a number beyond all bounds.
fn unreadable(error: &serde_json::Error) -> Mismatch {
    Mismatch {
        pointer: String::new(),
        schema_pointer: String::new(),
        keyword: "json".to_owned(),
        expected: error.to_string(),
        got: String::new(),
    }
}
