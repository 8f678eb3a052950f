//! Payloads as BSON, so that users can query them, whenever the same JSON comes back; as text when
//! it would not: numbers that BSON cannot spell, names that occur twice, escapes that nobody needs.

use std::collections::HashSet;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use mongodb::bson::DateTime;
use mongodb::bson::raw::{CStr, RawArrayBuf, RawBson, RawBsonRef, RawDocumentBuf};
use promethean_event::Payload;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::json;

use super::transcode::document_of;
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
    match value_of(payload) {
        Some((value, true)) => Kept::Value(value),
        _ => Kept::Text(payload.as_str().to_owned()),
    }
}

/// A payload as BSON, if it can be, and whether that gives the same bytes back.
pub(crate) fn value_of(payload: &Payload) -> Option<(RawBson, bool)> {
    let text = payload.as_str();
    if let Some(document) = document_of(text) {
        return (document.as_bytes().len() <= PAYLOAD_BSON_BYTES_MAX)
            .then_some((RawBson::Document(document), true));
    }
    look_closely(text)
}

/// The same for any text.
fn look_closely(text: &str) -> Option<(RawBson, bool)> {
    // Refused by the seed: it cannot be BSON. Nothing is lost, it is kept as text.
    let mut parser = serde_json::Deserializer::from_str(text);
    let value = (ValueSeed).deserialize(&mut parser).ok()?;
    if size(&value) > PAYLOAD_BSON_BYTES_MAX {
        return None;
    }
    let mut printed = Vec::with_capacity(text.len());
    let is_printed = print(value.as_raw_bson_ref(), &mut printed).is_ok();
    let is_exact = is_printed && printed == text.as_bytes();
    Some((value, is_exact))
}

/// The object that has these members, in order.
pub(crate) fn print_members<'a>(
    members: impl Iterator<Item = (&'a str, RawBsonRef<'a>)>,
) -> Result<Payload, PrintError> {
    let mut text = Vec::new();
    for (name, value) in members {
        text.push(if text.is_empty() { b'{' } else { b',' });
        serde_json::to_writer(&mut text, name)?;
        text.push(b':');
        print(value, &mut text)?;
    }
    if text.is_empty() {
        text.push(b'{');
    }
    text.push(b'}');
    Ok(Payload::from_stored(Bytes::from(text)))
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
    let bytes = match value {
        RawBsonRef::Document(document) => document.as_bytes().len(),
        RawBsonRef::String(text) => text.len(),
        _ => 0,
    };
    // JSON is about as long.
    let mut text = Vec::with_capacity(bytes + bytes / 4);
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

/// Any BSON as JSON, the same for the same value. What JSON has no kind of value for is spelled as
/// MongoDB's relaxed extended JSON does: `{"$oid": …}`, `{"$date": …}`, `{"$numberDecimal": …}`.
pub(crate) fn canonical(value: RawBsonRef<'_>) -> Result<String, PrintError> {
    let mut text = Vec::new();
    spell(value, &mut text, extended)?;
    String::from_utf8(text).map_err(|_| PrintError::Kind("text that is not UTF-8"))
}

/// Prints what JSON has no kind of value for.
type Beyond = fn(RawBsonRef<'_>, &mut Vec<u8>) -> Result<(), PrintError>;

fn extended(value: RawBsonRef<'_>, out: &mut Vec<u8>) -> Result<(), PrintError> {
    let value = match value {
        RawBsonRef::ObjectId(id) => json!({ "$oid": id.to_hex() }),
        RawBsonRef::DateTime(time) => date(time),
        RawBsonRef::Decimal128(number) => json!({ "$numberDecimal": number.to_string() }),
        RawBsonRef::Double(number) if number.is_nan() => json!({ "$numberDouble": "NaN" }),
        RawBsonRef::Double(number) if number > 0.0 => json!({ "$numberDouble": "Infinity" }),
        RawBsonRef::Double(_) => json!({ "$numberDouble": "-Infinity" }),
        RawBsonRef::Binary(binary) => {
            let sub_type = format!("{:02x}", u8::from(binary.subtype));
            json!({ "$binary": { "base64": BASE64.encode(binary.bytes), "subType": sub_type } })
        }
        RawBsonRef::Timestamp(time) => {
            json!({ "$timestamp": { "t": time.time, "i": time.increment } })
        }
        RawBsonRef::RegularExpression(regex) => json!({ "$regularExpression": {
            "pattern": regex.pattern.as_str(), "options": regex.options.as_str(),
        } }),
        RawBsonRef::JavaScriptCode(code) => json!({ "$code": code }),
        RawBsonRef::Symbol(symbol) => json!({ "$symbol": symbol }),
        RawBsonRef::Undefined => json!({ "$undefined": true }),
        RawBsonRef::MinKey => json!({ "$minKey": 1 }),
        RawBsonRef::MaxKey => json!({ "$maxKey": 1 }),
        _ => return Err(PrintError::Kind("a kind of value that is out of use")),
    };
    Ok(serde_json::to_writer(out, &value)?)
}

/// As text between the years 1970 and 9999, as a number of milliseconds elsewhere.
fn date(time: DateTime) -> serde_json::Value {
    const YEAR_10000_MS: i64 = 253_402_300_800_000;
    let millis = time.timestamp_millis();
    let text = (0..YEAR_10000_MS).contains(&millis).then(|| time.try_to_rfc3339_string().ok());
    match text.flatten() {
        Some(text) => json!({ "$date": text }),
        None => json!({ "$date": { "$numberLong": millis.to_string() } }),
    }
}

fn refused(value: RawBsonRef<'_>, _out: &mut Vec<u8>) -> Result<(), PrintError> {
    Err(PrintError::Kind(match value {
        RawBsonRef::Double(_) => "a number without an end",
        _ => "a kind of value that no publisher can send",
    }))
}

fn print(value: RawBsonRef<'_>, out: &mut Vec<u8>) -> Result<(), PrintError> {
    spell(value, out, refused)
}

fn spell(value: RawBsonRef<'_>, out: &mut Vec<u8>, beyond: Beyond) -> Result<(), PrintError> {
    match value {
        RawBsonRef::Null => out.extend_from_slice(b"null"),
        RawBsonRef::Boolean(value) => serde_json::to_writer(out, &value)?,
        RawBsonRef::Int32(value) => serde_json::to_writer(out, &value)?,
        RawBsonRef::Int64(value) => serde_json::to_writer(out, &value)?,
        RawBsonRef::Double(value) if value.is_finite() => serde_json::to_writer(out, &value)?,
        RawBsonRef::String(value) => serde_json::to_writer(out, value)?,
        RawBsonRef::Array(array) => {
            out.push(b'[');
            for (at, item) in array.into_iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                spell(item?, out, beyond)?;
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
                spell(item, out, beyond)?;
            }
            out.push(b'}');
        }
        other => beyond(other, out)?,
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
    fn usual_objects_take_one_pass() {
        for text in [
            "{}",
            r#"{"a":[],"b":[0,-1,2147483648,-9223372036854775808,1.5,[true,false,null]]}"#,
            r#"{"say":"\"hi\"\n\ttab \\ é","in":{"a":{"a":1}},"":""}"#,
            r#"{"list":[0,1,2,3,4,5,6,7,8,9,10,11]}"#,
        ] {
            let (document, exact) = (document_of(text).unwrap(), look_closely(text));
            assert_eq!(exact, Some((RawBson::Document(document), true)), "{text}");
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

    #[test]
    fn canonical_json_of_what_json_lacks() {
        use mongodb::bson::{DateTime, Decimal128, Timestamp, oid::ObjectId, rawdoc};
        let document = rawdoc! {
            "id": ObjectId::parse_str("65f000000000000000000001").unwrap(),
            "at": DateTime::from_millis(1_700_000_000_123),
            "price": "1.10".parse::<Decimal128>().unwrap(),
            "stamp": Timestamp { time: 7, increment: 1 },
            "n": 9_007_199_254_740_993_i64,
            "x": f64::NAN,
            "in": { "list": [1.5, true, { "z": 1, "a": 2 }] },
        };
        assert_eq!(
            canonical(RawBsonRef::Document(&document)).unwrap(),
            concat!(
                r#"{"id":{"$oid":"65f000000000000000000001"},"#,
                r#""at":{"$date":"2023-11-14T22:13:20.123Z"},"#,
                r#""price":{"$numberDecimal":"1.10"},"stamp":{"$timestamp":{"i":1,"t":7}},"#,
                r#""n":9007199254740993,"x":{"$numberDouble":"NaN"},"#,
                r#""in":{"list":[1.5,true,{"z":1,"a":2}]}}"#
            )
        );
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

        #[test]
        fn what_is_told_in_one_pass_is_what_is_found_by_looking_closely(text in json()) {
            // Spelled as it is printed: otherwise most would be nothing for one pass.
            let printed = look_closely(&text).map(|(value, _)| restore(value.as_raw_bson_ref()).unwrap());
            for text in [Some(text.as_str()), printed.as_ref().map(Payload::as_str)].into_iter().flatten() {
                if let Some(document) = document_of(text) {
                    prop_assert_eq!(look_closely(text), Some((RawBson::Document(document), true)));
                }
            }
        }
    }
}
