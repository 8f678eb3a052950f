//! `prom topic`: what there is, and what is kept of it.

use std::time::Duration;

use clap::{Args, Subcommand};
use promethean_event::{Pattern, Topic};
use serde::{Deserialize, Serialize};

use super::Status;
use crate::consent::{Consent, Harm};
use crate::failure::Failure;
use crate::output::{self, Output, Paint};
use crate::reach::{Ask, At, Missing, Reach};
use crate::rules::{Compaction, Difference, Rules};
use crate::{clock, spelling, times};

/// Look at topics, make, change and remove them.
#[derive(Debug, Subcommand)]
pub(crate) enum TopicCommand {
    /// List topics.
    Ls(List),
    /// Show one topic with its partitions.
    Get(Get),
    /// Make a topic.
    Add(Add),
    /// Change what is kept of a topic.
    Set(Set),
    /// Remove a topic with all its events.
    Rm(Remove),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Only topics that match.
    pattern: Option<Pattern>,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
pub(crate) struct Get {
    /// The topic.
    topic: Topic,
    #[command(flatten)]
    at: At,
}

/// What is kept of a topic, as flags.
#[derive(Debug, Args)]
struct Keeping {
    /// Events older than this go; `forever` for never.
    #[arg(long, value_name = "TIME", value_parser = retention)]
    retention: Option<Retention>,
    /// The oldest events go while a partition has more than this; `none` for no limit.
    #[arg(long, value_name = "SIZE", value_parser = crate::manifest::bytes_or_none)]
    retention_bytes: Option<crate::manifest::Limit>,
    /// Which events stay: all, or the latest of each key.
    #[arg(long, value_parser = ["latest", "off"])]
    compaction: Option<String>,
}

#[derive(Debug, Clone, Copy)]
enum Retention {
    Forever,
    For(Duration),
}

fn retention(text: &str) -> Result<Retention, times::DurationError> {
    if text == "forever" {
        Ok(Retention::Forever)
    } else {
        times::duration(text).map(Retention::For)
    }
}

impl Keeping {
    fn apply(&self, mut rules: Rules) -> Rules {
        match self.retention {
            Some(Retention::Forever) => rules.retention_ms = None,
            Some(Retention::For(time)) => {
                rules.retention_ms = Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
            }
            None => {}
        }
        if let Some(limit) = self.retention_bytes {
            rules.retention_bytes = limit.0;
        }
        match self.compaction.as_deref() {
            Some("latest") => {
                rules.compaction.get_or_insert(Compaction::USUAL);
            }
            Some(_) => rules.compaction = None,
            None => {}
        }
        rules
    }
}

#[derive(Debug, Args)]
pub(crate) struct Add {
    /// The topic.
    topic: Topic,
    /// How many partitions it has. Fixed for ever: a key stays in its partition.
    #[arg(long, default_value_t = 1)]
    partitions: u32,
    #[command(flatten)]
    keeping: Keeping,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
pub(crate) struct Set {
    /// The topic.
    topic: Topic,
    #[command(flatten)]
    keeping: Keeping,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// The topic.
    topic: Topic,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    at: At,
}

/// A topic as the server shows it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ShownTopic {
    pub(super) topic: Topic,
    #[serde(flatten)]
    pub(super) rules: Rules,
    pub(super) events: u64,
    newest: Option<u64>,
    bounds: Vec<Bounds>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Bounds {
    partition: u32,
    start: u64,
    next: u64,
}

#[derive(Debug, Deserialize)]
struct Topics {
    topics: Vec<ShownTopic>,
}

pub(crate) fn run(command: TopicCommand, output: &Output) -> anyhow::Result<Status> {
    super::block_on(async move {
        let (at, missing) = match &command {
            TopicCommand::Ls(List { at, .. })
            | TopicCommand::Get(Get { at, .. })
            | TopicCommand::Set(Set { at, .. })
            | TopicCommand::Rm(Remove { at, .. }) => (at, Missing::Refuse),
            TopicCommand::Add(Add { at, .. }) => (at, Missing::Make),
        };
        let reach = at.open(missing).await?;
        let done = match &command {
            TopicCommand::Ls(list) => ls(list, &reach, output).await,
            TopicCommand::Get(get) => show(get, &reach, output).await,
            TopicCommand::Add(add) => make(add, &reach, output).await,
            TopicCommand::Set(set) => change(set, &reach, output).await,
            TopicCommand::Rm(remove) => rm(remove, &reach, output).await,
        };
        reach.close().await;
        done
    })
}

/// All topics, or those that match.
pub(super) async fn topics(
    reach: &Reach,
    pattern: Option<&Pattern>,
) -> anyhow::Result<Vec<ShownTopic>> {
    Ok(reach.json::<Topics>(Ask::get("/topics").query("topic", pattern)).await?.topics)
}

pub(super) async fn find(reach: &Reach, topic: &Topic) -> anyhow::Result<Option<ShownTopic>> {
    Ok(topics(reach, Some(&Pattern::exact(topic))).await?.into_iter().next())
}

pub(super) async fn define(
    reach: &Reach,
    topic: &Topic,
    rules: &Rules,
) -> anyhow::Result<ShownTopic> {
    let ask = Ask::post(format!("/topics/{topic}")).json(&serde_json::to_value(rules)?);
    reach.json(ask).await
}

pub(super) async fn remove(reach: &Reach, topic: &Topic) -> anyhow::Result<()> {
    reach.json::<serde_json::Value>(Ask::delete(format!("/topics/{topic}"))).await?;
    Ok(())
}

async fn known(reach: &Reach, topic: &Topic) -> anyhow::Result<ShownTopic> {
    match find(reach, topic).await? {
        Some(found) => Ok(found),
        None => Err(absent(reach, topic).await.into()),
    }
}

/// There is no such topic; perhaps another one was meant.
pub(super) async fn absent(reach: &Reach, topic: &Topic) -> Failure {
    let hint = match meant(reach, topic).await {
        Some(name) => format!("did you mean {name}?"),
        None => format!("list them with: prom topic ls{}", reach.flag()),
    };
    Failure::new(Status::NotFound, format!("there is no topic {topic}")).hint(hint)
}

/// The topic that somebody may have meant, as far as he may see it.
pub(super) async fn meant(reach: &Reach, topic: &Topic) -> Option<String> {
    let known = topics(reach, None).await.ok()?;
    let names = known.iter().map(|known| known.topic.as_str());
    spelling::nearest(topic.as_str(), names).map(str::to_owned)
}

fn age(newest: Option<u64>) -> String {
    let now = clock::timestamp().millis();
    newest.map_or("-".into(), |at| format!("{} ago", output::span(now.saturating_sub(at))))
}

async fn ls(list: &List, reach: &Reach, output: &Output) -> anyhow::Result<Status> {
    let topics = topics(reach, list.pattern.as_ref()).await?;
    output.list("topics", &topics, |topics| {
        if topics.is_empty() {
            return "no topics yet; publish something: prom pub hello.world '\"hi\"'".to_owned();
        }
        let row = |one: &ShownTopic| {
            vec![
                one.topic.to_string(),
                one.rules.partitions.to_string(),
                output::grouped(one.events),
                age(one.newest),
                one.rules.keeps(),
            ]
        };
        let rows: Vec<Vec<String>> = topics.iter().map(row).collect();
        output::table(&["TOPIC", "PARTITIONS", "EVENTS", "NEWEST", "KEEPS"], &rows)
    })?;
    Ok(Status::Done)
}

async fn show(get: &Get, reach: &Reach, output: &Output) -> anyhow::Result<Status> {
    let topic = known(reach, &get.topic).await?;
    output.record(&topic, described)?;
    output.hint(&format!("watch it: prom tail {}{}", get.topic, reach.flag()));
    Ok(Status::Done)
}

fn described(topic: &ShownTopic) -> String {
    let mut text = format!(
        "{}\n  keeps       {}\n  events      {}\n  newest      {}\n",
        topic.topic,
        topic.rules.keeps(),
        output::grouped(topic.events),
        age(topic.newest),
    );
    let row = |one: &Bounds| {
        vec![format!("  {}", one.partition), one.start.to_string(), one.next.to_string()]
    };
    let rows: Vec<Vec<String>> = topic.bounds.iter().map(row).collect();
    text.push_str(&output::table(&["  PARTITION", "FIRST", "NEXT"], &rows));
    text
}

async fn make(add: &Add, reach: &Reach, output: &Output) -> anyhow::Result<Status> {
    let rules = add.keeping.apply(Rules { partitions: add.partitions, ..Rules::default() });
    if let Some(there) = find(reach, &add.topic).await? {
        if there.rules == rules {
            output.progress("it is there already, just so");
            output.record(&there, described)?;
            return Ok(Status::Done);
        }
        let what = format!("topic {} is there already, and is not like that", add.topic);
        let hint = format!("change it with: prom topic set {}{}", add.topic, reach.flag());
        return Err(Failure::new(Status::Conflict, what).hint(hint).into());
    }
    let made = define(reach, &add.topic, &rules).await?;
    output.record(&made, described)?;
    Ok(Status::Done)
}

/// A change of a topic as it is shown before it is made.
pub(super) fn plan_lines(differences: &[Difference], paint: Paint) -> String {
    let line = |one: &Difference| {
        let warning = if one.destroys { paint.bad("   removes events") } else { String::new() };
        format!("  {:<16} {} -> {}{warning}", one.rule, one.from, one.to)
    };
    differences.iter().map(line).collect::<Vec<_>>().join("\n")
}

async fn change(set: &Set, reach: &Reach, output: &Output) -> anyhow::Result<Status> {
    let topic = known(reach, &set.topic).await?;
    let wanted = set.keeping.apply(topic.rules.clone());
    let differences = topic.rules.differences(&wanted);
    if differences.is_empty() {
        output.progress("it is like that already");
        return Ok(Status::Done);
    }
    output.progress(&format!("Plan: change {} at {}", set.topic, reach.place()));
    output.progress(&plan_lines(&differences, output.aside()));
    let destroys = differences.iter().any(|one| one.destroys) || reach.is_protected();
    let name = set.topic.to_string();
    let harm = if destroys { Harm::Severe(&name) } else { Harm::Moderate };
    if !set.consent.given(harm, output)? {
        return Ok(Status::Done);
    }
    output.record(&define(reach, &set.topic, &wanted).await?, described)?;
    Ok(Status::Done)
}

async fn rm(wish: &Remove, reach: &Reach, output: &Output) -> anyhow::Result<Status> {
    let topic = known(reach, &wish.topic).await?;
    let events = output::count(topic.events as usize, "event", "events");
    output.progress(&format!("Plan: remove {} with {events} at {}", wish.topic, reach.place()));
    if !wish.consent.given(Harm::Severe(wish.topic.as_str()), output)? {
        return Ok(Status::Done);
    }
    remove(reach, &wish.topic).await?;
    let removed = serde_json::json!({ "removed": wish.topic, "events": topic.events });
    output.record(&removed, |_| format!("removed {}", wish.topic))?;
    Ok(Status::Done)
}
