use promethean_delivery::{LaneDelta, LaneState};
use promethean_event::{Event, GroupName, Key, NewEvent, Offset, Partition, Payload, Timestamp};
use promethean_log::{Durability, GapReason};
use smallvec::SmallVec;

use super::topics::{Lane, TopicId};

/// Events to append together: all or none.
#[derive(Debug, Clone, Default)]
pub struct Append {
    /// The events, of any number of topics.
    pub events: Vec<NewEvent>,
    /// How far they have travelled when the answer comes. Default: synced.
    pub durability: Durability,
    /// Where partitions must end for the append to go through.
    pub expect: Vec<Expectation>,
}

/// A condition of an append: the lane's next offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expectation {
    /// The lane.
    pub lane: Lane,
    /// Its next offset before this append.
    pub next: Offset,
}

/// The answer to an append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// One for each event, in the order given. Most appends are of one, which takes no memory of its
    /// own.
    pub receipts: SmallVec<[Receipt; 1]>,
    /// When the store took the batch.
    pub appended_at: Timestamp,
    /// How far it had travelled when this was answered.
    pub durability: Durability,
}

/// Where an event stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Topic and partition.
    pub lane: Lane,
    /// Place in the partition.
    pub offset: Offset,
    /// Whether the event had been there already, so that nothing was added.
    pub duplicate: bool,
}

/// A wish to read a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// From an offset on.
    From {
        /// The lane.
        lane: Lane,
        /// The first offset.
        from: Offset,
        /// How much.
        limit: PageLimit,
    },
    /// The events before an offset, newest first. Going on at the page's `next` comes to 0.
    Before {
        /// The lane.
        lane: Lane,
        /// The offset after the first one; beyond the end it is the end.
        before: Offset,
        /// How much.
        limit: PageLimit,
    },
}

/// How much a page may hold: whichever comes first, but one event at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimit {
    /// Events. Default 1,000.
    pub events: usize,
    /// Bytes, about. Default 1 MiB.
    pub bytes: usize,
}

impl Default for PageLimit {
    fn default() -> Self {
        Self { events: 1_000, bytes: 1024 * 1024 }
    }
}

/// Some events, in order, and what is missing between them. Events and gaps together leave out
/// nothing from where the page starts to `next`.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The events.
    pub events: Vec<Stored>,
    /// Offsets that were passed and are not among them.
    pub gaps: Vec<Gap>,
    /// Where to go on; backward: the lowest offset that was passed.
    pub next: Offset,
}

/// An event as it stands in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The event.
    pub event: Event,
    /// When the store took it.
    pub appended_at: Timestamp,
    /// Bytes it takes, about.
    pub bytes: u32,
}

/// Offsets of a lane that are not there any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The partition.
    pub partition: Partition,
    /// The first missing offset.
    pub from: Offset,
    /// The first offset after them that may be there.
    pub to: Offset,
    /// Why.
    pub reason: GapReason,
}

/// Where a lane starts and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LaneBounds {
    /// The first offset that is kept.
    pub start: Offset,
    /// The offset that the next event will get.
    pub next: Offset,
}

/// Which keys to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyQuery {
    /// The topic.
    pub topic: TopicId,
    /// What they begin with; empty for all.
    pub prefix: String,
    /// Only keys after this one.
    pub after: Option<Key>,
    /// How many at most; one at least.
    pub max: usize,
}

/// Some keys in order, each with its newest event.
#[derive(Debug, Clone, Default)]
pub struct KeyPage {
    /// The newest events, tombstones included, by key.
    pub events: Vec<Stored>,
    /// Whether there may be more.
    pub more: bool,
}

/// What has grown.
#[derive(Debug, Clone, Default)]
pub struct Growth {
    /// Pass this next time.
    pub mark: u64,
    /// The lanes that grew, with their ends; `None` if they were too many to tell: look at all.
    pub lanes: Option<Vec<(Lane, Offset)>>,
    /// Topics were defined or removed.
    pub topics_changed: bool,
    /// Hubs came, went or let go of lanes, or want something of each other.
    pub hubs_changed: bool,
    /// The store is closed; nothing will grow any more.
    pub closed: bool,
}

/// What is kept of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupRecord {
    /// Its settings, as JSON.
    pub settings: Payload,
    /// How its lanes stand.
    pub lanes: Vec<(Lane, LaneState)>,
}

/// One step of a group: becomes durable whole or not at all.
#[derive(Debug, Clone)]
pub struct GroupSave {
    /// The group.
    pub group: GroupName,
    /// Its settings, if they changed; a group begins with them.
    pub settings: Option<Payload>,
    /// Changes, by lane.
    pub lanes: Vec<(Lane, LaneDelta)>,
    /// Events that leave the flow by these changes. Their topics are defined. The same one again
    /// (by id) adds nothing.
    pub dead_letters: Vec<NewEvent>,
    /// Lanes of this save, each with the epoch of the claim by which it is made: refused if another
    /// has claimed one since. Where a store is nobody else's, they are not looked at.
    pub claims: Vec<(Lane, u64)>,
}

/// A small thing of the system's to keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// What kind of thing: a name as in topics, without dots.
    pub space: &'static str,
    /// Which one.
    pub key: Key,
    /// What to keep, or `None` to remove it.
    pub value: Option<Payload>,
    /// The version it must have for this to go through: 0 if it must not be there.
    pub expect: Option<u64>,
}

/// A small thing of the system's that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Which one.
    pub key: Key,
    /// What is kept.
    pub value: Payload,
    /// Rises with every change of the entry; never 0.
    pub version: u64,
}
