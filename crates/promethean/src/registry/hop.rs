//! From a version to the one beside it.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use promethean_schema::{Caster, Operation};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::expression::Conversions;
use crate::limits::HOP_OPERATIONS_MAX;

/// How events of one version become events of the one beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Hop {
    /// They need no change.
    Same,
    /// By operations, which are kept in the registry.
    Operations {
        /// What they do, in order.
        operations: Vec<Operation>,
    },
    /// By a function of the program that reads them: see
    /// [`Schemas::provide`](crate::Schemas::provide).
    Function {
        /// Its name.
        name: String,
    },
}

impl Hop {
    /// By operations.
    pub const fn operations(operations: Vec<Operation>) -> Self {
        Self::Operations { operations }
    }

    /// By a function that programs provide under this name.
    pub fn function(name: impl Into<String>) -> Self {
        Self::Function { name: name.into() }
    }
}

/// A function that brings a payload to another version, or says why it cannot.
pub(crate) type CastFunction = Arc<dyn Fn(Value) -> Result<Value, String> + Send + Sync>;

/// The function of this name, if the program has provided it.
pub(crate) type Functions<'a> = &'a dyn Fn(&str) -> Option<CastFunction>;

/// A hop that is ready to be made.
pub(crate) struct ReadyHop {
    pub(crate) hop: Hop,
    caster: Option<Caster>,
    conversions: Conversions,
}

impl ReadyHop {
    /// Checks a hop between two versions.
    pub(super) fn new(hop: Hop, (from, to): (u32, u32)) -> Result<Self, String> {
        let operations: &[Operation] = match &hop {
            Hop::Operations { operations } => operations,
            Hop::Same | Hop::Function { .. } => &[],
        };
        if operations.len() > HOP_OPERATIONS_MAX {
            return Err(format!("more than {HOP_OPERATIONS_MAX} operations"));
        }
        let conversions = Conversions::of(operations)?;
        let caster = match &hop {
            Hop::Operations { operations } => {
                Some(Caster { from, to, operations: operations.clone() })
            }
            Hop::Same | Hop::Function { .. } => None,
        };
        Ok(Self { hop, caster, conversions })
    }

    pub(crate) const fn is_same(&self) -> bool {
        matches!(self.hop, Hop::Same)
    }

    pub(crate) fn make(&self, payload: Value, functions: Functions<'_>) -> Result<Value, String> {
        match (&self.hop, &self.caster) {
            (Hop::Function { name }, _) => {
                let Some(function) = functions(name) else {
                    return Err(format!("this program has not provided the function {name:?}"));
                };
                // A function that panics must not take the consumer with it.
                std::panic::catch_unwind(AssertUnwindSafe(|| function(payload)))
                    .unwrap_or_else(|_| Err(format!("the function {name:?} panicked")))
            }
            (_, Some(caster)) => {
                caster.apply(&payload, &self.conversions).map_err(|error| error.to_string())
            }
            (_, None) => Ok(payload),
        }
    }
}

impl fmt::Debug for ReadyHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hop.fmt(f)
    }
}
