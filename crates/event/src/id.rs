use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

/// Identity of an event: a UUID, version 7 when we make it. It never orders anything.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(Uuid);

/// Why a text is not an event id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a UUID; write it as 8-4-4-4-12 hexadecimal digits, or leave it out")]
pub struct IdError {
    text: String,
}

impl EventId {
    /// A new id. Ids made by one process rise strictly, also within one millisecond and when the
    /// wall clock goes back.
    pub fn generate() -> Self {
        Self(Uuid::now_v7())
    }

    /// A version 7 id from its parts, for callers that own time and randomness.
    pub fn v7(millis: u64, random: [u8; 10]) -> Self {
        Self(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
    }

    /// An id that is the same whenever `domain` and `name` are the same: for retries of work that
    /// must not be stored twice. Version 8, so that it cannot meet a generated one.
    pub fn derived(domain: &str, name: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(domain.len() + 1 + name.len());
        bytes.extend_from_slice(domain.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(name);
        let hash = xxhash_rust::xxh3::xxh3_128(&bytes);
        Self(uuid::Builder::from_custom_bytes(hash.to_be_bytes()).into_uuid())
    }

    /// The id with these sixteen bytes, of whatever version.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// The sixteen bytes, most significant first.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// The time inside a version 7 id, in epoch milliseconds.
    pub fn millis(&self) -> Option<u64> {
        (self.0.get_version_num() == 7).then(|| {
            let [a, b, c, d, e, f, ..] = *self.0.as_bytes();
            u64::from_be_bytes([0, 0, a, b, c, d, e, f])
        })
    }
}

impl FromStr for EventId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        // `Uuid` also reads braces, URNs and undashed forms; one spelling keeps ids greppable.
        if text.len() != 36 {
            return Err(IdError { text: text.chars().take(64).collect() });
        }
        Uuid::try_parse(text).map(Self).map_err(|_| IdError { text: text.to_owned() })
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for EventId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EventId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_ids_rise_strictly() {
        let ids: Vec<_> = (0..100_000).map(|_| EventId::generate()).collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn time_is_inside_a_version_7_id_only() {
        assert_eq!(EventId::v7(1_700_000_000_123, [7; 10]).millis(), Some(1_700_000_000_123));
        assert_eq!(EventId::derived("outbox", b"a").millis(), None);
    }

    #[test]
    fn derived_ids_depend_on_domain_and_name() {
        assert_eq!(EventId::derived("a", b"x"), EventId::derived("a", b"x"));
        assert_ne!(EventId::derived("a", b"x"), EventId::derived("b", b"x"));
        assert_ne!(EventId::derived("a", b"bx"), EventId::derived("ab", b"x"));
    }

    #[test]
    fn text_has_one_spelling() {
        let id = EventId::generate();
        assert_eq!(id.to_string().parse::<EventId>(), Ok(id));
        for bad in ["", "7", &id.to_string().replace('-', ""), &format!("{{{id}}}"), "not-a-uuid"] {
            assert!(bad.parse::<EventId>().is_err(), "{bad}");
        }
    }
}
