use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limits::{HEADER_NAME_BYTES_MAX, HEADERS_BYTES_MAX, HEADERS_COUNT_MAX};

/// Text pairs that travel with an event: names of `[a-z0-9-]`, each once, in the order given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Headers(Vec<(Box<str>, Box<str>)>);

/// Why a header was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// A name that is empty, too long, or has a character outside `[a-z0-9-]`.
    #[error("header name {0:?} is not allowed; use lower-case letters, digits and '-'")]
    Name(String),
    /// A control character in a value.
    #[error("header {0:?} has a control character in its value")]
    Value(String),
    /// The same name twice.
    #[error("header {0:?} is given twice")]
    Repeated(String),
    /// Too many.
    #[error("more than {HEADERS_COUNT_MAX} headers")]
    TooMany,
    /// Too large together.
    #[error("headers are larger than {HEADERS_BYTES_MAX} bytes")]
    TooLarge,
}

impl Headers {
    /// No headers.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a header; the name must not be there yet.
    pub fn insert(&mut self, name: &str, value: &str) -> Result<(), HeaderError> {
        let good = |c: u8| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'-');
        if name.is_empty() || name.len() > HEADER_NAME_BYTES_MAX || !name.bytes().all(good) {
            return Err(HeaderError::Name(crate::topic::shortened(name)));
        }
        if value.chars().any(char::is_control) {
            return Err(HeaderError::Value(name.to_owned()));
        }
        if self.get(name).is_some() {
            return Err(HeaderError::Repeated(name.to_owned()));
        }
        if self.0.len() == HEADERS_COUNT_MAX {
            return Err(HeaderError::TooMany);
        }
        if self.bytes() + name.len() + value.len() > HEADERS_BYTES_MAX {
            return Err(HeaderError::TooLarge);
        }
        self.0.push((name.into(), value.into()));
        Ok(())
    }

    /// Adds a header or replaces its value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), HeaderError> {
        let place = self.0.iter().position(|(known, _)| &**known == name);
        let old = place.map(|index| self.0.remove(index));
        let result = self.insert(name, value);
        match (&result, place, old) {
            (Ok(()), Some(index), _) => {
                // The new pair went to the end; it keeps the place of the one it replaces.
                if let Some(pair) = self.0.pop() {
                    self.0.insert(index, pair);
                }
            }
            (Err(_), Some(index), Some(pair)) => self.0.insert(index, pair),
            _ => {}
        }
        result
    }

    /// Takes a header out; nothing happens if it is not there.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| &**known != name);
    }

    /// The value of a header.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|&(known, _)| known == name).map(|(_, value)| value)
    }

    /// All pairs, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len()).sum()
    }
}

impl Serialize for Headers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in self.iter() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Headers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of header names and text values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
                let mut headers = Headers::new();
                while let Some((name, value)) = map.next_entry::<String, String>()? {
                    headers.insert(&name, &value).map_err(serde::de::Error::custom)?;
                }
                Ok(headers)
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_could_break_a_wire() {
        let mut headers = Headers::new();
        for name in ["", "X-Upper", "x_y", "x.y", "$where", "a b"] {
            assert!(matches!(headers.insert(name, "v"), Err(HeaderError::Name(_))), "{name}");
        }
        assert!(matches!(headers.insert("x-a", "a\r\nb"), Err(HeaderError::Value(_))));
        headers.insert("x-a", "1").unwrap();
        assert_eq!(headers.insert("x-a", "2"), Err(HeaderError::Repeated("x-a".into())));
    }

    #[test]
    fn bounds() {
        let mut headers = Headers::new();
        for n in 0..32 {
            headers.insert(&format!("x-{n}"), "v").unwrap();
        }
        assert_eq!(headers.insert("x-more", "v"), Err(HeaderError::TooMany));
        let mut large = Headers::new();
        assert_eq!(large.insert("x-a", &"v".repeat(9000)), Err(HeaderError::TooLarge));
    }

    #[test]
    fn set_keeps_the_place_and_survives_a_refusal() {
        let mut headers: Headers = serde_json::from_str(r#"{"a":"1","b":"2"}"#).unwrap();
        headers.set("a", "3").unwrap();
        assert!(headers.set("a", "\n").is_err());
        assert_eq!(serde_json::to_string(&headers).unwrap(), r#"{"a":"3","b":"2"}"#);
    }

    #[test]
    fn repeated_json_names_are_refused() {
        assert!(serde_json::from_str::<Headers>(r#"{"a":"1","a":"2"}"#).is_err());
    }
}
