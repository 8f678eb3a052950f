//! Objects: which properties there must be, may be and cannot be.
//!
//! The names that keywords mention are looked at one by one. All others are told apart only by
//! the patterns and name schemas in play: they fall into *cells*, each a language of names with
//! one set of conditions on the values. A demand for some property (the complement of a condition
//! on all) is placed at a name or in a cell, in every way until one works.

use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::{Map, Value};

use super::object_facts::{ObjectFacts, Scope};
use super::{BUDGET, Outcome, Search};
use crate::compat::term::{Kind, Kinds, Lit, Scalar, Term};

/// Predicates on names whose combinations are all listed; of more, only those that have names.
const LISTED_MAX: usize = 10;

/// Most cells that names are cut into.
const CELLS_MAX: usize = 2_000;

/// Names that no keyword tells apart.
#[derive(Debug, Clone)]
struct Cell {
    /// What the names are.
    names: Vec<Lit>,
    /// What the values must be.
    values: Vec<Lit>,
}

/// Where the demanded properties go.
#[derive(Debug, Clone, Default)]
struct Plan {
    /// Additional conditions on properties with known names.
    named: BTreeMap<Box<str>, Vec<Lit>>,
    /// Properties with new names: cell, and conditions on the value.
    fresh: Vec<(usize, Vec<Lit>)>,
}

struct Problem {
    view: ObjectFacts,
    /// All known names that may be there, and what is settled of them.
    known: BTreeMap<Box<str>, Vec<Lit>>,
    cells: Vec<Cell>,
}

impl Search<'_> {
    pub(super) fn object(&mut self, facts: &[Lit]) -> Outcome {
        let view = ObjectFacts::collect(self.pool, facts);
        if view.contradiction {
            return Outcome::Empty;
        }
        let needs_cells = !view.some.is_empty() || view.min > view.required.len() as u64;
        let Some(known) = self.known_names(&view, needs_cells) else {
            return Outcome::unknown("a property name that a pattern cannot be asked about");
        };
        self.spend(known.len());
        // The commonest contradiction, before anything is laid out.
        let mut doubt = None;
        for name in &view.required {
            match self.decide(known.get(name).into_iter().flatten().copied()) {
                Outcome::Empty => return Outcome::Empty,
                Outcome::Unknown(construct) => doubt = Some(construct),
                Outcome::Found(_) => {}
            }
        }
        if let Some(construct) = doubt {
            return Outcome::Unknown(construct);
        }
        let mut problem = Problem { view, known, cells: Vec::new() };
        if !needs_cells {
            return self.place(&problem, 0, &Plan::default());
        }
        let predicates = self.predicates(&problem.view);
        // Names that match at most one pattern mostly do, and are cheap to find.
        for matched in [1, predicates.len()] {
            problem.cells = match self.cells(&problem, &predicates, matched) {
                Ok(cells) => cells,
                Err(outcome) => return outcome,
            };
            let outcome = self.place(&problem, 0, &Plan::default());
            if matches!(outcome, Outcome::Found(_)) || matched >= predicates.len() {
                return outcome;
            }
        }
        Outcome::unknown(BUDGET)
    }

    /// What is settled of the required names, or of all that are mentioned.
    fn known_names(
        &mut self,
        view: &ObjectFacts,
        all: bool,
    ) -> Option<BTreeMap<Box<str>, Vec<Lit>>> {
        let optional = view.named.keys().chain(&view.mentioned).filter(|_| all);
        let names = view.required.iter().chain(optional);
        let names: std::collections::BTreeSet<&Box<str>> =
            names.filter(|name| !view.absent.contains(*name)).collect();
        names.into_iter().map(|name| Some((name.clone(), self.lits_of(view, name)?))).collect()
    }

    /// Cuts the names that are not known into cells: one for each set of at most `matched`
    /// predicates that hold, unless it can serve no purpose or has no names.
    fn cells(
        &mut self,
        problem: &Problem,
        predicates: &[Lit],
        matched: usize,
    ) -> Result<Vec<Cell>, Outcome> {
        let view = &problem.view;
        let texts = problem.known.keys().chain(&view.absent).map(|name| Scalar::Text(name.clone()));
        let texts: Vec<Scalar> = texts.collect();
        let mut common =
            vec![self.pool.kinds(Kinds::of(&[Kind::String])), !self.pool.scalars(texts)];
        common.extend_from_slice(&view.names);
        let mut parts = vec![(common, 0)];
        for predicate in predicates {
            let mut next = Vec::with_capacity(parts.len() * 2);
            for (part, holding) in parts {
                for (sign, holding) in [(!*predicate, holding), (*predicate, holding + 1)] {
                    let names: Vec<Lit> = part.iter().copied().chain([sign]).collect();
                    if holding > matched || !self.serves(view, &names) {
                        continue;
                    }
                    // The automata cost most: where there are few parts they come last.
                    let listed = predicates.len() <= LISTED_MAX;
                    if listed || !self.decide(names.iter().copied()).is_empty() {
                        next.push((names, holding));
                    }
                }
            }
            parts = next;
            if parts.len() > CELLS_MAX || !self.step() {
                return Err(Outcome::unknown("patternProperties in too many combinations"));
            }
        }
        let mut cells = Vec::new();
        for (names, _) in parts {
            if !self.decide(names.iter().copied()).is_empty() {
                let values = self.values_of(view, &names);
                cells.push(Cell { names, values });
            }
        }
        Ok(cells)
    }

    /// What the values under such names must be, as far as it is settled what names they are.
    fn values_of(&mut self, view: &ObjectFacts, names: &[Lit]) -> Vec<Lit> {
        let mut values = Vec::new();
        for (scope, value) in &view.every {
            if self.covers_cell(scope, names) {
                values.push(*value);
            }
        }
        values
    }

    /// Whether a property under such a name could answer a demand, or is wanted for the number.
    fn serves(&mut self, view: &ObjectFacts, names: &[Lit]) -> bool {
        let values = self.values_of(view, names);
        if view.min > view.required.len() as u64 {
            return !self.decide(values).is_empty();
        }
        view.some.iter().any(|(scope, value)| {
            self.may_cover(scope, names)
                && !self.decide(values.iter().copied().chain([*value])).is_empty()
        })
    }

    /// The predicates that tell names apart.
    fn predicates(&mut self, view: &ObjectFacts) -> Vec<Lit> {
        let mut found = std::collections::BTreeSet::new();
        for (scope, _) in view.every.iter().chain(&view.some) {
            match scope {
                Scope::Matching(pattern) => {
                    found.insert(self.pool.intern(Term::Pattern(*pattern)));
                }
                Scope::Rest(_, patterns) => {
                    for pattern in patterns {
                        found.insert(self.pool.intern(Term::Pattern(*pattern)));
                    }
                }
                Scope::Named(names) => {
                    found.insert(*names);
                }
            }
        }
        found.into_iter().collect()
    }

    /// Whether a scope surely covers names of which this is settled.
    fn covers_cell(&mut self, scope: &Scope, names: &[Lit]) -> bool {
        match scope {
            Scope::Matching(pattern) => names.contains(&self.pool.intern(Term::Pattern(*pattern))),
            Scope::Rest(_, patterns) => patterns
                .iter()
                .all(|pattern| names.contains(&!self.pool.intern(Term::Pattern(*pattern)))),
            Scope::Named(lit) => names.contains(lit),
        }
    }

    /// Whether it is not settled that it does not. Of a cell, all is settled.
    fn may_cover(&mut self, scope: &Scope, names: &[Lit]) -> bool {
        match scope {
            Scope::Matching(pattern) => {
                !names.contains(&!self.pool.intern(Term::Pattern(*pattern)))
            }
            Scope::Rest(_, patterns) => patterns
                .iter()
                .all(|pattern| !names.contains(&self.pool.intern(Term::Pattern(*pattern)))),
            Scope::Named(lit) => !names.contains(&!*lit),
        }
    }

    /// Places the demands from `at` on.
    fn place(&mut self, problem: &Problem, at: usize, plan: &Plan) -> Outcome {
        let Some((scope, value)) = problem.view.some.get(at) else {
            return self.finish(problem, plan);
        };
        if !self.step() {
            return Outcome::unknown(BUDGET);
        }
        let mut outcome = Outcome::Empty;
        let mut plans = Vec::new();
        for (index, cell) in problem.cells.iter().enumerate() {
            if self.covers_cell(scope, &cell.names) {
                let mut next = plan.clone();
                next.fresh.push((index, vec![*value]));
                plans.push(next);
            }
        }
        for name in problem.known.keys() {
            match self.covers(scope, name) {
                Some(true) => {
                    let mut next = plan.clone();
                    next.named.entry(name.clone()).or_default().push(*value);
                    plans.push(next);
                }
                Some(false) => {}
                None => {
                    outcome =
                        Outcome::unknown("a property name that a pattern cannot be asked about")
                }
            }
        }
        // One property may answer several demands, which matters when there cannot be many.
        for (index, (cell, _)) in plan.fresh.iter().enumerate() {
            let covered =
                problem.cells.get(*cell).is_some_and(|cell| self.covers_cell(scope, &cell.names));
            if covered {
                let mut next = plan.clone();
                if let Some((_, lits)) = next.fresh.get_mut(index) {
                    lits.push(*value);
                }
                plans.push(next);
            }
        }
        for next in plans {
            if !self.is_placeable(problem, &next) {
                continue;
            }
            outcome = outcome.or(self.place(problem, at + 1, &next));
            if matches!(outcome, Outcome::Found(_)) {
                break;
            }
        }
        outcome
    }

    /// Whether each placed property can have a value at all.
    fn is_placeable(&mut self, problem: &Problem, plan: &Plan) -> bool {
        let named = plan.named.iter().all(|(name, extra)| {
            let lits = problem.known.get(name).into_iter().flatten().chain(extra);
            !self.decide(lits.copied()).is_empty()
        });
        named
            && plan.fresh.iter().all(|(cell, extra)| {
                let lits = problem.cells.get(*cell).into_iter().flat_map(|cell| &cell.values);
                !self.decide(lits.chain(extra).copied()).is_empty()
            })
    }

    /// Makes the object: required and placed properties, and as many more as are needed.
    fn finish(&mut self, problem: &Problem, plan: &Plan) -> Outcome {
        let mut object = Map::new();
        let present = problem.view.required.iter().chain(plan.named.keys());
        for name in present.collect::<std::collections::BTreeSet<_>>() {
            let extra = plan.named.get(name).into_iter().flatten();
            let lits = problem.known.get(name).into_iter().flatten().chain(extra);
            match self.decide(lits.copied()) {
                Outcome::Found(value) => object.insert(name.to_string(), Value::clone(&value)),
                other => return other,
            };
        }
        let total = (object.len() + plan.fresh.len()) as u64;
        if problem.view.max.is_some_and(|max| total > max) {
            return Outcome::Empty;
        }
        let mut fresh: Vec<(usize, Rc<Value>)> = Vec::with_capacity(plan.fresh.len());
        for (cell, extra) in &plan.fresh {
            let lits = problem.cells.get(*cell).into_iter().flat_map(|cell| &cell.values);
            match self.decide(lits.chain(extra).copied()) {
                Outcome::Found(value) => fresh.push((*cell, value)),
                other => return other,
            }
        }
        let missing = problem.view.min.saturating_sub(total);
        let missing = match self.pad_known(problem, missing, &mut object) {
            Ok(missing) => missing,
            Err(outcome) => return outcome,
        };
        self.name_fresh(problem, (fresh, missing), object)
    }

    /// Adds known names that are not required, while properties are missing.
    fn pad_known(
        &mut self,
        problem: &Problem,
        missing: u64,
        object: &mut Map<String, Value>,
    ) -> Result<u64, Outcome> {
        let mut missing = missing;
        for (name, lits) in &problem.known {
            if missing == 0 {
                break;
            }
            if object.contains_key(name.as_ref()) {
                continue;
            }
            match self.decide(lits.iter().copied()) {
                Outcome::Found(value) => {
                    object.insert(name.to_string(), Value::clone(&value));
                    missing -= 1;
                }
                Outcome::Empty => {}
                Outcome::Unknown(construct) => return Err(Outcome::Unknown(construct)),
            }
        }
        Ok(missing)
    }

    /// Gives new properties names from their cells, and adds those still missing.
    fn name_fresh(
        &mut self,
        problem: &Problem,
        (fresh, mut missing): (Vec<(usize, Rc<Value>)>, u64),
        mut object: Map<String, Value>,
    ) -> Outcome {
        for (index, cell) in problem.cells.iter().enumerate() {
            let values: Vec<&Rc<Value>> =
                fresh.iter().filter(|(at, _)| *at == index).map(|(_, value)| value).collect();
            let wanted =
                usize::try_from(missing).unwrap_or(usize::MAX).saturating_add(values.len());
            if wanted == 0 {
                continue;
            }
            let names = self.distinct(&cell.names, wanted);
            if names.found.len() < values.len() {
                return names.doubt.map_or(Outcome::Empty, Outcome::Unknown);
            }
            let filler = match self.decide(cell.values.iter().copied()) {
                Outcome::Found(value) => value,
                other => return other,
            };
            for (at, name) in names.found.iter().enumerate() {
                let Value::String(name) = name.as_ref() else {
                    continue;
                };
                if at >= values.len() {
                    missing = missing.saturating_sub(1);
                }
                let value = values.get(at).map_or(&filler, |value| *value);
                object.insert(name.clone(), Value::clone(value));
            }
            if let (Some(doubt), true) = (names.doubt, missing > 0) {
                return Outcome::Unknown(doubt);
            }
        }
        if missing > 0 { Outcome::Empty } else { Outcome::found(Value::Object(object)) }
    }
}
