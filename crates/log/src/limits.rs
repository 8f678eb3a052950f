//! Every bound of the log.

use promethean_event::limits::BATCH_BYTES_MAX;

/// Largest frame, header included.
pub(crate) const FRAME_BYTES_MAX: u64 = BATCH_BYTES_MAX as u64 + 1024 * 1024;
/// The writer stops collecting requests for one frame at this size.
pub(crate) const FRAME_BYTES_TARGET: usize = 4 * 1024 * 1024;
/// A frame of this size is worth a sync: the writer waits for no more publishers.
pub(crate) const FRAME_BYTES_WORTHWHILE: usize = 128 * 1024;
/// Up to this size a batch is copied to others that wait, instead of keeping memory of its own.
pub(crate) const SMALL_BATCH_BYTES_MAX: usize = 16 * 1024;
/// Largest segment: positions in it are 32 bits.
pub(crate) const SEGMENT_BYTES_LIMIT: u64 = 1 << 31;
/// Most topics of one log.
pub(crate) const TOPICS_MAX: usize = 100_000;
/// Lanes of recent frames that are remembered for those who wait for growth.
pub(crate) const RECENT_LANES_MAX: usize = 4096;
/// How far apart entries of a side file's frame table stand at least.
pub(crate) const FRAME_SAMPLE_BYTES: u64 = 16 * 1024;
/// What is kept free in the active segment for the system's own records when the disk is full.
pub(crate) const SYSTEM_RESERVE_BYTES: u64 = 256 * 1024;

const _: () = {
    assert!(SMALL_BATCH_BYTES_MAX < FRAME_BYTES_WORTHWHILE);
    assert!(FRAME_BYTES_WORTHWHILE <= FRAME_BYTES_TARGET);
    assert!(FRAME_BYTES_TARGET as u64 <= FRAME_BYTES_MAX);
    assert!(FRAME_BYTES_MAX * 4 < SEGMENT_BYTES_LIMIT);
};
