//! The patterns and references of a schema, as the engine is given them.
//!
//! The engine reads some expressions not as ECMA-262 has them: `.` takes line ends but one, classes
//! beside a lookaround are those of Unicode, a brace that is no quantifier is refused. It refuses a
//! `$ref` with characters that a URI has to escape, which many generators write as they are. It is
//! given the schema with those respelt, and what it says of them is told in the author's words.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::compat::regex::spell;
use crate::dialect::Dialect;
use crate::pointer;
use crate::reference::{LIST, NAMED, SINGLE};

/// What was respelt: the new spelling, and the author's.
#[derive(Debug, Default)]
pub(crate) struct Spellings(BTreeMap<String, String>);

/// Keywords that hold values, not schemas.
const VALUES: [&str; 4] = ["const", "default", "enum", "examples"];

/// Signs that stand for themselves in a reference; `%` is an escape already.
const UNESCAPED: &str = "-._~:/?#[]@!$&'()*+,;=%";

/// The schema for the engine.
pub(crate) fn for_engine(schema: &Value, dialect: Dialect) -> (Cow<'_, Value>, Spellings) {
    let mut spellings = Spellings::default();
    let mut respelt = spellings.schema(schema);
    // A dialect has several names; the engine knows one.
    let renamed = match respelt.get_mut("$schema") {
        Some(Value::String(name)) if Dialect::from_uri(name) == Some(dialect) => {
            let renamed = name != dialect.uri();
            dialect.uri().clone_into(name);
            renamed
        }
        _ => false,
    };
    if spellings.0.is_empty() && !renamed {
        return (Cow::Borrowed(schema), spellings);
    }
    (Cow::Owned(respelt), spellings)
}

impl Spellings {
    /// A sentence of the engine, with the author's patterns.
    pub(crate) fn told(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (new, old)| {
            text.replace(&quoted(new), &quoted(old)).replace(new.as_str(), old)
        })
    }

    /// A pointer into the engine's schema, as one into the author's.
    pub(crate) fn pointer(&self, place: &str) -> String {
        self.0.iter().fold(place.to_owned(), |place, (new, old)| {
            let step = |text: &str| pointer::child("", text);
            place.replace(&step(new), &step(old))
        })
    }

    fn pattern(&mut self, pattern: &str) -> String {
        let respelt = spell::for_engine(pattern).into_owned();
        if respelt != pattern {
            self.0.insert(respelt.clone(), pattern.to_owned());
        }
        respelt
    }

    fn reference(&mut self, reference: &str) -> String {
        let mut respelt = String::with_capacity(reference.len());
        for c in reference.chars() {
            if c.is_ascii_alphanumeric() || UNESCAPED.contains(c) {
                respelt.push(c);
            } else {
                let mut bytes = [0; 4];
                for byte in c.encode_utf8(&mut bytes).bytes() {
                    respelt.push_str(&format!("%{byte:02X}"));
                }
            }
        }
        if respelt != reference {
            self.0.insert(respelt.clone(), reference.to_owned());
        }
        respelt
    }

    fn schema(&mut self, schema: &Value) -> Value {
        match schema {
            Value::Object(map) => {
                Value::Object(map.iter().map(|(key, value)| self.keyword(key, value)).collect())
            }
            Value::Array(list) => list.iter().map(|item| self.schema(item)).collect(),
            plain => plain.clone(),
        }
    }

    fn keyword(&mut self, key: &str, value: &Value) -> (String, Value) {
        let respelt = match (key, value) {
            ("pattern", Value::String(pattern)) => Value::String(self.pattern(pattern)),
            ("patternProperties", Value::Object(named)) => self.matching(named),
            ("$ref" | "$dynamicRef", Value::String(reference)) => {
                Value::String(self.reference(reference))
            }
            (key, Value::Object(named)) if NAMED.contains(&key) => {
                let named = named.iter().map(|(name, item)| (name.clone(), self.schema(item)));
                Value::Object(named.collect())
            }
            (key, value) if SINGLE.contains(&key) || LIST.contains(&key) => self.schema(value),
            (key, value) if VALUES.contains(&key) => value.clone(),
            // A reference may lead to a schema that stands where none is looked for.
            (_, value) => self.schema(value),
        };
        (key.to_owned(), respelt)
    }

    fn matching(&mut self, named: &Map<String, Value>) -> Value {
        let mut table = Map::new();
        for (pattern, item) in named {
            let mut respelt = self.pattern(pattern);
            // Two patterns may be one when respelt; both count.
            while table.contains_key(&respelt)
                || (respelt != *pattern && named.contains_key(&respelt))
            {
                respelt.push_str("(?:)");
                self.0.insert(respelt.clone(), pattern.clone());
            }
            let item = self.schema(item);
            table.insert(respelt, item);
        }
        Value::Object(table)
    }
}

/// As it stands within quotes.
fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_the_engine_reads_otherwise_is_respelt() {
        let plain = json!({"pattern": r"^\d+$", "patternProperties": {"^a": {}}});
        assert!(matches!(for_engine(&plain, Dialect::Draft2020), (Cow::Borrowed(_), _)));
        let dotted =
            json!({"properties": {"pattern": {"pattern": "^.$"}}, "enum": [{"pattern": "."}]});
        let (respelt, spellings) = for_engine(&dotted, Dialect::Draft2020);
        let inner = respelt.pointer("/properties/pattern/pattern").and_then(Value::as_str).unwrap();
        assert_ne!(inner, "^.$");
        assert_eq!(respelt["enum"], dotted["enum"], "a value is no schema");
        let said = format!("does not match {}", quoted(inner));
        assert_eq!(spellings.told(&said), "does not match \"^.$\"");
    }

    #[test]
    fn a_reference_may_be_written_as_it_is_meant() {
        let schema = json!({"$ref": "#/$defs/Öl<A B>", "$defs": {"Öl<A B>": {"type": "string"}}});
        let document = crate::Document::from_value(&schema, None).unwrap();
        assert!(document.validator().is_valid(&json!("a")));
        assert!(!document.validator().is_valid(&json!(1)));
    }

    #[test]
    fn patterns_that_become_one_are_kept_apart() {
        let schema =
            json!({"patternProperties": {".": {"type": "string"}, "(?:.)": {"minLength": 2}}});
        let (respelt, _) = for_engine(&schema, Dialect::Draft2020);
        assert_eq!(respelt["patternProperties"].as_object().unwrap().len(), 2);
    }
}
