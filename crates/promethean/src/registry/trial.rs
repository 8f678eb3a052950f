//! Casters tried on values that a schema allows, without a registry.

use promethean_schema::{Document, Extras, Sampler};
use serde_json::Value;

use super::hop::{Hop, ReadyHop};
use super::subject::walk;
use crate::decode::places;
use crate::limits::CAST_VALUES_DRAWN;

/// Why casters do not do.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TrialError {
    /// One of them is not good.
    #[error("a caster is not good: {0}")]
    BadHop(String),
    /// One of them is a function of a program, and cannot be tried here.
    #[error("the function {0:?} is part of a program and cannot be tried here")]
    Function(String),
    /// They make something that is not good.
    #[error("the casters fail on {value}: {reason}")]
    Fails {
        /// A value that shows it.
        value: Value,
        /// What went wrong.
        reason: String,
    },
}

/// Tries casters, one after the other, on values that `from` allows: all that they make must be
/// good for `to`. Says how many were tried. In strict use, values also hold what open objects do
/// not declare.
pub fn try_casters(
    from: &Document,
    to: &Document,
    hops: &[Hop],
    strict: bool,
) -> Result<usize, TrialError> {
    let function = hops.iter().find_map(|hop| match hop {
        Hop::Function { name } => Some(name.clone()),
        _ => None,
    });
    if let Some(name) = function {
        return Err(TrialError::Function(name));
    }
    let ready = hops.iter().cloned().map(|hop| ReadyHop::new(hop, (0, 1)));
    let ready = ready.collect::<Result<Vec<_>, _>>().map_err(TrialError::BadHop)?;
    let path: Vec<&ReadyHop> = ready.iter().collect();
    let values = values(from, strict);
    for value in &values {
        let made = walk(&path, value.clone(), &|_| None);
        let fails = |reason| TrialError::Fails { value: value.clone(), reason };
        let made = made.map_err(fails)?;
        let mismatches = to.validator().mismatches(&made);
        if !mismatches.is_empty() {
            return Err(fails(format!("{made} does not match{}", places(&mismatches))));
        }
    }
    Ok(values.len())
}

/// Values that a schema allows: its examples, as far as they are good, and drawn ones.
pub(super) fn values(document: &Document, strict: bool) -> Vec<Value> {
    let extras = if strict { Extras::Some } else { Extras::None };
    let mut sampler = Sampler::new(document, extras);
    let drawn = (0..CAST_VALUES_DRAWN).filter_map(|seed| sampler.draw(seed));
    let rules = document.validator();
    let examples = document.examples().into_iter().cloned();
    examples.filter(|example| rules.is_valid(example)).chain(drawn).collect()
}
