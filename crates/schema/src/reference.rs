//! Where the schemas of a document are, what they are called, and what a `$ref` leads to.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value};

use crate::dialect::Dialect;
use crate::limits;
use crate::meta;
use crate::pointer;

/// Keywords that hold one schema.
pub(crate) const SINGLE: [&str; 13] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "extends",
];

/// Keywords that hold a list of schemas.
pub(crate) const LIST: [&str; 5] = ["allOf", "anyOf", "items", "oneOf", "prefixItems"];

/// Keywords that hold schemas by name.
pub(crate) const NAMED: [&str; 7] = [
    "$defs",
    "definitions",
    "dependencies",
    "dependentSchemas",
    meta::KEYWORD,
    "patternProperties",
    "properties",
];

/// The name under which `$recursiveAnchor` is kept: no anchor can have it.
pub(crate) const RECURSIVE_ANCHOR: &str = "#";

/// Keywords that never change what a schema accepts. Definitions only do where they are used.
const INERT: [&str; 13] = [
    "$comment",
    "$defs",
    "$id",
    "$schema",
    "definitions",
    "deprecated",
    "description",
    "examples",
    "id",
    "readOnly",
    "title",
    "writeOnly",
    "default",
];

/// A schema without its subschemas and notes: what it says by itself, and what it has below.
pub(crate) fn outline(schema: &Value) -> Value {
    let Value::Object(map) = schema else {
        return schema.clone();
    };
    let mut kept = Map::new();
    for (key, value) in map {
        let name = key.as_str();
        if INERT.contains(&name) || name.starts_with("x-") {
            continue;
        }
        let brief = match value {
            Value::Object(_) | Value::Bool(_) if SINGLE.contains(&name) => Value::Null,
            Value::Array(list) if LIST.contains(&name) => Value::from(list.len()),
            Value::Object(named) if NAMED.contains(&name) => named
                .iter()
                .map(|(name, item)| {
                    let brief = if item.is_array() { item.clone() } else { Value::Null };
                    (name.clone(), brief)
                })
                .collect::<Map<_, _>>()
                .into(),
            value => value.clone(),
        };
        kept.insert(key.clone(), brief);
    }
    Value::Object(kept)
}

/// Something there is too much of.
#[derive(Debug)]
pub(crate) struct Explosion {
    pub(crate) what: &'static str,
    pub(crate) pointer: String,
    pub(crate) max: usize,
}

/// Where a reference leads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A schema in the document, by pointer.
    Here(String),
    /// Another document.
    Remote,
    /// Nothing.
    Nowhere,
}

/// The names of a document's schemas.
#[derive(Debug, Default)]
pub(crate) struct References {
    /// All subschemas, by pointer.
    places: BTreeSet<String>,
    /// Pointer of each embedded resource and its absolute URI.
    resources: HashMap<String, String>,
    /// Resource URI to pointer.
    by_uri: HashMap<String, String>,
    /// (pointer of the resource, anchor) to pointer.
    anchors: HashMap<(String, String), String>,
    /// The dynamic anchors of each resource: name and place.
    dynamic: HashMap<String, Vec<(String, String)>>,
    pub(crate) explosion: Option<Explosion>,
}

impl References {
    /// Walks all subschemas of a document.
    pub(crate) fn collect(root: &Value, dialect: Dialect) -> Self {
        let mut found = Self::default();
        found.resources.insert(String::new(), String::new());
        found.by_uri.insert(String::new(), String::new());
        let mut walk = Walk { found: &mut found, dialect };
        walk.schema(root, (String::new(), ""), 0);
        found
    }

    /// All subschemas, by pointer.
    pub(crate) fn places(&self) -> impl Iterator<Item = &str> {
        self.places.iter().map(String::as_str)
    }

    /// The dynamic anchors of the resource a place belongs to. None where there is one resource:
    /// they can mean but one place then.
    pub(crate) fn dynamic_anchors(&self, place: &str) -> &[(String, String)] {
        if self.is_single_resource() || self.dynamic.is_empty() {
            return &[];
        }
        self.dynamic.get(self.resource_of(place)).map_or(&[], Vec::as_slice)
    }

    /// Whether a place has this dynamic anchor.
    pub(crate) fn is_dynamic(&self, place: &str, name: &str) -> bool {
        let anchors = self.dynamic_anchors(place);
        anchors.iter().any(|(anchor, at)| anchor == name && at == place)
    }

    /// Whether the document holds more than one resource.
    pub(crate) fn is_single_resource(&self) -> bool {
        self.resources.len() == 1
    }

    /// The resource a place belongs to: its nearest ancestor with an identifier.
    fn resource_of(&self, place: &str) -> &str {
        let mut at = place;
        loop {
            if let Some((known, _)) = self.resources.get_key_value(at) {
                return known;
            }
            match at.rfind('/') {
                Some(cut) => at = at.get(..cut).unwrap_or(""),
                None => return "",
            }
        }
    }

    /// Follows a reference that stands at `place`.
    pub(crate) fn resolve(&self, root: &Value, place: &str, reference: &str) -> Target {
        let (uri, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let resource = if uri.is_empty() {
            self.resource_of(place).to_owned()
        } else {
            let from = self.resources.get(self.resource_of(place)).map_or("", String::as_str);
            let absolute = join(from, uri);
            match self.by_uri.get(&absolute).or_else(|| self.by_uri.get(uri)) {
                Some(resource) => resource.clone(),
                None => match Dialect::from_uri(&absolute).map(meta::place) {
                    Some(place) if root.pointer(&place).is_some() => place,
                    _ => return Target::Remote,
                },
            }
        };
        let fragment = pointer::percent_decode(fragment);
        let target = if fragment.is_empty() {
            Some(resource)
        } else if fragment.starts_with('/') {
            Some(format!("{resource}{fragment}"))
        } else {
            self.anchors.get(&(resource, fragment)).cloned()
        };
        match target {
            Some(target) if root.pointer(&target).is_some() => Target::Here(target),
            _ => Target::Nowhere,
        }
    }
}

/// A relative reference against a base; the parts of RFC 3986 that schemas use.
fn join(from: &str, uri: &str) -> String {
    let absolute = uri.split_once(':').is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    });
    if absolute || from.is_empty() {
        return uri.to_owned();
    }
    let (origin, path) = match from.find("://") {
        Some(at) => {
            let start =
                from.get(at + 3..).and_then(|rest| rest.find('/')).map(|slash| at + 3 + slash);
            from.split_at(start.unwrap_or(from.len()))
        }
        None => ("", from),
    };
    if uri.starts_with('/') {
        return format!("{origin}{uri}");
    }
    let folder = path.rfind('/').and_then(|cut| path.get(..=cut)).unwrap_or("/");
    let folder = if origin.is_empty() && !path.contains('/') { "" } else { folder };
    format!("{origin}{}", without_dots(&format!("{folder}{uri}")))
}

fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => {
                kept.pop();
            }
            part => kept.push(part),
        }
    }
    kept.join("/")
}

struct Walk<'a> {
    found: &'a mut References,
    dialect: Dialect,
}

impl Walk<'_> {
    fn explode(&mut self, what: &'static str, pointer: &str, max: usize) {
        let pointer = pointer.to_owned();
        self.found.explosion.get_or_insert(Explosion { what, pointer, max });
    }

    fn schema(&mut self, value: &Value, (place, resource): (String, &str), depth: usize) {
        if depth > limits::SCHEMA_DEPTH_MAX {
            return self.explode("too deep nesting", &place, limits::SCHEMA_DEPTH_MAX);
        }
        if self.found.places.len() >= limits::SUBSCHEMAS_MAX {
            return self.explode("too many subschemas", &place, limits::SUBSCHEMAS_MAX);
        }
        self.found.places.insert(place.clone());
        let Value::Object(map) = value else { return };
        self.sizes(map, &place);
        let resource = self.names(map, &place, resource.to_owned());
        for (key, value) in map {
            let at = || pointer::child(&place, key);
            match value {
                Value::Object(_) | Value::Bool(_) if SINGLE.contains(&key.as_str()) => {
                    self.schema(value, (at(), &resource), depth + 1);
                }
                Value::Array(list) if LIST.contains(&key.as_str()) => {
                    for (index, item) in list.iter().enumerate() {
                        self.schema(item, (format!("{}/{index}", at()), &resource), depth + 1);
                    }
                }
                Value::Object(named) if NAMED.contains(&key.as_str()) => {
                    for (name, item) in named.iter().filter(|(_, item)| !item.is_array()) {
                        let at = pointer::child(&at(), name);
                        self.schema(item, (at, &resource), depth + 1);
                    }
                }
                _ => {}
            }
        }
    }

    fn sizes(&mut self, map: &Map<String, Value>, place: &str) {
        if let Some(Value::Array(values)) = map.get("enum")
            && values.len() > limits::ENUM_VALUES_MAX
        {
            self.explode("too many enum values", place, limits::ENUM_VALUES_MAX);
        }
        let pattern = map.get("pattern").and_then(Value::as_str);
        let keys = map.get("patternProperties").and_then(Value::as_object);
        let mut texts =
            pattern.into_iter().chain(keys.into_iter().flatten().map(|(k, _)| k.as_str()));
        if texts.any(|text| text.len() > limits::PATTERN_BYTES_MAX) {
            self.explode("too long a pattern (in bytes)", place, limits::PATTERN_BYTES_MAX);
        }
    }

    /// Notes identifiers and anchors; returns the resource the children belong to.
    fn names(&mut self, map: &Map<String, Value>, place: &str, mut resource: String) -> String {
        let text =
            |key: &str| map.get(key).and_then(Value::as_str).filter(|_| self.dialect.knows(key));
        // Before 2019-09 a `$ref` hides everything beside it, an identifier too.
        let hidden = map.contains_key("$ref") && !self.dialect.reads_beside_ref();
        let id = text("$id").or_else(|| text("id")).filter(|_| !hidden);
        let anchors = [text("$anchor"), text("$dynamicAnchor")];
        if let Some(id) = id {
            let (uri, fragment) = id.split_once('#').unwrap_or((id, ""));
            if !uri.is_empty() {
                let from = self.found.resources.get(&resource).map_or("", String::as_str);
                let absolute = join(from, uri);
                self.found.resources.insert(place.to_owned(), absolute.clone());
                self.found.by_uri.entry(absolute).or_insert_with(|| place.to_owned());
                place.clone_into(&mut resource);
            }
            if !fragment.is_empty() {
                let key = (resource.clone(), fragment.to_owned());
                self.found.anchors.entry(key).or_insert_with(|| place.to_owned());
            }
        }
        let mut dynamic: Vec<&str> = text("$dynamicAnchor").into_iter().collect();
        let recursive = map.get("$recursiveAnchor") == Some(&Value::Bool(true));
        if recursive && self.dialect.knows("$recursiveAnchor") && resource == place {
            dynamic.push(RECURSIVE_ANCHOR);
        }
        for name in dynamic {
            let anchors = self.found.dynamic.entry(resource.clone()).or_default();
            anchors.push((name.to_owned(), place.to_owned()));
        }
        for anchor in anchors.into_iter().flatten() {
            let key = (resource.clone(), anchor.to_owned());
            self.found.anchors.entry(key).or_insert_with(|| place.to_owned());
        }
        resource
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn references_lead_by_pointer_anchor_and_identifier() {
        let root = json!({
            "$id": "https://example.com/a/root.json",
            "$defs": {
                "x": {"$anchor": "ex", "type": "string"},
                "y": {"$id": "y.json", "$defs": {"z": {}}, "properties": {"q": {"$ref": "#/$defs/z"}}}
            }
        });
        let refs = References::collect(&root, Dialect::Draft2020);
        let to = |place: &str, reference: &str| refs.resolve(&root, place, reference);
        let here = |pointer: &str| Target::Here(pointer.to_owned());
        assert_eq!(to("", "#/$defs/x"), here("/$defs/x"));
        assert_eq!(to("", "#ex"), here("/$defs/x"));
        assert_eq!(to("", "y.json"), here("/$defs/y"));
        assert_eq!(to("", "root.json#ex"), here("/$defs/x"));
        assert_eq!(to("/$defs/y/properties/q", "#/$defs/z"), here("/$defs/y/$defs/z"));
        assert_eq!(to("/$defs/y", "../a/root.json"), here(""));
        assert_eq!(to("", "other.json"), Target::Remote);
        assert_eq!(to("", "#nope"), Target::Nowhere);
    }
}
