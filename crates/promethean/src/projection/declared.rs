use std::collections::BTreeMap;

use promethean_event::{Event, Payload};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::mapping::{Change, Mapping, Unmapped};

/// A mapping as data: what a manifest can say. Members of the payload are named by JSON pointers
/// (RFC 6901), such as `/host` or `/owner/name`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Declared {
    /// Where the key is. Default: it is the event's.
    pub key: Source,
    /// The members of the document, each with its place in the payload; what is not there is left
    /// out. Default: the payload as it is.
    pub document: Option<BTreeMap<String, String>>,
    /// Events whose payload has this value delete, besides `null` and `_deleted: true`.
    pub tombstone: Option<Equals>,
    /// Where the version is, a whole number. Default: there are no versions.
    pub version: Option<Source>,
}

/// A place in an event.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Source {
    /// The event's own: its key, or its `x-version` header.
    #[default]
    Event,
    /// A member of the payload.
    Payload(String),
    /// A header.
    Header(String),
}

/// A member of the payload with a certain value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Equals {
    /// The member.
    pub pointer: String,
    /// Its value.
    pub value: Value,
}

impl Declared {
    fn needs_payload(&self) -> bool {
        let in_payload = |source: &Source| matches!(source, Source::Payload(_));
        in_payload(&self.key)
            || self.version.as_ref().is_some_and(in_payload)
            || self.document.is_some()
            || self.tombstone.is_some()
    }

    fn key_of(&self, event: &Event, payload: &Value) -> Option<String> {
        match &self.key {
            Source::Event => event.key.as_ref().map(|key| key.as_str().to_owned()),
            Source::Header(name) => event.headers.get(name).map(str::to_owned),
            Source::Payload(pointer) => match payload.pointer(pointer)? {
                Value::String(text) => Some(text.clone()),
                Value::Number(number) => Some(number.to_string()),
                _ => None,
            },
        }
    }

    fn version_of(&self, event: &Event, payload: &Value) -> Option<i64> {
        let in_header = |name: &str| event.headers.get(name)?.parse().ok();
        match self.version.as_ref()? {
            Source::Event => in_header("x-version"),
            Source::Header(name) => in_header(name),
            Source::Payload(pointer) => payload.pointer(pointer)?.as_i64(),
        }
    }

    fn document_of(&self, event: &Event, payload: &Value) -> Result<Payload, Unmapped> {
        let Some(members) = &self.document else {
            return Ok(event.payload.clone());
        };
        let members: BTreeMap<&String, &Value> = members
            .iter()
            .filter_map(|(name, pointer)| Some((name, payload.pointer(pointer)?)))
            .collect();
        Payload::of(&members).map_err(|error| Unmapped::Unfit(error.to_string()))
    }
}

impl Mapping for Declared {
    fn change(&self, event: &Event) -> Result<Change, Unmapped> {
        let payload: Value = if self.needs_payload() {
            event.payload.decode().map_err(|error| Unmapped::Unfit(error.to_string()))?
        } else {
            Value::Null
        };
        let key = self.key_of(event, &payload).filter(|key| !key.is_empty());
        let key = key.ok_or(Unmapped::NoKey)?;
        let version = self.version_of(event, &payload);
        let is_tombstone = event.payload.is_tombstone()
            || self
                .tombstone
                .as_ref()
                .is_some_and(|rule| payload.pointer(&rule.pointer) == Some(&rule.value));
        if is_tombstone {
            return Ok(Change::Delete { key, version });
        }
        if self.version.is_some() && version.is_none() {
            return Err(Unmapped::NoVersion);
        }
        let document = self.document_of(event, &payload)?;
        Ok(Change::Put { key, document, version })
    }

    fn keeps_key(&self) -> bool {
        self.key == Source::Event
    }

    fn has_versions(&self) -> bool {
        self.version.is_some()
    }

    fn fingerprint(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| format!("{self:?}"))
    }
}

#[cfg(test)]
mod tests {
    use promethean_event::{EventId, Key, NewEvent, Offset, Partition, Timestamp, Topic};

    use super::super::coded::Coded;
    use super::*;

    fn event(key: Option<&str>, payload: &str) -> Event {
        let payload = Payload::parse(payload.to_owned()).unwrap();
        let topic = Topic::new("process.state").unwrap();
        let mut event =
            NewEvent::new(EventId::generate(), Timestamp::from_millis(1), topic, payload);
        event.key = key.map(|key| Key::new(key).unwrap());
        event.placed(Partition::new(0), Offset::ZERO)
    }

    /// Both implementations, held to the same behaviour.
    fn mappings() -> [Box<dyn Mapping>; 2] {
        let declared = Declared {
            document: Some(BTreeMap::from([("host".into(), "/host".into())])),
            tombstone: Some(Equals { pointer: "/status".into(), value: "gone".into() }),
            version: Some(Source::Payload("/v".into())),
            ..Declared::default()
        };
        let member = |event: &Event, name: &str| -> Option<Value> {
            event.payload.decode::<Value>().ok()?.get(name).cloned()
        };
        let coded = Coded::new()
            .document(move |event| {
                let host = member(event, "host").map(|host| ("host", host));
                Payload::of(&host.into_iter().collect::<BTreeMap<_, _>>())
            })
            .tombstone(move |event| member(event, "status") == Some("gone".into()))
            .version(move |event| member(event, "v")?.as_i64());
        [Box::new(declared), Box::new(coded)]
    }

    #[test]
    fn declared_and_coded_mappings_mean_the_same() {
        for mapping in mappings() {
            let change = |key, payload| mapping.change(&event(key, payload));
            let put = change(Some("a"), r#"{"host":"h","v":3,"pid":1}"#).unwrap();
            let document = Payload::parse(r#"{"host":"h"}"#).unwrap();
            assert_eq!(put, Change::Put { key: "a".into(), document, version: Some(3) });
            let gone = change(Some("a"), r#"{"status":"gone","v":4}"#).unwrap();
            assert_eq!(gone, Change::Delete { key: "a".into(), version: Some(4) });
            // Pitfall 129: the key is the envelope's, so that a tombstone deletes.
            let null = change(Some("a"), "null").unwrap();
            assert_eq!(null, Change::Delete { key: "a".into(), version: None });
            let marked = change(Some("a"), r#"{"_deleted":true,"v":5}"#).unwrap();
            assert_eq!(marked, Change::Delete { key: "a".into(), version: Some(5) });
            // Pitfall 134: not dropped silently.
            assert_eq!(change(None, r#"{"v":1}"#), Err(Unmapped::NoKey));
            assert_eq!(change(Some("a"), "{}"), Err(Unmapped::NoVersion));
            assert!(mapping.keeps_key() && mapping.has_versions());
        }
    }

    #[test]
    fn a_key_in_the_payload_is_missed_in_a_tombstone() {
        let declared =
            Declared { key: Source::Payload("/processId".into()), ..Declared::default() };
        let change = |payload| declared.change(&event(Some("envelope"), payload));
        assert!(matches!(change(r#"{"processId":7}"#), Ok(Change::Put { key, .. }) if key == "7"));
        assert_eq!(change("null"), Err(Unmapped::NoKey));
        assert!(!declared.keeps_key());
    }
}
