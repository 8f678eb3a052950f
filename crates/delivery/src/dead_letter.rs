//! Dead letters: where they go, what they are called, what they say.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use promethean_event::{EventId, GroupName, Offset, Partition, Topic, TopicError};

use crate::limits::{ERROR_BYTES_MAX, RELEASES_MAX};

/// What the topic of dead letters begins with.
pub const DEAD_LETTER_PREFIX: &str = "dlq.";

/// Why a topic has no dead letters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeadLetterTopicError {
    /// It is a topic of dead letters itself.
    #[error("{0} holds dead letters; what fails there stays there and is retried by hand")]
    Nested(Topic),
    /// It is one of the system's.
    #[error("{0} is a topic of the system and has no dead letters")]
    System(Topic),
    /// The name would be too long.
    #[error("the dead letters of {topic} have no name; shorten the topic's")]
    Name {
        /// The topic.
        topic: Topic,
        /// What is wrong with the name.
        source: TopicError,
    },
}

/// The topic for dead letters of `topic`: one per topic (pitfall 114), and none for topics of
/// dead letters, so that no `dlq.dlq.` can arise (pitfall 113).
pub fn dead_letter_topic(topic: &Topic) -> Result<Topic, DeadLetterTopicError> {
    if topic.is_system() {
        return Err(DeadLetterTopicError::System(topic.clone()));
    }
    if is_dead_letter_topic(topic) {
        return Err(DeadLetterTopicError::Nested(topic.clone()));
    }
    Topic::new(&format!("{DEAD_LETTER_PREFIX}{topic}"))
        .map_err(|source| DeadLetterTopicError::Name { topic: topic.clone(), source })
}

/// Whether the topic holds dead letters.
pub fn is_dead_letter_topic(topic: &Topic) -> bool {
    topic.as_str() == "dlq" || topic.as_str().starts_with(DEAD_LETTER_PREFIX)
}

/// Where an event stood that became a dead letter, and for whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The group that gave it up; others have their own opinion.
    pub group: GroupName,
    /// Its topic.
    pub topic: Topic,
    /// Its partition.
    pub partition: Partition,
    /// Its offset.
    pub offset: Offset,
}

impl Origin {
    /// The id of the dead letter: the same however often the move is repeated, another for every
    /// time the event dies. It may die again after it was released, after a seek, and in another
    /// group or topic of the same name: the time of its last delivery tells these apart.
    pub fn id(&self, letter: &crate::DeadLetter) -> EventId {
        let last = letter.times.last().copied().unwrap_or_default();
        self.id_of(letter.round, letter.epoch, last)
    }

    /// The same, for one that no group gave up: which round, which epoch, delivered when.
    pub fn id_of(&self, round: u16, epoch: u32, last_ms: u64) -> EventId {
        let mut name = Vec::new();
        // Lengths first: names cannot run into each other.
        for part in [self.group.as_str(), self.topic.as_str()] {
            name.extend_from_slice(&(part.len() as u32).to_be_bytes());
            name.extend_from_slice(part.as_bytes());
        }
        name.extend_from_slice(&self.partition.get().to_be_bytes());
        name.extend_from_slice(&self.offset.get().to_be_bytes());
        name.extend_from_slice(&round.to_be_bytes());
        name.extend_from_slice(&epoch.to_be_bytes());
        name.extend_from_slice(&last_ms.to_be_bytes());
        EventId::derived("promethean dead letter", &name)
    }
}

/// What is kept of an event that was given up, besides the event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterRecord {
    /// Its own id.
    pub id: EventId,
    /// Where it comes from.
    pub origin: Origin,
    /// How often it was delivered.
    pub attempts: u16,
    /// When, epoch milliseconds, the latest last.
    pub times: Vec<u64>,
    /// What the consumer last said: bounded, control characters taken out.
    pub error: String,
    /// The same for errors that differ only in numbers, ids and quoted text.
    pub fingerprint: u64,
    /// How often it had been released before.
    pub round: u16,
}

impl DeadLetterRecord {
    /// The record for a dead letter that a group put out. `redact` takes out of the error what
    /// must not be kept.
    pub fn new(
        origin: Origin,
        letter: &crate::DeadLetter,
        redact: impl FnOnce(String) -> String,
    ) -> Self {
        Self {
            id: origin.id(letter),
            origin,
            attempts: letter.attempts,
            times: letter.times.clone(),
            error: bounded_error(&redact(bounded_error(&String::from_utf8_lossy(&letter.error)))),
            fingerprint: letter.fingerprint,
            round: letter.round,
        }
    }

    /// The round of the next release, or `None` if it has gone round often enough.
    pub fn next_round(&self, rounds_max: u16) -> Option<u16> {
        let next = self.round.checked_add(1)?;
        (next <= rounds_max.min(RELEASES_MAX)).then_some(next)
    }
}

/// An error text cut to what is kept of it, on a character, without control characters.
pub fn bounded_error(error: &str) -> String {
    let mut text = String::new();
    for character in error.chars() {
        let character = match character {
            '\n' | '\t' => character,
            other if other.is_control() => ' ',
            other => other,
        };
        if text.len() + character.len_utf8() > ERROR_BYTES_MAX {
            break;
        }
        text.push(character);
    }
    text
}

/// A number for the kind of an error: digits, hexadecimal ids and quoted text do not count, nor
/// do case and spacing, nor what follows the first line.
pub fn fingerprint(error: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut add = |text: &str| {
        for byte in text.bytes().chain([0]) {
            hash = crate::hash::mix(hash ^ u64::from(byte.to_ascii_lowercase()));
        }
    };
    let line = error.lines().next().unwrap_or_default();
    let (mut quote, mut in_variable) = (None, false);
    for word in line.split(|c: char| c.is_whitespace() || ",;:()[]{}=".contains(c)) {
        let was_quoted = quote.is_some();
        for character in word.chars() {
            match (quote, character) {
                (None, '"' | '\'' | '`') => quote = Some(character),
                (Some(open), close) if open == close => quote = None,
                _ => {}
            }
        }
        let is_variable = was_quoted
            || word.contains(['"', '\'', '`'])
            || word.bytes().any(|byte| byte.is_ascii_digit());
        if word.is_empty() || (is_variable && in_variable) {
            continue;
        }
        add(if is_variable { "#" } else { word });
        in_variable = is_variable;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str) -> Topic {
        Topic::new(name).unwrap()
    }

    fn letter() -> crate::DeadLetter {
        crate::DeadLetter {
            lane: crate::LaneId::new(1),
            offset: 7,
            epoch: 0,
            key: None,
            reason: crate::Reason::Refused,
            round: 0,
            attempts: 5,
            times: alloc::vec![1, 2],
            error: "käse\u{0}secret".repeat(1_000).into_bytes(),
            fingerprint: 3,
        }
    }

    fn origin(group: &str, name: &str, offset: u64) -> Origin {
        Origin {
            group: GroupName::new(group).unwrap(),
            topic: topic(name),
            partition: Partition::new(1),
            offset: Offset::new(offset),
        }
    }

    /// Pitfalls 113 and 114.
    #[test]
    fn one_topic_of_dead_letters_per_topic_and_none_for_dead_letters() {
        assert_eq!(dead_letter_topic(&topic("a.b")).unwrap(), topic("dlq.a.b"));
        assert_ne!(dead_letter_topic(&topic("a")), dead_letter_topic(&topic("b")));
        for bad in [topic("dlq.a"), topic("dlq"), Topic::system("$x").unwrap()] {
            assert!(dead_letter_topic(&bad).is_err(), "{bad}");
        }
        assert!(dead_letter_topic(&topic("dlqueue.a")).is_ok());
        assert!(dead_letter_topic(&topic(&"x".repeat(249))).is_ok(), "the longest has them too");
    }

    /// Pitfall 107: the same move twice is one dead letter; 108: groups do not share it.
    #[test]
    fn ids_are_the_same_for_the_same_move_only() {
        let letter = letter();
        let id = origin("g", "t", 7).id(&letter);
        assert_eq!(id, origin("g", "t", 7).id(&letter.clone()));
        for other in [
            origin("g", "t", 8).id(&letter),
            origin("h", "t", 7).id(&letter),
            origin("g", "u", 7).id(&letter),
            origin("gt", "t", 7).id(&letter),
            origin("g", "t", 7).id(&crate::DeadLetter { round: 1, ..letter.clone() }),
            origin("g", "t", 7).id(&crate::DeadLetter { epoch: 1, ..letter.clone() }),
            origin("g", "t", 7).id(&crate::DeadLetter { times: alloc::vec![9], ..letter }),
        ] {
            assert_ne!(id, other);
        }
    }

    /// Pitfall 113: stack traces and payloads were copied without limit.
    #[test]
    fn errors_are_bounded_and_redacted() {
        let letter = letter();
        let record = DeadLetterRecord::new(origin("g", "t", 7), &letter, |text| {
            text.replace("secret", "***")
        });
        assert!(record.error.len() <= ERROR_BYTES_MAX);
        assert!(!record.error.contains(['\0']) && !record.error.contains("secret"));
        assert!(record.error.starts_with("käse ***"));
    }

    /// Pitfall 112: replays went round for ever.
    #[test]
    fn rounds_are_counted_and_end() {
        let mut record = DeadLetterRecord {
            id: EventId::from_bytes([0; 16]),
            origin: origin("g", "t", 1),
            attempts: 1,
            times: Vec::new(),
            error: String::new(),
            fingerprint: 0,
            round: 0,
        };
        assert_eq!(record.next_round(2), Some(1));
        record.round = 2;
        assert_eq!(record.next_round(2), None);
        record.round = u16::MAX;
        assert_eq!(record.next_round(u16::MAX), None);
    }

    #[test]
    fn fingerprints_tell_kinds_apart_not_instances() {
        let same = [
            "timeout after 300 ms calling \"http://a/1\"",
            "timeout after 17 ms calling \"http://b/2 x\"",
            "Timeout  after 5 ms calling 'c'\n at line 3",
        ];
        for error in same {
            assert_eq!(fingerprint(error), fingerprint(same[0]), "{error}");
        }
        assert_ne!(fingerprint(same[0]), fingerprint("refused after 300 ms calling \"x\""));
        let _ = fingerprint("");
    }
}
