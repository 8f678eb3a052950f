//! The schemas of one topic, compiled.

use std::collections::BTreeMap;
use std::sync::Arc;

use promethean_event::{Timestamp, Topic};
use promethean_schema::{Dialect, Document};
use serde_json::Value;

use super::counters::Counters;
use super::hop::{Functions, Hop, ReadyHop};
use super::policy::TopicPolicy;
use super::record::{TopicRecord, VersionHead, VersionRecord};

/// The schemas of one topic.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) topic: Topic,
    pub(crate) policy: TopicPolicy,
    pub(crate) versions: BTreeMap<u32, Arc<Version>>,
    pub(crate) counters: Arc<Counters>,
    /// What it was made from.
    pub(super) record: TopicRecord,
    /// The version of the entry that it was made from; 0 if there is none.
    pub(super) entry: u64,
}

/// One version of a topic's schema.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) number: u32,
    pub(crate) document: Document,
    /// From the version before.
    pub(crate) up: Option<ReadyHop>,
    /// To the version before.
    pub(crate) down: Option<ReadyHop>,
    /// The version of the entry that it was made from.
    pub(super) entry: u64,
}

/// A version as it is told to others.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SchemaVersion {
    /// Its number.
    pub version: u32,
    /// The schema: its text, its annotations, its personal data, its examples.
    pub document: Document,
    /// The same for all documents that say the same.
    pub fingerprint: String,
    /// When it was registered.
    pub registered_at: Timestamp,
    /// Whether new events of it are refused.
    pub retired: bool,
    /// Why it was registered against objections, if it was.
    pub forced: Option<String>,
    /// How events of the version before become events of this one.
    pub up: Option<Hop>,
    /// How events of this one become events of the version before.
    pub down: Option<Hop>,
}

/// The hops between two versions.
pub(crate) type Path<'a> = Vec<&'a ReadyHop>;

/// A hop that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MissingHop {
    pub(crate) from: u32,
    pub(crate) to: u32,
}

impl Version {
    pub(super) fn new(number: u32, record: VersionRecord, entry: u64) -> Result<Self, String> {
        let dialect = Dialect::from_uri(&record.dialect);
        let document = Document::parse_as(&record.document, dialect)
            .map_err(|error| format!("version {number} cannot be read: {error}"))?;
        let ready =
            |hop: Option<Hop>, way: (u32, u32)| hop.map(|hop| ReadyHop::new(hop, way)).transpose();
        let before = number.saturating_sub(1);
        Ok(Self {
            number,
            document,
            up: ready(record.up, (before, number))?,
            down: ready(record.down, (number, before))?,
            entry,
        })
    }

    pub(super) fn record(&self) -> VersionRecord {
        VersionRecord {
            document: self.document.text().to_owned(),
            dialect: self.document.dialect().uri().to_owned(),
            up: self.up.as_ref().map(|up| up.hop.clone()),
            down: self.down.as_ref().map(|down| down.hop.clone()),
        }
    }
}

impl Subject {
    /// A topic of which nothing is kept yet.
    pub(super) fn empty(topic: Topic, policy: TopicPolicy, counters: Arc<Counters>) -> Self {
        let record = TopicRecord { next: 1, ..TopicRecord::default() };
        Self { topic, policy, versions: BTreeMap::new(), counters, record, entry: 0 }
    }

    pub(crate) fn latest(&self) -> Option<&Arc<Version>> {
        self.versions.values().next_back()
    }

    pub(crate) fn oldest(&self) -> Option<&Arc<Version>> {
        self.versions.values().next()
    }

    /// The latest version that new events may have.
    pub(super) fn current(&self) -> Option<&Arc<Version>> {
        self.versions.values().rev().find(|version| !self.is_retired(version.number))
    }

    pub(super) fn head(&self, version: u32) -> Option<&VersionHead> {
        self.record.versions.iter().find(|head| head.version == version)
    }

    pub(crate) fn is_retired(&self, version: u32) -> bool {
        self.head(version).is_some_and(|head| head.retired)
    }

    /// The hops from a version to another.
    pub(crate) fn path(&self, from: u32, to: u32) -> Result<Path<'_>, MissingHop> {
        path(from, to, |version| self.versions.get(&version).map(|version| &**version))
    }

    pub(super) fn tell(&self, version: &Version) -> SchemaVersion {
        let head = self.head(version.number);
        SchemaVersion {
            version: version.number,
            document: version.document.clone(),
            fingerprint: head.map(|head| head.fingerprint.clone()).unwrap_or_default(),
            registered_at: head.map_or(Timestamp::from_millis(0), |head| head.registered_at),
            retired: head.is_some_and(|head| head.retired),
            forced: head.and_then(|head| head.forced.clone()),
            up: version.up.as_ref().map(|up| up.hop.clone()),
            down: version.down.as_ref().map(|down| down.hop.clone()),
        }
    }
}

/// The hops from a version to another, among versions that are looked up.
pub(super) fn path<'a>(
    from: u32,
    to: u32,
    version: impl Fn(u32) -> Option<&'a Version>,
) -> Result<Path<'a>, MissingHop> {
    let mut path = Vec::new();
    let mut at = from;
    while at != to {
        let next = if at < to { at + 1 } else { at - 1 };
        let hop = if at < to {
            version(next).and_then(|version| version.up.as_ref())
        } else {
            version(at).and_then(|version| version.down.as_ref())
        };
        path.push(hop.ok_or(MissingHop { from: at, to: next })?);
        at = next;
    }
    Ok(path)
}

/// Walks a path.
pub(crate) fn walk(
    path: &[&ReadyHop],
    payload: Value,
    functions: Functions<'_>,
) -> Result<Value, String> {
    path.iter().try_fold(payload, |payload, hop| hop.make(payload, functions))
}
