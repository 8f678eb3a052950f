//! `prom schema diff OLD NEW`: the changes, place by place, and what they mean.

use std::path::Path;

use clap::Args;
use promethean_schema::{Document, OpenObjects, compare};
use serde::Serialize;
use serde_json::Value;

use super::bad_input::{parse_schema, read_schema};
use super::check::Reading;
use super::registry::{Named, schema_text};
use super::verdict::{Checked, Pair};
use crate::command::{Status, block_on};
use crate::output::Output;
use crate::reach::{Ask, At, Missing};

#[derive(Debug, Args)]
pub(crate) struct Diff {
    /// The old schema: a file, or a version of the registry as topic@1.
    #[arg(value_name = "OLD")]
    old: String,
    /// The new schema.
    #[arg(value_name = "NEW")]
    new: String,
    #[command(flatten)]
    reading: Reading,
    #[command(flatten)]
    at: At,
}

#[derive(Serialize)]
struct Changes {
    changes: Vec<Change>,
    backward: Checked,
    forward: Checked,
}

/// One place that is not the same.
#[derive(Debug, PartialEq, Serialize)]
struct Change {
    /// Where.
    pointer: String,
    /// `added`, `removed` or `changed`.
    change: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    old: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    new: Option<Value>,
    /// The line in the new document, or in the old one if it was removed.
    line: usize,
}

pub(super) fn run(diff: &Diff, output: &Output) -> anyhow::Result<Status> {
    let (old, new) = (document(&diff.old, &diff.at)?, document(&diff.new, &diff.at)?);
    let changes = changes(&old, &new, (&diff.old, &diff.new), diff.reading)?;
    output.result(&changes, Changes::text)?;
    Ok(Status::Done)
}

/// A file, or a version of the registry.
fn document(text: &str, at: &At) -> anyhow::Result<Document> {
    let path = Path::new(text);
    match text.parse::<Named>() {
        Ok(named) if named.has_version() && !path.exists() => {
            let found = block_on(async {
                let reach = at.open(Missing::Refuse).await?;
                let found: anyhow::Result<Value> = reach.json(Ask::get(named.path())).await;
                reach.close().await;
                found
            })?;
            parse_schema(&schema_text(&found), text)
        }
        _ => read_schema(path),
    }
}

fn changes(
    old: &Document,
    new: &Document,
    (old_name, new_name): (&str, &str),
    reading: Reading,
) -> anyhow::Result<Changes> {
    let options = reading.options(OpenObjects::Strict);
    let judged = |backward: bool| -> anyhow::Result<Checked> {
        let (reader, writer) = if backward { (new, old) } else { (old, new) };
        let mut checked = Checked::default();
        let pair = Pair::new("", old_name, new_name, backward);
        checked.add(&compare(reader, writer, &options)?, backward, &pair);
        Ok(checked.summed())
    };
    let mut changes = Vec::new();
    walk("", (Some(old.value()), Some(new.value())), &mut changes);
    for change in &mut changes {
        let document = if change.new.is_some() { new } else { old };
        change.line = document.line_of(&change.pointer);
    }
    Ok(Changes { changes, backward: judged(true)?, forward: judged(false)? })
}

/// Collects places that differ; objects are gone into, all else is compared as a whole.
fn walk(pointer: &str, (old, new): (Option<&Value>, Option<&Value>), changes: &mut Vec<Change>) {
    match (old, new) {
        (Some(old), Some(new)) if old == new => {}
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let mut names: Vec<&String> = old.keys().chain(new.keys()).collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                let step = name.replace('~', "~0").replace('/', "~1");
                walk(&format!("{pointer}/{step}"), (old.get(name), new.get(name)), changes);
            }
        }
        (old, new) => {
            let change = match (old, new) {
                (None, _) => "added",
                (_, None) => "removed",
                _ => "changed",
            };
            let (old, new) = (old.cloned(), new.cloned());
            changes.push(Change { pointer: pointer.to_owned(), change, old, new, line: 0 });
        }
    }
}

impl Changes {
    fn text(&self) -> String {
        let mut out = String::new();
        for Change { pointer, old, new, line, .. } in &self.changes {
            let place = if pointer.is_empty() { "(all)" } else { pointer };
            out.push_str(&match (old, new) {
                (Some(old), Some(new)) => format!("~ {place}: {old} -> {new} (line {line})\n"),
                (Some(old), None) => format!("- {place}: {old} (line {line})\n"),
                (None, Some(new)) => format!("+ {place}: {new} (line {line})\n"),
                (None, None) => String::new(),
            });
        }
        if self.changes.is_empty() {
            out.push_str("the same\n");
        }
        for (name, checked) in [("backward", &self.backward), ("forward", &self.forward)] {
            let first = checked.findings.first();
            let why = first.map(|finding| format!(": {} {}", finding.rule, finding.message));
            out.push_str(&format!("{name}: {}{}\n", checked.verdict, why.unwrap_or_default()));
        }
        out
    }
}
