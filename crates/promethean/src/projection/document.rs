use std::fmt;

use promethean_event::{Payload, Timestamp};
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::position::Position;

/// Members that every document has; a payload's own members of these names do not count.
const RESERVED: [&str; 4] = ["_key", "_ts", "_pos", "_v"];

/// What a view has under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Document {
    /// The key.
    pub key: String,
    /// Event time of the event that wrote it last.
    pub ts: Timestamp,
    /// When the store took that event.
    pub appended_at: Timestamp,
    /// Where that event stands.
    pub position: Position,
    /// Its version, in a view with versions.
    pub version: Option<i64>,
    /// What was written.
    pub value: Payload,
}

impl Document {
    /// Reads the value as a type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        self.value.decode()
    }

    /// The document as JSON: `_key`, `_ts`, `_pos`, `_v` if there are versions, then the members of
    /// the value as they were spelled. A value that is no object is the member `value`.
    pub fn to_json(&self) -> String {
        let key = serde_json::Value::from(self.key.as_str());
        let mut json =
            format!("{{\"_key\":{key},\"_ts\":{},\"_pos\":\"{}\"", self.ts, self.position);
        if let Some(version) = self.version {
            json.push_str(&format!(",\"_v\":{version}"));
        }
        let value = self.value.as_str();
        match value.strip_prefix('{') {
            Some("}") => json.push('}'),
            Some(members) => {
                json.push(',');
                json.push_str(members);
            }
            None => {
                json.push_str(",\"value\":");
                json.push_str(value);
                json.push('}');
            }
        }
        json
    }
}

/// The members of an object, in order, unparsed.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

/// A value without the members that every document has of its own.
pub(crate) fn without_reserved(value: Payload) -> Payload {
    let bytes = value.as_bytes();
    // Most payloads have no member that could be one of them; `\` may spell an underscore.
    let may_have = bytes.windows(2).any(|pair| pair == b"\"_") || bytes.contains(&b'\\');
    if !bytes.starts_with(b"{") || !may_have {
        return value;
    }
    let Ok(Members(members)) = value.decode::<Members>() else {
        return value;
    };
    let is_reserved = |name: &str| RESERVED.contains(&name);
    if !members.iter().any(|(name, _)| is_reserved(name)) {
        return value;
    }
    let mut json = String::with_capacity(bytes.len());
    for (name, member) in members.iter().filter(|(name, _)| !is_reserved(name)) {
        json.push(if json.is_empty() { '{' } else { ',' });
        json.push_str(&serde_json::Value::from(name.as_str()).to_string());
        json.push(':');
        json.push_str(member.get());
    }
    if json.is_empty() {
        json.push('{');
    }
    json.push('}');
    Payload::from_stored(json.into_bytes().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(text: &str) -> Payload {
        Payload::parse(text.to_owned()).unwrap()
    }

    fn document(value: &str, version: Option<i64>) -> Document {
        Document {
            key: "it's \"a\"".into(),
            ts: Timestamp::from_millis(5),
            appended_at: Timestamp::from_millis(6),
            position: "a.b/0/7".parse().unwrap(),
            version,
            value: payload(value),
        }
    }

    #[test]
    fn json_has_the_members_of_the_system_first_and_the_rest_as_it_was_spelled() {
        let head = r#"{"_key":"it's \"a\"","_ts":5,"_pos":"a.b/0/7""#;
        let json = |value, version| document(value, version).to_json();
        assert_eq!(json(r#"{"b":1.50,"a":"ü"}"#, None), format!(r#"{head},"b":1.50,"a":"ü"}}"#));
        assert_eq!(json("{}", Some(3)), format!(r#"{head},"_v":3}}"#));
        assert_eq!(json("[1]", None), format!(r#"{head},"value":[1]}}"#));
    }

    /// Pitfall 138: a payload does not write the members that are the system's.
    #[test]
    fn a_payload_cannot_pretend() {
        let cleaned = |text| without_reserved(payload(text)).as_str().to_owned();
        assert_eq!(
            cleaned(r#"{"_pos":"x","a":1,"_key":2,"_other":1e2}"#),
            r#"{"a":1,"_other":1e2}"#
        );
        assert_eq!(cleaned(r#"{"\u005fkey":1}"#), "{}");
        for same in [r#"{"a":"_key"}"#, r#"{"_deleted":false}"#, "[\"_key\"]", "1"] {
            assert_eq!(cleaned(same), same);
        }
    }
}
