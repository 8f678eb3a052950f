//! Every bound of the outbox. Units come last in the name.

use std::time::Duration;

use promethean_event::limits::{BATCH_BYTES_MAX, BATCH_EVENTS_MAX, PAYLOAD_BYTES_MAX};

/// Most rows of one claim.
pub const BATCH_ROWS_MAX: usize = 10_000;
/// Longest lease, and longest wait before an attempt. A row that is held for longer than this from
/// now was written under another clock, and counts as free.
pub const HOLD_MAX: Duration = Duration::from_secs(3600);
/// Shortest lease: three renewals must fit.
pub const LEASE_MIN: Duration = Duration::from_millis(30);
/// How much of an error is kept in a row.
pub const ERROR_BYTES_MAX: usize = 1024;
/// Most rows of one listing.
pub const LISTING_ROWS_MAX: usize = 10_000;

/// About how many bytes are published together. Half of what a store takes, because it encodes.
pub(super) const CHUNK_BYTES_MAX: usize = BATCH_BYTES_MAX / 2;
/// Publishes under way at once, each of other keys.
pub(super) const PARTS_AT_ONCE_MAX: usize = 16;
/// Rows that one purge removes in one transaction, so that other writers get their turn.
pub(super) const PURGE_ROWS_MAX: usize = 1_000;
/// Longest time between two purges.
pub(super) const PURGE_EVERY_MAX: Duration = Duration::from_secs(60);
/// How often marking is tried before the lease decides.
pub(super) const SETTLE_TRIES_MAX: u32 = 5;
/// First gap between two looks after a wake-up; it doubles up to the poll interval.
pub(super) const LOOK_GAP_MIN: Duration = Duration::from_millis(1);
/// Longest time without looking at the rows themselves.
pub(super) const LOOK_AWAY_MAX: Duration = Duration::from_secs(30);
/// How long a connection that the drainer opens waits for other writers.
pub(super) const BUSY_WAIT: Duration = Duration::from_secs(5);

const _: () = {
    assert!(BATCH_ROWS_MAX <= BATCH_EVENTS_MAX);
    assert!(CHUNK_BYTES_MAX > PAYLOAD_BYTES_MAX);
    assert!(LEASE_MIN.as_millis() < HOLD_MAX.as_millis());
};
