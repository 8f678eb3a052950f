//! How many different values a state has.

use std::rc::Rc;

use serde_json::Value;

use super::branch::Branch;
use super::{Outcome, Search};
use crate::compat::lower;
use crate::compat::term::{Kind, Lit};
use crate::limits::{DISTINCT_TEXTS_MAX, DISTINCT_VALUES_MAX};

/// So many values are looked for one after the other.
const FEW: usize = 16;

/// Values of a state, and what is known beyond them.
#[derive(Debug)]
pub(super) struct Distinct {
    pub(super) found: Vec<Rc<Value>>,
    /// Set if it is not known whether there are more.
    pub(super) doubt: Option<Rc<str>>,
}

impl Search<'_> {
    /// Up to `wanted` different values. Fewer, without doubt, means that there are no more.
    pub(super) fn distinct(&mut self, state: &[Lit], wanted: usize) -> Distinct {
        if wanted > FEW
            && let Some(found) = self.many_texts(state, wanted)
        {
            return Distinct { found, doubt: None };
        }
        let mut found: Vec<Rc<Value>> = Vec::new();
        let mut scalars = Vec::new();
        let mut others = Vec::new();
        while found.len() < wanted {
            if found.len() >= DISTINCT_VALUES_MAX {
                let doubt = "more different values than are listed";
                return Distinct { found, doubt: Some(doubt.into()) };
            }
            let mut lits = state.to_vec();
            if !scalars.is_empty() {
                lits.push(!self.pool.scalars(scalars.clone()));
            }
            lits.extend_from_slice(&others);
            match self.decide(lits) {
                Outcome::Found(value) => {
                    match lower::scalar(&value) {
                        Some(scalar) => scalars.push(scalar),
                        None => others.push(!lower::exactly(self.pool, &value)),
                    }
                    found.push(value);
                }
                Outcome::Empty => break,
                Outcome::Unknown(doubt) => {
                    return Distinct { found, doubt: Some(doubt) };
                }
            }
        }
        Distinct { found, doubt: None }
    }

    /// As many strings at once, if the state has no choices left and that many.
    fn many_texts(&mut self, state: &[Lit], wanted: usize) -> Option<Vec<Rc<Value>>> {
        let mut branch = Branch::new(Kind::String);
        let plain = wanted <= DISTINCT_TEXTS_MAX
            && state.iter().all(|lit| self.expand(&mut branch, *lit))
            && self.simplify(&mut branch)
            && branch.choices.is_empty();
        if !plain {
            return None;
        }
        let texts = self.plain_texts(branch.facts(), wanted)?;
        Some(texts.into_iter().map(|text| Rc::new(Value::String(text))).collect())
    }
}
