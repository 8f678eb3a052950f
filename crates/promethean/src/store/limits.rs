//! Every bound of the stores.

/// Changes that are remembered so that one who waits for growth is told which lanes grew; one who
/// comes later than that looks at all of them.
pub(crate) const RECENT_LANES_MAX: usize = 4096;
/// Readers of the embedded store that are kept open at most. Each may hold a window of the log.
pub(crate) const OPEN_READERS_MAX: usize = 32;
/// Events that are read at once for one who goes on reading, at least.
pub(crate) const AHEAD_EVENTS: usize = 1000;
/// And bytes.
pub(crate) const AHEAD_BYTES: usize = 512 * 1024;
/// Room made ahead for the events of a page.
pub(crate) const PAGE_EVENTS_RESERVED: usize = 1024;
/// Changes of state of the embedded store that are under way at most.
pub(crate) const CHANGES_WAITING_MAX: usize = 65_536;
/// Records that one part of a checkpoint holds at most.
pub(crate) const CHECKPOINT_PART_RECORDS: usize = 1024;
/// Bytes after which another part of a checkpoint begins. Less than a batch by the largest record.
pub(crate) const CHECKPOINT_PART_BYTES: usize = 4 * 1024 * 1024;
