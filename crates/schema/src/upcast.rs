//! Evolution as data: how a payload of one version becomes one of the next, or of the one before.
//!
//! A [`Caster`] is a list of operations over JSON pointers for one hop; a [`Chain`] is complete or
//! it is an error. Nothing is ever changed in place: the log's payload stays as it is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::pointer;

/// One change of a payload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Operation {
    /// Gives a property another name, beside its siblings. Nothing happens if it is absent.
    Rename {
        /// The property.
        pointer: String,
        /// Its new name.
        to: String,
    },
    /// Puts a value somewhere else. Nothing happens if it is absent.
    Move {
        /// Where it is.
        from: String,
        /// Where it goes; missing objects on the way are made.
        to: String,
    },
    /// Takes a value out. Nothing happens if it is absent.
    Remove {
        /// The value.
        pointer: String,
    },
    /// Puts a value where there is none; missing objects on the way are made.
    Default {
        /// Where.
        pointer: String,
        /// What.
        value: Value,
    },
    /// Replaces a value by what an expression makes of it. Nothing happens if it is absent.
    Convert {
        /// The value.
        pointer: String,
        /// What a [`Convert`] understands.
        expression: String,
    },
}

/// Whoever evaluates the expressions of [`Operation::Convert`].
pub trait Convert {
    /// The new value, or what went wrong.
    ///
    /// # Errors
    /// A sentence for a person.
    fn convert(&self, expression: &str, value: &Value) -> Result<Value, String>;
}

/// The changes of one hop: a version up, or a version down.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Caster {
    /// The version it takes.
    pub from: u32,
    /// The version it makes: one more, or one less.
    pub to: u32,
    /// What it does, in order.
    pub operations: Vec<Operation>,
}

/// Why a payload was not cast, or a chain not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CastError {
    /// A caster that goes further than one version, or nowhere.
    #[error("a caster goes one version up or down, not from {from} to {to}: write one per hop")]
    NotAHop {
        /// Where it begins.
        from: u32,
        /// Where it ends.
        to: u32,
    },
    /// Two casters for one hop.
    #[error("there are two casters from {from} to {to}: keep one")]
    Twice {
        /// Where they begin.
        from: u32,
        /// Where they end.
        to: u32,
    },
    /// No caster for a hop.
    #[error("there is no caster from {from} to {to}: add one, even if it has no operations")]
    MissingHop {
        /// Where it would begin.
        from: u32,
        /// Where it would end.
        to: u32,
    },
    /// A pointer that is no pointer, or leads through something that is no object.
    #[error("{pointer:?} leads through a value that is not an object")]
    BadPath {
        /// The pointer.
        pointer: String,
    },
    /// A value would be put where one is already.
    #[error("{pointer:?} is taken: remove or move what is there first")]
    Taken {
        /// The pointer.
        pointer: String,
    },
    /// An expression failed.
    #[error("{expression:?} on {pointer:?} failed: {reason}")]
    Conversion {
        /// The value.
        pointer: String,
        /// The expression.
        expression: String,
        /// What went wrong.
        reason: String,
    },
}

impl Caster {
    /// The payload in the other version; the one given is not changed.
    ///
    /// # Errors
    /// See [`CastError`].
    pub fn apply(&self, payload: &Value, with: &dyn Convert) -> Result<Value, CastError> {
        let mut next = payload.clone();
        for operation in &self.operations {
            operation.apply(&mut next, with)?;
        }
        Ok(next)
    }
}

impl Operation {
    fn apply(&self, payload: &mut Value, with: &dyn Convert) -> Result<(), CastError> {
        match self {
            Self::Rename { pointer, to } => {
                let (parent, _) = split(pointer)?;
                relocate(payload, pointer, &pointer::child(parent, to))
            }
            Self::Move { from, to } => relocate(payload, from, to),
            Self::Remove { pointer } => take(payload, pointer).map(drop),
            Self::Default { pointer, value } => {
                if payload.pointer(pointer).is_some() {
                    return Ok(());
                }
                put(payload, pointer, value.clone())
            }
            Self::Convert { pointer, expression } => {
                let Some(slot) = payload.pointer_mut(pointer) else {
                    return Ok(());
                };
                *slot = with.convert(expression, slot).map_err(|reason| CastError::Conversion {
                    pointer: pointer.clone(),
                    expression: expression.clone(),
                    reason,
                })?;
                Ok(())
            }
        }
    }
}

/// Parent pointer and last step.
fn split(at: &str) -> Result<(&str, String), CastError> {
    let bad = || CastError::BadPath { pointer: at.to_owned() };
    let (parent, last) = at.rsplit_once('/').ok_or_else(bad)?;
    Ok((parent, pointer::unescape(last)))
}

fn relocate(payload: &mut Value, from: &str, to: &str) -> Result<(), CastError> {
    if from == to {
        return Ok(());
    }
    match take(payload, from)? {
        Some(value) => put(payload, to, value),
        None => Ok(()),
    }
}

fn take(payload: &mut Value, at: &str) -> Result<Option<Value>, CastError> {
    let (parent, name) = split(at)?;
    let parent = payload.pointer_mut(parent).and_then(Value::as_object_mut);
    Ok(parent.and_then(|parent| parent.remove(&name)))
}

fn put(payload: &mut Value, at: &str, value: Value) -> Result<(), CastError> {
    let (parent, name) = split(at)?;
    let mut slot = payload;
    for step in pointer::steps(parent) {
        let map =
            slot.as_object_mut().ok_or_else(|| CastError::BadPath { pointer: at.to_owned() })?;
        slot = map.entry(step).or_insert_with(|| Value::Object(serde_json::Map::new()));
    }
    let map = slot.as_object_mut().ok_or_else(|| CastError::BadPath { pointer: at.to_owned() })?;
    if map.contains_key(&name) {
        return Err(CastError::Taken { pointer: at.to_owned() });
    }
    map.insert(name, value);
    Ok(())
}

/// All hops of a topic.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chain {
    hops: BTreeMap<(u32, u32), Caster>,
}

impl Chain {
    /// A chain of casters, in any order.
    ///
    /// # Errors
    /// If one is no hop, or there are two for one hop.
    pub fn new(casters: impl IntoIterator<Item = Caster>) -> Result<Self, CastError> {
        let mut hops = BTreeMap::new();
        for caster in casters {
            let (from, to) = (caster.from, caster.to);
            if from.abs_diff(to) != 1 {
                return Err(CastError::NotAHop { from, to });
            }
            if hops.insert((from, to), caster).is_some() {
                return Err(CastError::Twice { from, to });
            }
        }
        Ok(Self { hops })
    }

    /// Checks that every hop from one version to another is there.
    ///
    /// # Errors
    /// The first that is missing.
    pub fn check(&self, from: u32, to: u32) -> Result<(), CastError> {
        self.path(from, to).map(drop)
    }

    /// The payload of version `from` as one of version `to`; the one given is not changed.
    ///
    /// # Errors
    /// See [`CastError`]; a missing hop is found before anything is done.
    pub fn apply(
        &self,
        payload: &Value,
        (from, to): (u32, u32),
        with: &dyn Convert,
    ) -> Result<Value, CastError> {
        let path = self.path(from, to)?;
        path.into_iter().try_fold(payload.clone(), |value, caster| caster.apply(&value, with))
    }

    fn path(&self, from: u32, to: u32) -> Result<Vec<&Caster>, CastError> {
        let mut path = Vec::new();
        let mut at = from;
        while at != to {
            let next = if at < to { at + 1 } else { at - 1 };
            let hop = self.hops.get(&(at, next));
            path.push(hop.ok_or(CastError::MissingHop { from: at, to: next })?);
            at = next;
        }
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    struct Double;

    impl Convert for Double {
        fn convert(&self, expression: &str, value: &Value) -> Result<Value, String> {
            match (expression, value.as_f64()) {
                ("value * 2", Some(number)) => Ok(json!(number * 2.0)),
                _ => Err("no number".to_owned()),
            }
        }
    }

    fn caster(from: u32, to: u32, operations: &Value) -> Caster {
        let operations = serde_json::from_value(operations.clone()).unwrap();
        Caster { from, to, operations }
    }

    fn heartbeat() -> Chain {
        Chain::new([
            caster(
                1,
                2,
                &json!([
                    {"op": "rename", "pointer": "/mem_mb", "to": "mem_mib"},
                    {"op": "convert", "pointer": "/mem_mib", "expression": "value * 2"},
                    {"op": "default", "pointer": "/labels/region", "value": "eu"}
                ]),
            ),
            caster(
                2,
                3,
                &json!([
                    {"op": "move", "from": "/pid", "to": "/process/pid"},
                    {"op": "remove", "pointer": "/old"}
                ]),
            ),
            caster(2, 1, &json!([{"op": "rename", "pointer": "/mem_mib", "to": "mem_mb"}])),
        ])
        .unwrap()
    }

    #[test]
    fn a_payload_climbs_the_chain_and_the_original_stays() {
        let old = json!({"pid": 1, "mem_mb": 4, "old": true});
        let before = old.clone();
        let new = heartbeat().apply(&old, (1, 3), &Double).unwrap();
        assert_eq!(new, json!({"process": {"pid": 1}, "mem_mib": 8.0, "labels": {"region": "eu"}}));
        assert_eq!(old, before);
        let down = heartbeat().apply(&json!({"mem_mib": 4}), (2, 1), &Double).unwrap();
        assert_eq!(down, json!({"mem_mb": 4}));
    }

    #[test]
    fn chains_are_complete_or_refused() {
        assert_eq!(heartbeat().check(1, 3), Ok(()));
        assert_eq!(heartbeat().check(3, 1), Err(CastError::MissingHop { from: 3, to: 2 }));
        assert_eq!(heartbeat().check(1, 4), Err(CastError::MissingHop { from: 3, to: 4 }));
        let far = Chain::new([caster(1, 3, &json!([]))]);
        assert_eq!(far, Err(CastError::NotAHop { from: 1, to: 3 }));
    }

    #[test]
    fn nothing_is_overwritten() {
        let hop = caster(1, 2, &json!([{"op": "rename", "pointer": "/a", "to": "b"}]));
        let error = hop.apply(&json!({"a": 1, "b": 2}), &Double).unwrap_err();
        assert_eq!(error, CastError::Taken { pointer: "/b".to_owned() });
        let hop = caster(1, 2, &json!([{"op": "convert", "pointer": "/a", "expression": "?"}]));
        assert!(matches!(hop.apply(&json!({"a": 1}), &Double), Err(CastError::Conversion { .. })));
    }

    proptest! {
        #[test]
        fn a_rename_and_its_inverse_change_nothing(
            names in proptest::collection::btree_map("[a-d/~]{1,3}", any::<i32>(), 0..5),
            from in "[a-d/~]{1,3}",
        ) {
            let payload = serde_json::to_value(&names).unwrap();
            let to = "elsewhere";
            let there = Operation::Rename { pointer: pointer::child("", &from), to: to.to_owned() };
            let back = Operation::Rename { pointer: pointer::child("", to), to: from };
            let hop = Caster { from: 1, to: 2, operations: vec![there, back] };
            prop_assert_eq!(hop.apply(&payload, &Double).unwrap(), payload);
        }
    }
}
