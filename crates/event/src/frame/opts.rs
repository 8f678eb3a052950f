use serde::{Deserialize, Serialize};

use crate::{Cursor, EventId, Headers, Key, SessionId, Tag, Timestamp};

/// What a client may say about an event besides its topic and payload. Nothing else gets in.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PublishOpts {
    /// Identity; publishing again with the same one adds nothing. Default: the server makes one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<EventId>,
    /// Event time. Default: the time of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ts: Option<Timestamp>,
    /// The key. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// Headers. Default: none.
    #[serde(skip_serializing_if = "Headers::is_empty")]
    pub headers: Headers,
    /// Free labels. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Tag>,
    /// The events that led to this one. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub caused_by: Vec<EventId>,
    /// The boot or session of the publisher. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sid: Option<SessionId>,
}

/// How a subscription is to be served. The notes' names (`batchSize`) are read as well.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SubscribeOpts {
    /// Where a group that is new begins. Default: latest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<From>,
    /// With `from: "ts"`: the first append time wanted, in epoch milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ts: Option<Timestamp>,
    /// With `from: "afterId"`: the event before the first one wanted.
    #[serde(alias = "afterId", skip_serializing_if = "Option::is_none")]
    pub after_id: Option<EventId>,
    /// Most events of one `EVENTS` frame. Default: 100.
    #[serde(alias = "batchSize", skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<u32>,
    /// Most events out at once. Default: 1,000.
    #[serde(alias = "maxInFlight", skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<u32>,
    /// How long a lease lasts. Default: 30,000 ms.
    #[serde(alias = "ackTimeoutMs", skip_serializing_if = "Option::is_none")]
    pub ack_timeout_ms: Option<u32>,
    /// Deliveries before an event is a dead letter. Default: 5.
    #[serde(alias = "maxAttempts", skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u16>,
    /// A CEL expression; what it is not true of is passed over. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// The form in which events come. Default: as they were written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reads: Option<ReadsForm>,
    /// Who may get an event. Default: shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<GroupMode>,
    /// What order is kept. Default: by key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ordered: Option<GroupOrder>,
    /// What a dead letter does to later events of its key. Default: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub park: Option<GroupPark>,
    /// Delay before the second delivery; doubles with each further one. Default: 200 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_ms: Option<u32>,
    /// Longest such delay. Default: 60,000 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_ms_max: Option<u32>,
    /// How long a member may finish what it has of a partition that it loses. Default: 10,000 ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_ms: Option<u32>,
    /// Whether retention and compaction keep what the group has not finished. Default: no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<bool>,
    /// Who acks. Default: the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ack: Option<AckMode>,
    /// Events that may be sent before the client grants more by `CREDIT`. Default: no credits,
    /// `max_in_flight` alone bounds the flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credit: Option<u32>,
    /// Whether events come in `EVENTS` frames. Default: one `EVENT` each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<bool>,
    /// With `RESUME`: where a subscription without a group goes on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<Cursor>,
}

/// The form in which events come: `"written"`, `"latest"`, or the number of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ReadsForm {
    /// In this version of their schema.
    Version(u32),
    /// By name.
    Named(NamedForm),
}

/// A form that has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NamedForm {
    /// As they were written.
    Written,
    /// In the latest version of their schema.
    Latest,
}

/// Where a new group begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum From {
    /// With what is published from now on.
    #[default]
    Latest,
    /// With the oldest event there is.
    Earliest,
    /// With the first event appended at or after `ts`.
    Ts,
    /// With the event after `after_id`.
    #[serde(alias = "afterId")]
    AfterId,
}

/// Who may get an event of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupMode {
    /// Any member.
    #[default]
    Shared,
    /// The one member that owns the partition.
    Partitioned,
}

/// What order a group keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupOrder {
    /// One event of a key out at a time, and never a later one before an earlier one.
    #[default]
    Key,
    /// None.
    None,
}

/// What happens to later events of the key of a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupPark {
    /// They go on without it.
    #[default]
    Event,
    /// They wait behind it until the dead letter is replayed or discarded.
    Key,
}

/// Who acks an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AckMode {
    /// The client, frame by frame.
    #[default]
    Manual,
    /// The server, once the event is written to the socket.
    Auto,
}
