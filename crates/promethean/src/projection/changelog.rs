//! Changelog projections: one topic becomes one view, a document for each key.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use promethean_event::GroupName;

use super::definition::{Definition, DefinitionError, Draft, Kind, Unkeyed};
use super::digest::{Digested, GivenUp, is_for_another};
use super::document::without_reserved;
use super::feed::Fed;
use super::limits::GRAVE_MS;
use super::mapping::{Change, Mapping, Unmapped, change_of};
use super::stamp::{Order, Stamp, Write};
use super::upcast::Upcast;
use super::view::View;
use super::{Coded, Declared};
use crate::registry::Registry;

/// A topic that becomes a view: the newest event of a key is its document, a tombstone deletes it.
#[derive(Debug, Clone)]
#[must_use = "a projection runs once it is started"]
pub struct Changelog {
    view: View,
    topic: String,
    mapping: Arc<dyn Mapping>,
    version: u32,
    reads: Option<u32>,
    unkeyed: Unkeyed,
    grave_ms: u64,
    batch_events: Option<usize>,
}

impl Changelog {
    /// Payloads of a topic as they are, under their events' keys.
    pub fn new(view: View, topic: impl Into<String>) -> Self {
        Self {
            view,
            topic: topic.into(),
            mapping: Arc::new(Declared::default()),
            version: 1,
            reads: None,
            unkeyed: Unkeyed::Park,
            grave_ms: GRAVE_MS,
            batch_events: None,
        }
    }

    /// Key, document, tombstones and version in Rust.
    pub fn coded(self, mapping: Coded) -> Self {
        self.mapping(mapping)
    }

    /// Key, document, tombstones and version as data.
    pub fn declared(self, mapping: Declared) -> Self {
        self.mapping(mapping)
    }

    /// By a mapping of one's own.
    pub fn mapping(mut self, mapping: impl Mapping) -> Self {
        self.mapping = Arc::new(mapping);
        self
    }

    /// A number to be raised whenever code changes what events mean: the view is then built anew.
    /// Default: 1.
    pub const fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Sees events in the form of this version of their schema. Default: as they were written.
    pub const fn reads(mut self, version: u32) -> Self {
        self.reads = Some(version);
        self
    }

    /// What happens to events without a key. Default: parked.
    pub const fn unkeyed(mut self, unkeyed: Unkeyed) -> Self {
        self.unkeyed = unkeyed;
        self
    }

    /// How long a deletion keeps older versions from coming back. Default: 30 days.
    pub fn remember_deletions(mut self, period: Duration) -> Self {
        self.grave_ms = u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
        self
    }

    /// Events that are committed together. Default and most: 4,096.
    pub const fn batch(mut self, events: usize) -> Self {
        self.batch_events = Some(events);
        self
    }

    pub(crate) fn finish(self, registry: &Arc<Registry>) -> Result<Definition, DefinitionError> {
        let mapping: Arc<dyn Mapping> = match self.reads {
            None => self.mapping,
            Some(version) => {
                let registry = Arc::clone(registry);
                Arc::new(Upcast { inner: self.mapping, registry, version })
            }
        };
        let draft = Draft {
            name: self.view.name.clone(),
            topics: vec![self.topic],
            views: vec![self.view],
            version: self.version,
            grave_ms: self.grave_ms,
            batch_events: self.batch_events,
        };
        draft.finish(Kind::Changelog { mapping, unkeyed: self.unkeyed })
    }
}

/// Folds events to one write for each key. Pure.
pub(crate) struct Fold<'a> {
    pub(crate) mapping: &'a dyn Mapping,
    pub(crate) unkeyed: Unkeyed,
    pub(crate) order: Order,
    pub(crate) group: &'a GroupName,
}

impl Fold<'_> {
    pub(crate) fn digest(&self, batch: Vec<Fed>) -> Digested {
        let mut digested = Digested::default();
        let mut writes = BTreeMap::new();
        for fed in batch {
            digested.pass(&fed);
            if let Fed::Event(lane, stored) = fed {
                digested.counts.events += 1;
                if is_for_another(&stored, self.group) {
                    continue;
                }
                match change_of(self.mapping, &stored.event) {
                    Ok(change) => {
                        let write = write_of(change, |version| Stamp::of(&stored, lane, version));
                        if let Some((key, write)) = write {
                            digested.counts.stale += self.fold(&mut writes, key, write);
                        }
                    }
                    Err(why) => {
                        digested.counts.unkeyed += 1;
                        if self.unkeyed == Unkeyed::Park {
                            let error = why.to_string();
                            digested.given_up.push(GivenUp { lane, stored, error });
                        } else if let Unmapped::Unfit(error) = why {
                            tracing::warn!(id = %stored.event.id, error, "event does not fit");
                        }
                    }
                }
            }
        }
        digested.writes = vec![writes];
        digested
    }

    /// Adds a write to those that wait; 1 if one of them was stale.
    fn fold(&self, writes: &mut BTreeMap<String, Write>, key: String, write: Write) -> u64 {
        match writes.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(write);
                0
            }
            Entry::Occupied(mut entry) => match self.order.after(write, entry.get().stamp()) {
                Some(write) => {
                    entry.insert(write);
                    0
                }
                None => 1,
            },
        }
    }
}

fn write_of(change: Change, stamp: impl Fn(Option<i64>) -> Stamp) -> Option<(String, Write)> {
    match change {
        Change::Put { key, document, version } => {
            Some((key, Write::Put(stamp(version), without_reserved(document))))
        }
        Change::Delete { key, version } => Some((key, Write::Delete(stamp(version)))),
        Change::Nothing => None,
    }
}
