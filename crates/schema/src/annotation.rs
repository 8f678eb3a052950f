//! What a schema says beside its conditions: notes for people and tools, personal data, examples.

use serde_json::Value;

use crate::document::Document;
use crate::pointer;
use crate::reference::Target;

/// The annotation of personal data: `true`, or a text that says of which kind.
const PERSONAL: &str = "x-pii";

/// Most places of personal data that are told.
const PERSONAL_MAX: usize = 1_000;

/// Deepest place of personal data that is told.
const DEPTH_MAX: usize = 32;

/// Personal data in the events of a schema.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Personal {
    /// Where in an event: a JSON pointer, with `*` for any item and any other name.
    pub path: String,
    /// Where the schema says so.
    pub pointer: String,
    /// Of which kind, if it says.
    pub kind: Option<String>,
}

impl Document {
    /// All `x-…` annotations: pointer of the schema they stand in, name, value.
    pub fn annotations(&self) -> Vec<(String, String, Value)> {
        let mut found = Vec::new();
        for place in self.references().places() {
            let Some(Value::Object(map)) = self.value().pointer(place) else {
                continue;
            };
            for (key, value) in map.iter().filter(|(key, _)| key.starts_with("x-")) {
                found.push((place.to_owned(), key.clone(), value.clone()));
            }
        }
        found
    }

    /// Where events hold what the schema marks with `x-pii`, through references and branches; of a
    /// recursive schema the first round.
    pub fn personal(&self) -> Vec<Personal> {
        let mut walk = Walk { document: self, found: Vec::new(), above: Vec::new() };
        walk.visit("", "");
        walk.found.sort();
        walk.found.dedup();
        walk.found
    }

    /// The examples of whole events: those of `examples` and `x-examples`. They are not checked
    /// here: an example may be there to show what is refused.
    pub fn examples(&self) -> Vec<&Value> {
        let lists = ["examples", "x-examples"].into_iter();
        let lists = lists.filter_map(|key| self.value().get(key)?.as_array());
        lists.flatten().collect()
    }
}

struct Walk<'a> {
    document: &'a Document,
    found: Vec<Personal>,
    /// The schemas that are being visited, from the root on.
    above: Vec<String>,
}

impl Walk<'_> {
    fn visit(&mut self, place: &str, path: &str) {
        let Some(Value::Object(map)) = self.document.value().pointer(place) else {
            return;
        };
        let seen = self.above.iter().any(|above| above == place);
        if seen || self.above.len() >= DEPTH_MAX || self.found.len() >= PERSONAL_MAX {
            return;
        }
        match map.get(PERSONAL) {
            None | Some(Value::Bool(false) | Value::Null) => {}
            Some(mark) => self.found.push(Personal {
                path: path.to_owned(),
                pointer: pointer::child(place, PERSONAL),
                kind: mark.as_str().map(str::to_owned),
            }),
        }
        self.above.push(place.to_owned());
        self.follow(place, path);
        self.above.pop();
    }

    fn follow(&mut self, place: &str, path: &str) {
        let Some(map) = self.document.value().pointer(place).and_then(Value::as_object) else {
            return;
        };
        let any = pointer::child(path, "*");
        for (key, value) in map {
            let at = pointer::child(place, key);
            match (key.as_str(), value) {
                ("properties", Value::Object(table)) => {
                    for name in table.keys() {
                        self.visit(&pointer::child(&at, name), &pointer::child(path, name));
                    }
                }
                ("patternProperties", Value::Object(table)) => {
                    table.keys().for_each(|name| self.visit(&pointer::child(&at, name), &any));
                }
                ("prefixItems" | "items", Value::Array(list)) => {
                    (0..list.len()).for_each(|n| self.visit(&format!("{at}/{n}"), &any));
                }
                ("items" | "additionalItems" | "additionalProperties" | "contains", _) => {
                    self.visit(&at, &any);
                }
                ("allOf" | "anyOf" | "oneOf", Value::Array(list)) => {
                    (0..list.len()).for_each(|n| self.visit(&format!("{at}/{n}"), path));
                }
                ("then" | "else", _) => self.visit(&at, path),
                ("$ref", Value::String(reference)) => {
                    let document = self.document;
                    if let Target::Here(target) =
                        document.references().resolve(document.whole(), place, reference)
                    {
                        self.visit(&target, path);
                    }
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn personal_data_is_found_in_events_not_only_in_schemas() {
        let schema = json!({
            "properties": {
                "user": {"$ref": "#/$defs/person"},
                "others": {"items": {"$ref": "#/$defs/person"}},
                "host": {"x-pii": false}
            },
            "additionalProperties": {"x-pii": "free text"},
            "$defs": {"person": {"properties": {
                "e/mail": {"type": "string", "x-pii": "email"},
                "boss": {"$ref": "#/$defs/person"}
            }}},
            "examples": [{"host": "a"}], "x-examples": [{"host": "b"}]
        });
        let document = Document::from_value(&schema, None).unwrap();
        let found = document.personal();
        let paths: Vec<_> = found.iter().map(|p| (p.path.as_str(), p.kind.as_deref())).collect();
        assert_eq!(
            paths,
            [
                ("/*", Some("free text")),
                ("/others/*/e~1mail", Some("email")),
                ("/user/e~1mail", Some("email")),
            ]
        );
        assert_eq!(document.examples(), [&json!({"host": "a"}), &json!({"host": "b"})]);
    }
}
