//! Bulk work on dead letters: a plan, a yes, then one by one, each settled as it is done.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::Args;
use promethean_event::{Event, EventId, Topic};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::letter::Letter;
use super::{LISTED_MAX, Selection, harm, letters, named};
use crate::command::Status;
use crate::consent::Consent;
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::reach::{Ask, At, Reach};
use crate::times::moment;

#[derive(Debug, Args)]
struct Chosen {
    /// Ids of dead letters, or their ends.
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// All that wait.
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    #[command(flatten)]
    which: Selection,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  prom dlq replay 9f3ac1                       one, by the end of its id
  prom dlq replay --error 3a9c0d11 --dry-run   all with this kind of error: only the plan
  prom dlq replay --topic orders.* --rate 50 --yes")]
pub(crate) struct Replay {
    #[command(flatten)]
    chosen: Chosen,
    /// Publish them again to everybody, not only to the group that gave them up.
    #[arg(long)]
    all_groups: bool,
    /// So many in a second at most.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    pub(super) at: At,
}

#[derive(Debug, Args)]
pub(crate) struct Remove {
    #[command(flatten)]
    chosen: Chosen,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    pub(super) at: At,
}

impl Chosen {
    async fn find(&self, reach: &Reach) -> anyhow::Result<Vec<Letter>> {
        if self.ids.is_empty() && !self.all && self.which.is_empty() {
            let what = "say which dead letters: ids, --error, --topic, --group or --all";
            let hint = format!("see them with: prom dlq ls{}", reach.flag());
            return Err(Failure::usage(what).hint(hint).into());
        }
        if self.ids.is_empty() {
            return letters(reach, &self.which, "waiting").await;
        }
        let mut found = Vec::new();
        for id in &self.ids {
            let letter = named(reach, id).await?;
            if letter.state != "waiting" {
                let what = format!("dead letter {id} was {} already", letter.state);
                return Err(Failure::new(Status::Conflict, what).into());
            }
            found.push(letter);
        }
        Ok(found)
    }
}

/// What was done, and to which.
#[derive(Debug, Default, Serialize)]
struct Outcome {
    done: Vec<EventId>,
    failed: Vec<Unchanged>,
}

#[derive(Debug, Serialize)]
struct Unchanged {
    id: EventId,
    code: String,
    detail: String,
}

fn plan(verb: &str, letters: &[Letter], place: &str) -> String {
    let number = output::count(letters.len(), "dead letter", "dead letters");
    let mut lines = vec![format!("Plan: {verb} {number} at {place}")];
    let mut by_group: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for letter in letters {
        *by_group.entry((letter.topic.as_str(), letter.group.as_str())).or_default() += 1;
    }
    for ((topic, group), count) in by_group {
        lines.push(format!("  {topic} -> group {group}   {count}"));
    }
    let times = letters.iter().map(|letter| letter.ts);
    if let (Some(oldest), Some(newest)) = (times.clone().min(), times.max()) {
        lines.push(format!("  given up         {} … {}", moment(oldest), moment(newest)));
    }
    let keys: BTreeSet<_> =
        letters.iter().filter_map(|l| l.original.as_ref()?.key.as_ref()).collect();
    if !keys.is_empty() {
        lines.push(format!("  keys             {}", keys.len()));
    }
    let returned = letters.iter().filter(|letter| letter.round > 0).count();
    if returned > 0 {
        lines.push(format!("  came back before {returned}"));
    }
    lines.join("\n")
}

/// So many keys are looked up for a plan, and so many in one request.
const KEYS_MAX: usize = 200;
const KEYS_AT_ONCE: usize = 20;

#[derive(Deserialize)]
struct Newest {
    events: BTreeMap<String, Option<Event>>,
    /// Keys that the answer had no room for.
    #[serde(default)]
    left: Vec<String>,
}

/// How many keys have events that are newer than what is to be replayed: a consumer that keeps the
/// last one it saw would go back. A plan goes without what cannot be found out.
async fn overtaken(letters: &[Letter], reach: &Reach) -> usize {
    let mut newest: BTreeMap<&Topic, BTreeMap<&str, u64>> = BTreeMap::new();
    for letter in letters {
        if let Some(key) = letter.original.as_ref().and_then(|event| event.key.as_ref()) {
            let offsets = newest.entry(&letter.topic).or_default();
            let offset = offsets.entry(key.as_str()).or_default();
            *offset = letter.offset.max(*offset);
        }
    }
    let mut count = 0;
    for (topic, offsets) in newest {
        let mut open: Vec<String> =
            offsets.keys().take(KEYS_MAX).map(|key| (*key).to_owned()).collect();
        while !open.is_empty() {
            let some = open.split_off(open.len().saturating_sub(KEYS_AT_ONCE));
            let ask = Ask::get("/latest-by-key").query("topic", Some(topic));
            let ask = some.iter().fold(ask, |ask, key| ask.query("key", Some(key)));
            let Ok(found) = reach.json::<Newest>(ask).await else { continue };
            if found.left.len() < some.len() {
                open.extend(found.left);
            }
            let is_newer = |(key, event): &(&String, &Option<Event>)| {
                let known = offsets.get(key.as_str());
                let offset = event.as_ref().map(|event| event.offset.get());
                offset.zip(known).is_some_and(|(newest, known)| newest > *known)
            };
            count += found.events.iter().filter(is_newer).count();
        }
    }
    count
}

pub(super) async fn run(wish: &Replay, reach: &Reach, output: &Output) -> anyhow::Result<Status> {
    let found = wish.chosen.find(reach).await?;
    if found.is_empty() {
        output.progress("no dead letters match; nothing to do");
        return Ok(Status::Done);
    }
    output.progress(&plan("replay", &found, &reach.place()));
    let overtaken = overtaken(&found, reach).await;
    if overtaken > 0 {
        let keys = output::count(overtaken, "key has", "keys have");
        let warning = format!("  order            {keys} newer events, which came first (!)");
        output.progress(&output.aside().bad(&warning));
    }
    let whom = match wish.all_groups {
        true => "all groups",
        false => "the failing group only   (others: --all-groups)",
    };
    output.progress(&format!("  deliver to       {whom}"));
    if let Some(rate) = wish.rate {
        let takes = output::span(found.len() as u64 * 1000 / u64::from(rate));
        output.progress(&format!("  rate             {rate}/s, about {takes}"));
    }
    if found.len() == LISTED_MAX {
        output.progress("  there may be more; run it again afterwards");
    }
    if !wish.consent.given(harm(reach), output)? {
        return Ok(Status::Done);
    }
    let body = if wish.all_groups { json!({ "to": "all_groups" }) } else { json!({}) };
    let ask =
        |letter: &Letter| Ask::post(format!("/dead-letters/{}/replay", letter.id)).json(&body);
    let outcome = each(&found, reach, output, (wish.rate, &ask)).await?;
    finish(&outcome, "replayed", reach, output)
}

pub(super) async fn remove(
    wish: &Remove,
    reach: &Reach,
    output: &Output,
) -> anyhow::Result<Status> {
    let found = wish.chosen.find(reach).await?;
    if found.is_empty() {
        output.progress("no dead letters match; nothing to do");
        return Ok(Status::Done);
    }
    output.progress(&plan("give up for good", &found, &reach.place()));
    if !wish.consent.given(harm(reach), output)? {
        return Ok(Status::Done);
    }
    let ask = |letter: &Letter| Ask::post(format!("/dead-letters/{}/discard", letter.id));
    let outcome = each(&found, reach, output, (None, &ask)).await?;
    finish(&outcome, "given up", reach, output)
}

/// What is asked of the server about one dead letter.
type Question<'a> = &'a dyn Fn(&Letter) -> Ask;

async fn each(
    letters: &[Letter],
    reach: &Reach,
    output: &Output,
    (rate, ask): (Option<u32>, Question<'_>),
) -> anyhow::Result<Outcome> {
    let bar = output.bar(Some(letters.len() as u64), "dead letters");
    let mut outcome = Outcome::default();
    for letter in letters {
        match reach.json::<serde_json::Value>(ask(letter)).await {
            Ok(_) => outcome.done.push(letter.id),
            Err(error) => {
                let Some(failure) = error.downcast_ref::<Failure>() else {
                    return Err(error);
                };
                // Nobody answers: the rest would fail the same way.
                if failure.status == Status::Unreachable || failure.status == Status::Denied {
                    return Err(error);
                }
                outcome.failed.push(Unchanged {
                    id: letter.id,
                    code: failure.code.clone(),
                    detail: failure.detail.clone(),
                });
            }
        }
        bar.inc(1);
        if let Some(rate) = rate {
            tokio::time::sleep(Duration::from_secs(1) / rate).await;
        }
    }
    bar.finish_and_clear();
    Ok(outcome)
}

fn finish(outcome: &Outcome, verb: &str, reach: &Reach, output: &Output) -> anyhow::Result<Status> {
    output.record(outcome, |outcome| {
        let number = output::count(outcome.done.len(), "dead letter", "dead letters");
        let mut text = format!("{verb} {number}");
        for left in &outcome.failed {
            text.push_str(&format!("\nnot {verb}: {}: {}", left.id, left.detail));
        }
        text
    })?;
    output.hint(&format!("see what is left: prom dlq ls{}", reach.flag()));
    Ok(if outcome.failed.is_empty() { Status::Done } else { Status::Partial })
}
