use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::limits::{CAUSED_BY_COUNT_MAX, TAG_BYTES_MAX, TAGS_COUNT_MAX};
use crate::{EventId, Headers, Key, Offset, Partition, Payload, Timestamp, Topic};

/// An event as it stands in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Identity; the same id is stored once per topic.
    pub id: EventId,
    /// The boot or session of the publisher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sid: Option<SessionId>,
    /// Event time, as the publisher gave it.
    pub ts: Timestamp,
    /// The topic.
    pub topic: Topic,
    /// What compaction, partitioning and key order work on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// The partition, chosen by key (or by id).
    pub partition: Partition,
    /// The place in the partition.
    pub offset: Offset,
    /// Text pairs for those who carry it.
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    pub headers: Headers,
    /// What happened.
    pub payload: Payload,
    /// The events that led to this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caused_by: Vec<EventId>,
    /// Free labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Tag>,
}

/// An event that is not stored yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// Identity; publish again with the same id to retry safely.
    pub id: EventId,
    /// The boot or session of the publisher.
    pub sid: Option<SessionId>,
    /// Event time.
    pub ts: Timestamp,
    /// The topic.
    pub topic: Topic,
    /// What compaction, partitioning and key order work on.
    pub key: Option<Key>,
    /// Text pairs for those who carry it.
    pub headers: Headers,
    /// What happened.
    pub payload: Payload,
    /// The events that led to this one.
    pub caused_by: Vec<EventId>,
    /// Free labels.
    pub tags: Vec<Tag>,
}

/// What of an event was refused, beyond the types of its single fields.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// Too many tags.
    #[error("event has {0} tags; {TAGS_COUNT_MAX} at most")]
    TooManyTags(usize),
    /// Too many causes.
    #[error("event names {0} causes in caused_by; {CAUSED_BY_COUNT_MAX} at most")]
    TooManyCauses(usize),
    /// A tag that is empty or too long.
    #[error("tag {0:?} is not allowed; 1 to {TAG_BYTES_MAX} bytes without control characters")]
    Tag(String),
}

impl NewEvent {
    /// An event with nothing but the essentials.
    pub fn new(id: EventId, ts: Timestamp, topic: Topic, payload: Payload) -> Self {
        Self {
            id,
            sid: None,
            ts,
            topic,
            key: None,
            headers: Headers::new(),
            payload,
            caused_by: Vec::new(),
            tags: Vec::new(),
        }
    }

    /// Gives the event a key.
    #[must_use]
    pub fn with_key(mut self, key: Key) -> Self {
        self.key = Some(key);
        self
    }

    /// Checks what the types of the fields do not.
    pub fn check(&self) -> Result<(), EventError> {
        if self.tags.len() > TAGS_COUNT_MAX {
            return Err(EventError::TooManyTags(self.tags.len()));
        }
        if self.caused_by.len() > CAUSED_BY_COUNT_MAX {
            return Err(EventError::TooManyCauses(self.caused_by.len()));
        }
        Ok(())
    }

    /// The event once the store has given it a place.
    pub fn placed(self, partition: Partition, offset: Offset) -> Event {
        let Self { id, sid, ts, topic, key, headers, payload, caused_by, tags } = self;
        Event { id, sid, ts, topic, key, partition, offset, headers, payload, caused_by, tags }
    }
}

/// The boot or session of a publisher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(EventId);

impl SessionId {
    /// A new session.
    pub fn generate() -> Self {
        Self(EventId::generate())
    }

    /// The session with these bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(EventId::from_bytes(bytes))
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl From<Uuid> for SessionId {
    fn from(uuid: Uuid) -> Self {
        Self::from_bytes(*uuid.as_bytes())
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for SessionId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for SessionId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        EventId::deserialize(deserializer).map(Self)
    }
}

/// A free label on an event, such as `#stt`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(Box<str>);

impl Tag {
    /// Checks and takes a tag.
    pub fn new(text: impl Into<Box<str>>) -> Result<Self, EventError> {
        let text = text.into();
        if text.is_empty() || text.len() > TAG_BYTES_MAX || text.chars().any(char::is_control) {
            return Err(EventError::Tag(crate::topic::shortened(&text)));
        }
        Ok(Self(text))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Serialize for Tag {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Tag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = concat!(
        r#"{"id":"018c2e65-4b00-7000-8000-000000000001","#,
        r#""sid":"018c2e65-4b00-7000-8000-000000000002","ts":1700000000123,"#,
        r#""topic":"heartbeat.received","key":"dev:stt:1","partition":3,"offset":17,"#,
        r#""headers":{"x-b":"2","x-a":"1"},"payload":{"z":1.50,"a":null},"#,
        r##""caused_by":["018c2e65-4b00-7000-8000-000000000003"],"tags":["#duck"]}"##
    );

    #[test]
    fn json_form_is_exact_and_survives() {
        let event: Event = serde_json::from_str(FULL).unwrap();
        assert_eq!(serde_json::to_string(&event).unwrap(), FULL);
    }

    #[test]
    fn absent_fields_stay_absent() {
        let text = r#"{"id":"018c2e65-4b00-7000-8000-000000000001","ts":1,"topic":"a","partition":0,"offset":0,"payload":null}"#;
        let event: Event = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&event).unwrap(), text);
    }

    #[test]
    fn bad_fields_get_typed_refusals() {
        for (from, to) in [
            ("\"ts\":1700000000123", "\"ts\":-1"),
            ("heartbeat.received", "Heart Beat"),
            ("\"dev:stt:1\"", "\"\""),
            ("\"#duck\"", "\"\""),
            ("\"x-b\"", "\"X-B\""),
        ] {
            let text = FULL.replace(from, to);
            assert_ne!(text, FULL);
            assert!(serde_json::from_str::<Event>(&text).is_err(), "{to}");
        }
    }

    #[test]
    fn counts_are_bounded() {
        let mut event = NewEvent::new(
            EventId::generate(),
            Timestamp::from_millis(1),
            "a".parse().unwrap(),
            Payload::null(),
        );
        event.tags = vec![Tag::new("t").unwrap(); 33];
        assert_eq!(event.check(), Err(EventError::TooManyTags(33)));
        event.tags.clear();
        event.caused_by = vec![event.id; 33];
        assert_eq!(event.check(), Err(EventError::TooManyCauses(33)));
    }
}
