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
pub const SHARED_PAGES_MAX: usize = 4;
/// Lanes with pages that groups share.
pub const SHARED_LANES_MAX: usize = 256;
/// Least time from one save of a group to the next, if nobody waits for it.
pub const SAVE_REST_MS: u64 = 1;
/// The same as a multiple of what a save takes.
pub const SAVE_REST_TIMES: u32 = 3;
/// The longest it is.
pub const SAVE_REST_MS_MAX: u64 = 10;
/// How far ahead of what is read deliveries may go without a save: that many events may count one
/// attempt too many after a crash. Four times as many in a group that gets there before the save.
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
/// How long a hub counts as there without saying so again, by default.
pub const HUB_LEASE_MS: u64 = 5_000;
/// How often a hub says so in that time, at least.
pub const HUB_BEATS_PER_LEASE: u32 = 5;
/// Longest time from one to the next.
pub const HUB_BEAT_MS_MAX: u64 = 1_000;
/// How often one who asks another hub looks for the answer.
pub const REQUEST_LOOK_MS: u64 = 50;
/// How long it waits before it sees who has the partition now, and asks again.
pub const REQUEST_WAIT_MS: u64 = 3_000;
/// How long it tries altogether.
pub const REQUEST_WAIT_MS_MAX: u64 = 15_000;
/// A request that is older was left behind by a hub that has ended.
pub const REQUEST_AGE_MS_MAX: u64 = 300_000;
/// Requests that a group remembers to have carried out.
pub const REQUESTS_REMEMBERED_MAX: usize = 256;
/// How often one who waits for a group looks how it stands at other hubs.
pub const ELSEWHERE_LOOK_MS: u64 = 100;
/// How long closing waits for consumers to finish what they have.
pub const CLOSE_DRAIN_MS: u64 = 10_000;

/// Largest schema document that is registered.
pub const SCHEMA_TEXT_BYTES_MAX: usize = 256 * 1024;
/// Most versions of one topic.
pub const SCHEMA_VERSIONS_MAX: usize = 1_000;
/// Most operations of one hop.
pub const HOP_OPERATIONS_MAX: usize = 500;
/// Longest expression of a conversion.
pub const EXPRESSION_BYTES_MAX: usize = 1024;
/// Most brackets and signs in an expression: they bound how deep it is.
pub const EXPRESSION_DEPTH_MAX: usize = 64;
/// Largest value that is converted; of a document, the members that an expression names.
pub const CONVERT_VALUE_BYTES_MAX: usize = 64 * 1024;
/// How often a registration that others were faster than is tried again.
pub const REGISTER_ATTEMPTS_MAX: usize = 32;
/// Values drawn from each version to try a caster on.
pub const CAST_VALUES_DRAWN: u64 = 100;
/// Stored events that a new version is tried on, by default.
pub const SAMPLE_EVENTS: usize = 1_000;
/// Objections of one kind that a plan tells.
pub const OBJECTIONS_MAX: usize = 16;
/// Refused events of one batch that are told.
pub const REFUSED_EVENTS_MAX: usize = 16;
/// How often the registry is looked at anew for what others have registered.
pub const SCHEMA_REFRESH_MS: u64 = 5_000;
/// How long an unknown version waits for the registry to be looked at anew.
pub const UNKNOWN_VERSION_RETRY_MS: u64 = 100;
