use promethean_event::{Key, Offset, Partition, Topic};

use super::compactor::reaches;
use super::{snapshot_topic, source_offset};
use crate::bus::Bus;
use crate::store::{KeyQuery, ReadError, Stored};

/// Some of a topic's snapshot, for those who follow it from elsewhere.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SnapshotPage {
    /// Where the topic goes on after the snapshot, by partition. That of the first page counts:
    /// the snapshot only grows meanwhile.
    pub reaches: Vec<(Partition, Offset)>,
    /// States by key, deleted ones included, each with the offset that it comes from.
    pub states: Vec<(Stored, Offset)>,
    /// After which key to go on; `None` at the end.
    pub next: Option<Key>,
}

impl Bus {
    /// Some of a topic's snapshot, by key, after a key. A topic without one has no states, and is
    /// to be read from its beginning.
    pub async fn snapshot_page(
        &self,
        topic: &Topic,
        after: Option<Key>,
        max: usize,
    ) -> Result<SnapshotPage, ReadError> {
        let topics = self.topics();
        let source = topics.get(topic).ok_or(ReadError::UnknownLane)?;
        // First how far it reaches, then what is in it.
        let known = reaches(self, source).await?;
        let mut page = SnapshotPage { reaches: Vec::new(), states: Vec::new(), next: None };
        for lane in source.lanes() {
            let start = self.store().bounds(lane).await?.start;
            let next = known.get(&lane.partition).copied().unwrap_or(start);
            page.reaches.push((lane.partition, next));
        }
        let name = snapshot_topic(topic).map_err(|_| ReadError::UnknownLane)?;
        let Some(entry) = topics.get(&name).filter(|_| !known.is_empty()) else {
            return Ok(page);
        };
        let query = KeyQuery { topic: entry.id, prefix: String::new(), after, max: max.max(1) };
        let keys = self.store().keys(query).await?;
        let last = keys.events.last().and_then(|stored| stored.event.key.clone());
        page.next = last.filter(|_| keys.more);
        let state = |stored: Stored| source_offset(&stored.event).map(|offset| (stored, offset));
        page.states = keys.events.into_iter().filter_map(state).collect();
        Ok(page)
    }
}
