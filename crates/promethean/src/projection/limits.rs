//! Every bound of projections and views.

/// Bytes of a view's or a field's name.
pub const NAME_BYTES_MAX: usize = 63;
/// Fields that a view declares.
pub const FIELDS_MAX: usize = 64;
/// Indexes of a view.
pub const INDEXES_MAX: usize = 16;
/// Views of one projection.
pub const VIEWS_MAX: usize = 64;
/// Topics that one projection reads.
pub const TOPICS_MAX: usize = 64;
/// Events that are read, worked on and committed together.
pub const BATCH_EVENTS: usize = 4_096;
/// Bytes of such a batch, about.
pub const BATCH_BYTES: usize = 4 * 1024 * 1024;
/// Bytes that are read ahead of it, all partitions together, about.
pub const READ_AHEAD_BYTES: usize = 4 * 1024 * 1024;
/// Events that code which writes by itself commits together, unless it says otherwise: a
/// transaction of somebody else's should be short.
pub const DELEGATED_EVENTS: usize = 100;
/// How soon a hub that stands by looks again how far the views are, while they move.
pub const LOOK_MS: u64 = 100;
/// And while they do not; so often it also asks whether it may take over.
pub const LOOK_MS_MAX: u64 = 1_000;
/// How often it looks for somebody who waits for an event to be in a view.
pub const WAIT_LOOK_MS: u64 = 50;
/// Events that one handling may emit.
pub const EMITTED_MAX: usize = 1_000;
/// Emitted events and dead letters that are appended together.
pub const APPEND_EVENTS: usize = 1_000;
/// Jobs that wait for the thread that writes.
pub const WRITES_WAITING_MAX: usize = 64;
/// Connections that are kept for reading.
pub const READERS_KEPT_MAX: usize = 8;
/// Memory for pages of the connection that writes.
pub const WRITER_CACHE_KIB: i64 = 16 * 1024;
/// Memory for pages of a connection that reads.
pub const READER_CACHE_KIB: i64 = 2 * 1024;
/// Memory for documents that were read lately, of all views of a database, about.
pub const RECENT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Pages of the write-ahead log that start a checkpoint.
pub const CHECKPOINT_PAGES: i64 = 4_000;
/// How long a write waits for another program that has the database locked.
pub const LOCK_WAIT_MS: u64 = 5_000;
/// First delay before something that failed for a while is tried again.
pub const RETRY_MS: u64 = 50;
/// Longest such delay.
pub const RETRY_MS_MAX: u64 = 5_000;
/// Differences that a verification lists; all are counted.
pub const DIFFERENCES_MAX: usize = 1_000;
/// How long the version of a deleted document is remembered by default: 30 days.
pub const GRAVE_MS: u64 = 30 * 24 * 60 * 60 * 1000;

const _: () = {
    assert!(BATCH_EVENTS <= promethean_event::limits::BATCH_EVENTS_MAX);
    assert!(RETRY_MS <= RETRY_MS_MAX);
    assert!(LOOK_MS <= LOOK_MS_MAX && DELEGATED_EVENTS <= BATCH_EVENTS);
};
