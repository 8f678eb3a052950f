use serde_json::{Map, Value};

use super::{Extras, Sampler, Together};
use crate::pointer;

/// Items and properties that are drawn without need.
const FREE_MAX: usize = 3;

/// Items and properties that are drawn at all.
const COUNT_LIMIT: usize = 1_000;

impl<'a> Sampler<'a> {
    pub(super) fn array(&mut self, together: &Together<'a>, depth: usize) -> Value {
        let min = together.at_least("minItems");
        let max = together.at_most("maxItems").unwrap_or(usize::MAX);
        // Less, the deeper: recursive schemas end.
        let free = (FREE_MAX + 1).saturating_sub(depth);
        let count = min.max(self.random.below(free)).min(max).min(COUNT_LIMIT);
        let wanted = together.at_least("minContains").max(1);
        let mut items: Vec<Value> = Vec::with_capacity(count);
        for index in 0..count {
            if self.left == 0 {
                break;
            }
            let mut places = item_places(together, index);
            if index < wanted || self.random.chance(30) {
                places.extend(together.places("contains"));
            }
            items.push(self.value(&places, depth + 1));
        }
        if items.is_empty() && together.all("contains").next().is_some() && max > 0 {
            let places: Vec<String> = together.places("contains").collect();
            items.push(self.value(&places, depth + 1));
        }
        if together.all("uniqueItems").any(|unique| *unique == Value::Bool(true)) {
            let mut kept: Vec<Value> = Vec::with_capacity(items.len());
            items.into_iter().for_each(|item| {
                if !kept.contains(&item) {
                    kept.push(item);
                }
            });
            items = kept;
        }
        Value::Array(items)
    }

    pub(super) fn object(&mut self, together: &Together<'a>, depth: usize) -> Value {
        let max = together.at_most("maxProperties").unwrap_or(usize::MAX);
        let mut names = required(together);
        let declared = together.all("properties").filter_map(Value::as_object);
        let declared: Vec<&str> = declared.flat_map(|map| map.keys().map(String::as_str)).collect();
        // Less and less, the deeper: recursive schemas end.
        let percent = if depth >= super::DEPTH_MAX { 0 } else { 70 >> depth.min(6) };
        for name in declared {
            if !names.contains(&name) && names.len() < max && self.random.chance(percent) {
                names.push(name);
            }
        }
        let mut map = Map::new();
        for name in names {
            let places = self.property_places(together, name);
            map.insert(name.to_owned(), self.value(&places, depth + 1));
        }
        for (dependent, needs) in dependent_required(together) {
            if map.contains_key(dependent) && !map.contains_key(needs) {
                let places = self.property_places(together, needs);
                map.insert(needs.to_owned(), self.value(&places, depth + 1));
            }
        }
        let min = together.at_least("minProperties").min(COUNT_LIMIT);
        let free = if self.extras == Extras::Some { self.random.below(FREE_MAX) } else { 0 };
        let patterned = together.all("patternProperties").next().is_some();
        let more = min.saturating_sub(map.len()).max(free);
        let more = if patterned { more.max(self.random.below(2)) } else { more };
        for _ in 0..more.min(max.saturating_sub(map.len())) {
            let name = self.free_name(together);
            let places = self.property_places(together, &name);
            map.insert(name, self.value(&places, depth + 1));
        }
        Value::Object(map)
    }

    /// The schemas that a property must match.
    fn property_places(&mut self, together: &Together<'a>, name: &str) -> Vec<String> {
        let mut places = Vec::new();
        for part in &together.parts {
            let at = |key: &str| pointer::child(&part.place, key);
            let before = places.len();
            if part.map.get("properties").is_some_and(|map| map.get(name).is_some()) {
                places.push(pointer::child(&at("properties"), name));
            }
            let patterns = part.map.get("patternProperties").and_then(Value::as_object);
            for pattern in patterns.into_iter().flat_map(Map::keys) {
                if self.language(pattern).is_some_and(|language| language.contains(name)) {
                    places.push(pointer::child(&at("patternProperties"), pattern));
                }
            }
            if places.len() == before {
                let rest = ["additionalProperties", "unevaluatedProperties"];
                places.extend(rest.into_iter().filter(|key| part.map.contains_key(*key)).map(at));
            }
        }
        places
    }

    /// A name that is not declared: of a pattern, or any.
    fn free_name(&mut self, together: &Together<'a>) -> String {
        let tables = together.all("patternProperties").filter_map(Value::as_object);
        let patterns: Vec<&String> = tables.flat_map(Map::keys).collect();
        let pattern = self.random.pick(&patterns).copied().cloned();
        let names: Vec<String> = together.places("propertyNames").collect();
        let pattern = pattern.filter(|_| self.random.chance(70));
        if let Some(language) = pattern.and_then(|pattern| self.language(&pattern)) {
            return self.word(&language, (0, 12));
        }
        let drawn = match names.is_empty() {
            true => self.text(&Together::default()),
            false => self.value(&names, super::DEPTH_MAX),
        };
        drawn.as_str().unwrap_or("a").to_owned()
    }
}

impl<'a> Together<'a> {
    /// Where the schemas under a keyword stand.
    pub(super) fn places<'t>(&'t self, key: &'t str) -> impl Iterator<Item = String> + 't {
        let with = self.parts.iter().filter(move |part| part.map.contains_key(key));
        with.map(move |part| pointer::child(&part.place, key))
    }
}

fn item_places(together: &Together<'_>, index: usize) -> Vec<String> {
    let mut places = Vec::new();
    for part in &together.parts {
        let at = |key: &str| pointer::child(&part.place, key);
        // Draft-07 lists the first items under `items`, and the others under `additionalItems`.
        let old = part.map.get("items").is_some_and(Value::is_array);
        let (first, rest) =
            if old { ("items", "additionalItems") } else { ("prefixItems", "items") };
        let listed = part.map.get(first).and_then(Value::as_array).map_or(0, Vec::len);
        if index < listed {
            places.push(format!("{}/{index}", at(first)));
        } else if part.map.contains_key(rest) {
            places.push(at(rest));
        } else if part.map.contains_key("unevaluatedItems") {
            places.push(at("unevaluatedItems"));
        }
    }
    places
}

fn required<'a>(together: &Together<'a>) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for list in together.all("required").filter_map(Value::as_array) {
        for name in list.iter().filter_map(Value::as_str) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

fn dependent_required<'a>(together: &Together<'a>) -> Vec<(&'a str, &'a str)> {
    let tables = together.all("dependentRequired").filter_map(Value::as_object);
    let pairs = tables.flat_map(|table| {
        table.iter().flat_map(|(name, needs)| {
            let needs = needs.as_array().into_iter().flatten().filter_map(Value::as_str);
            needs.map(move |needed| (name.as_str(), needed))
        })
    });
    pairs.collect()
}
