//! Mending the event of a dead letter in an editor.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use promethean_event::Event;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::named;
use crate::command::Status;
use crate::consent::Consent;
use crate::failure::Failure;
use crate::output::Output;
use crate::reach::{Ask, At, Reach};

#[derive(Debug, Args)]
pub(crate) struct Edit {
    /// Id of the dead letter, or its end.
    id: String,
    /// Take the event from a file instead of an editor; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    with: Option<PathBuf>,
    /// Publish it to everybody, not only to the group that gave it up.
    #[arg(long)]
    all_groups: bool,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    pub(super) at: At,
}

/// What can be changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Editable {
    payload: Value,
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    headers: serde_json::Map<String, Value>,
}

impl Editable {
    fn of(event: &Event) -> anyhow::Result<Self> {
        let payload = serde_json::from_str(event.payload.as_str())?;
        let key = event.key.as_ref().map(ToString::to_string);
        let headers = event.headers.iter().map(|(name, value)| (name.to_owned(), json!(value)));
        Ok(Self { payload, key, headers: headers.collect() })
    }
}

pub(super) async fn run(edit: &Edit, reach: &Reach, output: &Output) -> anyhow::Result<Status> {
    let letter = named(reach, &edit.id).await?;
    if letter.state != "waiting" {
        let what = format!("dead letter {} was {} already", edit.id, letter.state);
        return Err(Failure::new(Status::Conflict, what).into());
    }
    let event = letter.original.as_ref().context("the event was gone before it could be copied")?;
    let before = serde_json::to_string_pretty(&Editable::of(event)?)?;
    let after = match &edit.with {
        Some(file) if file == Path::new("-") => std::io::read_to_string(std::io::stdin())?,
        Some(file) => {
            fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?
        }
        None => edited(&before)?,
    };
    let changed: Editable = serde_json::from_str(&after).map_err(|error| {
        Failure::usage(format!("what was written is not {{payload, key?, headers?}}: {error}"))
    })?;
    if changed == Editable::of(event)? {
        output.progress("nothing was changed; to try it as it is: prom dlq replay");
        return Ok(Status::Done);
    }
    let after = serde_json::to_string_pretty(&changed)?;
    output.progress(&format!("Plan: replay {} with this change", letter.id));
    output.progress(&difference(&before, &after, output));
    let whom =
        if edit.all_groups { "all groups".into() } else { format!("group {} only", letter.group) };
    output.progress(&format!("  deliver to  {whom}"));
    if !edit.consent.given(super::harm(reach), output)? {
        return Ok(Status::Done);
    }
    let to = if edit.all_groups { "all_groups" } else { "failing_group" };
    let ask = Ask::post(format!("/dead-letters/{}/replay", letter.id));
    reach.json::<Value>(ask.json(&json!({ "to": to, "event": changed }))).await?;
    output.record(&json!({ "replayed": letter.id }), |_| {
        format!("replayed {}, changed", letter.id)
    })?;
    Ok(Status::Done)
}

/// Lets the user change a text in his editor.
fn edited(text: &str) -> anyhow::Result<String> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let editor = set("VISUAL").or_else(|| set("EDITOR")).ok_or_else(|| {
        Failure::usage("there is no editor").hint("set EDITOR, or give a file with --with FILE")
    })?;
    let file = tempfile::Builder::new().prefix("dead-letter-").suffix(".json").tempfile()?;
    fs::write(file.path(), text)?;
    // An editor may be given with arguments.
    let mut words = editor.split_whitespace();
    let program = words.next().unwrap_or("vi");
    let ended = std::process::Command::new(program).args(words).arg(file.path()).status();
    let ended = ended.with_context(|| format!("cannot start {editor}"))?;
    if !ended.success() {
        return Err(
            Failure::new(Status::Failed, format!("{editor} failed; nothing was changed")).into()
        );
    }
    Ok(fs::read_to_string(file.path())?)
}

/// Lines that are only in one of two texts, in order.
fn difference(before: &str, after: &str, output: &Output) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let mut same = 0;
    while same < old.len() && old.get(same) == new.get(same) {
        same += 1;
    }
    let mut end = 0;
    while end < old.len().min(new.len()) - same.min(old.len().min(new.len()))
        && old.get(old.len() - 1 - end) == new.get(new.len() - 1 - end)
    {
        end += 1;
    }
    let part = |lines: &[&str], mark: &str| {
        let lines = lines.get(same..lines.len() - end).unwrap_or_default();
        lines.iter().map(|line| format!("  {mark} {line}")).collect::<Vec<_>>()
    };
    let paint = output.aside();
    let gone = part(&old, "-").into_iter().map(|line| paint.bad(&line));
    let come = part(&new, "+").into_iter().map(|line| paint.good(&line));
    gone.chain(come).collect::<Vec<_>>().join("\n")
}
