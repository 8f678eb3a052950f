//! `prom group`: who reads what, how far, and from where.

use clap::{Args, Subcommand};
use promethean_event::{GroupName, Pattern};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Status;
use crate::clock;
use crate::consent::{Consent, Harm};
use crate::output::{self, Output};
use crate::reach::{Ask, At, Missing, Reach, segment};
use crate::times::{self, When};

/// Look at groups, move and remove them.
#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// List groups with their lag: events that are not finished, and the age of the oldest.
    Ls(List),
    /// Show how a group delivers and where it is, by partition.
    Get(Get),
    /// Move a group to another place, also while its members run.
    Seek(Seek),
    /// Forget a group that has no members.
    Rm(Remove),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
pub(crate) struct Get {
    /// The group.
    group: GroupName,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  prom group seek ops --to earliest --dry-run
  prom group seek ops --to 'last tuesday 14:00' --topic orders.placed
  prom group seek ops --to 01a1e27c-651e-7436-8169-22c4b9e53898      after this event")]
pub(crate) struct Seek {
    /// The group.
    group: GroupName,
    /// Where to: earliest, latest, a time, or the id of an event to go on after.
    #[arg(long, value_name = "TIME")]
    to: String,
    /// Only in these topics.
    #[arg(long, value_name = "PATTERN", default_value = "**")]
    topic: Pattern,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// The group.
    group: GroupName,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Deserialize)]
struct Lags {
    groups: Vec<Lag>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Lag {
    group: GroupName,
    members: u64,
    events: u64,
    age_ms: u64,
    partitions: Vec<LaneLag>,
}

#[derive(Debug, Serialize, Deserialize)]
struct LaneLag {
    topic: String,
    partition: u32,
    cursor: u64,
    end: u64,
    events: u64,
    out: u64,
    holes: u64,
    parked: u64,
    age_ms: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Shown {
    settings: serde_json::Map<String, serde_json::Value>,
    #[serde(flatten)]
    lag: Lag,
}

pub(crate) fn run(command: GroupCommand, output: &Output) -> anyhow::Result<Status> {
    super::block_on(async move {
        let at = match &command {
            GroupCommand::Ls(List { at })
            | GroupCommand::Get(Get { at, .. })
            | GroupCommand::Seek(Seek { at, .. })
            | GroupCommand::Rm(Remove { at, .. }) => at,
        };
        let reach = at.open(Missing::Refuse).await?;
        let done = match &command {
            GroupCommand::Ls(_) => ls(&reach, output).await,
            GroupCommand::Get(get) => show(get, &reach, output).await,
            GroupCommand::Seek(wish) => seek(wish, &reach, output).await,
            GroupCommand::Rm(wish) => rm(wish, &reach, output).await,
        };
        reach.close().await;
        done
    })
}

fn behind(events: u64, age_ms: u64) -> String {
    if events == 0 { "-".into() } else { output::span(age_ms) }
}

async fn ls(reach: &Reach, output: &Output) -> anyhow::Result<Status> {
    let groups = reach.json::<Lags>(Ask::get("/lag")).await?.groups;
    output.list("groups", &groups, |groups| {
        if groups.is_empty() {
            return "no groups yet; a group is made by its first subscriber".to_owned();
        }
        let row = |one: &Lag| {
            let mut topics: Vec<&str> =
                one.partitions.iter().map(|lane| lane.topic.as_str()).collect();
            topics.dedup();
            let out: u64 = one.partitions.iter().map(|lane| lane.out).sum();
            vec![
                one.group.to_string(),
                one.members.to_string(),
                output::grouped(one.events),
                behind(one.events, one.age_ms),
                out.to_string(),
                topics.join(", "),
            ]
        };
        let rows: Vec<Vec<String>> = groups.iter().map(row).collect();
        output::table(&["GROUP", "MEMBERS", "LAG", "OLDEST", "OUT", "READS"], &rows)
    })?;
    Ok(Status::Done)
}

async fn show(get: &Get, reach: &Reach, output: &Output) -> anyhow::Result<Status> {
    let shown: Shown =
        reach.json(Ask::get(format!("/groups/{}", segment(get.group.as_str())))).await?;
    output.record(&shown, |shown| {
        let mut text = format!("{}\n", shown.lag.group);
        for (name, value) in shown.settings.iter().filter(|(_, value)| !value.is_null()) {
            let value = said(value);
            text.push_str(&format!("  {name:<18} {value}\n"));
        }
        let row = |lane: &LaneLag| {
            vec![
                format!("  {}/{}", lane.topic, lane.partition),
                lane.cursor.to_string(),
                lane.end.to_string(),
                output::grouped(lane.events),
                behind(lane.events, lane.age_ms),
                lane.out.to_string(),
                lane.parked.to_string(),
            ]
        };
        let rows: Vec<Vec<String>> = shown.lag.partitions.iter().map(row).collect();
        let headings = ["  PARTITION", "CURSOR", "END", "LAG", "OLDEST", "OUT", "PARKED"];
        text.push_str(&output::table(&headings, &rows));
        text
    })?;
    Ok(Status::Done)
}

/// A setting as people write it.
fn said(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Array(values) => values.iter().map(said).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Moves {
    applied: bool,
    moves: Vec<Moved>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Moved {
    topic: String,
    partition: u32,
    from: u64,
    to: u64,
    again: i64,
}

async fn seek(wish: &Seek, reach: &Reach, output: &Output) -> anyhow::Result<Status> {
    let now = clock::now();
    let when = times::parse(&wish.to, &now)?;
    output.progress(&format!("to {}", when.echo(&now)));
    let to = match when {
        When::Earliest => json!("earliest"),
        When::Latest => json!("latest"),
        When::At(_) => json!({ "ts": when.moment(&now)?.millis }),
        When::After(id) => json!({ "after_id": id }),
    };
    let path = format!("/groups/{}/seek", segment(wish.group.as_str()));
    let ask = |apply: bool| {
        let body = json!({ "topics": wish.topic, "to": to, "apply": apply });
        Ask::post(path.clone()).json(&body)
    };
    let plan: Moves = reach.json(ask(false)).await?;
    output.progress(&planned(wish, &plan.moves, &reach.place()));
    if plan.moves.iter().all(|one| one.again == 0) {
        output.progress("it is there already");
        return Ok(Status::Done);
    }
    let name = wish.group.to_string();
    let harm = if reach.is_protected() { Harm::Severe(&name) } else { Harm::Moderate };
    if !wish.consent.given(harm, output)? {
        return Ok(Status::Done);
    }
    let done: Moves = reach.json(ask(true)).await?;
    output.record(&done, |done| {
        let partitions = output::count(done.moves.len(), "partition", "partitions");
        format!("moved {} in {partitions}", wish.group)
    })?;
    output.hint(&format!("see how it catches up: prom group ls{}", reach.flag()));
    Ok(Status::Done)
}

fn planned(wish: &Seek, moves: &[Moved], place: &str) -> String {
    let again: i64 = moves.iter().map(|one| one.again.max(0)).sum();
    let passed: i64 = moves.iter().map(|one| (-one.again).max(0)).sum();
    let mut text = format!(
        "Plan: move group {} at {place}: {} events come again, {} are passed over\n",
        wish.group,
        output::grouped(again.unsigned_abs()),
        output::grouped(passed.unsigned_abs()),
    );
    let row = |one: &Moved| {
        let to = format!("{} -> {}", one.from, one.to);
        vec![format!("  {}/{}", one.topic, one.partition), to, format!("{:+}", one.again)]
    };
    let rows: Vec<Vec<String>> = moves.iter().map(row).collect();
    text.push_str(&output::table(&["  PARTITION", "CURSOR", "AGAIN"], &rows));
    text
}

async fn rm(wish: &Remove, reach: &Reach, output: &Output) -> anyhow::Result<Status> {
    let path = format!("/groups/{}", segment(wish.group.as_str()));
    let shown: Shown = reach.json(Ask::get(path.clone())).await?;
    let unread = output::grouped(shown.lag.events);
    output.progress(&format!(
        "Plan: forget group {} at {}, with {unread} events that it has not finished",
        wish.group,
        reach.place()
    ));
    if !wish.consent.given(Harm::Severe(wish.group.as_str()), output)? {
        return Ok(Status::Done);
    }
    reach.json::<serde_json::Value>(Ask::delete(path)).await?;
    output.record(&json!({ "removed": wish.group }), |_| format!("removed {}", wish.group))?;
    Ok(Status::Done)
}
