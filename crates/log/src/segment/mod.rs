//! One file of the log.
//!
//! ```text
//! segment := header frame* (zeroes or stale bytes)?
//! frame   := frame header, body            one commit: valid whole or not at all
//! body    := record*                       in an events frame
//!          | entry*                        in a catalog frame
//!          | nothing                       in a mark or a seal
//! ```
//!
//! The header is written and synced before the file gets its name, so a named segment without a
//! good header is damage, never a torn write. Its checksum is the *salt* of every checksum in the
//! file: stale bytes of a recycled file, or of another segment, can never pass. Each frame also
//! carries the checksum of the frame before it (the chain), and says how far the log was known to
//! be synced when it was written, which is what tells a torn tail from damage (see `recovery`).
//!
//! Names: `{base}-{generation}.seg` in hexadecimal. Generation 0 is as the writer wrote it; the
//! cleaner writes a run of segments again as one of a higher generation, which replaces all lower
//! ones that it covers.

mod frame;

mod header;

mod name;

mod record;

mod scan;

mod holes;

pub(crate) use frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind};
pub(crate) use header::{BadHeader, SEGMENT_HEADER_BYTES, SegmentHeader};
pub(crate) use holes::Holes;
pub(crate) use name::{FileKind, SegmentName};
pub(crate) use record::{
    RECORD_HEADER_BYTES, RecordHeader, RecordPlace, body_bytes, encode_body, same_content,
};
pub use record::{Record, RecordRef};
pub(crate) use scan::{FrameEvent, SegmentScan};
