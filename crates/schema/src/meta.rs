//! The schemas of schemas, for documents that refer to them.
//!
//! A document may say that a part of an event is itself a schema. Every engine knows the
//! meta-schemas, so we do: one that is referred to is put into the document, in a form that needs
//! nothing else: one document, with references that lead to places in it.

use std::collections::BTreeSet;

use referencing::meta;
use serde_json::{Map, Value, json};

use crate::dialect::Dialect;
use crate::pointer;
use crate::reference::{LIST, NAMED, SINGLE};

/// The keyword under which meta-schemas stand in a document that needs them.
pub(crate) const KEYWORD: &str = "$promethean-meta";

/// All dialects, to be looked through.
const DIALECTS: [Dialect; 5] =
    [Dialect::Draft4, Dialect::Draft6, Dialect::Draft7, Dialect::Draft2019, Dialect::Draft2020];

/// Where the meta-schema of a dialect stands.
pub(crate) fn place(dialect: Dialect) -> String {
    pointer::child(&pointer::child("", KEYWORD), &format!("{dialect:?}"))
}

/// The document with the meta-schemas that it refers to; `None` if it refers to none.
pub(crate) fn embed(root: &Value) -> Option<Value> {
    let mut wanted = BTreeSet::new();
    mentioned(root, &mut wanted);
    let Value::Object(map) = root else { return None };
    if wanted.is_empty() {
        return None;
    }
    let all: Map<String, Value> =
        wanted.into_iter().map(|dialect| (format!("{dialect:?}"), flat(dialect))).collect();
    let mut map = map.clone();
    map.insert(KEYWORD.to_owned(), Value::Object(all));
    Some(Value::Object(map))
}

/// The dialects whose meta-schemas any `$ref` names.
fn mentioned(value: &Value, wanted: &mut BTreeSet<Dialect>) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get("$ref") {
                let uri = reference.split_once('#').map_or(reference.as_str(), |(uri, _)| uri);
                wanted.extend(DIALECTS.into_iter().filter(|d| Dialect::from_uri(uri) == Some(*d)));
            }
            map.values().for_each(|value| mentioned(value, wanted));
        }
        Value::Array(list) => list.iter().for_each(|value| mentioned(value, wanted)),
        _ => {}
    }
}

/// A meta-schema that needs nothing else.
fn flat(dialect: Dialect) -> Value {
    let (base, vocabularies): (&Value, Vec<(&str, &Value)>) = match dialect {
        Dialect::Draft4 => (&meta::DRAFT4, Vec::new()),
        Dialect::Draft6 => (&meta::DRAFT6, Vec::new()),
        Dialect::Draft7 => (&meta::DRAFT7, Vec::new()),
        Dialect::Draft2019 => (
            &meta::DRAFT201909,
            vec![
                ("meta/core", &meta::DRAFT201909_CORE),
                ("meta/applicator", &meta::DRAFT201909_APPLICATOR),
                ("meta/validation", &meta::DRAFT201909_VALIDATION),
                ("meta/meta-data", &meta::DRAFT201909_META_DATA),
                ("meta/format", &meta::DRAFT201909_FORMAT),
                ("meta/content", &meta::DRAFT201909_CONTENT),
            ],
        ),
        Dialect::Draft2020 => (
            &meta::DRAFT202012,
            vec![
                ("meta/core", &meta::DRAFT202012_CORE),
                ("meta/applicator", &meta::DRAFT202012_APPLICATOR),
                ("meta/unevaluated", &meta::DRAFT202012_UNEVALUATED),
                ("meta/validation", &meta::DRAFT202012_VALIDATION),
                ("meta/meta-data", &meta::DRAFT202012_META_DATA),
                ("meta/format-annotation", &meta::DRAFT202012_FORMAT_ANNOTATION),
                ("meta/content", &meta::DRAFT202012_CONTENT),
            ],
        ),
    };
    let root = place(dialect);
    let part = |name: &str| pointer::child(&pointer::child(&root, "$defs"), name);
    let names: Vec<&str> = vocabularies.iter().map(|(name, _)| *name).collect();
    let leads = |here: &str, reference: &str| {
        let (uri, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let to = if names.contains(&uri) { part(uri) } else { here.to_owned() };
        format!("#{to}{fragment}")
    };
    let mut whole = settle(base, &|reference| leads(&root, reference), &root);
    if let Value::Object(map) = &mut whole
        && !vocabularies.is_empty()
    {
        let parts: Map<String, Value> = vocabularies
            .into_iter()
            .map(|(name, vocabulary)| {
                let here = part(name);
                let settled = settle(vocabulary, &|reference| leads(&here, reference), &root);
                (name.to_owned(), settled)
            })
            .collect();
        map.insert("$defs".to_owned(), Value::Object(parts));
    }
    whole
}

/// A schema whose references are put right, without names and anchors of its own. What stands
/// beside a `$ref` counts in the later drafts only, so it is set apart, for all of them.
fn settle(schema: &Value, leads: &dyn Fn(&str) -> String, root: &str) -> Value {
    let Value::Object(map) = schema else {
        return schema.clone();
    };
    let mut settled = Map::new();
    let mut reference = None;
    for (key, value) in map {
        match (key.as_str(), value) {
            (
                "$schema" | "$id" | "id" | "$vocabulary" | "$dynamicAnchor" | "$recursiveAnchor",
                _,
            ) => {}
            ("$ref", Value::String(text)) => reference = Some(leads(text)),
            // All of them mean the whole: nothing here is meant to be extended.
            ("$dynamicRef" | "$recursiveRef", Value::String(_)) => {
                reference = Some(format!("#{root}"));
            }
            (key, Value::Object(named)) if NAMED.contains(&key) => {
                let named =
                    named.iter().map(|(name, item)| (name.clone(), settle(item, leads, root)));
                settled.insert(key.to_owned(), Value::Object(named.collect()));
            }
            (key, Value::Array(list)) if LIST.contains(&key) => {
                let list = list.iter().map(|item| settle(item, leads, root)).collect();
                settled.insert(key.to_owned(), list);
            }
            (key, value) if SINGLE.contains(&key) => {
                settled.insert(key.to_owned(), settle(value, leads, root));
            }
            (key, value) => {
                settled.insert(key.to_owned(), value.clone());
            }
        }
    }
    match reference {
        None => Value::Object(settled),
        Some(reference) if settled.is_empty() => json!({"$ref": reference}),
        Some(reference) => json!({"allOf": [{"$ref": reference}, settled]}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{References, Target};

    #[test]
    fn every_meta_schema_stands_alone() {
        for dialect in DIALECTS {
            let root = embed(&json!({"items": {"$ref": dialect.uri()}})).unwrap();
            let references = References::collect(&root, Dialect::Draft7);
            for at in references.places() {
                let Some(Value::String(reference)) = root.pointer(at).and_then(|s| s.get("$ref"))
                else {
                    continue;
                };
                let target = references.resolve(&root, at, reference);
                assert!(matches!(target, Target::Here(_)), "{dialect:?}: {reference} at {at}");
            }
        }
        assert_eq!(embed(&json!({"$ref": "#/$defs/a", "$defs": {"a": true}})), None);
    }
}
