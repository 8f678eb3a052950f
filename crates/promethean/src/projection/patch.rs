//! What has changed between two documents, as a JSON Patch (RFC 6902), and since when a member is
//! what it is. Pure.

use serde::Serialize;
use serde_json::Value;

/// One change of a document.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Operation {
    /// What is done.
    pub op: PatchKind,
    /// Where, as a JSON pointer.
    pub path: String,
    /// What is there afterwards; nothing if it is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PatchKind {
    /// Something is there that was not.
    Add,
    /// Something is not there any more.
    Remove,
    /// Something else is there.
    Replace,
}

/// The patch that makes `new` of `old`. Arrays are compared place by place.
pub fn patch(old: &Value, new: &Value) -> Vec<Operation> {
    let mut operations = Vec::new();
    compare(old, new, &mut String::new(), &mut operations);
    operations
}

fn compare(old: &Value, new: &Value, path: &mut String, out: &mut Vec<Operation>) {
    match (old, new) {
        _ if old == new => {}
        (Value::Object(old), Value::Object(new)) => {
            for name in old.keys().filter(|name| !new.contains_key(*name)) {
                within(path, name, |path| out.push(change(PatchKind::Remove, path, None)));
            }
            for (name, value) in new {
                within(path, name, |path| match old.get(name) {
                    Some(before) => compare(before, value, path, out),
                    None => out.push(change(PatchKind::Add, path, Some(value))),
                });
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            for (place, (before, value)) in old.iter().zip(new).enumerate() {
                within(path, &place.to_string(), |path| compare(before, value, path, out));
            }
            // From the end, so that each place is still there when it is its turn.
            for place in (new.len()..old.len()).rev() {
                within(path, &place.to_string(), |path| {
                    out.push(change(PatchKind::Remove, path, None));
                });
            }
            for (place, value) in new.iter().enumerate().skip(old.len()) {
                within(path, &place.to_string(), |path| {
                    out.push(change(PatchKind::Add, path, Some(value)));
                });
            }
        }
        _ => out.push(change(PatchKind::Replace, path, Some(new))),
    }
}

fn change(op: PatchKind, path: &str, value: Option<&Value>) -> Operation {
    Operation { op, path: path.to_owned(), value: value.cloned() }
}

/// Does something with the pointer of a member.
fn within(path: &mut String, name: &str, act: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push('/');
    path.push_str(&name.replace('~', "~0").replace('/', "~1"));
    act(path);
    path.truncate(length);
}

/// Of states in order, the place of the one since which what is at a pointer is as it is in the
/// last; `None` if there are no states, or it never was there.
pub fn blame(states: &[Option<Value>], pointer: &str) -> Option<usize> {
    let at =
        |state: &Option<Value>| state.as_ref().and_then(|state| state.pointer(pointer).cloned());
    let last = at(states.last()?);
    let before = states.iter().rposition(|state| at(state) != last);
    match before {
        Some(place) => Some(place + 1),
        // Always as it is: since the first, unless it never was there.
        None => last.map(|_| 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// A patch as its readers apply it.
    fn apply(mut document: Value, operations: &[Operation]) -> Value {
        for operation in operations {
            if operation.path.is_empty() {
                document = operation.value.clone().unwrap();
                continue;
            }
            let (parent, name) = operation.path.rsplit_once('/').unwrap();
            let name = name.replace("~1", "/").replace("~0", "~");
            match (document.pointer_mut(parent).unwrap(), operation.op) {
                (Value::Object(map), PatchKind::Remove) => {
                    map.remove(&name).unwrap();
                }
                (Value::Object(map), _) => {
                    map.insert(name, operation.value.clone().unwrap());
                }
                (Value::Array(items), PatchKind::Remove) => {
                    items.remove(name.parse().unwrap());
                }
                (Value::Array(items), PatchKind::Add) => {
                    items.insert(name.parse().unwrap(), operation.value.clone().unwrap());
                }
                (Value::Array(items), PatchKind::Replace) => {
                    items[name.parse::<usize>().unwrap()] = operation.value.clone().unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
        document
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..4_i64).prop_map(Value::from),
            "[a~/]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[ab~/]{0,2}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_patch_makes_the_new_of_the_old(old in values(), new in values()) {
            prop_assert_eq!(apply(old.clone(), &patch(&old, &new)), new);
        }
    }

    #[test]
    fn a_patch_says_no_more_than_has_changed() {
        let old = json!({"a": 1, "b": {"c": 2, "d": [1, 2]}, "e": 0});
        let new = json!({"a": 1, "b": {"c": 3, "d": [1]}, "f/g": true});
        let said = serde_json::to_value(patch(&old, &new)).unwrap();
        assert_eq!(
            said,
            json!([
                {"op": "remove", "path": "/e"},
                {"op": "replace", "path": "/b/c", "value": 3},
                {"op": "remove", "path": "/b/d/1"},
                {"op": "add", "path": "/f~1g", "value": true},
            ])
        );
    }

    #[test]
    fn blame_is_the_last_change() {
        let states = [
            Some(json!({"s": "a"})),
            Some(json!({"s": "b"})),
            Some(json!({"s": "b", "t": 1})),
            None,
            Some(json!({"s": "b"})),
            Some(json!({"s": "b", "u": 2})),
        ];
        assert_eq!(blame(&states[..3], "/s"), Some(1));
        assert_eq!(blame(&states, "/s"), Some(4));
        assert_eq!(blame(&states, "/u"), Some(5));
        assert_eq!(blame(&states, "/t"), Some(3));
        assert_eq!(blame(&states, "/never"), None);
        assert_eq!(blame(&[], "/s"), None);
    }
}
