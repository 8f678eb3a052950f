//! Snapshots of topics: the newest state of each key, as events of `<topic>.snapshot`, each with
//! the position it comes from.
//!
//! The compactor publishes what has changed; whoever wants the state of a topic reads the snapshot
//! and goes on with the topic after it ([`Following`]), and neither misses nor repeats anything.
//!
//! How far a snapshot reaches in each partition is an entry of the system's, kept after the events
//! that it speaks of: everything before it is in the snapshot, or something newer of the same key.

mod compactor;

mod following;

mod kept;

mod paging;

use promethean_event::{Event, Offset, Partition, Topic, TopicError};
use serde::{Deserialize, Serialize};

use crate::bus::Bus;
use crate::store::{ReadError, TopicEntry};

use compactor::is_begun;
pub(crate) use compactor::reaches;
pub use compactor::{Compacted, Compacting, Compactor, CompactorError};
pub use following::{Followed, Following};
pub(crate) use kept::{Before, Kept, as_in_source, kept_before};
pub use paging::SnapshotPage;

/// What a snapshot's topic ends with.
const SUFFIX: &str = ".snapshot";
/// The header with the offset that a state comes from. Its partition is the snapshot's own: both
/// topics have the same number of partitions, and so a key is in the same one.
pub const SOURCE_OFFSET: &str = "x-source-offset";
/// The space of entries that say how far snapshots reach.
const SPACE: &str = "snapshots";

/// The topic of the snapshot of a topic.
pub fn snapshot_topic(topic: &Topic) -> Result<Topic, TopicError> {
    Topic::new(&format!("{topic}{SUFFIX}"))
}

/// Whether a topic is called like a snapshot.
pub(crate) fn is_snapshot_name(topic: &Topic) -> bool {
    topic.as_str().ends_with(SUFFIX)
}

/// Whether a topic is one that a compactor writes.
pub(crate) async fn is_kept(bus: &Bus, topic: &Topic) -> Result<bool, ReadError> {
    let topics = bus.topics();
    let source = topic.as_str().strip_suffix(SUFFIX).and_then(|name| Topic::new(name).ok());
    match (source.and_then(|source| topics.get(&source)), topics.get(topic)) {
        (Some(source), Some(target)) => is_begun(bus, source, target).await,
        _ => Ok(false),
    }
}

/// The offset that an event of a snapshot comes from.
pub fn source_offset(event: &Event) -> Option<Offset> {
    event.headers.get(SOURCE_OFFSET)?.parse().ok().map(Offset::new)
}

/// How far a snapshot reaches in a partition.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Reach {
    /// The number of the source topic, so that another topic of the same name begins anew.
    topic: u32,
    /// The number of the snapshot's own topic, so that one that was removed is made anew. Not in
    /// what earlier versions have written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<u32>,
    next: Offset,
}

impl Reach {
    /// Whether it speaks of this snapshot.
    fn is_of(&self, target: &TopicEntry) -> bool {
        self.target.is_none_or(|number| number == target.id.get())
    }
}

fn reach_key(topic: &Topic, partition: Partition) -> String {
    format!("{topic}/{}", partition.get())
}
