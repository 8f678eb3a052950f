//! Every bound of the bus, in one place. Units come last in the name.

/// Most topics and patterns of one group.
pub const GROUP_PATTERNS_MAX: usize = 256;
/// Saves of one group under way at once. One, so that a save that failed can be made again before
/// any later one: saves are numbered, and a missing one would hold up the group for ever.
pub const SAVES_IN_FLIGHT: u32 = 1;
/// Events read at once for a group.
pub const FETCH_EVENTS_MAX: usize = 4_096;
/// Bytes read at once for a group.
pub const FETCH_BYTES_MAX: usize = 1024 * 1024;
/// Pages of one lane that groups share.
pub const SHARED_PAGES_MAX: usize = 8;
/// Lanes with pages that groups share.
pub const SHARED_LANES_MAX: usize = 256;
/// Least time from one save of a group to the next, if nobody waits for it.
pub const SAVE_REST_MS: u64 = 1;
/// How far ahead of what is read deliveries may go without a save: that many events may count one
/// attempt too many after a crash.
pub const HORIZON_EVENTS: u32 = 16_384;
/// First delay before a save that failed is made again.
pub const SAVE_RETRY_MS: u64 = 50;
/// Longest such delay.
pub const SAVE_RETRY_MS_MAX: u64 = 5_000;
/// Most events of one listing.
pub const LIST_EVENTS_MAX: usize = 10_000;
/// Topics whose publishing is counted by name; the others are counted together.
pub const METRIC_TOPICS_MAX: usize = 1_000;
/// Groups whose times are kept by name; those of the others are kept together.
pub const METRIC_GROUPS_MAX: usize = 500;
/// Pairs of topic and group that are counted by name; the others are counted together.
pub const METRIC_PAIRS_MAX: usize = 2_000;
/// Messages that the queue of a member could hold; what may be in it is bounded by what is out to
/// the member and by the group's lanes, which may become more after it has joined.
pub const MEMBER_MESSAGES_MAX: usize = 1 << 20;
/// How long closing waits for consumers to finish what they have.
pub const CLOSE_DRAIN_MS: u64 = 10_000;
