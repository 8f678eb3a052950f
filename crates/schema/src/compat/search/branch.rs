//! One line of case distinction: what is settled, and what is still to be chosen.

use std::rc::Rc;

use super::{BUDGET, Outcome, Search};
use crate::compat::term::{Kind, Lit, Scalar, Term};

/// A choice that is still open.
#[derive(Debug, Clone)]
pub(super) enum Choice {
    /// At least one of these.
    Any(Rc<[Lit]>),
    /// Exactly one of these, or not so if the flag is set.
    One(Rc<[Lit]>, bool),
}

impl Choice {
    /// Choices among what values *are* come before choices among what they are not: they settle
    /// most, and the others can then mostly be answered without trying.
    fn rank(&self) -> (bool, usize) {
        match self {
            Self::Any(options) => (options.iter().all(|lit| lit.negated()), options.len()),
            Self::One(options, negated) => (*negated, options.len()),
        }
    }
}

/// A set of settled keywords of one kind, and the open choices.
#[derive(Debug, Clone)]
pub(super) struct Branch {
    kind: Kind,
    facts: Vec<Lit>,
    /// Compound literals that hold, sorted: they answer their own repetition.
    compounds: Vec<Lit>,
    pub(super) choices: Vec<Choice>,
    /// How many facts there were when they were last found not to contradict themselves.
    checked: usize,
}

impl Branch {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, facts: Vec::new(), compounds: Vec::new(), choices: Vec::new(), checked: 0 }
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn facts(&self) -> &[Lit] {
        &self.facts
    }

    pub(super) fn has(&self, lit: Lit) -> bool {
        self.facts.binary_search(&lit).is_ok()
    }

    /// Whether a literal, compound or not, is known to hold or to fail.
    pub(super) fn knows(&self, lit: Lit) -> Option<bool> {
        let held = |lit: Lit| self.has(lit) || self.compounds.binary_search(&lit).is_ok();
        if held(lit) {
            return Some(true);
        }
        held(!lit).then_some(false)
    }

    fn note(&mut self, lit: Lit) {
        if let Err(at) = self.compounds.binary_search(&lit) {
            self.compounds.insert(at, lit);
        }
    }

    /// Settles a keyword; `false` if its complement is settled.
    fn settle(&mut self, lit: Lit) -> bool {
        if self.has(!lit) {
            return false;
        }
        if let Err(at) = self.facts.binary_search(&lit) {
            self.facts.insert(at, lit);
        }
        true
    }
}

impl Search<'_> {
    /// Adds a literal to a branch; `false` if it contradicts it.
    pub(super) fn expand(&mut self, branch: &mut Branch, lit: Lit) -> bool {
        let mut stack = vec![lit];
        while let Some(lit) = stack.pop() {
            self.spend(1);
            let negated = lit.negated();
            if branch.knows(lit) == Some(false) {
                return false;
            }
            if matches!(self.pool.term(lit), Term::All(_) | Term::One(_)) {
                branch.note(lit);
            }
            let fits = match self.pool.term(lit) {
                Term::True => !negated,
                Term::Kinds(kinds) => kinds.has(branch.kind) != negated,
                Term::All(parts) if negated => {
                    branch.choices.push(Choice::Any(parts.iter().map(|part| !*part).collect()));
                    true
                }
                Term::All(parts) => {
                    stack.extend_from_slice(parts);
                    true
                }
                Term::One(parts) => {
                    branch.choices.push(Choice::One(parts.iter().copied().collect(), negated));
                    true
                }
                Term::Link(link) => {
                    let target = self.pool.link(*link);
                    stack.push(if negated { !target } else { target });
                    true
                }
                Term::Scalars(values) => match values.iter().any(|v| v.kind() == branch.kind) {
                    true if branch.kind == Kind::Null => !negated,
                    true => branch.settle(lit),
                    false => negated,
                },
                Term::Contains { like, min, max } if negated && branch.kind == Kind::Array => {
                    let (like, min, max) = (*like, *min, *max);
                    let choice = self.miscounted(like, min, max);
                    branch.choices.push(choice);
                    true
                }
                term => match term.scope() {
                    Some(scope) if !scope.has(branch.kind) => !negated,
                    _ => branch.settle(lit),
                },
            };
            if !fits {
                return false;
            }
        }
        true
    }

    /// Too few, or too many.
    fn miscounted(&mut self, like: Lit, min: u64, max: Option<u64>) -> Choice {
        let few = min.checked_sub(1).map(|most| Term::Contains { like, min: 0, max: Some(most) });
        let many = max.and_then(|max| max.checked_add(1)).map(|least| Term::Contains {
            like,
            min: least,
            max: None,
        });
        let ways = [few, many].into_iter().flatten();
        Choice::Any(ways.map(|term| self.pool.intern(term)).collect())
    }

    /// Decides a branch.
    pub(super) fn solve(&mut self, mut branch: Branch) -> Outcome {
        if !self.step() {
            return Outcome::unknown(BUDGET);
        }
        if !self.simplify(&mut branch) {
            return Outcome::Empty;
        }
        let Some(at) =
            (0..branch.choices.len()).min_by_key(|at| branch.choices.get(*at).map(Choice::rank))
        else {
            return self.theory(&branch);
        };
        // What is settled may contradict itself already; then no choice needs to be tried.
        if branch.checked < branch.facts.len() {
            if self.theory(&branch).is_empty() {
                return Outcome::Empty;
            }
            branch.checked = branch.facts.len();
        }
        match branch.choices.swap_remove(at) {
            Choice::Any(options) => {
                let ways = options.iter().map(|lit| vec![*lit]);
                self.try_each(&branch, ways)
            }
            Choice::One(options, false) => {
                let ways = (0..options.len()).map(|chosen| {
                    let others = options.iter().enumerate();
                    others.map(|(at, lit)| if at == chosen { *lit } else { !*lit }).collect()
                });
                self.try_each(&branch, ways)
            }
            Choice::One(options, true) => self.none_or_two(&branch, &options),
        }
    }

    /// Tries one set of additional literals after the other.
    fn try_each(&mut self, branch: &Branch, ways: impl Iterator<Item = Vec<Lit>>) -> Outcome {
        let mut outcome = Outcome::Empty;
        for way in ways {
            self.spend(branch.facts.len() + branch.choices.len());
            let mut next = branch.clone();
            if !way.iter().all(|lit| self.expand(&mut next, *lit)) {
                continue;
            }
            outcome = outcome.or(self.solve(next));
            if matches!(outcome, Outcome::Found(_)) {
                break;
            }
        }
        outcome
    }

    /// Not exactly one: none, or some two.
    fn none_or_two(&mut self, branch: &Branch, options: &[Lit]) -> Outcome {
        let possible: Vec<Lit> =
            options.iter().copied().filter(|lit| self.is_possible(branch, *lit)).collect();
        let none: Vec<Lit> = options.iter().map(|lit| !*lit).collect();
        let outcome = self.try_each(branch, std::iter::once(none));
        if matches!(outcome, Outcome::Found(_)) {
            return outcome;
        }
        let pairs = possible.iter().enumerate().flat_map(|(at, first)| {
            possible.iter().skip(at + 1).map(|second| vec![*first, *second])
        });
        outcome.or(self.try_each(branch, pairs.collect::<Vec<_>>().into_iter()))
    }

    /// Whether a literal can hold beside what is settled.
    fn is_possible(&mut self, branch: &Branch, lit: Lit) -> bool {
        let kind = crate::compat::term::Kinds::of(&[branch.kind]);
        let kind = self.pool.kinds(kind);
        let state: Vec<Lit> = branch.facts.iter().copied().chain([lit, kind]).collect();
        !self.decide(state).is_empty()
    }

    /// The settled values, if they are listed: those in every list and in no excluded one.
    pub(super) fn listed(&self, facts: &[Lit]) -> (Option<Vec<Scalar>>, Vec<Scalar>) {
        let mut allowed: Option<Vec<Scalar>> = None;
        let mut excluded = Vec::new();
        for lit in facts {
            let Term::Scalars(values) = self.pool.term(*lit) else {
                continue;
            };
            if lit.negated() {
                excluded.extend(values.iter().cloned());
                continue;
            }
            allowed = Some(match allowed {
                None => values.to_vec(),
                Some(mut kept) => {
                    kept.retain(|value| values.binary_search(value).is_ok());
                    kept
                }
            });
        }
        excluded.sort_unstable();
        (allowed, excluded)
    }
}
