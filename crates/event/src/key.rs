use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limits::KEY_BYTES_MAX;

/// What compaction, partitioning and key order work on: a non-empty text of 1 KiB at most.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Box<str>);

/// Why a text is not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// An empty text; an event without a key has none at all.
    #[error("key is empty; leave the key out instead")]
    Empty,
    /// Too long.
    #[error("key of {0} bytes is too long; {KEY_BYTES_MAX} bytes at most")]
    TooLong(usize),
}

impl Key {
    /// Checks and takes a key.
    pub fn new(text: impl Into<Box<str>>) -> Result<Self, KeyError> {
        let text = text.into();
        match text.len() {
            0 => Err(KeyError::Empty),
            1..=KEY_BYTES_MAX => Ok(Self(text)),
            bytes => Err(KeyError::TooLong(bytes)),
        }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A key of several parts that cannot be mistaken for another: parts are joined by `:`, and
    /// `:` and `%` inside a part are written `%3a` and `%25`.
    pub fn from_parts<'a>(parts: impl IntoIterator<Item = &'a str>) -> Result<Self, KeyError> {
        let mut text = String::new();
        for (index, part) in parts.into_iter().enumerate() {
            if index > 0 {
                text.push(':');
            }
            for character in part.chars() {
                match character {
                    ':' => text.push_str("%3a"),
                    '%' => text.push_str("%25"),
                    other => text.push(other),
                }
            }
        }
        Self::new(text)
    }
}

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        Self::new(text)
    }
}

impl AsRef<str> for Key {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds() {
        assert_eq!(Key::new(""), Err(KeyError::Empty));
        assert!(Key::new("k".repeat(1024)).is_ok());
        assert_eq!(Key::new("k".repeat(1025)), Err(KeyError::TooLong(1025)));
    }

    /// Pitfall 160: `host:name:pid` is ambiguous when a part holds a colon.
    #[test]
    fn parts_are_escaped() {
        let one = Key::from_parts(["a:b", "c"]).unwrap();
        let other = Key::from_parts(["a", "b:c"]).unwrap();
        assert_ne!(one, other);
        assert_eq!(one.as_str(), "a%3ab:c");
        assert_ne!(Key::from_parts(["a%3ab"]).unwrap(), Key::from_parts(["a:b"]).unwrap());
    }
}
