//! Times and sizes as a manifest writes them.

use serde::{Deserialize, Deserializer, de};

use crate::times;

/// A size in bytes, or no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit(pub(crate) Option<u64>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a size; write it like 500MB, 2GiB, or none for no limit")]
pub(crate) struct SizeError(String);

/// Reads a size.
pub(crate) fn bytes_or_none(text: &str) -> Result<Limit, SizeError> {
    let wrong = || SizeError(text.to_owned());
    let plain = text.trim();
    if plain.eq_ignore_ascii_case("none") {
        return Ok(Limit(None));
    }
    let end = plain.find(|c: char| !c.is_ascii_digit()).unwrap_or(plain.len());
    let (number, unit) = plain.split_at(end);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(unit)
        .filter(|bytes| *bytes > 0)
        .map(|bytes| Limit(Some(bytes)))
        .ok_or_else(wrong)
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        bytes_or_none(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// A span of time, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Millis(pub(crate) u64);

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let time =
            times::duration(&String::deserialize(deserializer)?).map_err(de::Error::custom)?;
        u64::try_from(time.as_millis()).map(Self).map_err(de::Error::custom)
    }
}

/// How long events stay: a span of time, or for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Retention(pub(crate) Option<u64>);

impl<'de> Deserialize<'de> for Retention {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "forever" {
            return Ok(Self(None));
        }
        let time = times::duration(&text).map_err(|_| {
            de::Error::custom(format!(
                "{text:?} is not a retention; write it like 7d, 12h or forever"
            ))
        })?;
        match u64::try_from(time.as_millis()) {
            Ok(0) | Err(_) => Err(de::Error::custom("a retention of nothing keeps nothing")),
            Ok(millis) => Ok(Self(Some(millis))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [("1", 1), ("500MB", 500_000_000), ("2 GiB", 2 << 30), ("3kib", 3072)]
        {
            assert_eq!(bytes_or_none(text), Ok(Limit(Some(bytes))), "{text}");
        }
        assert_eq!(bytes_or_none("none"), Ok(Limit(None)));
        for text in ["", "x", "5 apples", "-1", "0", "99999999999TiB"] {
            assert!(bytes_or_none(text).is_err(), "{text}");
        }
    }
}
