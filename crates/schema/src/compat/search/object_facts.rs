//! The settled keywords of an object, sorted by what they say.

use std::collections::{BTreeMap, BTreeSet};

use super::Search;
use crate::compat::term::{Lit, PatternId, Pool, Term};

/// Which properties a keyword speaks about, apart from single names.
#[derive(Debug, Clone)]
pub(super) enum Scope {
    /// Those whose names match.
    Matching(PatternId),
    /// Those neither named nor matched.
    Rest(Box<[Box<str>]>, Box<[PatternId]>),
    /// Those whose names meet this.
    Named(Lit),
}

/// What is settled of an object.
#[derive(Debug, Default)]
pub(super) struct ObjectFacts {
    pub(super) min: u64,
    pub(super) max: Option<u64>,
    pub(super) required: BTreeSet<Box<str>>,
    pub(super) absent: BTreeSet<Box<str>>,
    /// What is settled of single properties.
    pub(super) named: BTreeMap<Box<str>, Vec<Lit>>,
    /// What holds for all properties of a scope.
    pub(super) every: Vec<(Scope, Lit)>,
    /// What holds for some property of a scope.
    pub(super) some: Vec<(Scope, Lit)>,
    /// What holds for all names.
    pub(super) names: Vec<Lit>,
    /// Names that keywords mention without saying anything of them alone.
    pub(super) mentioned: BTreeSet<Box<str>>,
    pub(super) contradiction: bool,
}

impl ObjectFacts {
    pub(super) fn collect(pool: &Pool, facts: &[Lit]) -> Self {
        let mut view = Self::default();
        for lit in facts {
            view.add(pool.term(*lit), lit.negated());
        }
        let clash = view.required.iter().any(|name| view.absent.contains(name));
        view.contradiction |= clash || view.max.is_some_and(|max| max < view.min);
        view
    }

    fn at_most(&mut self, bound: u64) {
        self.max = Some(self.max.map_or(bound, |max| max.min(bound)));
    }

    fn add(&mut self, term: &Term, negated: bool) {
        match (term, negated) {
            (Term::MinProperties(bound), false) => self.min = self.min.max(*bound),
            (Term::MinProperties(bound), true) => match bound.checked_sub(1) {
                Some(most) => self.at_most(most),
                None => self.contradiction = true,
            },
            (Term::MaxProperties(bound), false) => self.at_most(*bound),
            (Term::MaxProperties(bound), true) => self.min = self.min.max(bound.saturating_add(1)),
            (Term::Required(name), false) => {
                self.required.insert(name.clone());
            }
            (Term::Required(name), true) => {
                self.absent.insert(name.clone());
            }
            (Term::Property(name, value), false) => {
                self.named.entry(name.clone()).or_default().push(*value);
            }
            (Term::Property(name, value), true) => {
                self.required.insert(name.clone());
                self.named.entry(name.clone()).or_default().push(!*value);
            }
            (Term::Matching(pattern, value), _) => {
                self.scoped(Scope::Matching(*pattern), *value, negated)
            }
            (Term::Rest { names, patterns, value }, _) => {
                self.mentioned.extend(names.iter().cloned());
                self.scoped(Scope::Rest(names.clone(), patterns.clone()), *value, negated);
            }
            (Term::Names(names), false) => self.names.push(*names),
            (Term::Names(names), true) => self.some.push((Scope::Named(!*names), Lit::TRUE)),
            _ => {}
        }
    }

    fn scoped(&mut self, scope: Scope, value: Lit, negated: bool) {
        if negated {
            self.some.push((scope, !value));
        } else {
            self.every.push((scope, value));
        }
    }
}

impl Search<'_> {
    /// Whether a scope covers a name; `None` if it cannot be said.
    pub(super) fn covers(&mut self, scope: &Scope, name: &str) -> Option<bool> {
        match scope {
            Scope::Matching(pattern) => self.matches(*pattern, name),
            Scope::Rest(names, patterns) => {
                if names.binary_search_by(|known| known.as_ref().cmp(name)).is_ok() {
                    return Some(false);
                }
                for pattern in patterns {
                    if self.matches(*pattern, name)? {
                        return Some(false);
                    }
                }
                Some(true)
            }
            Scope::Named(names) => {
                let name = crate::compat::term::Scalar::Text(name.into());
                let exactly = self.pool.scalars(vec![name]);
                match self.decide([*names, exactly]) {
                    super::Outcome::Found(_) => Some(true),
                    super::Outcome::Empty => Some(false),
                    super::Outcome::Unknown(_) => None,
                }
            }
        }
    }

    /// All that is settled of the property with this name, if it is there.
    pub(super) fn lits_of(&mut self, view: &ObjectFacts, name: &str) -> Option<Vec<Lit>> {
        self.spend(1 + view.every.len() + view.names.len());
        let mut lits = view.named.get(name).cloned().unwrap_or_default();
        for (scope, value) in &view.every {
            if self.covers(scope, name)? {
                lits.push(*value);
            }
        }
        // A name that is not allowed is as good as a value that is not.
        for names in &view.names {
            if !self.covers(&Scope::Named(*names), name)? {
                lits.push(Lit::FALSE);
            }
        }
        Some(lits)
    }
}
