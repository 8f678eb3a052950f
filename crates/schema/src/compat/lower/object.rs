//! The keywords of objects.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::number::count;
use super::{LowerProblem, Lowering};
use crate::compat::term::{Kind, Kinds, Lit, PatternId, Term};
use crate::pointer;
use crate::reference::Target;

impl Lowering<'_> {
    pub(super) fn objects(
        &mut self,
        place: &str,
        map: &Map<String, Value>,
        lits: &mut Vec<Lit>,
    ) -> Result<(), LowerProblem> {
        if let Some(min) = count(map, "minProperties") {
            lits.push(self.pool.intern(Term::MinProperties(min)));
        }
        if let Some(max) = count(map, "maxProperties") {
            lits.push(self.pool.intern(Term::MaxProperties(max)));
        }
        self.required(map, lits);
        self.properties(place, map, lits)?;
        if self.keyword(map, "propertyNames").is_some() {
            let names = self.part(&pointer::child(place, "propertyNames"))?;
            lits.push(self.pool.intern(Term::Names(names)));
        }
        for keyword in ["dependencies", "dependentRequired", "dependentSchemas"] {
            self.dependencies((place, keyword), map, lits)?;
        }
        Ok(())
    }

    fn required(&mut self, map: &Map<String, Value>, lits: &mut Vec<Lit>) {
        let Some(Value::Array(names)) = map.get("required") else {
            return;
        };
        let filled = |name: &str| {
            self.options.defaults_fill_required
                && map
                    .get("properties")
                    .and_then(|properties| properties.get(name))
                    .is_some_and(|schema| schema.get("default").is_some())
        };
        let names: Vec<&str> =
            names.iter().filter_map(Value::as_str).filter(|name| !filled(name)).collect();
        lits.extend(names.into_iter().map(|name| self.pool.intern(Term::Required(name.into()))));
    }

    fn properties(
        &mut self,
        place: &str,
        map: &Map<String, Value>,
        lits: &mut Vec<Lit>,
    ) -> Result<(), LowerProblem> {
        let (names, patterns) = self.declared(map);
        let at = pointer::child(place, "properties");
        for name in &names {
            let value = self.part(&pointer::child(&at, name))?;
            lits.push(self.pool.intern(Term::Property(name.clone(), value)));
        }
        let at = pointer::child(place, "patternProperties");
        for pattern in &patterns {
            let text = self.pool.pattern_text(*pattern).to_owned();
            let value = self.part(&pointer::child(&at, &text))?;
            lits.push(self.pool.intern(Term::Matching(*pattern, value)));
        }
        if map.contains_key("additionalProperties") {
            let value = self.part(&pointer::child(place, "additionalProperties"))?;
            let (names, patterns) = (names.into_boxed_slice(), patterns.into_boxed_slice());
            lits.push(self.pool.intern(Term::Rest { names, patterns, value }));
        }
        Ok(())
    }

    /// The names and patterns that `properties` and `patternProperties` list, sorted.
    pub(super) fn declared(&mut self, map: &Map<String, Value>) -> (Vec<Box<str>>, Vec<PatternId>) {
        let keys = |key: &str| map.get(key).and_then(Value::as_object).into_iter().flatten();
        let mut names: Vec<Box<str>> =
            keys("properties").map(|(name, _)| name.as_str().into()).collect();
        let mut patterns: Vec<PatternId> =
            keys("patternProperties").map(|(text, _)| self.pool.pattern(text)).collect();
        names.sort_unstable();
        patterns.sort_unstable();
        (names, patterns)
    }

    fn dependencies(
        &mut self,
        (place, keyword): (&str, &str),
        map: &Map<String, Value>,
        lits: &mut Vec<Lit>,
    ) -> Result<(), LowerProblem> {
        let Some(Value::Object(table)) = self.keyword(map, keyword) else {
            return Ok(());
        };
        let at = pointer::child(place, keyword);
        for (name, dependency) in table {
            let present = self.present(name);
            match dependency {
                Value::Array(needs) => {
                    for need in needs.iter().filter_map(Value::as_str) {
                        let need = self.pool.intern(Term::Required(need.into()));
                        lits.push(self.pool.any([!present, need]));
                    }
                }
                _ => {
                    let schema = self.place(&pointer::child(&at, name))?;
                    lits.push(self.pool.any([!present, schema]));
                }
            }
        }
        Ok(())
    }

    /// Objects that have this property.
    pub(super) fn present(&mut self, name: &str) -> Lit {
        let object = self.pool.kinds(Kinds::of(&[Kind::Object]));
        let required = self.pool.intern(Term::Required(name.into()));
        self.pool.all([object, required])
    }

    /// For the lenient reading: an open object does not have the listed names unless it declares
    /// them, in itself or in a branch that applies to the same value.
    pub(super) fn closed(&mut self, place: &str, lit: Lit) -> Lit {
        if self.options.absent_unless_declared.is_empty() {
            return lit;
        }
        let mut declared = Declared::default();
        self.declares(place, &mut declared);
        if declared.everything {
            return lit;
        }
        let mut lits = vec![lit];
        for name in &self.options.absent_unless_declared {
            if !declared.names.contains(name.as_str()) {
                lits.push(self.pool.intern(Term::Property(name.as_str().into(), Lit::FALSE)));
            }
        }
        self.pool.all(lits)
    }

    fn declares(&self, place: &str, declared: &mut Declared) {
        let Some(Value::Object(map)) = self.root.pointer(place) else {
            return;
        };
        if !declared.seen.insert(place.to_owned()) {
            return;
        }
        for key in ["properties", "dependencies", "dependentSchemas", "dependentRequired"] {
            let names = map.get(key).and_then(Value::as_object).into_iter().flatten();
            declared.names.extend(names.map(|(name, _)| name.clone()));
        }
        let required = map.get("required").and_then(Value::as_array).into_iter().flatten();
        declared.names.extend(required.filter_map(Value::as_str).map(str::to_owned));
        // A schema for the others, a pattern, or a listed value does say what may be there.
        let says = |key: &str| map.get(key).is_some_and(|value| value != &Value::Bool(true));
        declared.everything |= [
            "additionalProperties",
            "unevaluatedProperties",
            "patternProperties",
            "propertyNames",
            "enum",
            "const",
            "$dynamicRef",
            "$recursiveRef",
        ]
        .into_iter()
        .any(says);
        let mut below: Vec<String> = Vec::new();
        for key in ["not", "if", "then", "else"] {
            below.extend(map.contains_key(key).then(|| pointer::child(place, key)));
        }
        for key in ["allOf", "anyOf", "oneOf"] {
            let count = map.get(key).and_then(Value::as_array).map_or(0, Vec::len);
            below.extend((0..count).map(|index| format!("{place}/{key}/{index}")));
        }
        for key in ["dependencies", "dependentSchemas"] {
            let names = map.get(key).and_then(Value::as_object).into_iter().flatten();
            let at = pointer::child(place, key);
            below.extend(names.map(|(name, _)| pointer::child(&at, name)));
        }
        if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
            match self.references.resolve(self.root, place, reference) {
                Target::Here(target) => below.push(target),
                _ => declared.everything = true,
            }
        }
        for place in below {
            self.declares(&place, declared);
        }
    }
}

#[derive(Default)]
struct Declared {
    names: BTreeSet<String>,
    everything: bool,
    seen: BTreeSet<String>,
}
