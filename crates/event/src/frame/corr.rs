use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use crate::limits::CORR_BYTES_MAX;

/// What a client calls its request by: a text or a number, given back as it was spelled. Most are
/// short, and take no memory of their own.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Corr(SmallVec<[u8; 24]>);

impl Corr {
    /// Takes the JSON text of a string or a number.
    pub fn from_json(text: &str) -> Option<Self> {
        let starts = matches!(text.as_bytes().first(), Some(b'"' | b'-' | b'0'..=b'9'));
        (starts && text.len() <= CORR_BYTES_MAX).then(|| Self(text.as_bytes().into()))
    }

    /// The JSON text.
    pub fn as_json(&self) -> &str {
        // It was made of a text.
        std::str::from_utf8(&self.0).unwrap_or("null")
    }
}

impl From<u64> for Corr {
    fn from(number: u64) -> Self {
        Self(number.to_string().into_bytes().into())
    }
}

impl fmt::Debug for Corr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_json())
    }
}

impl Serialize for Corr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serde_json::from_str::<&RawValue>(self.as_json())
            .map_err(serde::ser::Error::custom)?
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Corr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::from_json(raw.get())
            .ok_or_else(|| serde::de::Error::custom("corr is neither a short text nor a number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spelling_comes_back() {
        for text in ["\"a\\u00e9\"", "7", "1.50", "-0"] {
            let corr = Corr::from_json(text).unwrap();
            assert_eq!(serde_json::to_string(&corr).unwrap(), text);
        }
        for text in ["null", "{}", "[1]", "true"] {
            assert_eq!(Corr::from_json(text), None);
        }
        assert_eq!(Corr::from_json(&format!("\"{}\"", "x".repeat(200))), None);
    }
}
