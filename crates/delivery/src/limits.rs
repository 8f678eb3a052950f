//! Every bound of delivery, in one place. Units come last in the name.

/// Most deliveries of one event before it is a dead letter that a group may ask for.
pub const ATTEMPTS_MAX: u16 = 1_000;
/// Times of deliveries kept with an event that keeps failing; the oldest go first.
pub const ATTEMPT_TIMES_MAX: usize = 32;
/// Bytes of an error text kept with an event that keeps failing.
pub const ERROR_BYTES_MAX: usize = 1_024;
/// Most slots of one lane: fetched events between the floor and the fetch position.
pub const WINDOW_EVENTS_MAX: u32 = 1 << 20;
/// Events asked for in one fetch, if there are as many: one credit does not mean one read, and
/// what is left over when a batch has gone out should be rare, for it goes out by itself.
pub const FETCH_EVENTS: u32 = 1_024;
/// Floor moves over skipped events alone wait for company until they are this many.
pub const QUIET_FLOOR_EVENTS: u64 = 4_096;
/// How often the distance to the delivery horizon doubles for those who come to it before it is
/// moved: that many times more events may count one attempt too many after a crash.
pub const HORIZON_DOUBLINGS_MAX: u32 = 2;
/// How long a lane rests after a fetch that failed.
pub const FETCH_RETRY_MS: u64 = 250;
/// No offset is as large; positions beyond it are taken for it, so that adding is safe.
pub const OFFSET_MAX: u64 = 1 << 62;
/// No time is as late, in milliseconds; later ones are taken for it.
pub const TIME_MS_MAX: u64 = 1 << 62;
/// How often one dead letter may be released again before a loop is suspected.
pub const RELEASES_MAX: u16 = 100;

const _: () = {
    assert!(FETCH_EVENTS <= WINDOW_EVENTS_MAX);
    assert!(ATTEMPTS_MAX < u16::MAX);
};
