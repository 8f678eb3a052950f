//! Every bound of the log.

use std::time::Duration;

use promethean_event::limits::BATCH_BYTES_MAX;

/// Largest frame of events, header included.
pub(crate) const FRAME_BYTES_MAX: u64 = BATCH_BYTES_MAX as u64 + 1024 * 1024;
/// The writer stops collecting requests for one frame at this size.
pub(crate) const FRAME_BYTES_TARGET: usize = 4 * 1024 * 1024;
/// Small batches that wait share memory up to this size.
pub(crate) const SHARED_BYTES_MAX: usize = 128 * 1024;
/// Up to this size a batch is copied to others that wait, instead of keeping memory of its own.
pub(crate) const SMALL_BATCH_BYTES_MAX: usize = 16 * 1024;
/// Small batches of one publisher are gathered up to this size before they are copied.
pub(crate) const GATHERED_BYTES_MAX: usize = 64 * 1024;
/// Largest segment: positions in it are 32 bits.
pub(crate) const SEGMENT_BYTES_LIMIT: u64 = 1 << 31;
/// A segment that is not filled ahead has at least so much in it when it is left for one that is.
pub(crate) const LEFT_EARLY_BYTES_MIN: u64 = 1024 * 1024;
/// Most topics of one log.
pub(crate) const TOPICS_MAX: usize = 100_000;
/// Most partitions of all topics of a log together: the catalog of all of them stands at the start of
/// each segment.
pub(crate) const LANES_MAX: usize = 1 << 24;
/// A topic in a catalog: numbers, the longest name, and how it is cleaned.
const CATALOG_TOPIC_BYTES_MAX: usize = 1 + 4 + 1 + 255 + 4 + 16 + 33;
/// A lane in a catalog.
const CATALOG_LANE_BYTES: usize = 25;
/// Lanes of recent frames that are remembered for those who wait for growth.
pub(crate) const RECENT_LANES_MAX: usize = 4096;
/// How far apart entries of a side file's frame table stand at least.
pub(crate) const FRAME_SAMPLE_BYTES: u64 = 16 * 1024;
/// Bytes written to a file that was not filled ahead between two looks at what the disk has left.
pub(crate) const FREE_LOOK_BYTES: u64 = 1024 * 1024;
/// How long something that nobody wants synced stays unsynced while the log is written without a pause.
pub(crate) const UNSYNCED_MAX: Duration = Duration::from_secs(1);
/// What is kept free in the active segment for the system's own records when the disk is full.
pub(crate) const SYSTEM_RESERVE_BYTES: u64 = 256 * 1024;

/// A caller whose thread has other things to do writes itself while syncs take no longer than this.
pub(crate) const QUICK_SYNC: Duration = Duration::from_micros(300);
/// And no more than this: beyond it, to be woken costs little beside the writing.
pub(crate) const QUICK_BYTES_MAX: usize = 256 * 1024;

/// Memory of a frame is kept for another one from this size on, if others have less use for it.
pub(crate) const FRAME_MEMORY_BYTES_MIN: usize = 128 * 1024;
/// Memory that is kept for frames.
pub(crate) const FRAME_MEMORY_BYTES_MAX: usize = 8 * 1024 * 1024;

const _: () = {
    assert!(FRAME_MEMORY_BYTES_MAX.is_multiple_of(FRAME_MEMORY_BYTES_MIN));
    assert!(SMALL_BATCH_BYTES_MAX <= GATHERED_BYTES_MAX);
    assert!(GATHERED_BYTES_MAX < SHARED_BYTES_MAX);
    assert!(SHARED_BYTES_MAX <= FRAME_BYTES_TARGET);
    assert!(FRAME_BYTES_TARGET as u64 <= FRAME_BYTES_MAX);
    assert!(FRAME_BYTES_MAX * 4 < SEGMENT_BYTES_LIMIT);
    let catalog = TOPICS_MAX * CATALOG_TOPIC_BYTES_MAX + LANES_MAX * CATALOG_LANE_BYTES;
    assert!(catalog as u64 + FRAME_BYTES_MAX < SEGMENT_BYTES_LIMIT / 2);
};
