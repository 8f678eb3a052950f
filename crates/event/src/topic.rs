use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limits::TOPIC_BYTES_MAX;

/// The name of a stream of events: dot-separated segments of `[a-z0-9_-]`, 249 bytes at most.
/// Names that begin with `$` are the system's own.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Topic(Arc<str>);

/// Why a text is not a topic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopicError {
    /// Nothing at all, or a segment with nothing in it (`a..b`, `.a`, `a.`).
    #[error("topic {0:?} has an empty segment; write names as heartbeat.received")]
    EmptySegment(String),
    /// A character outside `[a-z0-9_-]`.
    #[error("topic {name:?} has {character:?}; use lower-case letters, digits, '_', '-' and '.'")]
    BadCharacter {
        /// The refused name.
        name: String,
        /// Its first bad character.
        character: char,
    },
    /// A name of the system's.
    #[error("topic {0:?} begins with '$', which is kept for the system; choose another name")]
    System(String),
    /// Too long.
    #[error("topic of {0} bytes is too long; {TOPIC_BYTES_MAX} bytes at most")]
    TooLong(usize),
}

impl Topic {
    /// A user's topic.
    pub fn new(name: &str) -> Result<Self, TopicError> {
        if name.starts_with('$') {
            return Err(TopicError::System(shortened(name)));
        }
        check_segments(name, name).map(|()| Self(name.into()))
    }

    /// A topic of the system's: `$` and then an ordinary name.
    pub fn system(name: &str) -> Result<Self, TopicError> {
        let rest = name.strip_prefix('$').unwrap_or(name);
        check_segments(rest, name).map(|()| Self(format!("${rest}").into()))
    }

    /// Either kind, as it stands in a log.
    pub fn stored(name: &str) -> Result<Self, TopicError> {
        if name.starts_with('$') { Self::system(name) } else { Self::new(name) }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the name is one of the system's.
    pub fn is_system(&self) -> bool {
        self.0.starts_with('$')
    }

    /// The segments between the dots.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.0.split('.')
    }
}

/// What the name of a topic of dead letters begins with.
const DEAD_LETTER_PREFIX: &str = "dlq.";

fn check_segments(rest: &str, name: &str) -> Result<(), TopicError> {
    // The dead letters of the longest topic have a name as well.
    let prefix = if name.starts_with(DEAD_LETTER_PREFIX) { DEAD_LETTER_PREFIX.len() } else { 0 };
    if name.len() > TOPIC_BYTES_MAX + prefix {
        return Err(TopicError::TooLong(name.len()));
    }
    if rest.split('.').any(str::is_empty) {
        return Err(TopicError::EmptySegment(name.to_owned()));
    }
    let allowed = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '_' | '-' | '.');
    match rest.chars().find(|&c| !allowed(c)) {
        Some(character) => Err(TopicError::BadCharacter { name: name.to_owned(), character }),
        None => Ok(()),
    }
}

pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}

impl FromStr for Topic {
    type Err = TopicError;

    fn from_str(name: &str) -> Result<Self, TopicError> {
        Self::new(name)
    }
}

impl AsRef<str> for Topic {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Topic {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl Serialize for Topic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Topic {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::stored(&name).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names() {
        for name in ["a", "heartbeat.received", "process.state.v2", "a-b_c.9", &"x".repeat(249)] {
            assert_eq!(Topic::new(name).unwrap().as_str(), name);
        }
    }

    /// Pitfall 125: the notes' pattern had no end anchor, so that all of these passed.
    #[test]
    fn bad_names_are_refused_whole() {
        for name in
            ["", ".", "a.", ".a", "a..b", "a BAD!! Topic", "x/../../etc", "A", "ä", "a\n", "a::b"]
        {
            assert!(Topic::new(name).is_err(), "{name:?}");
        }
        assert_eq!(Topic::new(&"x".repeat(250)), Err(TopicError::TooLong(250)));
    }

    #[test]
    fn system_names_are_not_for_users() {
        assert!(matches!(Topic::new("$groups"), Err(TopicError::System(_))));
        assert_eq!(Topic::system("$groups").unwrap(), Topic::stored("$groups").unwrap());
        assert!(Topic::system("$").is_err());
        assert!(Topic::system("$$a").is_err());
    }
}
