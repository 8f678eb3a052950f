//! Finding places in documents: of constructs, of properties, of what applies to a value.

use serde_json::{Map, Value};

use crate::document::Document;
use crate::pointer;
use crate::reference::Target;

/// All subschemas that are objects, with their pointers.
fn schemas(document: &Document) -> impl Iterator<Item = (&str, &Map<String, Value>)> {
    document
        .references()
        .places()
        .filter_map(|place| Some((place, document.value().pointer(place)?.as_object()?)))
}

/// All names that are declared as properties, sorted.
pub(super) fn property_names(document: &Document) -> Vec<String> {
    let mut names: Vec<String> = schemas(document)
        .filter_map(|(_, map)| map.get("properties").and_then(Value::as_object))
        .flat_map(|properties| properties.keys().cloned())
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Where a construct that was blamed stands: the keyword whose value the description quotes.
pub(super) fn construct(document: &Document, description: &str) -> Option<String> {
    const QUOTED: [&str; 5] = ["pattern", "format", "$ref", "$dynamicRef", "$recursiveRef"];
    for (place, map) in schemas(document) {
        for key in QUOTED.iter().filter(|key| description.starts_with(**key)) {
            let quoted = map.get(*key).and_then(Value::as_str);
            if quoted.is_some_and(|text| {
                description.contains(text) || description.contains(&format!("{text:?}"))
            }) {
                return Some(pointer::child(place, key));
            }
            let mut keys =
                map.get("patternProperties").and_then(Value::as_object).into_iter().flatten();
            if let Some((pattern, _)) =
                keys.find(|(key, _)| description.contains(&format!("{key:?}")))
            {
                let at = pointer::child(place, "patternProperties");
                return Some(pointer::child(&at, pattern));
            }
        }
        let word = description.split(' ').next().filter(|word| map.contains_key(*word));
        if let Some(word) = word {
            return Some(pointer::child(place, word));
        }
    }
    None
}

/// The schema that speaks about the part of a value at `instance`: as deep as one is found.
pub(super) fn schema_for(document: &Document, instance: &str) -> String {
    let mut place = String::new();
    for step in pointer::steps(instance) {
        match below(document, &place, &step, 0) {
            Some(next) => place = next,
            None => break,
        }
    }
    place
}

/// How many references and branches are followed to find a schema.
const HOPS_MAX: usize = 16;

fn below(document: &Document, place: &str, step: &str, hops: usize) -> Option<String> {
    let map = document.whole().pointer(place)?.as_object()?;
    if hops > HOPS_MAX {
        return None;
    }
    let at = |key: &str| pointer::child(place, key);
    if map.get("properties").and_then(|p| p.get(step)).is_some() {
        return Some(pointer::child(&at("properties"), step));
    }
    if let Ok(index) = step.parse::<usize>() {
        for key in ["prefixItems", "items"] {
            if map.get(key).and_then(Value::as_array).is_some_and(|list| index < list.len()) {
                return Some(format!("{}/{index}", at(key)));
            }
        }
        for key in ["items", "additionalItems"] {
            if map.get(key).is_some_and(|value| !value.is_array()) {
                return Some(at(key));
            }
        }
    }
    if let Some(reference) = map.get("$ref").and_then(Value::as_str)
        && let Target::Here(target) =
            document.references().resolve(document.whole(), place, reference)
        && let Some(found) = below(document, &target, step, hops + 1)
    {
        return Some(found);
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        let count = map.get(key).and_then(Value::as_array).map_or(0, Vec::len);
        for index in 0..count {
            if let Some(found) = below(document, &format!("{}/{index}", at(key)), step, hops + 1) {
                return Some(found);
            }
        }
    }
    map.contains_key("additionalProperties").then(|| at("additionalProperties"))
}

/// Whether a document declares what stands at `instance`, by name or by a rule for the others.
pub(super) fn is_declared(document: &Document, instance: &str) -> bool {
    let place = schema_for(document, instance);
    let depth = |text: &str| text.matches('/').count();
    // `schema_for` stops at the last place found: every step of the value must have moved it.
    let mut at = String::new();
    for step in pointer::steps(instance) {
        match below(document, &at, &step, 0) {
            Some(next) => at = next,
            None => return false,
        }
    }
    depth(&place) > 0
}
