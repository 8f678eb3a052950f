//! Values drawn from a schema: what its writers could send.
//!
//! The schemas that hold together at a place (the schema itself, what it refers to, `allOf`, one
//! branch of `anyOf` and `oneOf`, a condition and its consequence) are put together, and a value is
//! made that looks like all of them. The validator has the last word: what it refuses is drawn
//! again. So a drawn value is always valid, and some schemas give none.

mod random;

mod scalar;

mod compound;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::document::Document;
use crate::pointer;
use crate::reference::Target;
use random::Random;
use scalar::Language;

/// Attempts for one value.
const ATTEMPTS_MAX: usize = 40;

/// From here on values are as small as they may be.
const DEPTH_MAX: usize = 5;

/// Deepest value, if the schema asks for more.
const DEPTH_LIMIT: usize = 32;

/// Most values that are made for one, over all attempts; a schema may ask for more than there is
/// room for.
const VALUES_MAX: usize = 4_000;

/// Most schemas that are put together at one place.
const TOGETHER_MAX: usize = 64;

/// Whether values hold names that the schema does not declare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Extras {
    /// Only declared ones, and those that are required: what well-behaved writers send. The
    /// default.
    #[default]
    None,
    /// Others too, where the schema allows them.
    Some,
}

/// One schema at its place in the document.
#[derive(Debug, Clone)]
struct Part<'a> {
    place: String,
    map: &'a Map<String, Value>,
}

/// All schemas that a value must match.
#[derive(Debug, Default)]
struct Together<'a> {
    parts: Vec<Part<'a>>,
    /// Somewhere it says `false`.
    never: bool,
}

/// Draws values from one schema.
#[derive(Debug)]
pub struct Sampler<'a> {
    document: &'a Document,
    random: Random,
    extras: Extras,
    /// Values that may still be made.
    left: usize,
    /// Patterns that were met, with their automata if they have one.
    patterns: HashMap<String, Option<Arc<Language>>>,
}

impl<'a> Sampler<'a> {
    /// For values of this schema.
    pub fn new(document: &'a Document, extras: Extras) -> Self {
        Self { document, random: Random::new(0), extras, left: 0, patterns: HashMap::new() }
    }

    /// A value that the schema allows, the same for the same seed. `None` if none was found, which
    /// does not mean that there is none.
    pub fn draw(&mut self, seed: u64) -> Option<Value> {
        self.random = Random::new(seed);
        self.left = VALUES_MAX;
        for _ in 0..ATTEMPTS_MAX {
            let value = self.value(&[String::new()], 0);
            if self.document.validator().is_valid(&value) {
                return Some(value);
            }
            if self.left == 0 {
                break;
            }
        }
        None
    }

    /// A value for the schemas at these places.
    fn value(&mut self, places: &[String], depth: usize) -> Value {
        let mut together = Together::default();
        for place in places {
            self.gather(place, &mut together);
        }
        self.left = self.left.saturating_sub(1);
        if together.never || depth > DEPTH_LIMIT || self.left == 0 {
            return Value::Null;
        }
        if let Some(value) = self.listed(&together) {
            return value;
        }
        let kind = self.kind(&together, depth);
        match kind {
            "null" => Value::Null,
            "boolean" => Value::Bool(self.random.chance(50)),
            "integer" | "number" => self.number(&together, kind == "integer"),
            "string" => self.text(&together),
            "array" => self.array(&together, depth),
            _ => self.object(&together, depth),
        }
    }

    /// Puts together what holds at a place.
    fn gather(&mut self, place: &str, into: &mut Together<'a>) {
        if into.parts.len() >= TOGETHER_MAX || into.parts.iter().any(|p| p.place == place) {
            return;
        }
        let map = match self.document.whole().pointer(place) {
            Some(Value::Object(map)) => map,
            Some(Value::Bool(false)) => {
                into.never = true;
                return;
            }
            _ => return,
        };
        into.parts.push(Part { place: place.to_owned(), map });
        let at = |key: &str| pointer::child(place, key);
        for key in ["$ref", "$dynamicRef"] {
            if let Some(reference) = map.get(key).and_then(Value::as_str)
                && let Target::Here(target) =
                    self.document.references().resolve(self.document.whole(), place, reference)
            {
                self.gather(&target, into);
            }
        }
        let count = |key: &str| map.get(key).and_then(Value::as_array).map_or(0, Vec::len);
        for index in 0..count("allOf") {
            self.gather(&format!("{}/{index}", at("allOf")), into);
        }
        for key in ["anyOf", "oneOf"].into_iter().filter(|key| count(key) > 0) {
            let chosen = self.random.below(count(key));
            self.gather(&format!("{}/{chosen}", at(key)), into);
        }
        if map.contains_key("if") {
            let branches = if self.random.chance(50) { ["if", "then"] } else { ["else", "else"] };
            for key in branches.into_iter().filter(|key| map.contains_key(*key)) {
                self.gather(&at(key), into);
            }
        }
    }

    /// One of the values that are listed, if any are: of the shortest list.
    fn listed(&mut self, together: &Together<'a>) -> Option<Value> {
        let constants = together.all("const").map(std::slice::from_ref);
        let enums = together.all("enum").filter_map(Value::as_array).map(Vec::as_slice);
        let list = constants.chain(enums).min_by_key(|list| list.len())?;
        self.random.pick(list).cloned()
    }

    /// The JSON type to draw.
    fn kind(&mut self, together: &Together<'a>, depth: usize) -> &'static str {
        let mut kinds: Vec<&'static str> = KINDS.to_vec();
        for allowed in together.all("type") {
            kinds.retain(|kind| allows(allowed, kind));
        }
        let flat_kind = |kind: &&str| !matches!(*kind, "array" | "object");
        if depth >= DEPTH_MAX && kinds.iter().any(flat_kind) {
            kinds.retain(flat_kind);
        }
        // Without a type, the keywords tell what the schema is about.
        let hinted: Vec<_> = kinds.iter().copied().filter(|kind| together.hints(kind)).collect();
        let typed = together.all("type").next().is_some();
        let from =
            if hinted.is_empty() || typed || self.random.chance(15) { kinds } else { hinted };
        self.random.pick(&from).copied().unwrap_or("null")
    }
}

/// All kinds, by the name that `type` has for them.
const KINDS: [&str; 7] = ["object", "array", "string", "integer", "number", "boolean", "null"];

fn allows(allowed: &Value, kind: &str) -> bool {
    let is = |name: &str| name == kind || (name == "number" && kind == "integer");
    match allowed {
        Value::String(name) => is(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).any(is),
        _ => false,
    }
}

impl<'a> Together<'a> {
    /// The values of a keyword, in all schemas that have it.
    fn all(&self, key: &'a str) -> impl Iterator<Item = &'a Value> {
        self.parts.iter().filter_map(move |part| part.map.get(key))
    }

    fn hints(&self, kind: &str) -> bool {
        let keys: &[&str] = match kind {
            "object" => &["properties", "required", "patternProperties", "additionalProperties"],
            "array" => &["items", "prefixItems", "contains", "minItems", "uniqueItems"],
            "string" => &["pattern", "minLength", "maxLength", "format"],
            "integer" | "number" => &["minimum", "maximum", "multipleOf", "exclusiveMinimum"],
            _ => &[],
        };
        keys.iter().any(|key| self.parts.iter().any(|part| part.map.contains_key(*key)))
    }

    /// The greatest of a keyword that bounds from below.
    fn at_least(&self, key: &'a str) -> usize {
        let bounds = self.all(key).filter_map(Value::as_u64);
        usize::try_from(bounds.max().unwrap_or(0)).unwrap_or(usize::MAX)
    }

    /// The least of a keyword that bounds from above.
    fn at_most(&self, key: &'a str) -> Option<usize> {
        let bounds = self.all(key).filter_map(Value::as_u64);
        bounds.min().map(|bound| usize::try_from(bound).unwrap_or(usize::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::Dialect;
    use serde_json::json;

    fn drawn(schema: &Value) -> Vec<Value> {
        let document = Document::from_value(schema, Some(Dialect::Draft2020)).unwrap();
        let mut sampler = Sampler::new(&document, Extras::None);
        let values = (0..200).filter_map(|seed| sampler.draw(seed)).collect();
        for value in &values {
            let valid = document.validator().is_valid(value);
            assert!(valid, "{value} of {schema}");
        }
        values
    }

    #[test]
    fn ordinary_schemas_give_values_of_many_kinds() {
        let schema = json!({
            "type": "object",
            "required": ["id", "mem_mb", "state"],
            "properties": {
                "id": {"type": "string", "pattern": "^[a-f]{4}-[0-9]+$"},
                "mem_mb": {"type": "number", "minimum": 0, "exclusiveMaximum": 10},
                "state": {"enum": ["up", "down"]},
                "at": {"type": "string", "format": "date-time"},
                "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "maxItems": 3, "uniqueItems": true},
                "parent": {"$ref": "#"}
            },
            "additionalProperties": false,
            "$defs": {"tag": {"type": "string", "minLength": 2, "maxLength": 5}}
        });
        let values = drawn(&schema);
        assert!(values.len() > 190, "only {}", values.len());
        for name in ["at", "tags", "parent"] {
            let with = values.iter().filter(|value| value.get(name).is_some()).count();
            assert!((20..values.len()).contains(&with), "{name} in {with}");
        }
    }

    #[test]
    fn branches_and_conditions_are_drawn_from() {
        let schema = json!({
            "oneOf": [
                {"type": "object", "properties": {"kind": {"const": "a"}, "n": {"type": "integer", "multipleOf": 3}}, "required": ["kind", "n"]},
                {"type": "array", "prefixItems": [{"const": 1}], "items": {"type": "boolean"}, "minItems": 2}
            ]
        });
        let values = drawn(&schema);
        assert!(values.len() > 150);
        assert!(values.iter().any(Value::is_object) && values.iter().any(Value::is_array));
    }

    /// Schemas that ask for more and more end soon, with a value or without.
    #[test]
    fn hostile_schemas_are_bounded() {
        let nested = json!({"type": "array", "items": {"$ref": "#"}});
        assert!(drawn(&nested).len() > 190);
        let wide = json!({"type": "array", "items": {"$ref": "#"}, "minItems": 500});
        let long = json!({"type": "string", "minLength": 1_000_000_000_000_u64});
        for schema in [wide, long] {
            let document = Document::from_value(&schema, None).unwrap();
            let mut sampler = Sampler::new(&document, Extras::Some);
            assert!((0..5).all(|seed| sampler.draw(seed).is_none()));
            assert_eq!(sampler.left, 0, "it gave up because it was too much");
        }
    }

    #[test]
    fn a_schema_without_values_gives_none_and_extras_only_on_request() {
        assert!(drawn(&json!(false)).is_empty());
        let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
        assert!(drawn(&schema).iter().all(|value| value.as_object().unwrap().len() <= 1));
        let document = Document::from_value(&schema, None).unwrap();
        let mut sampler = Sampler::new(&document, Extras::Some);
        let mut more = (0..50).filter_map(|seed| sampler.draw(seed));
        assert!(more.any(|value| value.as_object().unwrap().len() > 1));
    }
}
