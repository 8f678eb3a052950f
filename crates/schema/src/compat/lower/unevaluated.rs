//! `unevaluatedItems` and `unevaluatedProperties`.
//!
//! What they speak about depends on which branches beside them hold for the value. So for every
//! name, pattern and position that any branch tells of, there is a condition: that one of the
//! branches that tell of it holds. The keyword then says of each of them that it is told of or is
//! as the keyword's schema has it. That is a plain conjunction, and its complement is exact.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{LowerProblem, Lowering};
use crate::compat::term::{Lit, PatternId, Term};
use crate::limits::UNEVALUATED_CASES_MAX;
use crate::pointer;

/// What a schema that holds evaluates, and under which condition.
#[derive(Debug)]
struct Evaluated {
    names: BTreeMap<Box<str>, Lit>,
    patterns: BTreeMap<PatternId, Lit>,
    all_properties: Lit,
    /// The first so many items.
    prefixes: BTreeMap<u64, Lit>,
    all_items: Lit,
    /// The items that are like this.
    like: BTreeMap<Lit, Lit>,
}

impl Evaluated {
    fn nothing() -> Self {
        Self {
            names: BTreeMap::new(),
            patterns: BTreeMap::new(),
            all_properties: Lit::FALSE,
            prefixes: BTreeMap::new(),
            all_items: Lit::FALSE,
            like: BTreeMap::new(),
        }
    }
}

impl Lowering<'_> {
    pub(super) fn unevaluated(
        &mut self,
        place: &str,
        map: &Map<String, Value>,
        lits: &mut Vec<Lit>,
    ) -> Result<(), LowerProblem> {
        for keyword in ["unevaluatedItems", "unevaluatedProperties"] {
            if self.keyword(map, keyword).is_none() {
                continue;
            }
            let value = self.part(&pointer::child(place, keyword))?;
            // Reading a branch may lead to another such keyword: it must not see our path.
            let outer = std::mem::take(&mut self.evaluating);
            let evaluated = self.evaluated(place, map, Some(keyword))?;
            self.evaluating = outer;
            let all = match keyword {
                "unevaluatedItems" => self.rest_items(&evaluated, value),
                _ => self.rest_properties(&evaluated, value),
            };
            match all {
                Some(all) => lits.extend(all),
                None => {
                    let text = format!("{keyword} with too many cases");
                    lits.push(self.pool.intern(Term::Opaque(text.into())));
                }
            }
        }
        Ok(())
    }

    /// `None` if a pattern cannot be asked about a name, or too many branches have patterns.
    fn rest_properties(&mut self, evaluated: &Evaluated, value: Lit) -> Option<Vec<Lit>> {
        let mut lits = Vec::new();
        for (name, told) in &evaluated.names {
            let mut conditions = vec![evaluated.all_properties, *told];
            for (pattern, told) in &evaluated.patterns {
                if self.pool.matches(*pattern, name)? {
                    conditions.push(*told);
                }
            }
            conditions.push(self.pool.intern(Term::Property(name.clone(), value)));
            lits.push(self.pool.any(conditions));
        }
        let names: Box<[Box<str>]> = evaluated.names.keys().cloned().collect();
        for (held, open) in cases(evaluated.patterns.iter().map(|(p, told)| (*p, *told)))? {
            let mut patterns = held;
            patterns.sort_unstable();
            let (names, patterns) = (names.clone(), patterns.into_boxed_slice());
            let rest = self.pool.intern(Term::Rest { names, patterns, value });
            lits.push(self.pool.any(open.into_iter().chain([evaluated.all_properties, rest])));
        }
        Some(lits)
    }

    fn rest_items(&mut self, evaluated: &Evaluated, value: Lit) -> Option<Vec<Lit>> {
        let mut lits = Vec::new();
        let tail = evaluated.prefixes.keys().next_back().copied().unwrap_or(0);
        for (held, open) in cases(evaluated.like.iter().map(|(like, told)| (*like, *told)))? {
            let item = self.pool.any(held.into_iter().chain([value]));
            let open = self.pool.any(open.into_iter().chain([evaluated.all_items]));
            for at in 0..tail {
                let longer = evaluated.prefixes.range(at + 1..).map(|(_, told)| *told);
                let here = self.pool.intern(Term::Item(at, item));
                lits.push(self.pool.any(longer.chain([open, here])));
            }
            let rest = self.pool.intern(Term::ItemsFrom(tail, item));
            lits.push(self.pool.any([open, rest]));
        }
        Some(lits)
    }

    /// What a schema evaluates. `except` leaves out the keyword that asks.
    fn evaluated(
        &mut self,
        place: &str,
        map: &Map<String, Value>,
        except: Option<&str>,
    ) -> Result<Evaluated, LowerProblem> {
        let mut found = self.own(place, map, except)?;
        for keyword in ["$ref", "$dynamicRef", "$recursiveRef"] {
            if let Some(Value::String(reference)) = self.keyword(map, keyword) {
                let target = self.target(place, keyword, reference)?;
                self.add(&mut found, &target, Lit::TRUE)?;
            }
        }
        for index in 0..length(map, "allOf") {
            self.add(&mut found, &format!("{place}/allOf/{index}"), Lit::TRUE)?;
        }
        // Of `oneOf` it does not matter what is said if more than one holds: it fails then.
        for keyword in ["anyOf", "oneOf"] {
            for index in 0..length(map, keyword) {
                let at = format!("{place}/{keyword}/{index}");
                let holds = self.place(&at)?;
                self.add(&mut found, &at, holds)?;
            }
        }
        if self.keyword(map, "if").is_some() {
            let at = pointer::child(place, "if");
            let condition = self.place(&at)?;
            self.add(&mut found, &at, condition)?;
            for (keyword, when) in [("then", condition), ("else", !condition)] {
                if map.contains_key(keyword) {
                    self.add(&mut found, &pointer::child(place, keyword), when)?;
                }
            }
        }
        for keyword in ["dependentSchemas", "dependencies"] {
            let Some(Value::Object(table)) = self.keyword(map, keyword) else {
                continue;
            };
            for (name, _) in table.iter().filter(|(_, schema)| !schema.is_array()) {
                let at = pointer::child(&pointer::child(place, keyword), name);
                let present = self.present(name);
                self.add(&mut found, &at, present)?;
            }
        }
        Ok(found)
    }

    /// Adds what the schema at a place evaluates when `guard` holds.
    fn add(&mut self, found: &mut Evaluated, place: &str, guard: Lit) -> Result<(), LowerProblem> {
        if self.evaluating.iter().any(|open| open == place) {
            return Err(LowerProblem::Endless { pointer: place.to_owned() });
        }
        self.visit(place)?;
        let outer = self.enter(place);
        self.evaluating.push(place.to_owned());
        let more = match self.root.pointer(place) {
            Some(Value::Object(map)) => match (map.get("$ref"), self.dialect.reads_beside_ref()) {
                (Some(Value::String(reference)), false) => {
                    let target = self.target(place, "$ref", reference)?;
                    let mut more = Evaluated::nothing();
                    self.add(&mut more, &target, Lit::TRUE)?;
                    more
                }
                _ => self.evaluated(place, map, None)?,
            },
            _ => Evaluated::nothing(),
        };
        self.evaluating.pop();
        self.scope = outer;
        self.join(&mut found.names, more.names, guard);
        self.join(&mut found.patterns, more.patterns, guard);
        self.join(&mut found.prefixes, more.prefixes, guard);
        self.join(&mut found.like, more.like, guard);
        for (all, more) in [
            (&mut found.all_properties, more.all_properties),
            (&mut found.all_items, more.all_items),
        ] {
            let more = self.pool.all([guard, more]);
            *all = self.pool.any([*all, more]);
        }
        Ok(())
    }

    fn join<K: Ord>(&mut self, found: &mut BTreeMap<K, Lit>, more: BTreeMap<K, Lit>, guard: Lit) {
        for (key, told) in more {
            let told = self.pool.all([guard, told]);
            let known = found.entry(key).or_insert(Lit::FALSE);
            *known = self.pool.any([*known, told]);
        }
    }

    /// What the keywords of this schema itself evaluate.
    fn own(
        &mut self,
        place: &str,
        map: &Map<String, Value>,
        except: Option<&str>,
    ) -> Result<Evaluated, LowerProblem> {
        let (names, patterns) = self.declared(map);
        let layout = self.item_layout(map);
        let has =
            |key: &str| map.contains_key(key) && Some(key) != except && self.dialect.knows(key);
        let when = |holds: bool| if holds { Lit::TRUE } else { Lit::FALSE };
        let all_items = when(layout.rest.is_some() || has("unevaluatedItems"));
        let all_properties = when(has("additionalProperties") || has("unevaluatedProperties"));
        let mut like = BTreeMap::new();
        // By the letter only since 2020-12; but validators have it so in 2019-09, ours among them.
        if has("contains") {
            like.insert(self.part(&pointer::child(place, "contains"))?, Lit::TRUE);
        }
        Ok(Evaluated {
            names: names.into_iter().map(|name| (name, Lit::TRUE)).collect(),
            patterns: patterns.into_iter().map(|pattern| (pattern, Lit::TRUE)).collect(),
            all_properties,
            prefixes: layout.prefix.iter().map(|(_, length)| (*length, Lit::TRUE)).collect(),
            all_items,
            like,
        })
    }
}

/// A case: what counts in it, and the conditions of the rest, one of which must hold otherwise.
type Case<T> = (Vec<T>, Vec<Lit>);

/// For every set of conditions that may fail: what counts without them. What is certain counts
/// always. `None` if there are too many.
fn cases<T: Copy>(told: impl Iterator<Item = (T, Lit)>) -> Option<Vec<Case<T>>> {
    let told: Vec<(T, Lit)> = told.filter(|(_, condition)| *condition != Lit::FALSE).collect();
    let mut conditions: Vec<Lit> =
        told.iter().map(|(_, condition)| *condition).filter(|c| *c != Lit::TRUE).collect();
    conditions.sort_unstable();
    conditions.dedup();
    let count = 1_usize.checked_shl(u32::try_from(conditions.len()).ok()?)?;
    if count > UNEVALUATED_CASES_MAX {
        return None;
    }
    let case = |chosen: usize| {
        let failing: Vec<Lit> = conditions
            .iter()
            .enumerate()
            .filter(|(at, _)| chosen & (1 << at) != 0)
            .map(|(_, condition)| *condition)
            .collect();
        let counts = told.iter().filter(|(_, condition)| !failing.contains(condition));
        (counts.map(|(one, _)| *one).collect(), failing)
    };
    Some((0..count).map(case).collect())
}

fn length(map: &Map<String, Value>, key: &str) -> usize {
    map.get(key).and_then(Value::as_array).map_or(0, Vec::len)
}
