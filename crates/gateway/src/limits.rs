//! Every bound of the edge that is not a setting. Units come last in the name.

use promethean_event::limits::PAYLOAD_BYTES_MAX;

/// Largest credential.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;
/// Longest name of a key in a token or key set.
pub const KID_BYTES_MAX: usize = 128;
/// Longest subject of a token.
pub const SUBJECT_BYTES_MAX: usize = 256;
/// Most rules of one principal.
pub const RULES_MAX: usize = 256;
/// How far ahead a token may expire.
pub const TOKEN_LIFE_MAX_S: u64 = 24 * 60 * 60;
/// How far ahead of our clock a token may have been issued.
pub const CLOCK_SKEW_MAX_S: u64 = 60;
/// Shortest secret for HS256: as long as its hash (RFC 7518, 3.2).
pub const HS256_SECRET_BYTES_MIN: usize = 32;
/// Shortest RSA modulus.
pub const RSA_BITS_MIN: usize = 2048;
/// Largest key set.
pub const JWKS_BYTES_MAX: usize = 256 * 1024;
/// Most keys of a key set.
pub const JWKS_KEYS_MAX: usize = 64;
/// A key set is fetched again after this.
pub const JWKS_FRESH_MS: u64 = 10 * 60 * 1000;
/// For a key that is not in it, a key set is fetched again at most this often.
pub const JWKS_RETRY_MS: u64 = 30 * 1000;
/// A key set that cannot be fetched again is used for this long.
pub const JWKS_STALE_MS: u64 = 24 * 60 * 60 * 1000;

/// How long a ticket may be used.
pub const TICKET_LIFE_MS: u64 = 30 * 1000;
/// Most tickets that one subject makes within that time.
pub const TICKETS_PER_SUBJECT_MAX: usize = 50;
/// Most tickets that all make within that time.
pub const TICKETS_MAX: usize = 10_000;

/// Records of the audit log are kept for this long, unless told otherwise.
pub const AUDIT_RETENTION_MS: u64 = 90 * 24 * 60 * 60 * 1000;
/// Longest address of a request in a record of the audit log; the rest is cut off.
pub const AUDIT_RESOURCE_BYTES_MAX: usize = 512;
/// Most that a record of the audit log says beyond that.
pub const AUDIT_ABOUT_BYTES_MAX: usize = 16 * 1024;
/// Most kinds of refusals that are told apart between two records of them.
pub const AUDIT_REFUSALS_MAX: usize = 32;
/// Most tokens that a record names of those that came, and of those that went.
pub const AUDIT_TOKENS_MAX: usize = 30;
/// How often a record of the audit log is tried where others write the same chain, or nobody knows
/// whether it was written.
pub const AUDIT_ATTEMPTS_MAX: u32 = 8;

/// Most buckets of one kind; later names share one.
pub const BUCKETS_MAX: usize = 16_384;
/// What those who share a bucket may owe it together, in events: as many as are delivered at once, or its
/// burst if that is more.
pub const DEBT_EVENTS_MAX: u32 = 1_000;

/// Longest filter.
pub const FILTER_BYTES_MAX: usize = 4 * 1024;
/// Most parts of a filter, as a tree.
pub const FILTER_NODES_MAX: usize = 256;
/// Deepest nesting of a filter.
pub const FILTER_DEPTH_MAX: u16 = 32;
/// Most members of payload and headers that a filter names.
pub const FILTER_MEMBERS_MAX: usize = 32;
/// Most values that a filter takes out of one event.
pub const FILTER_VALUES_MAX: usize = 1_000;
/// Most bytes that a filter takes out of one event.
pub const FILTER_INPUT_BYTES_MAX: usize = 16 * 1024;
/// Most work of one filter on one event; a unit is the visit of a node, about 50 ns.
pub const FILTER_COST_MAX: u64 = 200_000;
/// Largest compiled regular expression of a filter.
pub const FILTER_REGEX_BYTES_MAX: usize = 256 * 1024;

/// Largest body of a request with one event.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;
/// Room for bodies is given out in pieces of this.
pub const BODY_ROOM_BYTES: usize = 4 * 1024;
/// Largest body of a request with many events.
pub const BATCH_BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Longest `Idempotency-Key`.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 128;

/// After a connection that could not be accepted, none is tried for this long, unless one ends.
pub const ACCEPT_PAUSE_MS: u64 = 100;
/// Largest head of a request.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Most headers of a request.
pub const HEADERS_MAX: usize = 64;
/// Longest address of a request.
pub const URI_BYTES_MAX: usize = 4 * 1024;
/// Most events of one answer.
pub const PAGE_EVENTS_MAX: usize = 1_000;
/// Events of one answer in bytes, about: large ones come page by page.
pub const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Events of one answer, unless asked otherwise.
pub const PAGE_EVENTS: usize = 100;
/// How long a request may look for events that a filter wants.
pub const SCAN_MS_MAX: u64 = 2_000;
/// Most gaps and unreadable events that a page names, about: those that are read together come together.
pub const PAGE_MISSING_MAX: usize = 1_000;
/// Most gaps of a page that are named in the head of an answer, whose body has no room for them.
pub const MISSING_IN_HEAD_MAX: usize = 32;
/// Events that a filter looks at before others get on, and the time is looked at.
pub const SCAN_EVENTS_AT_ONCE: usize = 16;
/// Largest WebSocket frame and message.
pub const FRAME_BYTES_MAX: usize = 1024 * 1024;
/// Largest frame of one event: what is beside its payload has its own limits, and may be written with
/// escapes. Clients have to take as much.
pub const EVENT_FRAME_BYTES_MAX: usize = FRAME_BYTES_MAX + 64 * 1024;
/// Most pieces of one WebSocket message.
pub const FRAGMENTS_MAX: usize = 64;
/// What is read from a WebSocket at once.
pub const READ_BUFFER_BYTES: usize = 16 * 1024;
/// What is collected before it is written to a WebSocket.
pub const WRITE_BUFFER_BYTES: usize = 64 * 1024;
/// Frames that are not understood before a WebSocket is closed.
pub const BAD_FRAMES_MAX: u32 = 5;
/// Publishes of one connection under way at once; beyond it, nothing is read.
pub const PIPELINE_MAX: usize = 4_096;
/// The same in bytes, about: the frames that they came in, and what is made of them.
pub const PIPELINE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Publishes of one connection that came together are handed over together, up to about this.
pub const GATHERED_BYTES: usize = 256 * 1024;
/// Messages of one connection that are heard without a look at anything else in between.
pub const MESSAGES_AT_ONCE: usize = 64;
/// After so many steps of a connection all that it has to do has a turn, also what stands behind
/// something that is always ready.
pub const LOOKS_AROUND: u32 = 64;
/// Bytes waiting to be sent beyond which no further events are fetched for a connection.
pub const OUTBOX_EVENTS_BYTES: usize = 1024 * 1024;
/// Most events out to one subscription.
pub const IN_FLIGHT_MAX: u32 = 1_000;
/// Most events of one `EVENTS` frame.
pub const EVENTS_FRAME_MAX: u32 = 1_000;
/// Longest lease that a client may ask for.
pub const LEASE_MS_MAX: u32 = 600_000;
/// Most series of one metric.
pub const METRIC_SERIES_MAX: usize = 1_000;
/// Failures to authenticate of one address, in a minute.
pub const AUTH_FAILURES_MAX: u32 = 10;

/// What is beside a payload, at most: what may be a control character takes six bytes, and what may be a
/// quote two; and a little for names, numbers and the group.
const BESIDE_PAYLOAD_BYTES: usize = {
    use promethean_event::limits as event;
    let tags = event::TAGS_COUNT_MAX * (6 * event::TAG_BYTES_MAX + 3);
    let headers = 2 * event::HEADERS_BYTES_MAX + 6 * event::HEADERS_COUNT_MAX;
    let others = event::CAUSED_BY_COUNT_MAX * 39 + 2 * event::TOPIC_BYTES_MAX + 1024;
    6 * event::KEY_BYTES_MAX + tags + headers + others
};

const _: () = {
    assert!(TICKETS_PER_SUBJECT_MAX <= TICKETS_MAX);
    assert!(AUDIT_REFUSALS_MAX * (SUBJECT_BYTES_MAX + 200) <= AUDIT_ABOUT_BYTES_MAX);
    assert!(2 * AUDIT_TOKENS_MAX * (SUBJECT_BYTES_MAX + 4) + 100 <= AUDIT_ABOUT_BYTES_MAX);
    assert!(PAYLOAD_BYTES_MAX + BESIDE_PAYLOAD_BYTES <= EVENT_FRAME_BYTES_MAX);
    assert!(GATHERED_BYTES + FRAME_BYTES_MAX < PIPELINE_BYTES_MAX);
    assert!(OUTBOX_EVENTS_BYTES < 16 * 1024 * 1024);
    assert!(JWKS_RETRY_MS < JWKS_FRESH_MS && JWKS_FRESH_MS < JWKS_STALE_MS);
    assert!(BODY_BYTES_MAX <= BATCH_BODY_BYTES_MAX);
    assert!(PAYLOAD_BYTES_MAX <= PAGE_BYTES_MAX);
    assert!(PAGE_EVENTS_MAX <= DEBT_EVENTS_MAX as usize && EVENTS_FRAME_MAX <= DEBT_EVENTS_MAX);
    assert!(FILTER_NODES_MAX as u64 <= FILTER_COST_MAX);
    assert!(PAYLOAD_BYTES_MAX <= BODY_BYTES_MAX);
};

/// Stored events that a schema is inferred from, unless told otherwise.
pub const INFERRED_EVENTS: usize = 1_000;
/// Most stored events that a schema is inferred from.
pub const INFERRED_EVENTS_MAX: usize = 100_000;

/// How long a request may wait for a view to come to a position.
pub const VIEW_WAIT_MS_MAX: u64 = 30_000;
/// How long a request may wait for another document.
pub const VIEW_WATCH_S_MAX: u64 = 60;
/// Most events of a trace.
pub const TRACE_EVENTS_MAX: usize = 1_000;
/// Most steps of a trace in either direction.
pub const TRACE_DEPTH_MAX: u32 = 100;
