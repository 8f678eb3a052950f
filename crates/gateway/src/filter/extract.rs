//! One pass over a payload: members that are wanted become values, the rest is passed over.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use cel::Value;
use cel::objects::{Key, Map};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::plan::MemberTree;
use crate::limits::{FILTER_INPUT_BYTES_MAX, FILTER_VALUES_MAX};

/// What was found of one payload.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) values: Vec<Option<Value>>,
    pub(super) present: Vec<bool>,
    pub(super) taken: Taken,
}

/// How much was taken out of it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Taken {
    pub(super) values: usize,
    pub(super) bytes: usize,
}

/// Fills the slots; `None` if more is wanted than the limits allow.
pub(super) fn extract(members: &MemberTree, slots: usize, payload: &[u8]) -> Option<Found> {
    let mut found =
        Found { values: vec![None; slots], present: vec![false; slots], taken: Taken::default() };
    if members.children.is_empty() {
        return Some(found);
    }
    let mut reader = serde_json::Deserializer::from_slice(payload);
    Member { tree: members, found: &mut found }.deserialize(&mut reader).ok()?;
    Some(found)
}

struct Member<'t, 'f> {
    tree: &'t MemberTree,
    found: &'f mut Found,
}

impl<'de> DeserializeSeed<'de> for Member<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        // The last one of equal names counts, so that an earlier one leaves nothing behind.
        clear(self.tree, self.found);
        if let Some(present) = self.tree.slot.and_then(|slot| self.found.present.get_mut(slot)) {
            *present = true;
        }
        if self.tree.value {
            let value = Whole { taken: &mut self.found.taken }.deserialize(deserializer)?;
            if let Some(slot) = self.tree.slot.and_then(|slot| self.found.values.get_mut(slot)) {
                *slot = Some(value);
            }
            return Ok(());
        }
        if self.tree.children.is_empty() {
            return deserializer.deserialize_ignored_any(IgnoredAny).map(|_| ());
        }
        deserializer.deserialize_any(self)
    }
}

fn clear(tree: &MemberTree, found: &mut Found) {
    if let Some(slot) = tree.slot {
        found.values.get_mut(slot).into_iter().for_each(|value| *value = None);
        found.present.get_mut(slot).into_iter().for_each(|present| *present = false);
    }
    tree.children.iter().for_each(|(_, child)| clear(child, found));
}

/// Anything but an object has no members.
impl<'de> Visitor<'de> for Member<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = map.next_key()? {
            match self.tree.children.iter().find(|(known, _)| *known == name) {
                Some((_, tree)) => map.next_value_seed(Member { tree, found: self.found })?,
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// A member name, borrowed unless it holds escapes.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// A value with all that is in it, within the limits.
struct Whole<'f> {
    taken: &'f mut Taken,
}

impl Whole<'_> {
    fn count<E: Error>(&mut self, bytes: usize) -> Result<(), E> {
        self.taken.values += 1;
        self.taken.bytes += bytes;
        if self.taken.values > FILTER_VALUES_MAX || self.taken.bytes > FILTER_INPUT_BYTES_MAX {
            return Err(E::custom("more than a filter may take"));
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Whole<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: Error>(mut self, value: bool) -> Result<Value, E> {
        self.count(1)?;
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(mut self, value: i64) -> Result<Value, E> {
        self.count(8)?;
        Ok(Value::Int(value))
    }

    /// An `int` as long as it fits, so that it compares with the literals people write.
    fn visit_u64<E: Error>(mut self, value: u64) -> Result<Value, E> {
        self.count(8)?;
        Ok(i64::try_from(value).map_or(Value::UInt(value), Value::Int))
    }

    fn visit_f64<E: Error>(mut self, value: f64) -> Result<Value, E> {
        self.count(8)?;
        Ok(Value::Float(value))
    }

    fn visit_str<E: Error>(mut self, value: &str) -> Result<Value, E> {
        self.count(value.len())?;
        Ok(Value::String(Arc::new(value.to_owned())))
    }

    fn visit_unit<E: Error>(mut self) -> Result<Value, E> {
        self.count(1)?;
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Value, A::Error> {
        self.count(1)?;
        let mut list = Vec::new();
        while let Some(value) = seq.next_element_seed(Whole { taken: self.taken })? {
            list.push(value);
        }
        Ok(Value::List(Arc::new(list)))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Value, A::Error> {
        self.count(1)?;
        let mut members = HashMap::new();
        while let Some(Name(name)) = map.next_key()? {
            self.taken.bytes += name.len();
            let value = map.next_value_seed(Whole { taken: self.taken })?;
            members.insert(Key::String(Arc::new(name.into_owned())), value);
        }
        Ok(Value::Map(Map { map: Arc::new(members) }))
    }
}
