//! `prom trace`: what led to an event, and what it led to.

use std::collections::{HashMap, HashSet};

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Status;
use super::past::time_of;
use super::short_id::ShortId;
use crate::output::{self, Output};
use crate::reach::{Ask, At};

/// Show the causes of an event and its effects, as a tree.
#[derive(Debug, Args)]
pub(crate) struct Trace {
    /// The id, or its end, as `prom tail` shows it.
    id: ShortId,
    /// Only towards causes.
    #[arg(long, conflicts_with = "down")]
    up: bool,
    /// Only towards effects.
    #[arg(long)]
    down: bool,
    /// So many steps at most.
    #[arg(long, value_name = "STEPS")]
    depth: Option<u32>,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Serialize, Deserialize)]
struct Found {
    id: String,
    complete: bool,
    events: Vec<Node>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Node {
    id: String,
    depth: i64,
    causes: Vec<String>,
    effects: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event: Option<Value>,
}

pub(crate) fn run(wish: Trace, output: &Output) -> anyhow::Result<Status> {
    super::block_on(async move {
        let direction = match (wish.up, wish.down) {
            (true, false) => Some("up"),
            (false, true) => Some("down"),
            _ => None,
        };
        let reach = wish.at.open_workshop().await?;
        let found = match wish.id.find(&reach, output).await {
            Ok(id) => {
                let ask = Ask::get(format!("/trace/{id}"));
                let ask = ask.query("direction", direction).query("depth", wish.depth);
                reach.json::<Found>(ask).await
            }
            Err(error) => Err(error),
        };
        reach.close().await;
        output.record(&found?, tree)?;
        Ok(Status::Done)
    })
}

/// From the first causes down. An event with several causes is shown in full under the first.
fn tree(found: &Found) -> String {
    let nodes: HashMap<&str, &Node> =
        found.events.iter().map(|node| (node.id.as_str(), node)).collect();
    let is_root =
        |node: &&Node| !node.causes.iter().any(|cause| nodes.contains_key(cause.as_str()));
    let mut lines = Vec::new();
    let mut seen = HashSet::new();
    for root in found.events.iter().filter(is_root) {
        branch(root, &nodes, (found.id.as_str(), String::new()), &mut seen, &mut lines);
    }
    if !found.complete {
        lines.push("there is more; ask with --depth, or from one of these".to_owned());
    }
    lines.join("\n")
}

fn branch<'a>(
    node: &'a Node,
    nodes: &HashMap<&'a str, &'a Node>,
    (start, indent): (&str, String),
    seen: &mut HashSet<&'a str>,
    lines: &mut Vec<String>,
) {
    let mark = if node.id == start { "*" } else { "-" };
    let is_new = seen.insert(&node.id);
    let again = if is_new { "" } else { "  (see above)" };
    lines.push(format!("{indent}{mark} {}{again}", described(node)));
    if !is_new {
        return;
    }
    for effect in node.effects.iter().filter_map(|id| nodes.get(id.as_str())) {
        branch(effect, nodes, (start, format!("{indent}  ")), seen, lines);
    }
}

fn described(node: &Node) -> String {
    let Some(event) = &node.event else {
        return format!("{}  not there any more, or not to be read", node.id);
    };
    let text = |name: &str| match event.get(name) {
        Some(Value::String(text)) => output::plain(text),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    };
    let place = format!("{}/{}@{}", text("topic"), text("partition"), text("offset"));
    format!("{place}  {}  {}  {}", text("key"), time_of(event, "appended_at"), node.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diamond_is_told_once() {
        let node = |id: &str, causes: &[&str], effects: &[&str]| Node {
            id: id.to_owned(),
            depth: 0,
            causes: causes.iter().map(|id| (*id).to_owned()).collect(),
            effects: effects.iter().map(|id| (*id).to_owned()).collect(),
            event: None,
        };
        let events = vec![
            node("a", &[], &["b", "c"]),
            node("b", &["a"], &["d"]),
            node("c", &["a"], &["d"]),
            node("d", &["b", "c"], &[]),
        ];
        let found = Found { id: "b".into(), complete: true, events };
        let gone = "not there any more, or not to be read";
        let expected = format!(
            "- a  {gone}\n  * b  {gone}\n    - d  {gone}\n  - c  {gone}\n    - d  {gone}  (see above)"
        );
        assert_eq!(tree(&found), expected);
    }
}
