//! A schema from values: the narrowest of a simple kind that all of them match.
//!
//! Objects list the properties that were seen, and require those that were always there. They stay
//! open, and no bounds are guessed: that a number was never negative does not mean that it must not
//! be. A property with few different texts over many values is proposed as an `enum`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::dialect::Dialect;

/// Most different texts of an `enum`.
const ENUM_TEXTS_MAX: usize = 8;
/// Fewest values for each different text, for an `enum`.
const ENUM_VALUES_PER_TEXT: u64 = 8;
/// Longest text of an `enum`, in bytes.
const ENUM_TEXT_BYTES_MAX: usize = 40;
/// Most properties of one object that are kept apart; with more, names are taken for values.
const PROPERTIES_MAX: usize = 200;
/// Deepest nesting that is looked into.
const DEPTH_MAX: usize = 32;

/// What was seen at one place.
#[derive(Debug, Clone, Default)]
struct Seen {
    values: u64,
    nulls: u64,
    booleans: u64,
    integers: u64,
    numbers: u64,
    texts: u64,
    different: BTreeSet<String>,
    /// Too many, or too long, to be listed.
    free: bool,
    arrays: u64,
    items: Option<Box<Seen>>,
    objects: u64,
    properties: BTreeMap<String, Seen>,
    /// Too many names to be properties.
    named: bool,
}

/// Makes a schema of values that it is shown one by one.
#[derive(Debug, Clone, Default)]
pub struct Inference {
    root: Seen,
}

impl Inference {
    /// Looks at a value.
    pub fn see(&mut self, value: &Value) {
        self.root.see(value, 0);
    }

    /// How many values it has seen.
    pub fn values(&self) -> u64 {
        self.root.values
    }

    /// A schema that every value matches; `None` if there was none.
    pub fn schema(&self) -> Option<Value> {
        if self.root.values == 0 {
            return None;
        }
        let mut schema = Map::new();
        schema.insert("$schema".to_owned(), Dialect::Draft2020.uri().into());
        schema.extend(self.root.schema());
        Some(Value::Object(schema))
    }
}

impl Seen {
    fn see(&mut self, value: &Value, depth: usize) {
        self.values += 1;
        match value {
            Value::Null => self.nulls += 1,
            Value::Bool(_) => self.booleans += 1,
            Value::Number(number) if number.is_i64() || number.is_u64() => self.integers += 1,
            Value::Number(_) => self.numbers += 1,
            Value::String(text) => self.see_text(text),
            Value::Array(items) => {
                self.arrays += 1;
                if depth < DEPTH_MAX {
                    let seen = self.items.get_or_insert_default();
                    items.iter().for_each(|item| seen.see(item, depth + 1));
                }
            }
            Value::Object(members) => self.see_object(members, depth),
        }
    }

    fn see_text(&mut self, text: &str) {
        self.texts += 1;
        if self.free {
            return;
        }
        if text.len() <= ENUM_TEXT_BYTES_MAX {
            self.different.insert(text.to_owned());
        }
        if text.len() > ENUM_TEXT_BYTES_MAX || self.different.len() > ENUM_TEXTS_MAX {
            self.free = true;
            self.different.clear();
        }
    }

    fn see_object(&mut self, members: &Map<String, Value>, depth: usize) {
        self.objects += 1;
        if depth >= DEPTH_MAX || self.named {
            return;
        }
        for (name, member) in members {
            self.properties.entry(name.clone()).or_default().see(member, depth + 1);
        }
        if self.properties.len() > PROPERTIES_MAX {
            self.named = true;
            self.properties.clear();
        }
    }

    fn schema(&self) -> Map<String, Value> {
        let mut schema = Map::new();
        let kinds: Vec<&str> = [
            ("null", self.nulls),
            ("boolean", self.booleans),
            ("integer", if self.numbers == 0 { self.integers } else { 0 }),
            ("number", self.numbers),
            ("string", self.texts),
            ("array", self.arrays),
            ("object", self.objects),
        ]
        .into_iter()
        .filter_map(|(kind, count)| (count > 0).then_some(kind))
        .collect();
        let listed = self.is_enum();
        match &kinds[..] {
            [] => {}
            ["string"] if listed => {
                schema.insert("enum".to_owned(), json!(self.different));
                return schema;
            }
            [only] => {
                schema.insert("type".to_owned(), json!(only));
            }
            several => {
                schema.insert("type".to_owned(), json!(several));
            }
        }
        if let Some(items) = self.items.as_ref().filter(|items| items.values > 0) {
            schema.insert("items".to_owned(), Value::Object(items.schema()));
        }
        if self.objects > 0 && !self.properties.is_empty() {
            let required: Vec<&String> = self
                .properties
                .iter()
                .filter(|(_, seen)| seen.values == self.objects)
                .map(|(name, _)| name)
                .collect();
            if !required.is_empty() {
                schema.insert("required".to_owned(), json!(required));
            }
            let properties = self.properties.iter();
            let properties: Map<String, Value> =
                properties.map(|(name, seen)| (name.clone(), seen.schema().into())).collect();
            schema.insert("properties".to_owned(), Value::Object(properties));
        }
        schema
    }

    fn is_enum(&self) -> bool {
        let different = self.different.len() as u64;
        !self.free && different > 1 && self.texts >= different * ENUM_VALUES_PER_TEXT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Document;
    use proptest::prelude::*;

    fn inferred(values: &[Value]) -> Value {
        let mut inference = Inference::default();
        values.iter().for_each(|value| inference.see(value));
        inference.schema().unwrap()
    }

    #[test]
    fn what_was_always_there_is_required() {
        let values: Vec<Value> = (0..20)
            .map(|n| match n % 2 {
                0 => json!({"host": format!("h{n}"), "state": "up", "cpu": 1, "tags": ["a"]}),
                _ => json!({"host": format!("h{n}"), "state": "down", "cpu": 1.5, "sid": null}),
            })
            .collect();
        assert_eq!(
            inferred(&values),
            json!({
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "type": "object",
                "required": ["cpu", "host", "state"],
                "properties": {
                    "cpu": {"type": "number"},
                    "host": {"type": "string"},
                    "sid": {"type": "null"},
                    "state": {"enum": ["down", "up"]},
                    "tags": {"type": "array", "items": {"type": "string"}}
                }
            })
        );
        assert_eq!(Inference::default().schema(), None);
    }

    #[test]
    fn maps_are_not_records() {
        let values: Vec<Value> =
            (0..500).map(|n| json!({"by_host": {format!("h{n}"): 1}})).collect();
        assert_eq!(inferred(&values)["properties"]["by_host"], json!({"type": "object"}));
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            (-1e3..1e3f64).prop_map(Value::from),
            "[a-c]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[a-c]", inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn every_value_that_was_seen_matches(
            values in proptest::collection::vec(any_value(), 1..20),
        ) {
            let document = Document::from_value(&inferred(&values), None).unwrap();
            for value in &values {
                prop_assert!(document.validator().is_valid(value), "{value} {}", document.text());
            }
        }
    }
}
