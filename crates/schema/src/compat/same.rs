//! Which places of two documents mean the same because they are written the same.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::document::Document;
use crate::reference::{self, Target};

/// The places that say the same, apart from notes, and below and behind whose references all do.
pub(super) fn places<'a>(left: &'a Document, right: &Document) -> BTreeSet<&'a str> {
    let plain = |document: &Document| document.references().is_single_resource();
    if left.dialect() != right.dialect() || !plain(left) || !plain(right) {
        return BTreeSet::new();
    }
    let outline =
        |document: &Document, place: &str| document.value().pointer(place).map(reference::outline);
    let all: BTreeSet<&str> = left.references().places().collect();
    let mut same = all.clone();
    for place in all.iter().filter(|place| outline(left, place) != outline(right, place)) {
        remove_with_ancestors(&mut same, place);
    }
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
            remove_with_ancestors(&mut same, from);
        }
        if same.len() == before {
            return same;
        }
    }
}

/// What stands above a changed place has changed too.
fn remove_with_ancestors(same: &mut BTreeSet<&str>, place: &str) {
    let mut at = place;
    loop {
        same.remove(at);
        // A definition is only used through references, which are followed apart.
        let defined =
            at.rsplit('/').nth(1).is_some_and(|step| step == "$defs" || step == "definitions");
        match at.rfind('/') {
            Some(cut) if !defined => at = at.get(..cut).unwrap_or(""),
            _ => break,
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
            let target = match document.references().resolve(document.whole(), place, reference) {
                Target::Here(target) => Some(target),
                _ => None,
            };
            found.insert(place, target);
        }
    }
    found
}
