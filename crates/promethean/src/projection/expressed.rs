use promethean_event::{Event, Payload};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::mapping::{Change, Mapping, Unmapped};
use crate::expression::{EVENT_NAMES, EventValues, Formula, FormulaError};

/// A mapping by expressions, as a manifest writes it: CEL over `payload`, `key`, `headers`, `ts`,
/// `topic` and `id`. What is not said is as in a plain changelog.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Expressions {
    /// The key, a text or a number. Default: that of the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The document. `null` changes nothing. Default: the payload as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map: Option<String>,
    /// Events for which it is true delete, besides `null` and `_deleted: true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tombstone: Option<String>,
    /// The version, a whole number. Default: there are no versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Expressions that were checked.
#[derive(Debug, Clone)]
pub struct Expressed {
    source: Expressions,
    key: Option<Formula>,
    map: Option<Formula>,
    tombstone: Option<Formula>,
    version: Option<Formula>,
}

impl Expressions {
    /// Checks the expressions.
    pub fn compile(self) -> Result<Expressed, FormulaError> {
        let formula = |source: &Option<String>| {
            source.as_deref().map(|source| Formula::compile(source, EVENT_NAMES)).transpose()
        };
        Ok(Expressed {
            key: formula(&self.key)?,
            map: formula(&self.map)?,
            tombstone: formula(&self.tombstone)?,
            version: formula(&self.version)?,
            source: self,
        })
    }
}

impl Expressed {
    fn is_plain(&self) -> bool {
        self.key.is_none()
            && self.map.is_none()
            && self.tombstone.is_none()
            && self.version.is_none()
    }

    fn key_of(&self, event: &Event, values: &EventValues) -> Result<String, Unmapped> {
        let Some(formula) = &self.key else {
            return event.key.as_ref().map(|key| key.as_str().to_owned()).ok_or(Unmapped::NoKey);
        };
        // A tombstone has no payload to take a key from: that is no key, not a fault.
        match values.evaluate(formula) {
            Ok(Value::String(text)) if !text.is_empty() => Ok(text),
            Ok(Value::Number(number)) => Ok(number.to_string()),
            _ => Err(Unmapped::NoKey),
        }
    }

    fn is_tombstone(&self, event: &Event, values: &EventValues) -> Result<bool, Unmapped> {
        if event.payload.is_tombstone() {
            return Ok(true);
        }
        let Some(formula) = &self.tombstone else {
            return Ok(false);
        };
        match values.evaluate(formula) {
            Ok(Value::Bool(truth)) => Ok(truth),
            Ok(_) => Err(Unmapped::Unfit("tombstone is neither true nor false".to_owned())),
            Err(error) => Err(Unmapped::Unfit(format!("tombstone: {error}"))),
        }
    }
}

fn whole(event: &Event) -> Result<Change, Unmapped> {
    let key = event.key.as_ref().map(|key| key.as_str().to_owned()).ok_or(Unmapped::NoKey)?;
    if event.payload.is_tombstone() {
        return Ok(Change::Delete { key, version: None });
    }
    Ok(Change::Put { key, document: event.payload.clone(), version: None })
}

impl Mapping for Expressed {
    fn change(&self, event: &Event) -> Result<Change, Unmapped> {
        if self.is_plain() {
            return whole(event);
        }
        let unfit = |error: String| Unmapped::Unfit(error);
        let values = EventValues::of(event).map_err(|error| unfit(error.to_string()))?;
        let key = self.key_of(event, &values)?;
        let version = self.version.as_ref().map(|formula| values.evaluate(formula));
        let version = version.and_then(Result::ok).and_then(|version| version.as_i64());
        if self.is_tombstone(event, &values)? {
            return Ok(Change::Delete { key, version });
        }
        if self.version.is_some() && version.is_none() {
            return Err(Unmapped::NoVersion);
        }
        let document = match &self.map {
            None => event.payload.clone(),
            Some(formula) => {
                match values.evaluate(formula).map_err(|error| unfit(format!("map: {error}")))? {
                    Value::Null => return Ok(Change::Nothing),
                    document => Payload::of(&document).map_err(|error| unfit(error.to_string()))?,
                }
            }
        };
        Ok(Change::Put { key, document, version })
    }

    fn keeps_key(&self) -> bool {
        self.key.is_none()
    }

    fn has_versions(&self) -> bool {
        self.version.is_some()
    }

    fn fingerprint(&self) -> String {
        serde_json::to_string(&self.source).unwrap_or_else(|_| format!("{:?}", self.source))
    }
}

#[cfg(test)]
mod tests {
    use promethean_event::{EventId, Key, NewEvent, Offset, Partition, Timestamp, Topic};

    use super::*;

    fn event(key: Option<&str>, payload: &str) -> Event {
        let payload = Payload::parse(payload.to_owned()).unwrap();
        let topic = Topic::new("process.state").unwrap();
        let mut event =
            NewEvent::new(EventId::generate(), Timestamp::from_millis(1), topic, payload);
        event.key = key.map(|key| Key::new(key).unwrap());
        event.placed(Partition::new(0), Offset::ZERO)
    }

    #[test]
    fn expressions_say_key_document_tombstones_and_versions() {
        let expressions = Expressions {
            key: Some("payload.host + ':' + string(payload.pid)".into()),
            map: Some("{'host': payload.host, 'busy': payload.cpu > 50.0}".into()),
            tombstone: Some("payload.status == 'gone'".into()),
            version: Some("payload.v".into()),
        };
        let mapping = expressions.compile().unwrap();
        let change = |payload| mapping.change(&event(Some("k"), payload));
        let put = change(r#"{"host":"h","pid":7,"cpu":80.5,"status":"alive","v":3}"#).unwrap();
        let document = Payload::parse(r#"{"busy":true,"host":"h"}"#).unwrap();
        assert_eq!(put, Change::Put { key: "h:7".into(), document, version: Some(3) });
        let gone = change(r#"{"host":"h","pid":7,"status":"gone","v":4}"#).unwrap();
        assert_eq!(gone, Change::Delete { key: "h:7".into(), version: Some(4) });
        assert_eq!(change("null"), Err(Unmapped::NoKey));
        assert!(matches!(change(r#"{"host":"h","pid":7,"v":1}"#), Err(Unmapped::Unfit(_))));
        assert!(!mapping.keeps_key() && mapping.has_versions());
    }

    #[test]
    fn a_plain_one_is_the_payload_and_a_misspelt_one_is_refused() {
        let plain = Expressions::default().compile().unwrap();
        let put = plain.change(&event(Some("a"), r#"{"b":1.50}"#)).unwrap();
        let document = Payload::parse(r#"{"b":1.50}"#).unwrap();
        assert_eq!(put, Change::Put { key: "a".into(), document, version: None });
        let gone = plain.change(&event(Some("a"), "null")).unwrap();
        assert_eq!(gone, Change::Delete { key: "a".into(), version: None });
        let misspelt = Expressions { map: Some("paylod".into()), ..Expressions::default() };
        assert!(misspelt.compile().unwrap_err().to_string().contains("payload"));
        let passed = Expressions { map: Some("null".into()), ..Expressions::default() };
        let passed = passed.compile().unwrap().change(&event(Some("a"), "{}"));
        assert_eq!(passed, Ok(Change::Nothing));
    }
}
