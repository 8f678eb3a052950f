//! `prom replay`: much of what has been, to another topic or to one group.

use clap::Args;
use promethean_event::{GroupName, Pattern, Topic};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::Status;
use super::job::{Job, progress, shown};
use crate::consent::{Consent, Harm};
use crate::output::{self, Output};
use crate::reach::{Ask, At, Reach};
use crate::times;

/// Publish stored events again: to another topic, or once more for one group. A second run adds
/// nothing.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  prom replay process.state --to process.copy --dry-run
  prom replay 'orders.**' --to orders.all --where 'payload.total > 100.0' --since yesterday
  prom replay orders.placed --to orders.v2 --map '{\"id\": payload.id, \"sum\": payload.total}'
  prom replay orders.placed --group billing --since '2 hours ago' --rate 500 --yes")]
pub(crate) struct Replay {
    /// Topic or pattern to read.
    #[arg(value_name = "SRC")]
    from: Pattern,
    /// Topic to publish to.
    #[arg(long, value_name = "DST", required_unless_present = "group")]
    to: Option<Topic>,
    /// Group that gets the events once more, in their own topics; others pass them over.
    #[arg(long, value_name = "G", conflicts_with = "to")]
    group: Option<GroupName>,
    /// Only events for which this CEL expression is true.
    #[arg(long, value_name = "CEL")]
    r#where: Option<String>,
    /// CEL expression for the new payload, over `payload`, `key`, `headers`, `ts`, `topic`, `id`;
    /// `null` leaves an event out.
    #[arg(long, value_name = "CEL")]
    map: Option<String>,
    /// Only what was taken from this time on.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only what was taken before this time.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// So many events in a second at most.
    #[arg(long, value_name = "EVENTS")]
    rate: Option<u32>,
    /// Do not wait for its end; see `prom job`.
    #[arg(long)]
    detach: bool,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    at: At,
}

pub(crate) fn run(wish: Replay, output: &Output) -> anyhow::Result<Status> {
    super::block_on(async move {
        let reach = wish.at.open_workshop().await?;
        let done = replay(&wish, &reach, output).await;
        reach.close().await;
        done
    })
}

/// The body of the request.
fn body(wish: &Replay, output: &Output) -> anyhow::Result<Value> {
    let said = [
        ("from", Some(json!(wish.from))),
        ("to", wish.to.as_ref().map(|topic| json!(topic))),
        ("group", wish.group.as_ref().map(|group| json!(group))),
        ("where", wish.r#where.as_ref().map(|filter| json!(filter))),
        ("map", wish.map.as_ref().map(|map| json!(map))),
        ("since", times::told("since", wish.since.as_deref(), output)?.map(|ms| json!(ms))),
        ("until", times::told("until", wish.until.as_deref(), output)?.map(|ms| json!(ms))),
        ("rate", wish.rate.map(|rate| json!(rate))),
    ];
    let body: Map<String, Value> =
        said.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    Ok(Value::Object(body))
}

async fn replay(wish: &Replay, reach: &Reach, output: &Output) -> anyhow::Result<Status> {
    let body = body(wish, output)?;
    let ask = Ask::post("/replays").query("dry_run", Some("true")).json(&body);
    let answer: Box<RawValue> = reach.json(ask).await?;
    let plan: Value = serde_json::from_str(answer.get())?;
    let examples: Shown = serde_json::from_str(answer.get())?;
    let text = planned(&plan, &examples, &reach.place());
    if wish.consent.is_dry_run() {
        output.record(&plan, |_| text)?;
    } else {
        output.progress(&text);
    }
    if !wish.consent.given(Harm::Moderate, output)? {
        return Ok(Status::Done);
    }
    let job: Job = reach.json(Ask::post("/replays").json(&body)).await?;
    if wish.detach && matches!(reach, Reach::There(_)) {
        output.record(&job, shown)?;
        output.hint(&format!("see: prom job show {}{}", job.id, reach.flag()));
        return Ok(Status::Done);
    }
    progress(reach, job, output).await
}

/// How much of a key, and of a payload, a plan shows.
const KEY_CHARS: usize = 40;
const PAYLOAD_CHARS: usize = 100;

/// What of a plan is shown as it was written.
#[derive(Debug, Deserialize)]
struct Shown {
    examples: Vec<Example>,
}

#[derive(Debug, Deserialize)]
struct Example {
    key: Option<String>,
    payload: Box<RawValue>,
}

fn planned(plan: &Value, shown: &Shown, place: &str) -> String {
    let number = |name: &str| plan.get(name).and_then(Value::as_u64).unwrap_or(0);
    let replay = plan.get("replay");
    let target = |name: &str| replay.and_then(|replay| replay.get(name)?.as_str());
    let to = match (target("to"), target("group")) {
        (Some(topic), _) => topic.to_owned(),
        (None, group) => format!("group {}", group.unwrap_or_default()),
    };
    let mut lines = vec![format!("Plan: replay at {place}")];
    for topic in plan.get("topics").and_then(Value::as_array).into_iter().flatten() {
        let name = topic.get("topic").and_then(Value::as_str).unwrap_or_default();
        let events = topic.get("events").and_then(Value::as_u64).unwrap_or(0);
        lines.push(format!("  {name} -> {to}   {} events", output::grouped(events)));
    }
    let whole = plan.get("complete") == Some(&Value::Bool(true));
    let least = if whole { "" } else { "of the first part, " };
    let left_out = number("duplicates") + number("refused");
    lines.push(format!(
        "  {least}{} of {} would be published, {} are there already, {} would be refused",
        output::grouped(number("wanted").saturating_sub(left_out)),
        output::grouped(number("read")),
        output::grouped(number("duplicates")),
        output::grouped(number("refused")),
    ));
    for refused in plan.get("refusals").and_then(Value::as_array).into_iter().flatten().take(3) {
        let text = |name: &str| refused.get(name).and_then(Value::as_str).unwrap_or_default();
        lines.push(format!("    refused {}: {}", text("position"), output::plain(text("why"))));
    }
    if !shown.examples.is_empty() {
        lines.push("  such as".to_owned());
    }
    let width = |example: &Example| example.key.as_ref().map_or(1, |key| key.chars().count());
    let width = shown.examples.iter().map(width).max().unwrap_or(0).min(KEY_CHARS);
    for example in &shown.examples {
        let key = output::beginning(example.key.as_deref().unwrap_or("-"), KEY_CHARS);
        let payload = output::beginning(example.payload.get(), PAYLOAD_CHARS);
        lines.push(format!("    {key:width$}  {payload}"));
    }
    lines.join("\n")
}
