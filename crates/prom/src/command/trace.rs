//! `prom trace`: what led to an event, and what it led to.

use std::collections::{HashMap, HashSet};

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Status;
use super::past::time_of;
use super::short_id::ShortId;
use crate::output::{self, Output, Paint};
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
        output.record(&found?, |found| tree(found, output.paint()))?;
        Ok(Status::Done)
    })
}

/// From the first causes down. An event with several causes is shown in full under the first.
fn tree(found: &Found, paint: Paint) -> String {
    let nodes: HashMap<&str, &Node> =
        found.events.iter().map(|node| (node.id.as_str(), node)).collect();
    let is_root =
        |node: &&Node| !node.causes.iter().any(|cause| nodes.contains_key(cause.as_str()));
    let mut drawing = Drawing { nodes: &nodes, seen: HashSet::new(), lines: Vec::new() };
    for root in found.events.iter().filter(is_root) {
        drawing.branch(root, Limb { trunk: String::new(), fork: "", since: root.appended_at() });
    }
    let width = |cells: fn(&Line) -> &str| {
        drawing.lines.iter().map(|line| cells(line).chars().count()).max().unwrap_or(0)
    };
    let (places, keys, times) =
        (width(|line| &line.place), width(|line| &line.key), width(|line| &line.time));
    let asked = drawing.lines.len() > 1;
    let mut text: Vec<String> = Vec::new();
    for Line { place, key, time, id, again } in &drawing.lines {
        // A column that nobody uses takes no room.
        let key = if keys == 0 { String::new() } else { format!("{key:keys$}  ") };
        let mark = if asked && *id == found.id { "  <- asked for" } else { "" };
        let line = format!("{place:places$}  {key}{time:times$}  {id}{again}{mark}");
        text.push(if mark.is_empty() { line } else { paint.strong(&line) });
    }
    if !found.complete {
        text.push("there is more; ask with --depth, or from one of these".to_owned());
    }
    text.join("\n")
}

/// An event of the tree.
struct Line {
    place: String,
    key: String,
    time: String,
    id: String,
    again: &'static str,
}

/// Where an event hangs: what is drawn before its branches, how it is tied to what is above, and
/// when its first cause was.
struct Limb {
    trunk: String,
    fork: &'static str,
    since: Option<i64>,
}

struct Drawing<'a> {
    nodes: &'a HashMap<&'a str, &'a Node>,
    seen: HashSet<&'a str>,
    lines: Vec<Line>,
}

impl<'a> Drawing<'a> {
    fn branch(&mut self, node: &'a Node, limb: Limb) {
        let Limb { trunk, fork, since } = limb;
        let is_new = self.seen.insert(&node.id);
        let again = if is_new { "" } else { "  (see above)" };
        let (place, key) = node.described();
        let place = format!("{trunk}{fork}{place}");
        let time = node.time(since.filter(|_| !fork.is_empty()));
        self.lines.push(Line { place, key, time, id: node.id.clone(), again });
        if !is_new {
            return;
        }
        let trunk = match fork {
            "" => trunk,
            LAST => format!("{trunk}   "),
            _ => format!("{trunk}│  "),
        };
        let effects: Vec<&'a Node> =
            node.effects.iter().filter_map(|id| self.nodes.get(id.as_str()).copied()).collect();
        for (number, effect) in effects.iter().enumerate() {
            let fork = if number + 1 == effects.len() { LAST } else { "├─ " };
            self.branch(effect, Limb { trunk: trunk.clone(), fork, since });
        }
    }
}

/// What ties the last effect to its cause.
const LAST: &str = "└─ ";

impl Node {
    fn appended_at(&self) -> Option<i64> {
        self.event.as_ref()?.get("appended_at")?.as_i64()
    }

    /// Where it stands, and its key.
    fn described(&self) -> (String, String) {
        let Some(event) = &self.event else {
            return ("not there any more, or not to be read".to_owned(), String::new());
        };
        let text = |name: &str| match event.get(name) {
            Some(Value::String(text)) => output::plain(text),
            Some(Value::Null) | None => String::new(),
            Some(other) => other.to_string(),
        };
        let place = format!("{}/{}/{}", text("topic"), text("partition"), text("offset"));
        (place, text("key"))
    }

    /// When it was, or how long after its first cause.
    fn time(&self, since: Option<i64>) -> String {
        match (self.appended_at(), since) {
            (None, _) => String::new(),
            (Some(at), Some(since)) => {
                format!("+{}", output::span(u64::try_from(at - since).unwrap_or(0)))
            }
            (Some(_), None) => {
                self.event.as_ref().map(|event| time_of(event, "appended_at")).unwrap_or_default()
            }
        }
    }
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
        let expected = [
            format!("{gone}          a"),
            format!("├─ {gone}       b  <- asked for"),
            format!("│  └─ {gone}    d"),
            format!("└─ {gone}       c"),
            format!("   └─ {gone}    d  (see above)"),
        ];
        assert_eq!(tree(&found, Paint::none()), expected.join("\n"));
    }

    #[test]
    fn effects_say_how_long_after_their_first_cause_they_came() {
        let node = |id: &str, at: i64, causes: &[&str], effects: &[&str]| Node {
            id: id.to_owned(),
            depth: 0,
            causes: causes.iter().map(|id| (*id).to_owned()).collect(),
            effects: effects.iter().map(|id| (*id).to_owned()).collect(),
            event: Some(serde_json::json!({
                "topic": "t", "partition": 0, "offset": at, "key": "k", "appended_at": at,
            })),
        };
        let events = vec![node("a", 0, &[], &["b"]), node("b", 2_500, &["a"], &[])];
        let found = Found { id: "a".into(), complete: true, events };
        let expected = "t/0/0        k  1970-01-01T00:00:00Z  a  <- asked for\n\
                        └─ t/0/2500  k  +2.5 s                b";
        assert_eq!(tree(&found, Paint::none()), expected);
    }
}
