//! What the records of the system's topics hold: JSON, with the bytes of delivery in base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use promethean_delivery::{DecodeError, LaneDelta, LaneId, LaneState};
use promethean_event::{
    EventId, GroupName, Key, KeyError, NewEvent, Offset, Payload, Timestamp, Topic,
};
use serde::{Deserialize, Serialize};

use crate::store::Lane;

/// A record of `$deltas`: one save of a group, or its end.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct DeltaRecord {
    pub(super) group: GroupName,
    /// Which group of this name: one above the place in `$deltas` where it began.
    pub(super) incarnation: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) settings: Option<Payload>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) lanes: Vec<(u64, Encoded)>,
    /// The group is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) removed: bool,
}

/// A record of `$groups`: part of a checkpoint.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum CheckpointRecord {
    Group {
        group: GroupName,
        incarnation: u64,
        settings: Payload,
    },
    Lane {
        group: GroupName,
        lane: u64,
        state: Encoded,
    },
    /// The last one: the checkpoint is whole.
    Mark {
        /// Its first record in `$groups`.
        from: u64,
        /// It covers all deltas before this place in `$deltas`.
        covers: u64,
    },
}

/// A record of `$entries`. Removed entries are tombstones, which hold nothing.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct EntryRecord {
    pub(super) space: String,
    pub(super) key: Key,
    /// Within an object, so that a value that looks like a tombstone is none.
    pub(super) value: Option<Payload>,
    /// What the log knows a tombstone by.
    #[serde(default, rename = "_deleted", skip_serializing_if = "std::ops::Not::not")]
    pub(super) deleted: bool,
}

/// Bytes as text.
#[derive(Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Encoded(String);

impl Encoded {
    pub(super) fn delta(delta: &LaneDelta) -> Self {
        Self(STANDARD.encode(delta.encode()))
    }

    pub(super) fn state(state: &LaneState) -> Self {
        Self(STANDARD.encode(state.encode()))
    }

    pub(super) fn to_delta(&self) -> Result<LaneDelta, RecordError> {
        Ok(LaneDelta::decode(&STANDARD.decode(&self.0)?)?)
    }

    pub(super) fn to_state(&self) -> Result<LaneState, RecordError> {
        Ok(LaneState::decode(&STANDARD.decode(&self.0)?)?)
    }
}

/// Why a record of the system's cannot be read or made.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecordError {
    #[error("not the JSON that was expected: {0}")]
    Json(#[from] serde_json::Error),
    #[error("not base64: {0}")]
    Base64(#[from] base64::DecodeError),
    #[error(transparent)]
    Delivery(#[from] DecodeError),
    #[error(transparent)]
    Key(#[from] KeyError),
}

pub(super) fn lane_number(lane: Lane) -> u64 {
    lane.id().get()
}

pub(super) const fn lane_of(number: u64) -> Lane {
    Lane::of(LaneId::new(number))
}

/// An event of the system's with this content, at a place that is known beforehand. Its id rises
/// with time and place, so that the log need not look whether it has been there.
pub(super) fn event<T: Serialize>(
    topic: &Topic,
    key: Option<Key>,
    content: &T,
    (now, place): (Timestamp, Offset),
) -> Result<NewEvent, RecordError> {
    let mut low = [0; 10];
    low[2..].copy_from_slice(&place.get().to_be_bytes());
    let id = EventId::v7(now.millis(), low);
    // Made here from checked parts: to check it once more would cost more than all the rest.
    let payload = Payload::from_stored(Bytes::from(serde_json::to_vec(content)?));
    let mut event = NewEvent::new(id, now, topic.clone(), payload);
    event.key = key;
    Ok(event)
}

/// The key of a group or of one of its lanes in `$groups`, for those who look.
pub(super) fn group_key(group: &GroupName, lane: Option<Lane>) -> Result<Key, RecordError> {
    let Some(lane) = lane else { return Ok(Key::from_parts([group.as_str()])?) };
    let (topic, partition) = (lane.topic.get().to_string(), lane.partition.to_string());
    Ok(Key::from_parts([group.as_str(), &topic, &partition])?)
}

/// The key of an entry in `$entries`. One that would be too long is told by its hash.
pub(super) fn entry_key(space: &str, key: &Key) -> Result<Key, RecordError> {
    if let Ok(key) = Key::from_parts([space, key.as_str()]) {
        return Ok(key);
    }
    let hash = xxhash_rust::xxh3::xxh3_128(key.as_str().as_bytes());
    Ok(Key::from_parts([space, "", &format!("{hash:032x}")])?)
}
