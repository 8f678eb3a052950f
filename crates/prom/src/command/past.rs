//! `prom at`, `diff`, `why`, `history`: looking back.

use clap::Args;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Status;
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::reach::{Ask, At, Reach, TextLines, segment};
use crate::times;

/// Show a document as it was, and what it was made of.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  prom at '1 minute ago' processes dev:stt:1
  prom at 'last tuesday 14:00' processes --all
  prom at orders/0/42 totals k7                      after that event
  prom at now totals k7 --reduce 'state == null ? payload.n : state + payload.n'")]
pub(crate) struct AtMoment {
    /// A time, or a position: topic/partition/offset.
    #[arg(value_name = "TIME")]
    time: String,
    /// The view.
    view: String,
    /// The key.
    #[arg(required_unless_present = "all")]
    key: Option<String>,
    /// All documents of the view, one on each line.
    #[arg(long, conflicts_with_all = ["key", "reduce"])]
    all: bool,
    /// By the times that events say of themselves, as it is known today.
    #[arg(long)]
    by_event: bool,
    /// Fold all events of the key by this CEL expression over `state` and `payload` instead.
    #[arg(long, value_name = "CEL")]
    reduce: Option<String>,
    /// In the form of this version of the topic's schema.
    #[arg(long, value_name = "VERSION", conflicts_with = "all")]
    reads: Option<u32>,
    #[command(flatten)]
    at: At,
}

/// Show what has changed in a document between two times, with the event behind each change.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  prom diff processes dev:stt:1 --from '10 minutes ago'
  prom diff processes dev:stt:1 --from yesterday --to 'today 08:00' --json")]
pub(crate) struct Diff {
    /// The view.
    view: String,
    /// The key.
    key: String,
    /// Since when: a time or a position.
    #[arg(long, value_name = "TIME")]
    from: String,
    /// Until when.
    #[arg(long, value_name = "TIME", default_value = "now")]
    to: String,
    /// By the times that events say of themselves.
    #[arg(long)]
    by_event: bool,
    #[command(flatten)]
    at: At,
}

/// Show since which event a member of a document is what it is.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  prom why processes dev:stt:1 /status
  prom why processes dev:stt:1                        every member")]
pub(crate) struct Why {
    /// The view.
    view: String,
    /// The key.
    key: String,
    /// The member, as a JSON pointer such as /status [default: each].
    pointer: Option<String>,
    #[command(flatten)]
    at: At,
}

/// Show the events of a key, newest first, with what each has changed.
#[derive(Debug, Args)]
pub(crate) struct History {
    /// The view.
    view: String,
    /// The key.
    key: String,
    /// So many at most.
    #[arg(long, short = 'c', value_name = "COUNT", default_value_t = 100)]
    limit: usize,
    #[command(flatten)]
    at: At,
}

/// A moment as the address has it, and what was understood.
fn moment(word: &str, text: &str, output: &Output) -> anyhow::Result<String> {
    if text.contains('/') {
        return Ok(text.to_owned());
    }
    let millis = times::told(word, Some(text), output)?;
    Ok(millis.unwrap_or_default().to_string())
}

fn by(is_by_event: bool) -> Option<&'static str> {
    is_by_event.then_some("event")
}

/// Asks one thing, and lets go.
async fn asked<T: serde::de::DeserializeOwned>(at: &At, ask: Ask) -> anyhow::Result<T> {
    let reach = at.open_workshop().await?;
    let found = reach.json(ask).await;
    reach.close().await;
    found
}

/// The part of an answer whose members are shown in their order.
#[derive(Debug, Deserialize)]
struct Documented<'a> {
    #[serde(borrow, default)]
    document: Option<&'a RawValue>,
}

/// How much is shown of what an event has changed.
const CHANGE_CHARS: usize = 160;
/// What the empty pointer points to.
const WHOLE: &str = "the document";

fn text_of<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Epoch milliseconds as a time.
pub(super) fn time_of(value: &Value, name: &str) -> String {
    let millis = value.get(name).and_then(Value::as_i64);
    let at = millis.and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
    at.map_or_else(String::new, |at| at.to_string())
}

/// An event in a few words.
fn event(value: Option<&Value>) -> String {
    let Some(event) = value.filter(|event| !event.is_null()) else {
        return "an event that is not kept".to_owned();
    };
    let (position, id) = (text_of(event, "position"), text_of(event, "id"));
    format!("{position}  {}  {id}", time_of(event, "appended_at"))
}

pub(crate) fn at(wish: AtMoment, output: &Output) -> anyhow::Result<Status> {
    super::block_on(async move {
        let time = moment("as of", &wish.time, output)?;
        let Some(key) = &wish.key else {
            let reach = wish.at.open_workshop().await?;
            let done = all(&wish, &time, &reach, output).await;
            reach.close().await;
            return done;
        };
        let path = format!("/views/{}/at/{}", segment(&wish.view), segment(key));
        let ask = Ask::get(path)
            .query("at", Some(time))
            .query("by", by(wish.by_event))
            .query("reduce", wish.reduce.as_ref())
            .query("version", wish.reads);
        let answer: Box<RawValue> = asked(&wish.at, ask).await?;
        let found: Value = serde_json::from_str(answer.get())?;
        let document = serde_json::from_str::<Documented<'_>>(answer.get())?.document;
        let document = document.map_or("null", RawValue::get);
        output.record(&found, |found| explained(found, key, document))?;
        let is_there = text_of(&found, "outcome") == "document";
        Ok(if is_there { Status::Done } else { Status::NotFound })
    })
}

fn explained(found: &Value, key: &str, document: &str) -> String {
    let events = found.get("events").and_then(Value::as_array);
    let last = events.and_then(|events| events.last());
    let mut lines = Vec::new();
    match text_of(found, "outcome") {
        "document" => {
            lines.push(output::indented(document));
            let others = found.get("folded").and_then(Value::as_u64).unwrap_or(1).saturating_sub(1);
            let others = match others {
                0 => String::new(),
                count => format!("{} events and ", output::grouped(count)),
            };
            lines.push(format!("built from {others}{}", event(last)));
        }
        "deleted" => lines.push(format!("{key} was deleted by {}", event(last))),
        "before_history" => {
            let start = found.get("history_starts_at");
            let first = start.and_then(|start| start.get("first_of_key"));
            lines.push(format!("not kept any more: the history of {key} starts later"));
            lines.push(format!("first kept  {}", event(first)));
        }
        _ => lines.push(format!("{key} had never been there")),
    }
    if found.get("complete") == Some(&Value::Bool(false)) {
        let said = "incomplete: events in between may have been compacted away";
        lines.push(said.to_owned());
    }
    lines.join("\n")
}

/// All documents, as they come; a stream that was cut off is a failure.
async fn all(
    wish: &AtMoment,
    time: &str,
    reach: &Reach,
    output: &Output,
) -> anyhow::Result<Status> {
    let ask = Ask::get(format!("/views/{}/at", segment(&wish.view)))
        .query("at", Some(time))
        .query("by", by(wish.by_event));
    let mut lines = TextLines::of(reach.stream(ask).await?);
    while let Some(line) = lines.next().await? {
        let Some(end) = line.strip_prefix("{\"end\":") else {
            let line = if output.is_text() { output::plain(&line) } else { line };
            output.print(&line)?;
            continue;
        };
        let end: Value = serde_json::from_str(end.strip_suffix('}').unwrap_or(end))?;
        if let Some(error) = end.get("error").and_then(Value::as_str) {
            return Err(Failure::new(Status::Failed, error).into());
        }
        let documents = end.get("documents").and_then(Value::as_u64).unwrap_or(0);
        let lost = end.get("before_history").and_then(Value::as_u64).unwrap_or(0);
        output.hint(&format!("{} documents", output::grouped(documents)));
        if lost > 0 {
            output
                .progress(&format!("warning: of {lost} keys, what they were is not kept any more"));
        }
        if end.get("complete") == Some(&Value::Bool(true)) {
            return Ok(Status::Done);
        }
        if lost == 0 {
            output.progress("warning: keys may be missing of which nothing is kept any more");
        }
        return Ok(Status::Partial);
    }
    Err(Failure::new(Status::Unreachable, "the answer broke off before its end").into())
}

pub(crate) fn diff(wish: Diff, output: &Output) -> anyhow::Result<Status> {
    super::block_on(async move {
        let (from, to) = (moment("from", &wish.from, output)?, moment("to", &wish.to, output)?);
        let path = format!("/views/{}/diff/{}", segment(&wish.view), segment(&wish.key));
        let ask = Ask::get(path)
            .query("from", Some(from))
            .query("to", Some(to))
            .query("by", by(wish.by_event));
        let found: Value = asked(&wish.at, ask).await?;
        output.record(&found, |found| {
            let changes = found.get("patch").and_then(Value::as_array).cloned().unwrap_or_default();
            if changes.is_empty() {
                return "nothing has changed".to_owned();
            }
            let line = |change: &Value| {
                let shown = |name: &str| {
                    change
                        .get(name)
                        .map_or_else(|| "-".to_owned(), |v| output::plain(&v.to_string()))
                };
                let path = text_of(change, "path");
                let path = if path.is_empty() { WHOLE } else { path };
                let is_none = |name: &str| change.get(name).is_none_or(Value::is_null);
                let what = match text_of(change, "op") {
                    "remove" => format!("- {path}: {}", shown("was")),
                    "add" => format!("+ {path}: {}", shown("value")),
                    // The whole document: there was none, or there is none any more.
                    _ if is_none("was") && path == WHOLE => format!("+ {path}: {}", shown("value")),
                    _ if is_none("value") && path == WHOLE => format!("- {path}: {}", shown("was")),
                    _ => format!("~ {path}: {} -> {}", shown("was"), shown("value")),
                };
                format!("{what}\n    by {}", event(change.get("event")))
            };
            changes.iter().map(line).collect::<Vec<_>>().join("\n")
        })?;
        Ok(Status::Done)
    })
}

pub(crate) fn why(wish: Why, output: &Output) -> anyhow::Result<Status> {
    super::block_on(async move {
        let path = format!("/views/{}/why/{}", segment(&wish.view), segment(&wish.key));
        let found: Value =
            asked(&wish.at, Ask::get(path).query("pointer", wish.pointer.as_ref())).await?;
        output.record(&found, |found| {
            let members = found.get("members").and_then(Value::as_array);
            let line = |member: &Value| {
                let value = match member.get("value") {
                    None | Some(Value::Null) => "is not there".to_owned(),
                    Some(value) => format!("is {}", output::plain(&value.to_string())),
                };
                let was = match member.get("was") {
                    None | Some(Value::Null) => String::new(),
                    Some(was) => format!(", was {}", output::plain(&was.to_string())),
                };
                let pointer = text_of(member, "pointer");
                let pointer = if pointer.is_empty() { WHOLE } else { pointer };
                format!("{pointer} {value}{was}\n    since {}", event(member.get("event")))
            };
            let mut lines: Vec<String> = members.into_iter().flatten().map(line).collect();
            if found.get("complete") == Some(&Value::Bool(false)) {
                lines.push("as far as is kept: older events may be gone".to_owned());
            }
            lines.join("\n")
        })?;
        Ok(Status::Done)
    })
}

pub(crate) fn history(wish: History, output: &Output) -> anyhow::Result<Status> {
    super::block_on(async move {
        let path = format!("/views/{}/history/{}", segment(&wish.view), segment(&wish.key));
        let found: Value = asked(&wish.at, Ask::get(path).query("limit", Some(wish.limit))).await?;
        if output.is_document() {
            output.record(&found, |_| String::new())?;
            return Ok(Status::Done);
        }
        let steps = found.get("steps").and_then(Value::as_array).cloned().unwrap_or_default();
        output.list("steps", &steps, |steps| {
            let line = |step: &Value| {
                let patch = step.get("patch").and_then(Value::as_array);
                let change = |operation: &Value| {
                    let path = text_of(operation, "path");
                    let path = if path.is_empty() { WHOLE } else { path };
                    match operation.get("value") {
                        Some(value) => format!("{path} = {}", output::plain(&value.to_string())),
                        None => format!("{path} gone"),
                    }
                };
                let changes: Vec<String> = patch.into_iter().flatten().map(change).collect();
                let effect = match text_of(step, "effect") {
                    "delete" => "deleted".to_owned(),
                    _ if changes.is_empty() => "put again, the same".to_owned(),
                    effect => {
                        format!(
                            "{effect}  {}",
                            output::beginning(&changes.join(", "), CHANGE_CHARS)
                        )
                    }
                };
                format!("{}\n    {effect}", event(Some(step)))
            };
            let mut lines: Vec<String> = steps.iter().map(line).collect();
            if found.get("complete") == Some(&Value::Bool(false)) {
                lines.push("as far as is kept: older events may be gone".to_owned());
            }
            lines.join("\n")
        })?;
        Ok(Status::Done)
    })
}
