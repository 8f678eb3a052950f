//! Reading in order: one lane by offset, forward and backward, several by seq.
//!
//! A lane that makes up much of a segment is read frame by frame: one checksum for many events. A
//! lane that is a small part of it is read by the positions of its events, each with the checksum
//! of its record. The newest frames come from memory.

mod buffers;

mod frames;

mod lane;

mod backward;

mod locate;

mod merged;

mod page;

mod records;

pub use lane::LaneReader;
pub use merged::MergedReader;
pub use page::{Gap, GapReason, Page, PageLimit, Visited};
pub use records::RecordPage;
