use std::fmt;
use std::sync::LazyLock;

use bytes::Bytes;
use memchr::memmem::Finder;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::json::{self, JsonError, Spacing};
use crate::limits::PAYLOAD_BYTES_MAX;

/// Made once: preparing the search costs more than the search.
static MARKER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"_deleted"));

/// What happened, as JSON bytes: checked once, never parsed and printed again. Member order and
/// number spelling survive; white space between tokens is taken out, so that it fits on a line.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Payload(Bytes);

impl Payload {
    /// Checks JSON bytes. Compact input is taken as it is, without a copy.
    pub fn parse(bytes: impl Into<Bytes>) -> Result<Self, JsonError> {
        let bytes = bytes.into();
        // Before compaction as well, so that white space cannot be used to make us work.
        if bytes.len() > 2 * PAYLOAD_BYTES_MAX {
            return Err(JsonError::TooLarge(bytes.len()));
        }
        let text = std::str::from_utf8(&bytes)
            .map_err(|error| JsonError::Utf8 { at: error.valid_up_to() })?;
        let compact = match json::check(text)? {
            Spacing::Compact => bytes,
            Spacing::Spaced => json::compact(text).into(),
        };
        if compact.len() > PAYLOAD_BYTES_MAX {
            return Err(JsonError::TooLarge(compact.len()));
        }
        Ok(Self(compact))
    }

    /// A value that was passed over in a text, which is `within`.
    pub(crate) fn passed(within: &Bytes, passed: &json::Passed) -> Option<Self> {
        let text = within.get(passed.range.clone())?;
        let compact = match passed.spacing {
            Spacing::Compact => within.slice_ref(text),
            Spacing::Spaced => json::compact(std::str::from_utf8(text).ok()?).into(),
        };
        (compact.len() <= PAYLOAD_BYTES_MAX).then_some(Self(compact))
    }

    /// The JSON form of a value.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, JsonError> {
        let bytes =
            serde_json::to_vec(value).map_err(|error| JsonError::NoJsonForm(error.to_string()))?;
        Self::parse(bytes)
    }

    /// Bytes that were checked when they were stored.
    pub fn from_stored(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// `null`: a tombstone.
    pub const fn null() -> Self {
        Self(Bytes::from_static(b"null"))
    }

    /// The JSON bytes.
    pub const fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// The JSON text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("null")
    }

    /// Reads the payload as a value of the caller's.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.0)
    }

    /// Whether the payload says that its key is gone: `null`, or an object with `_deleted: true`.
    pub fn is_tombstone(&self) -> bool {
        #[derive(Deserialize)]
        struct Marker {
            #[serde(default)]
            _deleted: Option<serde_json::Value>,
        }

        if self.0 == b"null"[..] {
            return true;
        }
        // The search is cheap, and most payloads do not hold the word at all. An escaped spelling
        // of it (`\u005f`) is still the same member name, hence the backslash.
        let may_say_it =
            || MARKER.find(&self.0).is_some() || memchr::memchr(b'\\', &self.0).is_some();
        if !self.0.starts_with(b"{") || !may_say_it() {
            return false;
        }
        self.decode::<Marker>()
            .is_ok_and(|marker| marker._deleted == Some(serde_json::Value::Bool(true)))
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serde_json::from_slice::<&RawValue>(&self.0)
            .map_err(serde::ser::Error::custom)?
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::parse(String::from(Box::<str>::from(raw)).into_bytes())
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spelling_survives() {
        let text = r#"{"z":1.50,"a":[1E3,-0,9007199254740993],"é":"\u00e9"}"#;
        assert_eq!(Payload::parse(text).unwrap().as_str(), text);
    }

    #[test]
    fn white_space_goes_but_not_from_strings() {
        let payload = Payload::parse("{ \"a b\" :\n [ 1 , \"x \\\" y\" ] }").unwrap();
        assert_eq!(payload.as_str(), r#"{"a b":[1,"x \" y"]}"#);
    }

    #[test]
    fn oversize_is_refused() {
        let large = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX));
        assert_eq!(Payload::parse(large), Err(JsonError::TooLarge(PAYLOAD_BYTES_MAX + 2)));
        assert_eq!(Payload::parse(&b"\xff"[..]), Err(JsonError::Utf8 { at: 0 }));
    }

    #[test]
    fn tombstones() {
        for text in ["null", r#"{"_deleted":true}"#, r#"{"a":1,"_deleted":true}"#] {
            assert!(Payload::parse(text).unwrap().is_tombstone(), "{text}");
        }
        for text in [
            "0",
            "{}",
            r#"{"_deleted":false}"#,
            r#"{"_deleted":"true"}"#,
            r#"{"a":{"_deleted":true}}"#,
            r#"["_deleted"]"#,
            r#""_deleted""#,
        ] {
            assert!(!Payload::parse(text).unwrap().is_tombstone(), "{text}");
        }
        assert!(Payload::parse(r#"{"\u005fdeleted":true}"#).unwrap().is_tombstone());
    }
}
