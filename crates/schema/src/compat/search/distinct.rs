//! How many different values a state has.

use std::rc::Rc;

use serde_json::Value;

use super::{Outcome, Search};
use crate::compat::lower;
use crate::compat::term::Lit;
use crate::limits::DISTINCT_VALUES_MAX;

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
}
