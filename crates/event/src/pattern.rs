use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limits::{PATTERN_SEGMENTS_MAX, TOPIC_BYTES_MAX};
use crate::topic::{Topic, TopicError, shortened};

/// A set of topics: `*` stands for one segment, `**` for any number of them, none included.
/// System topics are matched only by a pattern that itself begins with `$`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern(Box<str>);

/// Why a text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// A segment that is neither a wildcard nor good in a topic.
    #[error("pattern {pattern:?}: {source}")]
    Segment {
        /// The refused pattern.
        pattern: String,
        /// What is wrong with the segment.
        source: TopicError,
    },
    /// A `*` inside a segment, as in `heart*`.
    #[error("pattern {0:?} has '*' inside a segment; '*' and '**' stand for whole segments")]
    PartialWildcard(String),
    /// Too long.
    #[error("pattern of {bytes} bytes is too long; {PATTERN_SEGMENTS_MAX} segments at most")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
}

impl Pattern {
    /// Reads a pattern.
    pub fn new(text: &str) -> Result<Self, PatternError> {
        if text.len() > TOPIC_BYTES_MAX || text.split('.').count() > PATTERN_SEGMENTS_MAX {
            return Err(PatternError::TooLong { bytes: text.len() });
        }
        let rest = text.strip_prefix('$').unwrap_or(text);
        for segment in rest.split('.') {
            if segment == "*" || segment == "**" {
                continue;
            }
            if segment.contains('*') {
                return Err(PatternError::PartialWildcard(text.to_owned()));
            }
            Topic::new(segment)
                .map_err(|source| PatternError::Segment { pattern: shortened(text), source })?;
        }
        Ok(Self(text.into()))
    }

    /// The pattern that matches this one topic.
    pub fn exact(topic: &Topic) -> Self {
        Self(topic.as_str().into())
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The topic, if the pattern has no wildcard.
    pub fn as_topic(&self) -> Option<Topic> {
        if self.0.contains('*') { None } else { Topic::stored(&self.0).ok() }
    }

    /// Whether the pattern covers `topic`.
    pub fn matches(&self, topic: &Topic) -> bool {
        if topic.is_system() != self.0.starts_with('$') {
            return false;
        }
        // `$` stays on the first segment of both sides, where it can only meet itself.
        let pattern = self.0.strip_prefix('$').unwrap_or(&self.0);
        let name = topic.as_str().strip_prefix('$').unwrap_or(topic.as_str());
        segments_match(pattern, name)
    }
}

/// Greedy matching with one point of return: on a mismatch only the last `**` needs to swallow one
/// more segment, since an earlier one could not do better. Linear in memory, quadratic at worst.
fn segments_match(pattern: &str, name: &str) -> bool {
    let mut pattern = pattern.split('.');
    let mut name = name.split('.');
    let mut retry: Option<(std::str::Split<'_, char>, std::str::Split<'_, char>)> = None;
    loop {
        let mut ahead = pattern.clone();
        let matched = match ahead.next() {
            Some("**") => {
                retry = Some((ahead.clone(), name.clone()));
                pattern = ahead;
                continue;
            }
            Some(wanted) => name.next().is_some_and(|segment| wanted == "*" || wanted == segment),
            None => {
                if name.next().is_none() {
                    return true;
                }
                false
            }
        };
        if matched {
            pattern = ahead;
            continue;
        }
        let Some((after, mut rest)) = retry.take() else {
            return false;
        };
        if rest.next().is_none() {
            return false;
        }
        pattern = after.clone();
        name = rest.clone();
        retry = Some((after, rest));
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        Self::new(text)
    }
}

impl From<&Topic> for Pattern {
    fn from(topic: &Topic) -> Self {
        Self::exact(topic)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::new(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matches(pattern: &str, topic: &str) -> bool {
        Pattern::new(pattern).unwrap().matches(&Topic::stored(topic).unwrap())
    }

    /// Pitfall 69: the notes' matcher did not come back to an earlier `**`.
    #[test]
    fn double_star_backtracks() {
        assert!(matches("**.c", "a.c.b.c"));
        assert!(matches("a.**.c", "a.b.c.d.c"));
        assert!(matches("a.**.b", "a.b.x.b"));
        assert!(matches("a.**.b", "a.b"));
        assert!(matches("**", "a"));
        assert!(matches("a.**", "a"));
        assert!(!matches("a.*", "a"));
        assert!(!matches("a.*.**", "a"));
        assert!(!matches("**.a.b", "a.c"));
    }

    #[test]
    fn system_topics_need_the_dollar() {
        assert!(!matches("**", "$groups"));
        assert!(matches("$**", "$groups"));
        assert!(!matches("$**", "groups"));
        assert!(matches("$*.a", "$b.a"));
    }

    #[test]
    fn half_wildcards_are_refused() {
        for text in ["heart*", "a.b**", "***", "", "a..b", "A.*", "a. *"] {
            assert!(Pattern::new(text).is_err(), "{text}");
        }
    }

    /// The plainest matcher that is right: all splits, recursively.
    fn model(pattern: &[&str], name: &[&str]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, None) => true,
            (None, Some(_)) => false,
            (Some((&"**", rest)), _) => (0..=name.len()).any(|n| model(rest, &name[n..])),
            (Some((&wanted, rest)), Some((&first, others))) => {
                (wanted == "*" || wanted == first) && model(rest, others)
            }
            (Some(_), None) => false,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1024))]

        #[test]
        fn agrees_with_the_model(
            pattern in proptest::collection::vec(prop_oneof!["a", "b", "\\*", "\\*\\*"], 1..7),
            name in proptest::collection::vec(prop_oneof!["a", "b", "c"], 1..9),
        ) {
            let pattern_parts: Vec<&str> = pattern.iter().map(String::as_str).collect();
            let name_parts: Vec<&str> = name.iter().map(String::as_str).collect();
            prop_assert_eq!(
                matches(&pattern.join("."), &name.join(".")),
                model(&pattern_parts, &name_parts)
            );
        }
    }
}
