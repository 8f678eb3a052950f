//! Payloads as BSON, so that users can query them, whenever the same JSON comes back; as text when
//! it would not: numbers that BSON cannot spell, names that occur twice, escapes that nobody needs.

use std::collections::HashSet;
use std::fmt;

use bytes::Bytes;
use mongodb::bson::raw::{CStr, RawArrayBuf, RawBson, RawBsonRef, RawDocumentBuf};
use promethean_event::Payload;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::limits::PAYLOAD_BSON_BYTES_MAX;

/// How a payload is stored.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kept {
    /// As BSON that gives the same JSON back.
    Value(RawBson),
    /// As text.
    Text(String),
}

/// BSON for a payload if it gives the same bytes back, its text otherwise.
pub(crate) fn keep(payload: &Payload) -> Kept {
    let text = payload.as_str();
    // Refused by the seed: it cannot be BSON. Nothing is lost, it is kept as text.
    let mut parser = serde_json::Deserializer::from_str(text);
    if let Ok(value) = (ValueSeed).deserialize(&mut parser)
        && size(&value) <= PAYLOAD_BSON_BYTES_MAX
    {
        let mut printed = Vec::with_capacity(text.len());
        if print(value.as_raw_bson_ref(), &mut printed).is_ok() && printed == text.as_bytes() {
            return Kept::Value(value);
        }
    }
    Kept::Text(text.to_owned())
}

fn size(value: &RawBson) -> usize {
    match value {
        RawBson::Document(document) => document.as_bytes().len(),
        RawBson::Array(array) => array.as_bytes().len(),
        RawBson::String(text) => text.len(),
        _ => 0,
    }
}

/// The payload that was kept as this BSON.
pub(crate) fn restore(value: RawBsonRef<'_>) -> Result<Payload, PrintError> {
    let mut text = Vec::new();
    print(value, &mut text)?;
    Ok(Payload::from_stored(Bytes::from(text)))
}

/// Why BSON is not a payload.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrintError {
    #[error("its payload holds {0}, which is not JSON")]
    Kind(&'static str),
    #[error("its payload cannot be read: {0}")]
    Bson(#[from] mongodb::bson::error::Error),
    #[error("its payload cannot be printed: {0}")]
    Json(#[from] serde_json::Error),
}

fn print(value: RawBsonRef<'_>, out: &mut Vec<u8>) -> Result<(), PrintError> {
    match value {
        RawBsonRef::Null => out.extend_from_slice(b"null"),
        RawBsonRef::Boolean(value) => serde_json::to_writer(out, &value)?,
        RawBsonRef::Int32(value) => serde_json::to_writer(out, &value)?,
        RawBsonRef::Int64(value) => serde_json::to_writer(out, &value)?,
        RawBsonRef::Double(value) if value.is_finite() => serde_json::to_writer(out, &value)?,
        RawBsonRef::Double(_) => return Err(PrintError::Kind("a number without an end")),
        RawBsonRef::String(value) => serde_json::to_writer(out, value)?,
        RawBsonRef::Array(array) => {
            out.push(b'[');
            for (at, item) in array.into_iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                print(item?, out)?;
            }
            out.push(b']');
        }
        RawBsonRef::Document(document) => {
            out.push(b'{');
            for (at, member) in document.iter().enumerate() {
                let (name, item) = member?;
                if at > 0 {
                    out.push(b',');
                }
                serde_json::to_writer(&mut *out, name.as_str())?;
                out.push(b':');
                print(item, out)?;
            }
            out.push(b'}');
        }
        _ => return Err(PrintError::Kind("a kind of value that no publisher can send")),
    }
    Ok(())
}

/// Builds BSON from JSON; refuses what BSON cannot hold.
struct ValueSeed;

impl<'de> DeserializeSeed<'de> for ValueSeed {
    type Value = RawBson;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<RawBson, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed {
    type Value = RawBson;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<RawBson, E> {
        Ok(RawBson::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<RawBson, E> {
        Ok(RawBson::Boolean(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<RawBson, E> {
        Ok(i32::try_from(value).map_or(RawBson::Int64(value), RawBson::Int32))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<RawBson, E> {
        let value = i64::try_from(value).map_err(|_| E::custom("beyond 64 bits with a sign"))?;
        self.visit_i64(value)
    }

    fn visit_f64<E>(self, value: f64) -> Result<RawBson, E> {
        Ok(RawBson::Double(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<RawBson, E> {
        Ok(RawBson::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<RawBson, A::Error> {
        let mut array = RawArrayBuf::new();
        while let Some(item) = items.next_element_seed(ValueSeed)? {
            array.push(item);
        }
        Ok(RawBson::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<RawBson, A::Error> {
        let mut document = RawDocumentBuf::new();
        let mut names = HashSet::new();
        while let Some(name) = members.next_key::<String>()? {
            // What begins with a dollar is an operator to servers and drivers.
            if name.starts_with('$') {
                return Err(A::Error::custom("a name that means something to MongoDB"));
            }
            let value = members.next_value_seed(ValueSeed)?;
            let field: &CStr = name.as_str().try_into().map_err(A::Error::custom)?;
            document.append(field, value);
            if !names.insert(name) {
                return Err(A::Error::custom("a name that occurs twice"));
            }
        }
        Ok(RawBson::Document(document))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn payload(text: &str) -> Payload {
        Payload::parse(text.as_bytes().to_vec()).unwrap()
    }

    fn round_trip(payload: &Payload) -> Payload {
        match keep(payload) {
            Kept::Value(value) => restore(value.as_raw_bson_ref()).unwrap(),
            Kept::Text(text) => Payload::from_stored(Bytes::from(text)),
        }
    }

    #[test]
    fn ordinary_payloads_are_bson() {
        for text in [
            "null",
            "true",
            "17",
            "-3000000000",
            "1.5",
            "1.0",
            r#""text""#,
            "[]",
            "{}",
            r#"{"z":1,"a":[1,{"b":null}],"é":"\n\"\\","dotted.name":0.1,"":""}"#,
        ] {
            assert!(matches!(keep(&payload(text)), Kept::Value(_)), "{text}");
            assert_eq!(round_trip(&payload(text)), payload(text));
        }
    }

    #[test]
    fn what_would_come_back_otherwise_is_text() {
        for text in [
            "1.10",
            "1e3",
            "-0",
            "18446744073709551615",
            "123456789012345678901234567890",
            r#""\u00e4""#,
            r#""\/""#,
            r#"{"a":1,"a":2}"#,
            r#"{"$set":1}"#,
            r#"{"a\u0000b":1}"#,
        ] {
            assert_eq!(keep(&payload(text)), Kept::Text(text.to_owned()), "{text}");
        }
    }

    /// JSON texts of every spelling that the event crate lets through.
    fn json() -> impl Strategy<Value = String> {
        let number = prop_oneof![
            any::<i64>().prop_map(|n| n.to_string()),
            any::<u64>().prop_map(|n| n.to_string()),
            any::<f64>()
                .prop_filter("finite", |n| n.is_finite())
                .prop_map(|n| serde_json::to_string(&n).unwrap()),
            "-?(0|[1-9][0-9]{0,24})(\\.[0-9]{1,9})?([eE][+-]?[0-9]{1,2})?",
        ];
        let string = prop_oneof![
            any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
            r#""([a-z$._]|\\u00[0-9a-fA-F]{2}|\\n|\\/|\\")*""#,
        ];
        let leaf = prop_oneof![
            Just("null".to_owned()),
            Just("true".to_owned()),
            number,
            string.clone().boxed()
        ];
        leaf.prop_recursive(5, 40, 6, move |inner| {
            let members = proptest::collection::vec((string.clone(), inner.clone()), 0..6);
            prop_oneof![
                proptest::collection::vec(inner, 0..6)
                    .prop_map(|items| format!("[{}]", items.join(","))),
                members.prop_map(|members| {
                    let members: Vec<_> =
                        members.iter().map(|(name, value)| format!("{name}:{value}")).collect();
                    format!("{{{}}}", members.join(","))
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn every_payload_comes_back_byte_by_byte(text in json()) {
            let payload = payload(&text);
            prop_assert_eq!(round_trip(&payload), payload);
        }
    }
}
