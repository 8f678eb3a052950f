//! `prom schema upcaster TOPIC FROM TO`: a caster to begin with.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use promethean::{Hop, TrialError, try_casters};
use promethean_event::Topic;
use promethean_schema::{Document, Operation};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::bad_input::bad;
use super::folder::{Files, Folder};
use super::source::directory_of;
use crate::command::Status;
use crate::output::Output;

#[derive(Debug, Args)]
pub(crate) struct Upcaster {
    /// The topic.
    #[arg(value_name = "TOPIC")]
    topic: Topic,
    /// The version to cast from.
    #[arg(value_name = "FROM")]
    from: u32,
    /// The version to cast to: one more, or one less for a downcaster.
    #[arg(value_name = "TO")]
    to: u32,
    /// The directory of the schemas [default: that of the manifest, or schemas/TOPIC].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Write over a caster that is there.
    #[arg(long)]
    overwrite: bool,
}

#[derive(Serialize)]
struct Written {
    file: String,
    operations: Vec<Operation>,
    /// Whether it carried all values that it was tried on.
    good: bool,
    /// What it did not carry.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

pub(super) fn run(wish: &Upcaster, output: &Output) -> anyhow::Result<Status> {
    if wish.from.abs_diff(wish.to) != 1 {
        return Err(bad(anyhow::anyhow!(
            "a caster goes one version up or down; write one per hop"
        )));
    }
    let path = wish.dir.clone().map_or_else(|| directory_of(&wish.topic), Ok)?;
    let folder = Folder::read(&Files::Here, wish.topic.as_str(), &path)?;
    let version = |number: u32| {
        let found = folder.versions.get(&number).map(|version| &version.document);
        found.ok_or_else(|| bad(anyhow::anyhow!("no v{number}.json in {}", path.display())))
    };
    let (old, new) = (version(wish.from)?, version(wish.to)?);
    let kind = if wish.from < wish.to { "upcast" } else { "downcast" };
    let file = path.join(format!("v{}.{kind}.json", wish.from));
    if file.exists() && !wish.overwrite {
        let shown = file.display();
        return Err(bad(anyhow::anyhow!("{shown} is there; --overwrite writes over it")));
    }
    let operations = guess(old, new);
    let text = format!("{:#}\n", json!(operations));
    std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    let problem = match try_casters(old, new, &[Hop::operations(operations.clone())], false) {
        Ok(_) => None,
        Err(TrialError::Fails { value, reason }) => Some(format!("{value}: {reason}")),
        Err(error) => Some(error.to_string()),
    };
    let file = file.display().to_string();
    let written = Written { file, operations, good: problem.is_none(), problem };
    output.result(&written, |written| match &written.problem {
        None => format!("{}: carries every value that it was tried on", written.file),
        Some(problem) => format!("{}: to be completed; it fails on {problem}", written.file),
    })?;
    Ok(Status::Done)
}

/// What the two documents say of the properties of an event.
fn properties(document: &Document) -> (Map<String, Value>, Vec<String>) {
    let properties = document.value().get("properties").and_then(Value::as_object);
    let required = document.value().get("required").and_then(Value::as_array);
    let required = required.into_iter().flatten().filter_map(Value::as_str);
    (properties.cloned().unwrap_or_default(), required.map(str::to_owned).collect())
}

/// Operations that may do: a property that went and one that came with the same meaning is a
/// rename, one that is required and new gets a value, one that is not known any more goes.
fn guess(old: &Document, new: &Document) -> Vec<Operation> {
    let ((before, _), (after, required)) = (properties(old), properties(new));
    let mut gone: BTreeMap<&String, &Value> =
        before.iter().filter(|(name, _)| !after.contains_key(*name)).collect();
    let mut operations = Vec::new();
    let pointer = |name: &str| format!("/{}", name.replace('~', "~0").replace('/', "~1"));
    for (name, schema) in after.iter().filter(|(name, _)| !before.contains_key(*name)) {
        let alike = |kind: &Value| kind.get("type") == schema.get("type");
        let candidates: Vec<&String> =
            gone.iter().filter(|(_, kind)| alike(kind)).map(|(name, _)| *name).collect();
        let renamed = candidates.into_iter().min_by_key(|old| distance(old, name));
        match renamed {
            Some(old) => {
                gone.remove(old);
                let (pointer, to) = (pointer(old), name.clone());
                operations.push(Operation::Rename { pointer, to });
            }
            None if required.contains(name) => {
                let (pointer, value) = (pointer(name), example(schema));
                operations.push(Operation::Default { pointer, value });
            }
            None => {}
        }
    }
    let closed = new.value().get("additionalProperties") == Some(&Value::Bool(false));
    for name in gone.into_keys().filter(|_| closed) {
        operations.push(Operation::Remove { pointer: pointer(name) });
    }
    operations
}

fn distance(left: &str, right: &str) -> usize {
    strsim::damerau_levenshtein(left, right)
}

/// A value to begin with: what the schema gives, or the plainest of its type.
fn example(schema: &Value) -> Value {
    let listed = |key: &str| schema.get(key).and_then(Value::as_array)?.first().cloned();
    let given = schema.get("default").or_else(|| schema.get("const")).cloned();
    if let Some(value) = given.or_else(|| listed("enum")).or_else(|| listed("examples")) {
        return value;
    }
    let kind = match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.first().and_then(Value::as_str),
        kind => kind.and_then(Value::as_str),
    };
    match kind {
        Some("string") => json!(""),
        Some("integer" | "number") => json!(0),
        Some("boolean") => json!(false),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => Value::Null,
    }
}
