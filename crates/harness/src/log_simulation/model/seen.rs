use std::collections::BTreeMap;

use super::LaneKey;

/// Why a reader was told that offsets are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeenReason {
    /// Retention.
    Expired,
    /// Key compaction.
    Compacted,
    /// Damage.
    Corrupt,
}

/// An event as a reader got it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenEvent {
    /// Its offset.
    pub offset: u64,
    /// Its `seq`.
    pub seq: u64,
    /// When it was appended, in ms.
    pub appended_ms: u64,
    /// [`crate::log_simulation::Digest`] of its contents.
    pub digest: u64,
}

/// Offsets that a reader was told are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenGap {
    /// The first.
    pub from: u64,
    /// The first that is not missing any more.
    pub to: u64,
    /// Why.
    pub reason: SeenReason,
}

/// An event or a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// An event.
    Event(SeenEvent),
    /// A gap.
    Gap(SeenGap),
}

/// A partition, read from offset 0 to its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenLane {
    /// Where its history starts, as the log says.
    pub start: u64,
    /// Its next offset, as the log says.
    pub next: u64,
    /// Everything, in the order in which it was read.
    pub items: Vec<Seen>,
}

/// All partitions that the log knows.
pub type SeenLog = BTreeMap<LaneKey, SeenLane>;
