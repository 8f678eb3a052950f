//! Expressions in CEL over JSON values, for what users write: conversions between versions, keys
//! and documents of views, maps of a replay, reducers.
//!
//! The evaluator has no limit of steps, so the work is bounded before it begins: the length and
//! nesting of an expression, the size of what it sees of the values, and no loop inside a loop.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use cel::common::ast::{EntryExpr, Expr};
use cel::parser::Parser;
use cel::{Context, Env, IdedExpr};
use promethean_event::Event;
use serde_json::{Map, Number, Value};

use crate::limits::{CONVERT_VALUE_BYTES_MAX, EXPRESSION_BYTES_MAX, EXPRESSION_DEPTH_MAX};

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// An expression that was checked, over values of these names.
#[derive(Clone)]
pub struct Formula {
    source: String,
    names: &'static [&'static str],
    /// In the order of the names.
    sights: Arc<[Sight]>,
    tree: Arc<IdedExpr>,
}

/// What an expression sees of a value. Only that is converted and counts for the limit, so that a
/// large document does not stop an expression over one field of it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Sight {
    Nothing,
    /// Members of it, by `value.member`.
    Members(BTreeSet<String>),
    Whole,
}

/// Why an expression is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expression {source_text:?}: {why}")]
pub struct FormulaError {
    source_text: String,
    why: String,
}

impl Formula {
    /// Checks an expression over values of these names.
    pub fn compile(source: &str, names: &'static [&'static str]) -> Result<Self, FormulaError> {
        let refused = |why| FormulaError { source_text: shortened(source), why };
        let tree = compile(source).map_err(refused)?;
        if let Some(name) = unknown(&tree, names, &mut Vec::new()) {
            let known = names.join(", ");
            return Err(refused(format!("there is no {name:?}; there are: {known}")));
        }
        let mut sights = vec![Sight::Nothing; names.len()];
        look(&tree, names, &mut sights);
        let (sights, tree) = (sights.into(), Arc::new(tree));
        Ok(Self { source: source.to_owned(), names, sights, tree })
    }

    /// The expression as it was written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether it looks at the value of a name.
    pub fn sees(&self, name: &str) -> bool {
        let mut sights = self.names.iter().zip(self.sights.iter());
        sights.any(|(there, sight)| *there == name && !matches!(sight, Sight::Nothing))
    }

    /// What it makes of values, in the order of their names.
    pub fn evaluate(&self, values: &[&Value]) -> Result<Value, String> {
        let values = self.sights.iter().zip(values).map(|(sight, value)| sight.of(value));
        let values: Vec<_> = values.collect();
        let bytes: usize = values.iter().map(|value| weight(value)).sum();
        if bytes > CONVERT_VALUE_BYTES_MAX {
            return Err(format!("the value has about {bytes} bytes, too many to convert"));
        }
        let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
        for (name, value) in self.names.iter().zip(&values) {
            context.add_variable_from_value(*name, to_cel(value));
        }
        match cel::Value::resolve(&self.tree, &context) {
            Ok(result) => to_json(&result),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Sight {
    /// As much of a value as is seen.
    fn of<'a>(&self, value: &'a Value) -> Cow<'a, Value> {
        match (self, value) {
            (Self::Nothing, _) => Cow::Owned(Value::Null),
            (Self::Members(members), Value::Object(object)) => {
                let seen = object.iter().filter(|(name, _)| members.contains(*name));
                let seen = seen.map(|(name, value)| (name.clone(), value.clone()));
                Cow::Owned(Value::Object(seen.collect()))
            }
            // What has no members: the expression fails by it as it is.
            (Self::Members(_) | Self::Whole, _) => Cow::Borrowed(value),
        }
    }

    fn add(&mut self, member: Option<&str>) {
        match (&mut *self, member) {
            (Self::Whole, _) => {}
            (_, None) => *self = Self::Whole,
            (Self::Members(members), Some(member)) => {
                members.insert(member.to_owned());
            }
            (Self::Nothing, Some(member)) => {
                *self = Self::Members(BTreeSet::from([member.to_owned()]));
            }
        }
    }
}

/// Notes what an expression sees. A loop's variable may have the name of a value: then more is
/// noted than is seen, which does no harm.
fn look(tree: &IdedExpr, names: &[&str], sights: &mut [Sight]) {
    let mut see = |name: &str, member: Option<&str>| {
        let at = names.iter().position(|known| *known == name);
        if let Some(sight) = at.and_then(|at| sights.get_mut(at)) {
            sight.add(member);
        }
    };
    match &tree.expr {
        Expr::Ident(name) => see(name, None),
        Expr::Select(select) => match &select.operand.expr {
            Expr::Ident(name) => see(name, Some(&select.field)),
            _ => look(&select.operand, names, sights),
        },
        Expr::Call(call) => {
            let target = call.target.iter().map(|target| &**target);
            target.chain(&call.args).for_each(|part| look(part, names, sights));
        }
        Expr::Comprehension(each) => {
            look(&each.iter_range, names, sights);
            for part in [&each.accu_init, &each.loop_cond, &each.loop_step, &each.result] {
                look(part, names, sights);
            }
        }
        Expr::List(list) => list.elements.iter().for_each(|part| look(part, names, sights)),
        Expr::Map(map) => {
            map.entries.iter().for_each(|entry| look_at_entry(&entry.expr, names, sights));
        }
        Expr::Struct(made) => {
            made.entries.iter().for_each(|entry| look_at_entry(&entry.expr, names, sights));
        }
        Expr::Unspecified | Expr::Literal(_) => {}
    }
}

fn look_at_entry(entry: &EntryExpr, names: &[&str], sights: &mut [Sight]) {
    match entry {
        EntryExpr::StructField(field) => look(&field.value, names, sights),
        EntryExpr::MapEntry(entry) => {
            look(&entry.key, names, sights);
            look(&entry.value, names, sights);
        }
    }
}

impl std::fmt::Debug for Formula {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Formula").field(&self.source).finish()
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(200).collect()
}

/// What an expression over an event may name.
pub const EVENT_NAMES: &[&str] = &["payload", "key", "headers", "ts", "topic", "id"];
/// What a reducer may name: the state so far, which is `null` before the first event, and the event.
pub const REDUCER_NAMES: &[&str] = &["state", "payload", "key", "headers", "ts", "topic", "id"];

/// The values of an event, in the order of [`EVENT_NAMES`].
#[derive(Debug)]
pub struct EventValues([Value; 6]);

impl EventValues {
    /// Takes them out of an event; its payload is parsed once for all expressions.
    pub fn of(event: &Event) -> Result<Self, serde_json::Error> {
        let headers: Map<String, Value> =
            event.headers.iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        Ok(Self([
            event.payload.decode()?,
            event.key.as_ref().map_or(Value::Null, |key| key.as_str().into()),
            Value::Object(headers),
            event.ts.millis().into(),
            event.topic.as_str().into(),
            event.id.to_string().into(),
        ]))
    }

    /// What an expression over [`EVENT_NAMES`] makes of them.
    pub fn evaluate(&self, formula: &Formula) -> Result<Value, String> {
        formula.evaluate(&self.0.each_ref())
    }

    /// What an expression over [`REDUCER_NAMES`] makes of them and a state.
    pub fn reduce(&self, formula: &Formula, state: &Value) -> Result<Value, String> {
        let [payload, key, headers, ts, topic, id] = &self.0;
        formula.evaluate(&[state, payload, key, headers, ts, topic, id])
    }
}

/// A name that is neither given nor a loop's own: found when an expression is given, not when the
/// first event comes.
fn unknown(tree: &IdedExpr, names: &[&str], own: &mut Vec<String>) -> Option<String> {
    match &tree.expr {
        Expr::Ident(name) => {
            let known = names.contains(&name.as_str()) || own.iter().any(|known| known == name);
            // Variables that the parser makes for loops begin with a sign that no name has.
            let is_made = name.starts_with('@');
            (!known && !is_made && !is_type(name)).then(|| name.clone())
        }
        Expr::Call(call) => {
            let target = call.target.iter().map(|target| &**target);
            target.chain(&call.args).find_map(|part| unknown(part, names, own))
        }
        Expr::Comprehension(each) => {
            let outer = unknown(&each.iter_range, names, own);
            let before = own.len();
            own.extend([each.iter_var.clone(), each.accu_var.clone()]);
            own.extend(each.iter_var2.clone());
            let parts = [&each.accu_init, &each.loop_cond, &each.loop_step, &each.result];
            let inner = parts.into_iter().find_map(|part| unknown(part, names, own));
            own.truncate(before);
            outer.or(inner)
        }
        Expr::List(list) => list.elements.iter().find_map(|part| unknown(part, names, own)),
        Expr::Select(select) => unknown(&select.operand, names, own),
        Expr::Map(map) => {
            map.entries.iter().find_map(|entry| entry_unknown(&entry.expr, names, own))
        }
        Expr::Struct(made) => {
            made.entries.iter().find_map(|entry| entry_unknown(&entry.expr, names, own))
        }
        Expr::Unspecified | Expr::Literal(_) => None,
    }
}

fn is_type(name: &str) -> bool {
    ["int", "uint", "double", "string", "bool", "bytes", "list", "map", "null_type"].contains(&name)
}

fn entry_unknown(entry: &EntryExpr, names: &[&str], own: &mut Vec<String>) -> Option<String> {
    match entry {
        EntryExpr::StructField(field) => unknown(&field.value, names, own),
        EntryExpr::MapEntry(entry) => {
            unknown(&entry.key, names, own).or_else(|| unknown(&entry.value, names, own))
        }
    }
}

fn compile(source: &str) -> Result<IdedExpr, String> {
    if source.len() > EXPRESSION_BYTES_MAX {
        return Err(format!("it has {} bytes, {EXPRESSION_BYTES_MAX} at most", source.len()));
    }
    let deep = source.bytes().filter(|byte| matches!(byte, b'(' | b'[' | b'{' | b'!' | b'-'));
    if deep.count() > EXPRESSION_DEPTH_MAX {
        return Err(format!("it has more than {EXPRESSION_DEPTH_MAX} brackets and signs"));
    }
    let depth = 4 * EXPRESSION_DEPTH_MAX as u16;
    let tree = Parser::new().max_recursion_depth(depth).parse(source).map_err(|errors| {
        let text = errors.to_string();
        text.lines().next().unwrap_or("it does not parse").to_owned()
    })?;
    if loops(&tree) > 1 {
        return Err("it has a loop inside a loop".to_owned());
    }
    Ok(tree)
}

/// How deep loops are nested.
fn loops(tree: &IdedExpr) -> usize {
    let most = |parts: &mut dyn Iterator<Item = &IdedExpr>| parts.map(loops).max().unwrap_or(0);
    match &tree.expr {
        Expr::Call(call) => {
            let target = call.target.iter().map(|target| &**target);
            most(&mut target.chain(&call.args))
        }
        Expr::Comprehension(each) => {
            let inner = [&each.accu_init, &each.loop_cond, &each.loop_step, &each.result];
            // A loop over what a loop has made costs their sum, not their product.
            (1 + most(&mut inner.into_iter())).max(loops(&each.iter_range))
        }
        Expr::List(list) => most(&mut list.elements.iter()),
        Expr::Select(select) => loops(&select.operand),
        Expr::Map(map) => {
            map.entries.iter().map(|entry| entry_loops(&entry.expr)).max().unwrap_or(0)
        }
        Expr::Struct(made) => {
            made.entries.iter().map(|entry| entry_loops(&entry.expr)).max().unwrap_or(0)
        }
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => 0,
    }
}

fn entry_loops(entry: &EntryExpr) -> usize {
    match entry {
        EntryExpr::StructField(field) => loops(&field.value),
        EntryExpr::MapEntry(entry) => loops(&entry.key).max(loops(&entry.value)),
    }
}

/// About how many bytes a value takes, without writing it.
fn weight(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| weight(item) + 1).sum::<usize>() + 2,
        Value::Object(map) => {
            map.iter().map(|(name, value)| name.len() + weight(value) + 4).sum::<usize>() + 2
        }
        _ => 8,
    }
}

fn to_cel(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(truth) => cel::Value::Bool(*truth),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => cel::Value::Int(int),
            (None, Some(uint)) => cel::Value::UInt(uint),
            (None, None) => cel::Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => cel::Value::from(text.as_str()),
        Value::Array(items) => cel::Value::from(items.iter().map(to_cel).collect::<Vec<_>>()),
        Value::Object(map) => {
            let members = map.iter().map(|(name, value)| (name.clone(), to_cel(value)));
            cel::Value::from(members.collect::<HashMap<String, cel::Value>>())
        }
    }
}

fn to_json(value: &cel::Value) -> Result<Value, String> {
    Ok(match value {
        cel::Value::Null => Value::Null,
        cel::Value::Bool(truth) => Value::Bool(*truth),
        cel::Value::Int(int) => Value::from(*int),
        cel::Value::UInt(uint) => Value::from(*uint),
        cel::Value::Float(float) => {
            Value::Number(Number::from_f64(*float).ok_or("the result is not a finite number")?)
        }
        cel::Value::String(text) => Value::String(text.to_string()),
        cel::Value::List(items) => {
            Value::Array(items.iter().map(to_json).collect::<Result<_, _>>()?)
        }
        cel::Value::Map(map) => {
            let mut object = Map::new();
            for (name, value) in map.map.iter() {
                object.insert(name.to_string(), to_json(value)?);
            }
            Value::Object(object)
        }
        _ => return Err("the result has no JSON form".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_are_checked_when_an_expression_is_given() {
        let names: &[&str] = &["payload", "key"];
        for good in [
            "payload.a + key",
            "payload.list.map(x, x + 1)",
            "payload.list.exists(x, x == key)",
            "{'a': payload.b, 'c': string(payload.d)}",
            "has(payload.a) ? payload.a : null",
        ] {
            assert!(Formula::compile(good, names).is_ok(), "{good}");
        }
        for bad in ["paylod.a", "payload.list.map(x, y)", "x", "payload +", ""] {
            assert!(Formula::compile(bad, names).is_err(), "{bad}");
        }
        let error = Formula::compile("paylod.a", names).unwrap_err().to_string();
        assert!(error.contains("payload, key"), "{error}");
        let formula = Formula::compile("payload.n * 2 + key", names).unwrap();
        assert_eq!(formula.evaluate(&[&json!({"n": 3}), &json!(1)]), Ok(json!(7)));
        assert!(formula.evaluate(&[&json!({}), &json!(1)]).is_err());
    }

    /// One large member stopped whatever was to be said of the others.
    #[test]
    fn what_an_expression_does_not_see_may_be_large() {
        let names: &[&str] = &["document", "before"];
        let large = "x".repeat(CONVERT_VALUE_BYTES_MAX);
        let document = json!({ "n": 1, "inner": { "a": [2, 3] }, "list": [4], "text": large });
        let evaluate = |source: &str| {
            let formula = Formula::compile(source, names).unwrap();
            formula.evaluate(&[&document, &document])
        };
        for (source, expected) in [
            ("document.n + before.n", json!(2)),
            ("document.inner.a[1]", json!(3)),
            ("document.list.map(x, x + document.n)", json!([5])),
            ("{'a': has(document.inner), 'b': has(document.no)}", json!({"a": true, "b": false})),
            ("[before.n, size(document.list)]", json!([1, 1])),
            ("1", json!(1)),
        ] {
            assert_eq!(evaluate(source), Ok(expected), "{source}");
        }
        for source in ["document", "document['n']", "size(document.text)", "document == before"] {
            assert!(evaluate(source).is_err_and(|why| why.contains("too many")), "{source}");
        }
        assert!(evaluate("document.no").is_err_and(|why| why.contains("no")), "it is not there");
        let null = Formula::compile("document.n", names).unwrap();
        assert!(null.evaluate(&[&json!(null), &json!(null)]).is_err());
    }
}
