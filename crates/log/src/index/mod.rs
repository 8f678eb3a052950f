//! Finding events without reading others: by place, id, key, seq and time.
//!
//! The active segment's index is in memory ([`active`]); a sealed one has a side file
//! ([`side_file`]), built by reading the segment once, and built again if it is missing or
//! damaged. Both answer the same questions, through [`SegmentIndex`]. An index gives *positions*
//! in the segment; what stands there is checked against what was asked for, so a wrong answer of
//! an index can never become a wrong event.

mod active;

mod builder;

mod filter;

mod footer;

mod key_scan;

mod paged;

mod segment_index;

mod side_file;

pub(crate) use active::{ActiveIndex, Indexed, LaneRun};
pub(crate) use builder::build;
pub(crate) use filter::FilterBudget;
pub(crate) use segment_index::SegmentIndex;
pub(crate) use side_file::{SideFile, SideFileError};

use promethean_event::EventId;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::limits::FRAME_SAMPLE_BYTES;
use crate::topic::TopicId;

/// What ids are found by.
pub(crate) fn id_hash(topic: TopicId, id: &EventId) -> u64 {
    let mut bytes = [0; 20];
    let (head, tail) = bytes.split_at_mut(4);
    head.copy_from_slice(&topic.get().to_le_bytes());
    tail.copy_from_slice(id.as_bytes());
    xxh3_64(&bytes)
}

/// What keys are found by.
pub(crate) fn key_hash(topic: TopicId, key: &str) -> u64 {
    xxh3_64_with_seed(key.as_bytes(), u64::from(topic.get()) + 1)
}

/// The greatest and the least of the version 7 ids of a segment, and whether it has others. Most
/// ids are of version 7 and rise with time, so that most segments need not be asked at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdRange {
    pub(crate) least: EventId,
    pub(crate) greatest: EventId,
    pub(crate) has_others: bool,
}

impl IdRange {
    pub(crate) const EMPTY: Self = Self {
        least: EventId::from_bytes([0xff; 16]),
        greatest: EventId::from_bytes([0; 16]),
        has_others: false,
    };

    pub(crate) fn add(&mut self, id: EventId) {
        if id.millis().is_some() {
            self.least = self.least.min(id);
            self.greatest = self.greatest.max(id);
        } else {
            self.has_others = true;
        }
    }

    pub(crate) fn may_have(&self, id: &EventId) -> bool {
        match id.millis() {
            Some(_) => self.least <= *id && *id <= self.greatest,
            None => self.has_others,
        }
    }
}

/// A place that helps to find a frame by seq or by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameSample {
    pub(crate) seq: u64,
    pub(crate) append_ms: u64,
    pub(crate) position: u32,
}

impl FrameSample {
    /// Adds the sample if the last one stands far enough before it.
    fn add_to(self, samples: &mut Vec<Self>) {
        let far =
            |last: &Self| u64::from(self.position) >= u64::from(last.position) + FRAME_SAMPLE_BYTES;
        if samples.last().is_none_or(far) {
            samples.push(self);
        }
    }
}
