use std::io;
use std::path::PathBuf;

use promethean_event::{EventError, EventId, Offset, Seq, Topic};

use crate::topic::Lane;

/// Why a log was not opened. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has it open.
    #[error("{path} is in use by process {holder}; stop that process or use another directory")]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The process that holds the lock, as far as it told.
        holder: String,
    },
    /// Written by a later version.
    #[error("{file} has format version {version}, which this build does not know; use a newer one")]
    UnknownFormat {
        /// The file.
        file: String,
        /// Its version.
        version: u32,
    },
    /// Segments of two logs in one directory.
    #[error("{file} belongs to another log; move it out of the directory")]
    ForeignSegment {
        /// The file.
        file: String,
    },
    /// The newest segment cannot be read at all, so that nobody knows where the log ends.
    #[error(
        "{file} is damaged: {reason}; restore it from a copy, or, to lose its events, let there be a \
         file {file}.damaged: this one renamed, or an empty one, if it or its end is missing"
    )]
    Damaged {
        /// The file.
        file: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// The options contradict each other.
    #[error("bad options: {0}")]
    Options(&'static str),
    /// The storage failed.
    #[error("storage failed while opening")]
    Io(#[from] io::Error),
}

/// Why an append was refused.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// No event at all.
    #[error("the batch is empty")]
    Empty,
    /// More than one frame can hold.
    #[error("the batch is too large: {events} events, {bytes} bytes")]
    TooLarge {
        /// How many events.
        events: usize,
        /// How many bytes, encoded.
        bytes: usize,
    },
    /// A topic that is not defined.
    #[error("there is no topic {0}; define it first")]
    UnknownTopic(Topic),
    /// A definition that contradicts the one that is there.
    #[error("topic {topic} has {has} partitions; it cannot get {wanted}")]
    PartitionsFixed {
        /// The topic.
        topic: Topic,
        /// What it has.
        has: u32,
        /// What was asked for.
        wanted: u32,
    },
    /// Too many topics.
    #[error("the log has its limit of {0} topics")]
    TooManyTopics(usize),
    /// Too many partitions of all topics together.
    #[error("the log has its limit of {0} partitions")]
    TooManyPartitions(usize),
    /// An event has more of something than there may be.
    #[error("an event is over a limit")]
    Event(#[from] EventError),
    /// The id is there with other content.
    #[error("event {id} is already in {topic} with other content; use a new id")]
    IdConflict {
        /// The topic.
        topic: Topic,
        /// The id.
        id: EventId,
    },
    /// The partition does not end where the caller thought.
    #[error("expected the next offset to be {expected}, but it is {actual}")]
    OffsetMismatch {
        /// The lane.
        lane: Lane,
        /// What the caller expected.
        expected: Offset,
        /// Where the lane ends.
        actual: Offset,
    },
    /// Whether the id is there already could not be found out. Nothing was written.
    #[error("cannot tell whether event {id} is there already ({reason}); try again")]
    LookupFailed {
        /// The id.
        id: EventId,
        /// What went wrong.
        reason: String,
    },
    /// The disk is full. Nothing was written; try again when there is room.
    #[error("no space left on the disk; make room, and publishing goes on by itself")]
    NoSpace,
    /// A write or sync failed earlier: the log takes no more until it is opened again.
    #[error("storage failed ({0}); the log refuses writes until it is opened again")]
    StorageFailed(String),
    /// Too many requests are waiting.
    #[error("the log is busy: {0} requests are waiting")]
    Busy(usize),
    /// The log is closed.
    #[error("the log is closed")]
    Closed,
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// No such topic or partition.
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
    /// A seq beyond the end.
    #[error("seq {wanted} lies beyond the end; the next one will be {next}")]
    SeqBeyondEnd {
        /// What was asked for.
        wanted: Seq,
        /// Where the log ends.
        next: Seq,
    },
    /// Damage that cannot be stepped over.
    #[error("{file} is damaged at byte {position}")]
    Damaged {
        /// The file.
        file: String,
        /// Where.
        position: u64,
    },
    /// The storage failed.
    #[error("storage failed while reading")]
    Io(#[from] io::Error),
}

/// Why nothing was written.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// No room; the log is as it was.
    NoSpace,
    /// Nobody knows what is on the disk now.
    Failed(io::Error),
}

impl WriteError {
    /// What a failed write means: no room leaves the log as it was, all else does not.
    pub(crate) fn of_write(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace,
            _ => Self::Failed(error),
        }
    }
}
