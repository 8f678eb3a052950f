//! Every bound of the client, in one place. Units come last in the name.

/// Largest frame that a server takes, unless its `HELLO` says otherwise.
pub const FRAME_BYTES_MAX: usize = 1024 * 1024;
/// Largest frame that a client takes from a server.
pub const SERVER_FRAME_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most publishes that wait for their answer; more wait for their turn.
pub const PUBLISHES_MAX: usize = 2_048;
/// Most bytes of them, in KiB.
pub const PUBLISHES_KIB_MAX: usize = 64 * 1024;
/// Most events of one publish.
pub const BATCH_EVENTS_MAX: usize = promethean_event::limits::FRAME_EVENTS_MAX;
/// Most events out to one subscription at once.
pub const IN_FLIGHT_MAX: u32 = 1_000;
/// Events that come ahead of being asked for, unless told otherwise.
pub const PREFETCH: u32 = 256;
/// Most acks of one frame.
pub const ACKS_MAX: usize = 1_000;

/// The ceiling of the first wait before connecting again.
pub const BACKOFF_FIRST_MS: u64 = 250;
/// The ceiling of the longest one.
pub const BACKOFF_MAX_MS: u64 = 20_000;
/// A connection that lived so long makes the next failure a first one.
pub const STEADY_MS: u64 = 5_000;
/// A connection that is not open, greeted and known after this is given up.
pub const HANDSHAKE_MS: u64 = 10_000;
/// A connection that was silent for so long is gone: the server pings three times as often.
pub const QUIET_MS: u64 = 60_000;
/// How long the first connection may take.
pub const CONNECT_MS: u64 = 10_000;
/// How long a publish may take, with everything that is tried for it.
pub const PUBLISH_MS: u64 = 30_000;
/// How long an HTTP request may take.
pub const HTTP_MS: u64 = 30_000;
/// How long `close` waits for answers.
pub const CLOSE_MS: u64 = 5_000;
/// How long a subscription that was refused for now waits before it is tried again.
pub const REJOIN_MS: u64 = 1_000;

/// How long a lease lasts, unless told otherwise.
pub const LEASE_MS: u32 = 30_000;
/// How long a lease is renewed for work that does not end.
pub const PROCESSING_MS: u64 = 5 * 60_000;
/// How long a consumer that is stopped waits for its handlers.
pub const STOP_MS: u64 = 10_000;
/// How often `caught_up` asks.
pub const CAUGHT_UP_POLL_MS: u64 = 50;

/// Dead letters that one listing has at most, as of an embedded bus.
pub const DEAD_LETTERS_MAX: usize = 10_000;
