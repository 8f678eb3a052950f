//! What is stored of a topic, by the version that it was written by.

use std::collections::BTreeMap;

use promethean_event::{SCHEMA_VERSION, Timestamp, Topic};
use serde::Serialize;

use super::{DUAL_OF, Registry, dual};
use crate::decode::parse_version;
use crate::registry::Schemas;
use crate::store::{PageLimit, Read, ReadError, Stored};

/// The events of a topic that are stored, by version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Retained {
    /// By the version that they say.
    pub versions: BTreeMap<u32, VersionCount>,
    /// Those that say none, or something that is none.
    pub unversioned: VersionCount,
    /// Copies that dual writes have made, by the version whose form they have.
    pub copies: BTreeMap<u32, VersionCount>,
}

/// Events of one version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct VersionCount {
    /// How many.
    pub events: u64,
    /// When the last of them was stored.
    pub last_at: Option<Timestamp>,
}

impl VersionCount {
    fn add(&mut self, stored: &Stored) {
        self.events += 1;
        self.last_at = self.last_at.max(Some(stored.appended_at));
    }
}

impl Retained {
    /// How many events of a version there are.
    pub fn of(&self, version: u32) -> u64 {
        self.versions.get(&version).map_or(0, |count| count.events)
    }
}

impl Schemas {
    /// Counts what is stored of a topic, by version. Reads all of it.
    pub async fn retained(&self, topic: &Topic) -> Result<Retained, ReadError> {
        self.registry.survey(topic).await
    }
}

impl Registry {
    pub(super) async fn survey(&self, topic: &Topic) -> Result<Retained, ReadError> {
        let mut retained = Retained::default();
        self.each_stored(topic, |stored| {
            let said = stored.event.headers.get(SCHEMA_VERSION).and_then(parse_version);
            match said {
                Some(version) => retained.versions.entry(version).or_default().add(stored),
                None => retained.unversioned.add(stored),
            }
        })
        .await?;
        let catalog = self.catalog().await?;
        let subject = catalog.subject(topic).and_then(Result::ok);
        for &version in subject.iter().flat_map(|subject| subject.versions.keys()) {
            let Some(copies) = dual::topic_of(topic, version) else {
                continue;
            };
            let mut count = VersionCount::default();
            self.each_stored(&copies, |stored| {
                if stored.event.headers.get(DUAL_OF).is_some() {
                    count.add(stored);
                }
            })
            .await?;
            if count.events > 0 {
                retained.copies.insert(version, count);
            }
        }
        Ok(retained)
    }

    /// Shows every stored event of a topic, but for tombstones.
    pub(super) async fn each_stored(
        &self,
        topic: &Topic,
        mut show: impl FnMut(&Stored) + Send,
    ) -> Result<(), ReadError> {
        let topics = self.store.topics();
        let Some(entry) = topics.get(topic) else {
            return Ok(());
        };
        for lane in entry.lanes() {
            let bounds = self.store.bounds(lane).await?;
            let mut from = bounds.start;
            while from < bounds.next {
                let read = Read::From { lane, from, limit: PageLimit::default() };
                let page = self.store.read(read).await?;
                for stored in &page.events {
                    if stored.event.key.is_none() || !stored.event.payload.is_tombstone() {
                        show(stored);
                    }
                }
                if page.next == from {
                    break;
                }
                from = page.next;
            }
        }
        Ok(())
    }
}
