//! The key of a document as text: different for different ones, the same for the same.

use mongodb::bson::raw::RawBsonRef;

use crate::document::{PrintError, canonical};

/// ObjectIds are their digits, texts are themselves, whole numbers are numbers whatever kind they
/// are of (MongoDB takes 1 and 1.0 for the same `_id`), everything else is canonical JSON. A text
/// that would look like one of the others is in quotes.
pub(super) fn text_of(id: RawBsonRef<'_>) -> Result<String, PrintError> {
    Ok(match id {
        RawBsonRef::ObjectId(id) => id.to_hex(),
        RawBsonRef::String(text) if is_plain(text) => text.to_owned(),
        RawBsonRef::Double(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
            format!("{number:.0}")
        }
        other => canonical(other)?,
    })
}

fn is_plain(text: &str) -> bool {
    let is_object_id = text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let first = text.bytes().next();
    let looks_like_json = first
        .is_none_or(|first| first.is_ascii_digit() || matches!(first, b'-' | b'"' | b'{' | b'['));
    !is_object_id && !looks_like_json && !["true", "false", "null"].contains(&text)
}

#[cfg(test)]
mod tests {
    use mongodb::bson::oid::ObjectId;
    use mongodb::bson::rawdoc;

    use super::*;

    /// Pitfall 121.
    #[test]
    fn different_ids_have_different_keys() {
        let id = ObjectId::parse_str("65f000000000000000000001").unwrap();
        let ids = rawdoc! {
            "a": id, "b": "65f000000000000000000001", "c": 1, "d": "1", "e": true, "f": "true",
            "g": { "x": 1, "y": "z" }, "h": { "y": "z", "x": 1 }, "i": "{\"x\":1,\"y\":\"z\"}",
            "j": "order 7", "k": 1.5, "l": "", "m": "\"order 7\"", "n": null,
        };
        let texts: Vec<_> = ids.iter().map(|member| text_of(member.unwrap().1).unwrap()).collect();
        let distinct: std::collections::HashSet<_> = texts.iter().collect();
        assert_eq!(distinct.len(), texts.len(), "{texts:?}");
        assert_eq!(texts[0], "65f000000000000000000001");
        assert_eq!(texts[6], r#"{"x":1,"y":"z"}"#);
        assert_eq!(texts[9], "order 7");
    }

    #[test]
    fn the_same_number_is_the_same_key() {
        let ids = rawdoc! { "a": 7, "b": 7_i64, "c": 7.0 };
        for member in &ids {
            assert_eq!(text_of(member.unwrap().1).unwrap(), "7");
        }
    }
}
