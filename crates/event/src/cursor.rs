use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limits::GROUP_BYTES_MAX;
use crate::{Offset, Partition, Topic};

/// How far something has read one partition: `next` is the first offset not yet passed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cursor {
    /// The topic.
    pub topic: Topic,
    /// The partition of it.
    pub partition: Partition,
    /// The first offset that is not passed.
    pub next: Offset,
}

/// The name of a durable consumer group: `[a-z0-9_.-]`, also upper case, 128 bytes at most.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName(Arc<str>);

/// Why a text is not a group name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "group name {name:?} is not allowed; use 1 to {GROUP_BYTES_MAX} letters, digits, '_', '-', '.'"
)]
pub struct GroupNameError {
    name: String,
}

impl GroupName {
    /// Checks and takes a name.
    pub fn new(name: &str) -> Result<Self, GroupNameError> {
        let good = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'.');
        if name.is_empty() || name.len() > GROUP_BYTES_MAX || !name.bytes().all(good) {
            return Err(GroupNameError { name: crate::topic::shortened(name) });
        }
        Ok(Self(name.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for GroupName {
    type Err = GroupNameError;

    fn from_str(name: &str) -> Result<Self, GroupNameError> {
        Self::new(name)
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl Serialize for GroupName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for GroupName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::new(&name).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pitfall 22: a name with `::` in it made two keys one.
    #[test]
    fn names_cannot_hold_separators() {
        for name in ["", "a::b", "a b", "ä", "a/b", &"g".repeat(129)] {
            assert!(GroupName::new(name).is_err(), "{name}");
        }
        assert!(GroupName::new("Process-Projector_2.x").is_ok());
    }
}
