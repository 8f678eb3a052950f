//! `unevaluatedItems` and `unevaluatedProperties`.
//!
//! What they speak about depends on which branches beside them hold for the value. Each way in
//! which the branches can hold is a case with a fixed set of evaluated names and items, so:
//! the keyword holds if in some case whose branches *hold* the rest is as it says, and it fails if
//! in some case whose other branches *fail* some of the rest is not. Both are exact, because more
//! branches holding only ever evaluates more.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{LowerProblem, Lowering};
use crate::compat::term::{Lit, PatternId, Term};
use crate::limits::UNEVALUATED_CASES_MAX;
use crate::pointer;
use crate::reference::Target;

/// One way in which the branches hold, and what is evaluated then.
#[derive(Debug, Clone, Default)]
struct Case {
    holds: Vec<Lit>,
    fails: Vec<Lit>,
    names: BTreeSet<Box<str>>,
    patterns: BTreeSet<PatternId>,
    all_properties: bool,
    prefix: u64,
    all_items: bool,
    like: BTreeSet<Lit>,
}

impl Case {
    fn evaluates_nothing(&self, items: bool) -> bool {
        if items {
            self.prefix == 0 && !self.all_items && self.like.is_empty()
        } else {
            self.names.is_empty() && self.patterns.is_empty() && !self.all_properties
        }
    }

    fn merge(mut self, other: &Self) -> Self {
        self.holds.extend_from_slice(&other.holds);
        self.fails.extend_from_slice(&other.fails);
        self.names.extend(other.names.iter().cloned());
        self.patterns.extend(&other.patterns);
        self.like.extend(&other.like);
        self.all_properties |= other.all_properties;
        self.all_items |= other.all_items;
        self.prefix = self.prefix.max(other.prefix);
        self
    }
}

/// `None`: more cases than the limit.
type Cases = Option<Vec<Case>>;

impl Lowering<'_> {
    pub(super) fn unevaluated(
        &mut self,
        place: &str,
        map: &Map<String, Value>,
        lits: &mut Vec<Lit>,
    ) -> Result<(), LowerProblem> {
        for (keyword, items) in [("unevaluatedItems", true), ("unevaluatedProperties", false)] {
            if self.keyword(map, keyword).is_none() {
                continue;
            }
            let value = self.part(&pointer::child(place, keyword))?;
            // Reading a branch may lead to another such keyword: it must not see our path.
            let outer = (
                std::mem::replace(&mut self.case_items, items),
                std::mem::take(&mut self.case_path),
            );
            let cases = self.cases(place, map, Some(keyword))?;
            (self.case_items, self.case_path) = outer;
            let Some(cases) = cases else {
                let text = format!("{keyword} with too many cases");
                lits.push(self.pool.intern(Term::Opaque(text.into())));
                continue;
            };
            lits.push(self.pair(&cases, value, items));
        }
        Ok(())
    }

    fn pair(&mut self, cases: &[Case], value: Lit, items: bool) -> Lit {
        let mut holds = Vec::with_capacity(cases.len());
        let mut fails = Vec::with_capacity(cases.len());
        for case in cases {
            let rest =
                if items { self.rest_items(case, value) } else { self.rest_names(case, value) };
            holds.push(self.pool.all(case.holds.iter().copied().chain([rest])));
            fails.push(self.pool.all(case.fails.iter().map(|lit| !*lit).chain([!rest])));
        }
        let holds = self.pool.any(holds);
        let fails = self.pool.any(fails);
        if holds == !fails {
            return holds;
        }
        self.pool.intern(Term::Pair { holds, fails })
    }

    fn rest_names(&mut self, case: &Case, value: Lit) -> Lit {
        if case.all_properties {
            return Lit::TRUE;
        }
        let names: Vec<Box<str>> = case.names.iter().cloned().collect();
        let patterns: Vec<PatternId> = case.patterns.iter().copied().collect();
        let (names, patterns) = (names.into_boxed_slice(), patterns.into_boxed_slice());
        self.pool.intern(Term::Rest { names, patterns, value })
    }

    fn rest_items(&mut self, case: &Case, value: Lit) -> Lit {
        if case.all_items {
            return Lit::TRUE;
        }
        let item = self.pool.any(case.like.iter().copied().chain([value]));
        self.pool.intern(Term::ItemsFrom(case.prefix, item))
    }

    /// The cases of a schema. `except` leaves out the keyword that asks.
    fn cases(
        &mut self,
        place: &str,
        map: &Map<String, Value>,
        except: Option<&str>,
    ) -> Result<Cases, LowerProblem> {
        let mut cases = vec![self.own(place, map, except)?];
        let mut groups: Vec<Cases> = Vec::new();
        for keyword in ["$ref", "$dynamicRef", "$recursiveRef"] {
            if let Some(Value::String(reference)) = self.keyword(map, keyword) {
                match self.references.resolve(self.root, place, reference) {
                    Target::Here(target) => groups.push(self.cases_at(&target)?),
                    _ => groups.push(None),
                }
            }
        }
        for index in 0..length(map, "allOf") {
            groups.push(self.cases_at(&format!("{place}/allOf/{index}"))?);
        }
        for index in 0..length(map, "anyOf") {
            let at = format!("{place}/anyOf/{index}");
            groups.push(self.maybe(&at)?);
        }
        if map.contains_key("oneOf") {
            groups.push(self.exactly_one(place, length(map, "oneOf"))?);
        }
        if self.keyword(map, "if").is_some() {
            groups.push(self.conditional(place, map)?);
        }
        for keyword in ["dependentSchemas", "dependencies"] {
            let Some(Value::Object(table)) = self.keyword(map, keyword) else {
                continue;
            };
            for (name, _) in table.iter().filter(|(_, schema)| !schema.is_array()) {
                let at = pointer::child(&pointer::child(place, keyword), name);
                let present = self.present(name);
                groups.push(self.guarded(&at, present)?);
            }
        }
        for group in groups {
            let Some(group) = group else { return Ok(None) };
            // Branches that evaluate nothing here make no difference, whether they hold or not.
            if group.iter().all(|case| case.evaluates_nothing(self.case_items)) {
                continue;
            }
            if cases.len() * group.len() > UNEVALUATED_CASES_MAX {
                return Ok(None);
            }
            cases = cases
                .iter()
                .flat_map(|case| group.iter().map(|other| case.clone().merge(other)))
                .collect();
        }
        Ok(Some(cases))
    }

    fn cases_at(&mut self, place: &str) -> Result<Cases, LowerProblem> {
        if self.case_path.iter().any(|open| open == place) {
            return Err(LowerProblem::Endless { pointer: place.to_owned() });
        }
        self.visit(place)?;
        self.case_path.push(place.to_owned());
        let cases = self.cases_within(place);
        self.case_path.pop();
        cases
    }

    fn cases_within(&mut self, place: &str) -> Result<Cases, LowerProblem> {
        match self.root.pointer(place) {
            Some(Value::Object(map)) => {
                if let (Some(Value::String(reference)), false) =
                    (map.get("$ref"), self.dialect.reads_beside_ref())
                {
                    return match self.references.resolve(self.root, place, reference) {
                        Target::Here(target) => self.cases_at(&target),
                        _ => Ok(None),
                    };
                }
                self.cases(place, map, None)
            }
            _ => Ok(Some(vec![Case::default()])),
        }
    }

    /// What the keywords of this schema itself evaluate.
    fn own(
        &mut self,
        place: &str,
        map: &Map<String, Value>,
        except: Option<&str>,
    ) -> Result<Case, LowerProblem> {
        let (names, patterns) = self.declared(map);
        let layout = self.item_layout(map);
        let has =
            |key: &str| map.contains_key(key) && Some(key) != except && self.dialect.knows(key);
        let mut like = BTreeSet::new();
        let all_items = layout.rest.is_some() || has("unevaluatedItems");
        let all_properties = has("additionalProperties") || has("unevaluatedProperties");
        // Only since 2020-12 does `contains` evaluate what it finds.
        if has("contains") && self.dialect.knows("prefixItems") {
            like.insert(self.part(&pointer::child(place, "contains"))?);
        }
        Ok(Case {
            names: names.into_iter().collect(),
            patterns: patterns.into_iter().collect(),
            prefix: layout.prefix_length(),
            all_items,
            all_properties,
            like,
            ..Case::default()
        })
    }

    /// A branch that may hold or not.
    fn maybe(&mut self, place: &str) -> Result<Cases, LowerProblem> {
        let lit = self.place(place)?;
        self.guarded(place, lit)
    }

    /// A branch that counts when `guard` holds.
    fn guarded(&mut self, place: &str, guard: Lit) -> Result<Cases, LowerProblem> {
        let Some(mut cases) = self.cases_at(place)? else {
            return Ok(None);
        };
        for case in &mut cases {
            case.holds.push(guard);
        }
        cases.push(Case { fails: vec![guard], ..Case::default() });
        Ok(Some(cases))
    }

    fn exactly_one(&mut self, place: &str, count: usize) -> Result<Cases, LowerProblem> {
        let places: Vec<String> =
            (0..count).map(|index| format!("{place}/oneOf/{index}")).collect();
        let lits: Vec<Lit> = places.iter().map(|at| self.place(at)).collect::<Result<_, _>>()?;
        let mut all = Vec::new();
        for (index, (at, lit)) in places.iter().zip(&lits).enumerate() {
            let Some(mut cases) = self.cases_at(at)? else {
                return Ok(None);
            };
            for case in &mut cases {
                case.holds.push(*lit);
                let others = lits.iter().enumerate().filter(|(other, _)| *other != index);
                case.fails.extend(others.map(|(_, lit)| *lit));
            }
            all.append(&mut cases);
        }
        Ok(Some(all))
    }

    fn conditional(
        &mut self,
        place: &str,
        map: &Map<String, Value>,
    ) -> Result<Cases, LowerProblem> {
        let at = pointer::child(place, "if");
        let condition = self.place(&at)?;
        let mut all = Vec::new();
        let yes = if map.contains_key("then") {
            self.cases_at(&pointer::child(place, "then"))?
        } else {
            Some(vec![Case::default()])
        };
        let no = if map.contains_key("else") {
            self.cases_at(&pointer::child(place, "else"))?
        } else {
            Some(vec![Case::default()])
        };
        let (Some(tested), Some(yes), Some(no)) = (self.cases_at(&at)?, yes, no) else {
            return Ok(None);
        };
        for (first, second) in
            tested.iter().flat_map(|case| yes.iter().map(move |then| (case, then)))
        {
            let mut case = first.clone().merge(second);
            case.holds.push(condition);
            case.fails.push(!condition);
            all.push(case);
        }
        for mut case in no {
            case.holds.push(!condition);
            case.fails.push(condition);
            all.push(case);
        }
        Ok(Some(all))
    }
}

fn length(map: &Map<String, Value>, key: &str) -> usize {
    map.get(key).and_then(Value::as_array).map_or(0, Vec::len)
}
