//! `prom evolve`: a topic from one version to the next, step by step.

use clap::{Args, Subcommand};
use promethean_event::Topic;
use serde_json::{Value, json};

use super::schema::{Source, is_good, plan_text, planned, registry_of};
use super::{Status, block_on};
use crate::consent::{Consent, Harm};
use crate::output::Output;
use crate::reach::{Ask, At, Missing};

#[derive(Debug, Subcommand)]
#[command(after_help = "The steps of a change:
  prom evolve plan    TOPIC v2.json     what it would do; nothing is changed
  prom evolve start   TOPIC v2.json     register it, and write both forms
  prom evolve status  TOPIC             who writes and reads what
  prom evolve cutover TOPIC             replay what is stored, end the old version
  prom evolve rollback TOPIC            at any time: back to the old version")]
pub(crate) enum EvolveCommand {
    /// What a new version would do to versions, groups and stored events. Exit code 100 if
    /// something speaks against it.
    Plan(Plan),
    /// Register a version, and have events written in its form too.
    Start(Start),
    /// Where a change stands: events and copies by version, mismatches, and readers.
    Status(Look),
    /// Replay everything that is stored through the casters, then write the new version only.
    Cutover(Cutover),
    /// Write the old version again.
    Rollback(Rollback),
}

#[derive(Debug, Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
pub(crate) struct Start {
    #[command(flatten)]
    source: Source,
    /// Versions in whose form events are also written [default: the new one].
    #[arg(long, value_name = "VERSIONS", value_delimiter = ',')]
    dual_write: Option<Vec<u32>>,
    /// Start against objections, except those by which stored events would be lost. Who did it and
    /// why is kept.
    #[arg(long, value_name = "REASON")]
    force: Option<String>,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
pub(crate) struct Look {
    /// The topic.
    #[arg(value_name = "TOPIC")]
    topic: Topic,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
pub(crate) struct Cutover {
    /// The topic.
    #[arg(value_name = "TOPIC")]
    topic: Topic,
    /// Write all that is stored into this topic too, in the new form and in its order.
    #[arg(long, value_name = "TOPIC")]
    into: Option<Topic>,
    /// End the old version against objections. Who did it and why is kept.
    #[arg(long, value_name = "REASON")]
    force: Option<String>,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
pub(crate) struct Rollback {
    /// The topic.
    #[arg(value_name = "TOPIC")]
    topic: Topic,
    /// Go back even where events of the new version have no way to the old one.
    #[arg(long, value_name = "REASON")]
    force: Option<String>,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    at: At,
}

pub(crate) fn run(command: EvolveCommand, output: &Output) -> anyhow::Result<Status> {
    match command {
        EvolveCommand::Plan(wish) => plan(&wish, output),
        EvolveCommand::Start(wish) => start(&wish, output),
        EvolveCommand::Status(look) => status(&look, output),
        EvolveCommand::Cutover(wish) => cut_over(&wish, output),
        EvolveCommand::Rollback(wish) => roll_back(&wish, output),
    }
}

fn of(topic: &Topic) -> String {
    format!("{}/evolution", registry_of(topic))
}

fn plan(wish: &Plan, output: &Output) -> anyhow::Result<Status> {
    let body = wish.source.body()?;
    block_on(async {
        let reach = wish.at.open(Missing::Refuse).await?;
        let found = planned(&reach, &wish.source.topic, &body).await;
        reach.close().await;
        let found = found?;
        output.result(&found, plan_text)?;
        if is_good(&found) {
            output.hint(&format!("next: prom evolve start {}", wish.source.topic));
            return Ok(Status::Done);
        }
        Ok(Status::FoundProblems)
    })
}

fn start(wish: &Start, output: &Output) -> anyhow::Result<Status> {
    let topic = &wish.source.topic;
    let mut body = wish.source.body()?;
    if let Some(body) = body.as_object_mut() {
        let dual = wish.dual_write.as_ref().map(|versions| ("dual_write", json!(versions)));
        let force = wish.force.as_ref().map(|reason| ("force", json!(reason)));
        let given = dual.into_iter().chain(force);
        body.extend(given.map(|(name, value)| (name.to_owned(), value)));
    }
    block_on(async {
        let reach = wish.at.open(Missing::Refuse).await?;
        let done = async {
            if wish.force.is_none() {
                let mut plain = body.clone();
                plain.as_object_mut().map(|plain| plain.remove("dual_write"));
                let found = planned(&reach, topic, &plain).await?;
                if !is_good(&found) {
                    output.result(&found, plan_text)?;
                    return Ok(Status::FoundProblems);
                }
            }
            let ask = Ask::post(format!("{}/start", of(topic))).json(&body);
            let done: Value = reach.json(ask).await?;
            output.result(&done, |done| stage_text(topic, &done["evolution"]))?;
            output.hint(&format!("next: prom evolve status {topic}{}", reach.flag()));
            Ok(Status::Done)
        }
        .await;
        reach.close().await;
        done
    })
}

fn stage_text(topic: &Topic, evolution: &Value) -> String {
    let (from, to) = (&evolution["from"], &evolution["to"]);
    let stage = match evolution["stage"].as_str() {
        Some("dual_write") => {
            format!("both are written; the form of version {to} is in {topic}.v{to}")
        }
        Some("cut_over") => format!("only version {to} is written"),
        Some("rolled_back") => format!("taken back: only version {from} is written"),
        _ => "no change was started".to_owned(),
    };
    let forced = evolution["forced"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let forced: String = forced.map(|why| format!("\n  forced     {why}")).collect();
    if evolution.is_null() {
        return format!("{topic}: {stage}");
    }
    format!("{topic} {from} -> {to}: {stage}{forced}")
}

fn status(look: &Look, output: &Output) -> anyhow::Result<Status> {
    block_on(async {
        let reach = look.at.open(Missing::Refuse).await?;
        let found: anyhow::Result<Value> = reach.json(Ask::get(of(&look.topic))).await;
        reach.close().await;
        output.result(&found?, |found| status_text(&look.topic, found))?;
        Ok(Status::Done)
    })
}

fn status_text(topic: &Topic, status: &Value) -> String {
    let mut out = stage_text(topic, &status["evolution"]);
    out.push('\n');
    let counted = |what: &str, counts: &Value| -> String {
        let counts = counts.as_object().into_iter().flatten();
        let row = |(version, count): (&String, &Value)| {
            format!("  {what:<10} version {version}: {} events\n", count["events"])
        };
        counts.map(row).collect()
    };
    let retained = &status["retained"];
    out.push_str(&counted("stored", &retained["versions"]));
    let events = retained.pointer("/unversioned/events").unwrap_or(&Value::Null);
    if *events != 0 {
        out.push_str(&format!("  stored     without a version: {events} events\n"));
    }
    out.push_str(&counted("copies", &retained["copies"]));
    let counts = &status["counts"];
    out.push_str(&format!(
        "  since start  {} checked, {} refused, {} copied, {} mismatches\n",
        counts["checked"], counts["refused"], counts["copied"], counts["mismatches"]
    ));
    for reader in status["readers"].as_array().into_iter().flatten() {
        let reads = match &reader["reads"] {
            Value::String(form) => form.clone(),
            form => form["version"].to_string(),
        };
        let group = reader["group"].as_str().unwrap_or_default();
        out.push_str(&format!("  group      {group} reads {reads}, {} behind\n", reader["behind"]));
    }
    out
}

fn cut_over(wish: &Cutover, output: &Output) -> anyhow::Result<Status> {
    let topic = &wish.topic;
    output.progress(&format!(
        "what is stored of {topic} is replayed through the casters; then the old version is refused"
    ));
    if !wish.consent.given(Harm::Moderate, output)? {
        return Ok(Status::Done);
    }
    let body = json!({ "into": wish.into, "force": wish.force });
    block_on(async {
        let reach = wish.at.open(Missing::Refuse).await?;
        let ask = Ask::post(format!("{}/cutover", of(topic))).json(&body);
        let done: anyhow::Result<Value> = reach.json(ask).await;
        reach.close().await;
        output.result(&done?, |done| {
            let mut out = stage_text(topic, &done["evolution"]);
            let (replayed, unreadable) = (&done["replayed"], &done["unreadable"]);
            out.push_str(&format!("\n  replayed   {replayed} events, {unreadable} unreadable"));
            if let Some(into) = &wish.into {
                out.push_str(&format!("\n  added      {} events to {into}", done["added"]));
            }
            out
        })?;
        Ok(Status::Done)
    })
}

fn roll_back(wish: &Rollback, output: &Output) -> anyhow::Result<Status> {
    let topic = &wish.topic;
    output.progress(&format!("{topic} goes back; events of the new version are refused again"));
    if !wish.consent.given(Harm::Moderate, output)? {
        return Ok(Status::Done);
    }
    block_on(async {
        let reach = wish.at.open(Missing::Refuse).await?;
        let body = json!({ "force": wish.force });
        let ask = Ask::post(format!("{}/rollback", of(topic))).json(&body);
        let done: anyhow::Result<Value> = reach.json(ask).await;
        reach.close().await;
        output.result(&done?, |done| stage_text(topic, &done["evolution"]))?;
        Ok(Status::Done)
    })
}
