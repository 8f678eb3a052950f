use promethean_event::Offset;

use crate::segment::Record;
use crate::topic::Lane;

/// How much a page may hold: whichever comes first, but one event at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimit {
    /// Events. Default 1,000.
    pub events: usize,
    /// Bytes in the log. Default 1 MiB.
    pub bytes: usize,
}

impl Default for PageLimit {
    fn default() -> Self {
        Self { events: 1000, bytes: 1024 * 1024 }
    }
}

/// Some events, in order, and what is missing between them.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The events.
    pub records: Vec<Record>,
    /// Offsets that were passed and are not among them: nothing is skipped silently.
    pub gaps: Vec<Gap>,
}

/// How far a visit came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Visited {
    /// Events that were shown.
    pub events: usize,
    /// Their bytes in the log.
    pub bytes: usize,
    /// Offsets that were passed and are not among them.
    pub gaps: Vec<Gap>,
}

/// Offsets of a lane that are not there any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The lane.
    pub lane: Lane,
    /// The first missing offset.
    pub from: Offset,
    /// The first offset after them that may be there.
    pub to: Offset,
    /// Why.
    pub reason: GapReason,
}

/// Why offsets are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GapReason {
    /// Retention removed them: history starts later.
    Expired,
    /// Newer events of the same keys have taken their place.
    Compacted,
    /// The bytes are damaged.
    Corrupt,
}
