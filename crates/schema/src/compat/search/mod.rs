//! Is there a value that meets all of these literals? The decision procedure.
//!
//! A *state* is a set of literals that one value must meet. It is decided by case distinction:
//! the kind of the value, then the choices that `anyOf` and complements leave ([`branch`]), until
//! only keywords of one kind are left, which [`number`], [`text`], [`array`] and [`object`] decide
//! by arithmetic, automata and counting. The latter two ask for the states of the parts.
//!
//! Recursive schemas lead back to states that are still open. Such a state is taken to be empty
//! there: a smallest value of a state has no value of the same state inside it. What was found
//! empty on that ground holds only as long as the ground does, so it is kept apart until the
//! state it rests on is decided.
//!
//! `Found` carries a value. `Empty` is a proof: nothing is ever left out or widened on the way to
//! it except towards more values. Everything else is `Unknown`, with the construct to blame.

mod array;
mod branch;
mod distinct;
mod number;
mod object;
mod object_facts;
mod oracle;
mod simplify;
mod text;

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use serde_json::Value;

use super::regex;
use super::term::{Kind, Lit, PatternId, Pool, Term};
use crate::limits;
use branch::Branch;

/// What is known of a state.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    /// A value that meets it.
    Found(Rc<Value>),
    /// No value meets it.
    Empty,
    /// Not decided, because of this construct.
    Unknown(Rc<str>),
}

impl Outcome {
    fn found(value: Value) -> Self {
        Self::Found(Rc::new(value))
    }

    pub(crate) fn unknown(construct: impl AsRef<str>) -> Self {
        Self::Unknown(Rc::from(construct.as_ref()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    /// Either of two ways: a found value wins, then doubt.
    fn or(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Found(_), _) | (Self::Unknown(_), Self::Empty) => self,
            _ => other,
        }
    }
}

/// A set of open states, by depth.
#[derive(Debug, Clone, Copy, Default)]
struct Grounds([u128; 3]);

const _: () = assert!(limits::COMPARE_DEPTH_MAX < 3 * 128, "every depth has a bit");

impl Grounds {
    fn of(depth: usize) -> Self {
        let mut grounds = Self::default();
        if let Some(word) = grounds.0.get_mut(depth / 128) {
            *word |= 1 << (depth % 128);
        }
        grounds
    }

    fn with(self, other: Self) -> Self {
        let [a, b, c] = self.0;
        let [x, y, z] = other.0;
        Self([a | x, b | y, c | z])
    }

    fn without(self, depth: usize) -> Self {
        let [a, b, c] = self.0;
        let [x, y, z] = Self::of(depth).0;
        Self([a & !x, b & !y, c & !z])
    }

    fn has(self, depth: usize) -> bool {
        let [a, b, c] = self.0;
        let [x, y, z] = Self::of(depth).0;
        (a & x) | (b & y) | (c & z) != 0
    }

    fn is_none(self) -> bool {
        self.0 == [0; 3]
    }
}

/// What is remembered of a decided state.
#[derive(Debug)]
struct Decided {
    outcome: Outcome,
    /// The open states that were taken to be empty for this.
    grounds: Grounds,
}

/// A state being decided.
#[derive(Debug)]
struct Frame {
    /// The open states that were taken to be empty so far.
    grounds: Grounds,
    /// States below that rest on open ones.
    provisional: Vec<Rc<[Lit]>>,
}

/// One decision procedure, with its memory and its budget.
#[derive(Debug)]
pub(crate) struct Search<'a> {
    pub(crate) pool: &'a mut Pool,
    dialect: crate::dialect::Dialect,
    products: HashMap<Vec<(PatternId, bool)>, Option<Rc<regex::product::Product>>>,
    oracles: HashMap<Lit, Option<Rc<crate::validate::Validator>>>,
    decided: HashMap<Rc<[Lit]>, Decided>,
    open: HashMap<Rc<[Lit]>, usize>,
    frames: Vec<Frame>,
    steps_left: u64,
    /// Constructs that were not modelled and stood in a state that was found inhabited.
    pub(crate) doubts: BTreeSet<String>,
}

/// The reason given when the budget is spent.
pub(crate) const BUDGET: &str = "a combination of choices larger than the step budget";

impl<'a> Search<'a> {
    pub(crate) fn new(pool: &'a mut Pool, dialect: crate::dialect::Dialect) -> Self {
        Self {
            pool,
            dialect,
            products: HashMap::new(),
            oracles: HashMap::new(),
            decided: HashMap::new(),
            open: HashMap::new(),
            frames: Vec::new(),
            steps_left: limits::COMPARE_STEPS_MAX,
            doubts: BTreeSet::new(),
        }
    }

    /// Counts work that is about to be done, in steps.
    fn spend(&mut self, steps: usize) {
        self.steps_left = self.steps_left.saturating_sub(steps as u64);
    }

    /// Takes a step; `false` when the budget is spent.
    fn step(&mut self) -> bool {
        self.spend(1);
        self.steps_left > 0
            && self.pool.len() < limits::COMPARE_TERMS_MAX
            && self.frames.len() < limits::COMPARE_DEPTH_MAX
    }

    /// Decides a state.
    pub(crate) fn decide(&mut self, lits: impl IntoIterator<Item = Lit>) -> Outcome {
        let Some(state) = self.normal(lits) else {
            return Outcome::Empty;
        };
        // A list of values is as much work as it is long; one to be avoided is put in order, too.
        let listed = state.iter().map(|lit| match self.pool.term(*lit) {
            Term::Scalars(values) if lit.negated() => 4 * values.len(),
            Term::Scalars(values) => values.len(),
            _ => 1,
        });
        let work = listed.sum();
        self.spend(work);
        if let Some(known) = self.decided.get(&state) {
            let outcome = known.outcome.clone();
            let grounds = known.grounds;
            self.rest_on(grounds);
            return outcome;
        }
        if let Some(depth) = self.open.get(&state).copied() {
            self.rest_on(Grounds::of(depth));
            return Outcome::Empty;
        }
        if !self.step() {
            return Outcome::unknown(BUDGET);
        }
        let depth = self.frames.len();
        self.open.insert(state.clone(), depth);
        self.frames.push(Frame { grounds: Grounds::default(), provisional: Vec::new() });
        let outcome = self.by_kind(&state);
        self.open.remove(&state);
        self.close(state, depth, &outcome);
        outcome
    }

    /// Whether a state is surely empty: proven without resting on an open state.
    fn surely_empty(&mut self, lits: impl IntoIterator<Item = Lit>) -> bool {
        let Some(state) = self.normal(lits) else {
            return true;
        };
        self.decide(state.iter().copied()).is_empty()
            && self.decided.get(&state).is_some_and(|known| known.grounds.is_none())
    }

    /// Notes that what is being decided took these open states to be empty.
    fn rest_on(&mut self, grounds: Grounds) {
        if let Some(frame) = self.frames.last_mut() {
            frame.grounds = frame.grounds.with(grounds);
        }
    }

    /// Remembers what was decided, and what that means for what rested on it.
    fn close(&mut self, state: Rc<[Lit]>, depth: usize, outcome: &Outcome) {
        let Some(frame) = self.frames.pop() else {
            return;
        };
        let empty = outcome.is_empty();
        let grounds = if empty { frame.grounds.without(depth) } else { Grounds::default() };
        let mut provisional = frame.provisional;
        provisional.retain(|below| {
            let Some(known) = self.decided.get_mut(below) else {
                return false;
            };
            if known.grounds.has(depth) {
                if !empty {
                    self.decided.remove(below);
                    return false;
                }
                known.grounds = known.grounds.without(depth).with(grounds);
            }
            !known.grounds.is_none()
        });
        if !grounds.is_none() {
            provisional.push(state.clone());
        }
        self.decided.insert(state, Decided { outcome: outcome.clone(), grounds });
        if let Some(parent) = self.frames.last_mut() {
            parent.grounds = parent.grounds.with(grounds);
            parent.provisional.append(&mut provisional);
        }
    }

    /// A state in its one form: flat, links followed, sorted. `None` if it contradicts itself.
    fn normal(&self, lits: impl IntoIterator<Item = Lit>) -> Option<Rc<[Lit]>> {
        let mut stack: Vec<Lit> = lits.into_iter().collect();
        let mut flat = Vec::with_capacity(stack.len());
        while let Some(lit) = stack.pop() {
            match self.pool.term(lit) {
                Term::True if lit.negated() => return None,
                Term::True => {}
                Term::All(parts) if !lit.negated() => stack.extend_from_slice(parts),
                Term::Link(link) => {
                    let target = self.pool.link(*link);
                    stack.push(if lit.negated() { !target } else { target });
                }
                _ => flat.push(lit),
            }
        }
        flat.sort_unstable();
        flat.dedup();
        let clash = flat.windows(2).any(|pair| matches!(pair, &[a, b] if a == !b));
        (!clash).then(|| flat.into())
    }

    fn by_kind(&mut self, state: &[Lit]) -> Outcome {
        let mut outcome = Outcome::Empty;
        for kind in Kind::ALL {
            let mut branch = Branch::new(kind);
            if !state.iter().all(|lit| self.expand(&mut branch, *lit)) {
                continue;
            }
            outcome = outcome.or(self.solve(branch));
            if matches!(outcome, Outcome::Found(_)) {
                break;
            }
        }
        outcome
    }

    /// The keywords of one kind, with no choices left.
    fn theory(&mut self, branch: &Branch) -> Outcome {
        for lit in branch.facts() {
            if let Term::Opaque(text) = self.pool.term(*lit) {
                self.doubts.insert(text.to_string());
            }
        }
        match branch.kind() {
            Kind::Null => Outcome::found(Value::Null),
            Kind::Boolean => self.boolean(branch.facts()),
            kind @ (Kind::Integer | Kind::Fraction) => self.number(branch.facts(), kind),
            Kind::String => self.text(branch.facts()),
            Kind::Object => self.object(branch.facts()),
            Kind::Array => self.array(branch.facts()),
        }
    }

    fn boolean(&self, facts: &[Lit]) -> Outcome {
        use super::term::Scalar;
        let fits = |flag: &bool| {
            facts.iter().all(|lit| match self.pool.term(*lit) {
                Term::Scalars(values) => values.contains(&Scalar::Boolean(*flag)) != lit.negated(),
                _ => true,
            })
        };
        match [true, false].into_iter().find(fits) {
            Some(flag) => Outcome::found(Value::Bool(flag)),
            None => Outcome::Empty,
        }
    }
}
