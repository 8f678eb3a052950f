use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{Offset, Partition};

/// One delivery of one event to one subscription, as a client gives it back in an ack. Opaque to
/// clients; the parts are hexadecimal and joined by `-`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryToken {
    /// The subscription, as numbered on its connection.
    pub sub: u32,
    /// The lane, as numbered by the group: a topic and a partition of it.
    pub lane: u32,
    /// The partition.
    pub partition: Partition,
    /// The place of the event.
    pub offset: Offset,
    /// The epoch of the lane; a seek begins another.
    pub epoch: u32,
    /// Which delivery of the event it is, counted from 1.
    pub attempt: u16,
    /// How often the event had been released from the dead letters before.
    pub round: u16,
}

/// Why a text is not a delivery token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a delivery token; send back the token of the event as it came")]
pub struct TokenError;

impl fmt::Display for DeliveryToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:x}-{:x}-{:x}-{:x}-{:x}-{:x}-{:x}",
            self.sub,
            self.lane,
            self.partition.get(),
            self.offset.get(),
            self.epoch,
            self.attempt,
            self.round
        )
    }
}

impl FromStr for DeliveryToken {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        fn number(part: Option<&str>) -> Result<u64, TokenError> {
            let part = part.filter(|part| !part.is_empty() && part.len() <= 16);
            let digits = part.filter(|part| part.bytes().all(|c| c.is_ascii_hexdigit()));
            digits.and_then(|part| u64::from_str_radix(part, 16).ok()).ok_or(TokenError)
        }
        fn narrow<T: TryFrom<u64>>(number: u64) -> Result<T, TokenError> {
            T::try_from(number).map_err(|_| TokenError)
        }
        let mut parts = text.split('-');
        let token = Self {
            sub: narrow(number(parts.next())?)?,
            lane: narrow(number(parts.next())?)?,
            partition: Partition::new(narrow(number(parts.next())?)?),
            offset: Offset::new(number(parts.next())?),
            epoch: narrow(number(parts.next())?)?,
            attempt: narrow(number(parts.next())?)?,
            round: narrow(number(parts.next())?)?,
        };
        parts.next().map_or(Ok(token), |_| Err(TokenError))
    }
}

impl Serialize for DeliveryToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DeliveryToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn survives_its_text(
            (sub, lane, partition) in any::<(u32, u32, u32)>(),
            (offset, epoch) in any::<(u64, u32)>(),
            (attempt, round) in any::<(u16, u16)>(),
        ) {
            let token = DeliveryToken {
                sub,
                lane,
                partition: Partition::new(partition),
                offset: Offset::new(offset),
                epoch,
                attempt,
                round,
            };
            prop_assert_eq!(token.to_string().parse(), Ok(token));
        }

        #[test]
        fn any_text_is_judged(text in ".{0,40}") {
            if let Ok(token) = text.parse::<DeliveryToken>() {
                prop_assert_eq!(token.to_string().parse(), Ok(token));
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in
            ["", "1", "1-2-3-4-5-6", "1-2-3-4-5-6-7-8", "-1-2-3-4-5-6-7", "1-2-3-4-5-6-10000"]
        {
            assert_eq!(text.parse::<DeliveryToken>(), Err(TokenError), "{text}");
        }
    }
}
