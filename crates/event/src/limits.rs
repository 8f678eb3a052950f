//! Every bound of the vocabulary, in one place. Units come last in the name.

/// Longest topic name. Leaves room for a prefix such as `dlq.` within 255 bytes.
pub const TOPIC_BYTES_MAX: usize = 249;
/// Longest topic pattern, in segments; bounds the cost of one match.
pub const PATTERN_SEGMENTS_MAX: usize = 32;
/// Longest group name.
pub const GROUP_BYTES_MAX: usize = 128;
/// Longest key.
pub const KEY_BYTES_MAX: usize = 1024;

/// Most headers of one event.
pub const HEADERS_COUNT_MAX: usize = 32;
/// Longest header name.
pub const HEADER_NAME_BYTES_MAX: usize = 128;
/// Names and values of all headers of one event together.
pub const HEADERS_BYTES_MAX: usize = 8 * 1024;

/// Most tags of one event.
pub const TAGS_COUNT_MAX: usize = 32;
/// Longest tag.
pub const TAG_BYTES_MAX: usize = 128;
/// Most parents named by `caused_by`.
pub const CAUSED_BY_COUNT_MAX: usize = 32;

/// Largest payload, as compact JSON.
pub const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;
/// Deepest nesting of arrays and objects in a payload.
pub const JSON_DEPTH_MAX: u32 = 64;
/// Most object members in one payload, all levels together.
pub const JSON_MEMBERS_MAX: u32 = 10_000;

/// Most partitions of one topic.
pub const PARTITIONS_MAX: u32 = 65_536;

/// Most events of one atomic batch.
pub const BATCH_EVENTS_MAX: usize = 65_536;
/// Largest atomic batch, encoded.
pub const BATCH_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Most events of one PUBLISH frame or HTTP request.
pub const FRAME_EVENTS_MAX: usize = 1_000;
/// Most topics and patterns of one subscription.
pub const FRAME_TOPICS_MAX: usize = 64;
/// Most tokens and ranges of one ACKS frame.
pub const FRAME_ACKS_MAX: usize = 10_000;
/// Longest name that a client gives a request, as JSON.
pub const CORR_BYTES_MAX: usize = 128;
/// What is kept of the reason of a NACK.
pub const REASON_BYTES_MAX: usize = 1024;

const _: () = {
    assert!(FRAME_EVENTS_MAX <= BATCH_EVENTS_MAX);
    assert!(TOPIC_BYTES_MAX + "dlq.".len() <= 255);
    assert!(KEY_BYTES_MAX <= u16::MAX as usize);
    assert!(HEADERS_BYTES_MAX <= u16::MAX as usize);
    assert!(PAYLOAD_BYTES_MAX + HEADERS_BYTES_MAX + KEY_BYTES_MAX < BATCH_BYTES_MAX);
    assert!(JSON_DEPTH_MAX <= 64);
};
