use promethean_delivery::ApplyError;
use promethean_event::{EventId, GroupName, Key, Offset, Topic};

use super::topics::Lane;

/// Why an append was refused. Nothing of it was stored, unless it says `Indeterminate`.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// No event at all.
    #[error("the batch is empty")]
    Empty,
    /// More than one batch may hold.
    #[error("the batch is too large: {events} events, {bytes} bytes; publish it in parts")]
    TooLarge {
        /// How many events.
        events: usize,
        /// How many bytes, encoded.
        bytes: usize,
    },
    /// A topic that is not defined.
    #[error("there is no topic {0}; define it first")]
    UnknownTopic(Topic),
    /// A condition on a topic or partition that is not there.
    #[error("there is no such topic or partition to expect anything of")]
    UnknownLane(Lane),
    /// The id is there with other content.
    #[error("event {id} is already in {topic} with other content; use a new id")]
    IdConflict {
        /// The topic.
        topic: Topic,
        /// The id.
        id: EventId,
    },
    /// The partition does not end where the caller thought.
    #[error("expected the next offset to be {expected}, but it is {actual}; read on and try again")]
    OffsetMismatch {
        /// The lane.
        lane: Lane,
        /// What the caller expected.
        expected: Offset,
        /// Where the lane ends.
        actual: Offset,
    },
    /// Not now; nothing was written.
    #[error("{0}; try again")]
    Unavailable(String),
    /// Too much is waiting.
    #[error("too many requests are waiting ({0}); publish slower or try again")]
    Busy(usize),
    /// The disk is full. Nothing was written; try again when there is room.
    #[error("no space left; make room, and publishing goes on by itself")]
    NoSpace,
    /// The storage failed: it takes no more until it is opened again.
    #[error("storage failed ({0}); nothing more is written until the store is opened again")]
    StorageFailed(String),
    /// Nobody knows whether it is stored; try again with the same ids.
    #[error("no answer ({0}): publish again with the same ids to find out")]
    Indeterminate(String),
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
}

/// Why a read failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// No such topic or partition (any more).
    #[error("there is no such topic or partition")]
    UnknownLane,
    /// A start beyond the end.
    #[error("offset {wanted} lies beyond the end; the next one will be {next}")]
    BeyondEnd {
        /// What was asked for.
        wanted: Offset,
        /// Where the lane ends.
        next: Offset,
    },
    /// Damage that cannot be stepped over.
    #[error("{0}")]
    Damaged(String),
    /// The storage failed.
    #[error("storage failed while reading: {0}")]
    Failed(String),
}

/// Why a change of the system's own state was refused.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SaveError {
    /// A topic's number of partitions cannot change.
    #[error("topic {topic} has {has} partitions; it cannot get {wanted}")]
    PartitionsFixed {
        /// The topic.
        topic: Topic,
        /// What it has.
        has: u32,
        /// What was asked for.
        wanted: u32,
    },
    /// There are as many as there may be.
    #[error("the limit of {0} topics is reached")]
    TooManyTopics(usize),
    /// Another one was faster.
    #[error("{key} has changed meanwhile: it is at version {version}; read it again")]
    Changed {
        /// The entry.
        key: Key,
        /// Its version; 0 if it is not there.
        version: u64,
    },
    /// No such group: it was removed, or its first save had no settings.
    #[error("there is no group {0}; save its settings first")]
    UnknownGroup(GroupName),
    /// A save before this one is missing; nothing of this one was kept.
    #[error(transparent)]
    OutOfOrder(#[from] ApplyError),
    /// A name that no space can have.
    #[error("{0:?} cannot be the name of a space; use lower-case letters, digits, '_' and '-'")]
    BadSpace(&'static str),
    /// Other hubs deliver these lanes now. Nothing of the save was kept.
    #[error("another hub has taken over")]
    Fenced(Vec<Lane>),
    /// The append under it was refused.
    #[error(transparent)]
    Append(#[from] AppendError),
}
