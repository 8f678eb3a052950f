//! Answering open choices from what is settled, before any is tried.

use super::Search;
use super::branch::{Branch, Choice};
use super::object_facts::ObjectFacts;
use crate::compat::term::{Kind, Lit, Term};

impl Search<'_> {
    /// Drops options that cannot hold and choices that are met, and settles what is forced, until
    /// nothing changes. `false` if a choice has no option left.
    pub(super) fn simplify(&mut self, branch: &mut Branch) -> bool {
        loop {
            let view = (branch.kind() == Kind::Object && !branch.choices.is_empty())
                .then(|| ObjectFacts::collect(self.pool, branch.facts()));
            let choices = std::mem::take(&mut branch.choices);
            let mut forced = Vec::new();
            for choice in choices {
                match self.reduce(branch, view.as_ref(), choice) {
                    Reduced::Keep(choice) => branch.choices.push(choice),
                    Reduced::Settle(lits) => forced.extend(lits),
                    Reduced::Contradiction => return false,
                }
            }
            if forced.is_empty() {
                return true;
            }
            if !forced.into_iter().all(|lit| self.expand(branch, lit)) {
                return false;
            }
        }
    }

    fn reduce(&mut self, branch: &Branch, view: Option<&ObjectFacts>, choice: Choice) -> Reduced {
        match choice {
            Choice::Any(options) => {
                let mut left = Vec::with_capacity(options.len());
                for lit in options.iter().copied() {
                    match self.status(branch, view, lit) {
                        Some(true) => return Reduced::Settle(Vec::new()),
                        Some(false) => {}
                        None => left.push(lit),
                    }
                }
                match left.as_slice() {
                    [] => Reduced::Contradiction,
                    [only] => Reduced::Settle(vec![*only]),
                    _ if left.len() == options.len() => Reduced::Keep(Choice::Any(options)),
                    _ => Reduced::Keep(Choice::Any(left.into())),
                }
            }
            Choice::One(options, negated) => self.reduce_one(branch, view, (&options, negated)),
        }
    }

    fn reduce_one(
        &mut self,
        branch: &Branch,
        view: Option<&ObjectFacts>,
        (options, negated): (&[Lit], bool),
    ) -> Reduced {
        let mut holding = 0;
        let mut left = Vec::with_capacity(options.len());
        for lit in options.iter().copied() {
            match self.status(branch, view, lit) {
                Some(true) => holding += 1,
                Some(false) => {}
                None => left.push(lit),
            }
        }
        match (holding, negated) {
            (0 | 1, _) if left.is_empty() => {
                if (holding == 1) == negated {
                    Reduced::Contradiction
                } else {
                    Reduced::Settle(Vec::new())
                }
            }
            (0, false) if left.len() == 1 => Reduced::Settle(left),
            (0, true) if left.len() == 1 => Reduced::Settle(left.iter().map(|lit| !*lit).collect()),
            (0, _) => Reduced::Keep(Choice::One(left.into(), negated)),
            (1, false) => Reduced::Settle(left.iter().map(|lit| !*lit).collect()),
            // One holds; not exactly one means that another does too.
            (1, true) => match left.as_slice() {
                [only] => Reduced::Settle(vec![*only]),
                _ => Reduced::Keep(Choice::Any(left.into())),
            },
            (_, true) => Reduced::Settle(Vec::new()),
            (_, false) => Reduced::Contradiction,
        }
    }

    /// Whether a literal surely holds or surely fails beside what is settled.
    fn status(&mut self, branch: &Branch, view: Option<&ObjectFacts>, lit: Lit) -> Option<bool> {
        self.spend(1);
        if let Some(known) = branch.knows(lit) {
            return Some(known);
        }
        let negated = lit.negated();
        let plain = match self.pool.term(lit) {
            Term::True => Some(true),
            Term::Kinds(kinds) => Some(kinds.has(branch.kind())),
            Term::All(parts) => {
                let parts = parts.clone();
                let mut all = Some(true);
                for part in parts {
                    match self.status(branch, view, part) {
                        Some(false) => {
                            all = Some(false);
                            break;
                        }
                        Some(true) => {}
                        None => all = None,
                    }
                }
                all
            }
            Term::One(parts) => {
                let parts = parts.clone();
                let statuses: Vec<_> =
                    parts.iter().map(|part| self.status(branch, view, *part)).collect();
                let holding = statuses.iter().filter(|s| **s == Some(true)).count();
                let open = statuses.iter().filter(|s| s.is_none()).count();
                match (holding, open) {
                    (2.., _) | (0, 0) => Some(false),
                    (1, 0) => Some(true),
                    _ => None,
                }
            }
            Term::Link(link) => {
                let target = self.pool.link(*link);
                self.status(branch, view, target)
            }
            Term::Scalars(values) if !values.iter().any(|v| v.kind() == branch.kind()) => {
                Some(false)
            }
            term => match term.scope() {
                Some(scope) if !scope.has(branch.kind()) => Some(true),
                _ => return view.and_then(|view| self.status_in_object(view, lit)),
            },
        };
        plain.map(|holds| holds != negated)
    }

    /// What the settled keywords of an object say of one property.
    fn status_in_object(&mut self, view: &ObjectFacts, lit: Lit) -> Option<bool> {
        match self.pool.term(lit).clone() {
            Term::Required(name) => {
                let present = view.required.contains(&name);
                let absent = view.absent.contains(&name);
                (present || absent).then_some(present != lit.negated())
            }
            Term::Property(name, value) => {
                if view.absent.contains(&name) {
                    return Some(!lit.negated());
                }
                let known = self.lits_of(view, &name)?;
                let with = |extra: Lit| known.iter().copied().chain([extra]).collect::<Vec<_>>();
                // The property can only be absent or of that form; or cannot be of it.
                let complies = self.surely_empty(with(!value));
                if complies {
                    return Some(!lit.negated());
                }
                let fails = view.required.contains(&name) && self.surely_empty(with(value));
                fails.then_some(lit.negated())
            }
            _ => None,
        }
    }
}

enum Reduced {
    /// Still open.
    Keep(Choice),
    /// Met once these hold.
    Settle(Vec<Lit>),
    /// Cannot be met.
    Contradiction,
}
