//! Which places of two documents mean the same because they are written the same.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::document::Document;
use crate::reference::Target;

/// The places with equal text whose references lead, in both documents, only to such places.
pub(super) fn places<'a>(left: &'a Document, right: &Document) -> BTreeSet<&'a str> {
    let plain = |document: &Document| document.references().is_single_resource();
    if left.dialect() != right.dialect() || !plain(left) || !plain(right) {
        return BTreeSet::new();
    }
    let mut same: BTreeSet<&str> = left
        .references()
        .places()
        .filter(|place| {
            let value = left.value().pointer(place);
            value.is_some() && value == right.value().pointer(place)
        })
        .collect();
    let targets = reference_targets(left);
    // A place is not the same if anything at or below it refers to one that is not; removing one
    // may take others with it.
    loop {
        let broken: Vec<&str> = targets
            .iter()
            .filter(|(_, to)| to.as_deref().is_none_or(|to| !same.contains(to)))
            .map(|(from, _)| *from)
            .collect();
        let before = same.len();
        for from in broken {
            let mut at = from;
            loop {
                same.remove(at);
                match at.rfind('/') {
                    Some(cut) => at = at.get(..cut).unwrap_or(""),
                    None => break,
                }
            }
        }
        if same.len() == before {
            return same;
        }
    }
}

/// Where the references of a document stand and lead; `None` for what cannot be told by place.
fn reference_targets(document: &Document) -> BTreeMap<&str, Option<String>> {
    let mut found = BTreeMap::new();
    for place in document.references().places() {
        let Some(Value::Object(map)) = document.value().pointer(place) else {
            continue;
        };
        if map.contains_key("$dynamicRef") || map.contains_key("$recursiveRef") {
            found.insert(place, None);
        } else if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
            let target = match document
                .references()
                .resolve(document.value(), place, reference)
            {
                Target::Here(target) => Some(target),
                _ => None,
            };
            found.insert(place, target);
        }
    }
    found
}
