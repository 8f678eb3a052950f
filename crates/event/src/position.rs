use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Event, Offset, Partition, Topic};

/// Where an event stands: `topic/partition/offset`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Position {
    /// The topic.
    pub topic: Topic,
    /// The partition of it.
    pub partition: Partition,
    /// The place there.
    pub offset: Offset,
}

/// Why a text is not a position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a position; write topic/partition/offset, such as orders/0/42")]
pub struct PositionError(String);

impl Position {
    /// Where an event stands.
    pub fn of(event: &Event) -> Self {
        let &Event { ref topic, partition, offset, .. } = event;
        Self { topic: topic.clone(), partition, offset }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.topic, self.partition.get(), self.offset)
    }
}

impl FromStr for Position {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, PositionError> {
        let bad = || PositionError(text.chars().take(300).collect());
        // One spelling each: no sign, no leading zeroes.
        let number = |part: &str| {
            let number: u64 = part.parse().ok()?;
            (number.to_string() == part).then_some(number)
        };
        let mut parts = text.split('/');
        let (topic, partition, offset) = (parts.next(), parts.next(), parts.next());
        if parts.next().is_some() {
            return Err(bad());
        }
        let topic = topic.and_then(|topic| Topic::new(topic).ok()).ok_or_else(bad)?;
        let partition = partition.and_then(number).and_then(|number| u32::try_from(number).ok());
        let offset = offset.and_then(number).ok_or_else(bad)?;
        let partition = Partition::new(partition.ok_or_else(bad)?);
        Ok(Self { topic, partition, offset: Offset::new(offset) })
    }
}

impl Serialize for Position {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Position {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_writes_and_nothing_else() {
        let position: Position = "process.state/3/42".parse().unwrap();
        assert_eq!(position.to_string(), "process.state/3/42");
        for bad in ["", "a", "a/0", "a/0/1/2", "a/-1/0", "a/0/+1", "a/0/01", "A/0/1", "a/0/x"] {
            assert!(bad.parse::<Position>().is_err(), "{bad}");
        }
    }
}
