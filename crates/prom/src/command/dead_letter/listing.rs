use std::collections::BTreeMap;

use clap::Args;
use promethean_event::EventId;
use serde::Serialize;

use super::letter::Letter;
use super::{LISTED_MAX, Selection, letters};
use crate::command::Status;
use crate::output::{self, Output};
use crate::reach::{At, Reach};
use crate::times::moment;

#[derive(Debug, Args)]
pub(crate) struct List {
    /// List each of them instead of kinds of errors.
    #[arg(long)]
    each: bool,
    /// In which state: waiting, replayed, discarded or all.
    #[arg(long, default_value = "waiting", value_parser = ["waiting", "replayed", "discarded", "all"])]
    state: String,
    #[command(flatten)]
    which: Selection,
    #[command(flatten)]
    pub(super) at: At,
}

/// Dead letters with the same kind of error, in one topic, of one group.
#[derive(Debug, Serialize)]
struct Kind {
    fingerprint: String,
    count: usize,
    topic: String,
    group: String,
    /// Of them, so many have been replayed before and came back.
    returned: usize,
    first_ts: u64,
    last_ts: u64,
    error: String,
    newest: EventId,
}

fn kinds(letters: &[Letter]) -> Vec<Kind> {
    let mut found: BTreeMap<(String, String, String), Kind> = BTreeMap::new();
    for letter in letters {
        let name = (letter.fingerprint.clone(), letter.topic.to_string(), letter.group.to_string());
        let kind = found.entry(name).or_insert_with(|| Kind {
            fingerprint: letter.fingerprint.clone(),
            count: 0,
            topic: letter.topic.to_string(),
            group: letter.group.to_string(),
            returned: 0,
            first_ts: letter.ts,
            last_ts: letter.ts,
            error: letter.err.clone(),
            newest: letter.id,
        });
        kind.count += 1;
        kind.returned += usize::from(letter.round > 0);
        kind.first_ts = kind.first_ts.min(letter.ts);
        if letter.ts >= kind.last_ts {
            kind.last_ts = letter.ts;
            kind.error.clone_from(&letter.err);
            kind.newest = letter.id;
        }
    }
    let mut kinds: Vec<Kind> = found.into_values().collect();
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.last_ts));
    kinds
}

pub(super) async fn run(list: &List, reach: &Reach, output: &Output) -> anyhow::Result<Status> {
    let letters = letters(reach, &list.which, &list.state).await?;
    if letters.len() == LISTED_MAX {
        let more = format!(
            "only the first {} are looked at; narrow it",
            output::grouped(LISTED_MAX as u64)
        );
        output.progress(&more);
    }
    if list.each {
        output.list("dead_letters", &letters, each)?;
    } else {
        output.list("kinds", &kinds(&letters), by_kind)?;
    }
    if let Some(letter) = letters.first() {
        output.hint(&format!("look at one: prom dlq show {}{}", letter.short(), reach.flag()));
    }
    Ok(Status::Done)
}

const NONE: &str = "no dead letters: every group has finished what it got";

fn by_kind(kinds: &[Kind]) -> String {
    if kinds.is_empty() {
        return NONE.to_owned();
    }
    let row = |kind: &Kind| {
        let came_back = if kind.returned > 0 { format!("{}", kind.returned) } else { "-".into() };
        vec![
            kind.fingerprint.get(..8).unwrap_or(&kind.fingerprint).to_owned(),
            kind.count.to_string(),
            kind.topic.clone(),
            kind.group.clone(),
            moment(kind.first_ts),
            moment(kind.last_ts),
            came_back,
            shortened(&kind.error),
        ]
    };
    let rows: Vec<Vec<String>> = kinds.iter().map(row).collect();
    let headings = ["KIND", "COUNT", "TOPIC", "GROUP", "FIRST", "LAST", "RETURNED", "ERROR"];
    output::table(&headings, &rows)
}

fn each(letters: &[Letter]) -> String {
    if letters.is_empty() {
        return NONE.to_owned();
    }
    let row = |letter: &Letter| {
        let key = letter.original.as_ref().and_then(|event| event.key.as_ref());
        vec![
            letter.short(),
            letter.kind().to_owned(),
            moment(letter.ts),
            letter.topic.to_string(),
            letter.group.to_string(),
            key.map_or("-".into(), |key| output::plain(key.as_str())),
            letter.attempts.to_string(),
            letter.state.clone(),
            shortened(&letter.err),
        ]
    };
    let rows: Vec<Vec<String>> = letters.iter().map(row).collect();
    let headings =
        ["ID", "KIND", "GIVEN UP", "TOPIC", "GROUP", "KEY", "ATTEMPTS", "STATE", "ERROR"];
    output::table(&headings, &rows)
}

/// The first line, and not too much of it.
fn shortened(error: &str) -> String {
    let line = output::plain(error.lines().next().unwrap_or_default());
    let mut text: String = line.chars().take(60).collect();
    if text.len() < error.len() {
        text.push('…');
    }
    text
}
