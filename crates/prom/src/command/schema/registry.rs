//! `prom schema ls|get|add|plan|infer|policy|retire|restore|rm`: the registry of a server or of a
//! data directory.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use promethean_event::Topic;
use promethean_schema::Mode;
use serde_json::{Value, json};

use super::bad_input::bad;
use super::folder::{Files, Folder};
use super::plan_text::{hop_text, is_good, plan_text};
use super::source::{Source, Wish};
use crate::command::project::{Declared, Project};
use crate::command::{Status, block_on};
use crate::failure::status_of;
use crate::output::{self, Output};
use crate::reach::{Ask, At, Missing, Reach, segment};

/// Where the schemas of a topic are.
pub(crate) fn of(topic: &Topic) -> String {
    format!("/registry/{}", segment(topic.as_str()))
}

/// The document in what the registry says of a version.
pub(super) fn schema_text(found: &Value) -> String {
    format!("{:#}", found.get("schema").unwrap_or(&Value::Null))
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// The versions of one topic [default: all topics].
    #[arg(value_name = "TOPIC")]
    topic: Option<Topic>,
    #[command(flatten)]
    at: At,
}

pub(super) fn list(list: &List, output: &Output) -> anyhow::Result<Status> {
    block_on(async {
        let reach = list.at.open(Missing::Refuse).await?;
        let shown = match &list.topic {
            Some(topic) => versions(topic, &reach, output).await,
            None => topics(&reach, output).await,
        };
        reach.close().await;
        shown
    })
}

async fn topics(reach: &Reach, output: &Output) -> anyhow::Result<Status> {
    let found: Value = reach.json(Ask::get("/registry")).await?;
    let rows = found.get("topics").and_then(Value::as_array).cloned().unwrap_or_default();
    output.list("topics", &rows, |rows| {
        let cells = |row: &Value| {
            let policy = &row["policy"];
            let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
            let strict = if policy["strict"] == true { " strict" } else { "" };
            vec![
                text(&row["topic"]),
                row["latest"].to_string(),
                row["versions"].as_array().map_or(0, Vec::len).to_string(),
                format!("{}{strict}", text(&policy["compat"])),
                text(&policy["payload"]),
            ]
        };
        let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
        output::table(&["TOPIC", "LATEST", "VERSIONS", "COMPAT", "PAYLOAD"], &rows)
    })?;
    Ok(Status::Done)
}

async fn versions(topic: &Topic, reach: &Reach, output: &Output) -> anyhow::Result<Status> {
    let found: Value = reach.json(Ask::get(of(topic))).await?;
    let rows = found.get("versions").and_then(Value::as_array).cloned().unwrap_or_default();
    output.list("versions", &rows, |rows| {
        let cells = |row: &Value| {
            let state = if row["retired"] == true { "retired" } else { "written" };
            let forced = row["forced"].as_str().map(|why| format!("forced by {why}"));
            vec![
                row["version"].to_string(),
                state.to_owned(),
                hop_text(&row["up"]),
                hop_text(&row["down"]),
                forced.unwrap_or_default(),
            ]
        };
        let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
        output::table(&["VERSION", "STATE", "UP", "DOWN", "NOTE"], &rows)
    })?;
    Ok(Status::Done)
}

/// A version of a topic: `topic@2`, or `topic` for the latest.
#[derive(Debug, Clone)]
pub(super) struct Named {
    topic: Topic,
    version: Option<u32>,
}

impl std::str::FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (topic, version) = match text.split_once('@') {
            Some((topic, version)) => (topic, Some(version)),
            None => (text, None),
        };
        let version = version.filter(|version| *version != "latest").map(|version| {
            version.parse::<u32>().map_err(|_| format!("{version:?} is no version"))
        });
        let topic = topic.parse().map_err(|error: promethean_event::TopicError| error.to_string());
        Ok(Self { topic: topic?, version: version.transpose()? })
    }
}

impl Named {
    /// Whether it says a version, and so cannot be meant as a file.
    pub(super) const fn has_version(&self) -> bool {
        self.version.is_some()
    }

    /// Where it is.
    pub(super) fn path(&self) -> String {
        let version = self.version.map_or_else(|| "latest".to_owned(), |v| v.to_string());
        format!("{}/versions/{version}", of(&self.topic))
    }
}

#[derive(Debug, Args)]
pub(crate) struct Get {
    /// The topic, and the version if it is not the latest: `heartbeat.received@2`.
    #[arg(value_name = "TOPIC[@VERSION]")]
    named: Named,
    #[command(flatten)]
    at: At,
}

pub(super) fn get(get: &Get, output: &Output) -> anyhow::Result<Status> {
    block_on(async {
        let reach = get.at.open(Missing::Refuse).await?;
        let found: anyhow::Result<Value> = reach.json(Ask::get(get.named.path())).await;
        reach.close().await;
        output.result(&found?, schema_text)?;
        Ok(Status::Done)
    })
}

#[derive(Debug, Args)]
pub(crate) struct Plan {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    at: At,
}

/// Shows what registering would do. Exit code 100 if something speaks against it.
pub(super) fn plan(plan: &Plan, output: &Output) -> anyhow::Result<Status> {
    let body = plan.source.body()?;
    let topic = &plan.source.topic;
    block_on(async {
        let reach = plan.at.open(Missing::Refuse).await?;
        let found = planned(&reach, topic, &body).await;
        reach.close().await;
        let found = found?;
        output.result(&found, plan_text)?;
        Ok(if is_good(&found) { Status::Done } else { Status::FoundProblems })
    })
}

pub(crate) async fn planned(reach: &Reach, topic: &Topic, body: &Value) -> anyhow::Result<Value> {
    reach.json(Ask::post(format!("{}/plan", of(topic))).json(body)).await
}

#[derive(Debug, Args)]
pub(crate) struct Add {
    /// Register all versions of the project's directories that are not registered yet.
    #[arg(long, conflicts_with_all = ["topic", "file"])]
    all: bool,
    #[command(flatten)]
    source: Option<Source>,
    /// Register against objections, except those by which stored events would be lost. Who did it
    /// and why is kept.
    #[arg(long, value_name = "REASON")]
    force: Option<String>,
    #[command(flatten)]
    at: At,
}

pub(super) fn add(add: &Add, output: &Output) -> anyhow::Result<Status> {
    block_on(async {
        let reach = add.at.open(Missing::Make).await?;
        let done = match &add.source {
            Some(source) if !add.all => {
                let body = source.body()?;
                register(&reach, &source.topic, &body, add.force.as_deref(), output).await
            }
            _ if add.all => add_all(&reach, add.force.as_deref(), output).await,
            _ => Err(bad(anyhow::anyhow!("name a topic and a file, or say --all"))),
        };
        reach.close().await;
        done
    })
}

/// Registers one version, after its plan was looked at.
async fn register(
    reach: &Reach,
    topic: &Topic,
    body: &Value,
    force: Option<&str>,
    output: &Output,
) -> anyhow::Result<Status> {
    let plan = planned(reach, topic, body).await?;
    if !is_good(&plan) && force.is_none() {
        output.result(&plan, plan_text)?;
        return Ok(Status::FoundProblems);
    }
    let mut body = body.clone();
    if let (Some(body), Some(reason)) = (body.as_object_mut(), force) {
        body.insert("force".to_owned(), json!(reason));
    }
    let asked = reach.json(Ask::post(format!("{}/versions", of(topic))).json(&body)).await;
    let done: Value = match asked {
        Err(error) if !is_good(&plan) && status_of(&error) == Some(Status::Conflict) => {
            output.result(&plan, plan_text)?;
            output.hint("not even by force: stored events would have no way to it");
            return Ok(Status::FoundProblems);
        }
        asked => asked?,
    };
    output.result(&done, |done| {
        let what = if done["added"] == true { "registered" } else { "was there already" };
        format!("{topic}@{} {what}", done["version"])
    })?;
    Ok(Status::Done)
}

/// Registers what the directories of the project have and the registry has not.
async fn add_all(reach: &Reach, force: Option<&str>, output: &Output) -> anyhow::Result<Status> {
    let project = Project::read(std::path::Path::new("."), None).map_err(bad)?;
    for (name, path) in super::folder::directories(&project, &[])? {
        let topic: Topic =
            name.parse().with_context(|| format!("{} is no topic", path.display()))?;
        let folder = Folder::read(&Files::Here, &name, &path)?;
        if let Some(declared) = project.topics.get(&name) {
            set_declared(reach, &topic, declared).await?;
        }
        for &number in folder.versions.keys() {
            let Some(wish) = Wish::of(&folder, number) else { continue };
            let status = register(reach, &topic, &wish.body(), force, output).await?;
            if status != Status::Done {
                return Ok(status);
            }
        }
    }
    Ok(Status::Done)
}

/// Sets what the manifest says of a topic's schemas; what it does not say stays.
async fn set_declared(reach: &Reach, topic: &Topic, declared: &Declared) -> anyhow::Result<()> {
    let compat = declared.compat.map(|compat| ("compat", json!(compat)));
    let strict = declared.strict.map(|strict| ("strict", json!(strict)));
    let said: Vec<(&str, Value)> = compat.into_iter().chain(strict).collect();
    change_policy(reach, topic, &said).await.map(drop)
}

/// Sets parts of a topic's policy; gives all of it.
async fn change_policy(
    reach: &Reach,
    topic: &Topic,
    changes: &[(&str, Value)],
) -> anyhow::Result<Value> {
    let path = format!("{}/policy", of(topic));
    let mut policy: Value = reach.json(Ask::get(path.clone())).await?;
    let before = policy.clone();
    if let Some(policy) = policy.as_object_mut() {
        policy.extend(changes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    }
    if policy == before {
        return Ok(policy);
    }
    reach.json(Ask::put(path).json(&policy)).await
}

#[derive(Debug, Args)]
pub(crate) struct Policy {
    /// The topic.
    #[arg(value_name = "TOPIC")]
    topic: Topic,
    /// What a new version must keep.
    #[arg(long, value_name = "MODE")]
    compat: Option<Mode>,
    /// What happens to events that do not match.
    #[arg(long, value_parser = ["enforce", "warn", "off"])]
    payload: Option<String>,
    /// What an event without a version is.
    #[arg(long, value_parser = ["latest", "oldest", "refuse"])]
    unversioned: Option<String>,
    /// Whether open objects may hold anything under names that they do not declare.
    #[arg(long, value_name = "BOOL")]
    strict: Option<bool>,
    /// Versions in whose form events are also written, as 1,2; `none` for none.
    #[arg(long, value_name = "VERSIONS")]
    dual_write: Option<String>,
    #[command(flatten)]
    at: At,
}

pub(super) fn policy(policy: &Policy, output: &Output) -> anyhow::Result<Status> {
    let dual = policy.dual_write.as_deref().map(versions_of).transpose()?;
    let changes: Vec<(&str, Value)> = [
        ("compat", policy.compat.map(|compat| json!(compat))),
        ("payload", policy.payload.as_ref().map(|payload| json!(payload))),
        ("unversioned", policy.unversioned.as_ref().map(|rule| json!(rule))),
        ("strict", policy.strict.map(|strict| json!(strict))),
        ("dual_write", dual.map(|versions| json!(versions))),
    ]
    .into_iter()
    .filter_map(|(name, value)| value.map(|value| (name, value)))
    .collect();
    block_on(async {
        let missing = if changes.is_empty() { Missing::Refuse } else { Missing::Make };
        let reach = policy.at.open(missing).await?;
        let now = change_policy(&reach, &policy.topic, &changes).await;
        reach.close().await;
        output.result(&now?, |now| format!("{now:#}"))?;
        Ok(Status::Done)
    })
}

fn versions_of(text: &str) -> anyhow::Result<Vec<u32>> {
    if text == "none" {
        return Ok(Vec::new());
    }
    let parse = |part: &str| {
        let version = part.trim().parse::<u32>();
        version.map_err(|_| bad(anyhow::anyhow!("{part:?} is no version; write 1,2 or none")))
    };
    text.split(',').map(parse).collect()
}

#[derive(Debug, Args)]
pub(crate) struct Infer {
    /// The topic.
    #[arg(value_name = "TOPIC")]
    topic: Topic,
    /// From how many of the newest stored events [default: 1000].
    #[arg(long, value_name = "N")]
    sample: Option<u32>,
    /// Write the schema into a file.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    at: At,
}

pub(super) fn infer(infer: &Infer, output: &Output) -> anyhow::Result<Status> {
    block_on(async {
        let reach = infer.at.open(Missing::Refuse).await?;
        let ask = Ask::get(format!("{}/inferred", of(&infer.topic)));
        let found: anyhow::Result<Value> = reach.json(ask.query("sample", infer.sample)).await;
        reach.close().await;
        let found = found?;
        let events = found.get("events").unwrap_or(&Value::Null);
        output.progress(&format!("from {events} events; look at it before it is added"));
        if let Some(file) = &infer.output {
            std::fs::write(file, format!("{}\n", schema_text(&found)))
                .with_context(|| format!("cannot write {}", file.display()))?;
            return Ok(Status::Done);
        }
        output.result(&found, schema_text)?;
        Ok(Status::Done)
    })
}

#[derive(Debug, Args)]
pub(crate) struct Version {
    /// The topic.
    #[arg(value_name = "TOPIC")]
    topic: Topic,
    /// The version.
    #[arg(value_name = "VERSION")]
    number: u32,
    #[command(flatten)]
    at: At,
}

/// What is done to a version.
#[derive(Debug, Clone, Copy)]
pub(super) enum Verb {
    Retire,
    Restore,
    Remove,
}

pub(super) fn change(version: &Version, verb: Verb, output: &Output) -> anyhow::Result<Status> {
    let path = format!("{}/versions/{}", of(&version.topic), version.number);
    let (ask, done) = match verb {
        Verb::Retire => (Ask::post(format!("{path}/retire")), "retired"),
        Verb::Restore => (Ask::post(format!("{path}/restore")), "restored"),
        Verb::Remove => (Ask::delete(path), "removed"),
    };
    block_on(async {
        let reach = version.at.open(Missing::Refuse).await?;
        let answer: anyhow::Result<Value> = reach.json(ask).await;
        reach.close().await;
        output.result(&answer?, |_| format!("{}@{} {done}", version.topic, version.number))?;
        Ok(Status::Done)
    })
}
