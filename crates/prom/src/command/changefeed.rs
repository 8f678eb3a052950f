//! `prom changefeed`: collections of MongoDB that a server publishes the changes of.

use clap::{Args, Subcommand, ValueEnum};
use promethean::changefeed::Definition;
use promethean_mongo::{Finding, Verdict};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Status;
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::reach::{Ask, At, Reach, segment};

/// Publish what changes in collections of MongoDB.
#[derive(Debug, Subcommand)]
pub(crate) enum ChangefeedCommand {
    /// Add a changefeed, or change one; how far it has come stays, unless it is to read another collection.
    Add(Add),
    /// List changefeeds, and how far they have come.
    Ls(List),
    /// Let a changefeed wait.
    Pause(One),
    /// Let a changefeed go on.
    Resume(Resume),
    /// Remove a changefeed; what it has published stays.
    Rm(One),
}

#[derive(Debug, Args)]
pub(crate) struct Add {
    /// Its name.
    name: String,
    /// Connection string of the MongoDB, a replica set.
    #[arg(
        long,
        value_name = "URL",
        env = "PROM_CHANGEFEED_URL",
        hide_env_values = true,
        required_unless_present = "mongo_file"
    )]
    mongo: Option<String>,
    /// File with that URL: the way to give one with a password.
    #[arg(long, value_name = "FILE", conflicts_with = "mongo")]
    mongo_file: Option<std::path::PathBuf>,
    /// The collection, as `database.collection`.
    #[arg(long, value_name = "NAME")]
    collection: String,
    /// Topic that the changes go to.
    #[arg(long, value_name = "TOPIC")]
    topic: String,
    /// Expression for the key [default: the document's `_id`].
    #[arg(long, value_name = "EXPRESSION")]
    key: Option<String>,
    /// Expression that is true for changes that are published [default: all].
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
    /// Expression for the payload [default: the document].
    #[arg(long, value_name = "EXPRESSION")]
    map: Option<String>,
    /// Leave out what is there already.
    #[arg(long)]
    no_snapshot: bool,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
pub(crate) struct One {
    /// Its name.
    name: String,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Args)]
pub(crate) struct Resume {
    /// Its name.
    name: String,
    /// How to go on if MongoDB has forgotten changes that were not read yet, or if one change has
    /// stopped it; `resnapshot` at any time.
    #[arg(long, value_enum, value_name = "HOW")]
    recover: Option<Recover>,
    /// With `--recover from-time`: seconds since 1970.
    #[arg(long, value_name = "SECONDS")]
    from: Option<u32>,
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Recover {
    /// Every document comes again, as it is now. If changes were forgotten, deletes among them are not noticed.
    Resnapshot,
    /// From a time on that MongoDB still knows.
    FromTime,
    /// From now on.
    AcceptGap,
    /// Past the one change that it stopped at, which is not published.
    Skip,
}

impl Recover {
    const fn name(self) -> &'static str {
        match self {
            Self::Resnapshot => "resnapshot",
            Self::FromTime => "from-time",
            Self::AcceptGap => "accept-gap",
            Self::Skip => "skip",
        }
    }
}

/// A changefeed as a server tells of it.
#[derive(Debug, Serialize, Deserialize)]
struct Feed {
    name: String,
    definition: Map<String, Value>,
    paused: bool,
    status: Option<Map<String, Value>>,
}

#[derive(Debug, Deserialize)]
struct Feeds {
    changefeeds: Vec<Feed>,
}

impl Feed {
    fn text(&self, name: &str) -> &str {
        self.definition.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    fn phase(&self) -> &Value {
        self.status.as_ref().and_then(|status| status.get("phase")).unwrap_or(&Value::Null)
    }

    fn state(&self) -> String {
        let phase = self.phase().get("phase").and_then(Value::as_str).unwrap_or("new");
        match self.trouble() {
            _ if self.paused => format!("paused ({phase})"),
            Some(_) => format!("waiting ({phase})"),
            None => phase.to_owned(),
        }
    }

    /// Why it does not run, though it should.
    fn trouble(&self) -> Option<&Value> {
        self.status.as_ref().and_then(|status| status.get("trouble"))
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.status.as_ref().and_then(|status| status.get(name)).and_then(Value::as_u64)
    }

    /// What somebody should know.
    fn note(&self) -> String {
        let of_status = |name| self.status.as_ref().and_then(|status| status.get(name));
        let known = [of_status("behind"), of_status("alarm")];
        let alarm = known.into_iter().flatten().next();
        let reason = self.phase().get("reason").or(self.trouble()).or(alarm);
        let reason = reason.and_then(Value::as_str);
        match self.phase().get("gap") {
            Some(gap) => format!(
                "history lost from {} to {}; say how to go on: prom changefeed resume --recover",
                moment(gap.get("from")),
                moment(gap.get("to"))
            ),
            None if self.phase().get("past").is_some() => format!(
                "{}; put it right and resume it, or pass over this one: prom changefeed resume {} \
                 --recover skip",
                reason.map(output::plain).unwrap_or_default(),
                self.name
            ),
            None => reason.map(output::plain).unwrap_or_default(),
        }
    }
}

fn path(name: &str, verb: &str) -> String {
    format!("/changefeeds/{}{verb}", segment(name))
}

pub(crate) fn run(command: ChangefeedCommand, output: &Output) -> anyhow::Result<Status> {
    super::block_on(async move {
        let (at, ask) = match command {
            ChangefeedCommand::Ls(List { at }) => (at, None),
            ChangefeedCommand::Add(add) => return self::add(add, output).await,
            ChangefeedCommand::Pause(One { name, at }) => {
                (at, Some(Ask::post(path(&name, "/pause"))))
            }
            ChangefeedCommand::Rm(One { name, at }) => (at, Some(Ask::delete(path(&name, "")))),
            ChangefeedCommand::Resume(Resume { name, recover, from, at }) => {
                let ask = Ask::post(path(&name, "/resume"))
                    .query("recover", recover.map(Recover::name))
                    .query("from", from);
                (at, Some(ask))
            }
        };
        let reach = at.open_workshop().await?;
        let done = match ask {
            None => ls(&reach, output).await,
            Some(ask) => order(&reach, ask, output).await,
        };
        reach.close().await;
        done
    })
}

impl Add {
    fn definition(&self) -> anyhow::Result<Value> {
        let url = match (&self.mongo, &self.mongo_file) {
            (Some(url), _) => Some(url.clone()),
            (None, Some(file)) => Some(super::place::read(file)?),
            (None, None) => None,
        };
        let mut definition = Map::new();
        for (name, value) in [
            ("url", url.as_ref()),
            ("collection", Some(&self.collection)),
            ("topic", Some(&self.topic)),
            ("key", self.key.as_ref()),
            ("filter", self.filter.as_ref()),
            ("map", self.map.as_ref()),
        ] {
            definition.extend(value.map(|value| (name.to_owned(), json!(value))));
        }
        definition.insert("snapshot".to_owned(), json!(!self.no_snapshot));
        Ok(Value::Object(definition))
    }
}

/// A time of a cluster, as people read it.
fn moment(time: Option<&Value>) -> String {
    let seconds = time.and_then(|time| time.get("seconds")).and_then(Value::as_i64);
    let moment = seconds.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    moment.map_or_else(|| "an unknown time".to_owned(), |moment| moment.to_string())
}

/// Adds it, if what can be seen of its MongoDB from here does not say that it will never work.
async fn add(add: Add, output: &Output) -> anyhow::Result<Status> {
    let definition = add.definition()?;
    let findings = examine(&add.name, &definition).await;
    let errors: Vec<_> = findings.iter().filter(|found| found.verdict == Verdict::Error).collect();
    if !errors.is_empty() {
        let texts: Vec<_> = errors.iter().map(|found| found.text.as_str()).collect();
        let detail = format!("it was not added, because it would not work: {}", texts.join("; "));
        return Err(Failure::new(Status::Misconfigured, detail).into());
    }
    for found in findings.iter().filter(|found| found.verdict != Verdict::Good) {
        output.hint(&format!("{}: {}", found.check, output::plain(&found.text)));
    }
    let reach = add.at.open_workshop().await?;
    let told = reach.json(Ask::put(path(&add.name, "")).json(&definition)).await;
    reach.close().await;
    let mut told: Value = told?;
    if let Some(told) = told.as_object_mut() {
        let shown = |found: &Finding| json!({ "check": found.check, "text": found.text });
        let is_good = |found: &&Finding| found.verdict == Verdict::Good;
        let shown: Vec<_> = findings.iter().filter(|f| !is_good(f)).map(shown).collect();
        told.insert("warnings".to_owned(), json!(shown));
    }
    show(&told, output)
}

/// What is seen of its MongoDB; nothing if the declaration is refused, which the server says why.
async fn examine(name: &str, definition: &Value) -> Vec<Finding> {
    let Ok(definition) = serde_json::from_value::<Definition>(definition.clone()) else {
        return Vec::new();
    };
    promethean_mongo::changefeed::examine(name, &definition).await.unwrap_or_default()
}

async fn order(reach: &Reach, ask: Ask, output: &Output) -> anyhow::Result<Status> {
    let told: Value = reach.json(ask).await?;
    show(&told, output)
}

fn show(told: &Value, output: &Output) -> anyhow::Result<Status> {
    output.record(told, |told| match serde_json::from_value::<Feed>(told.clone()) {
        Ok(feed) => format!("changefeed {}: {}", feed.name, feed.state()),
        Err(_) => "done".to_owned(),
    })?;
    Ok(Status::Done)
}

async fn ls(reach: &Reach, output: &Output) -> anyhow::Result<Status> {
    let found: Feeds = reach.json(Ask::get("/changefeeds")).await?;
    output.list("changefeeds", &found.changefeeds, |feeds| {
        if feeds.is_empty() {
            return "no changefeeds; begin one with: prom changefeed add".to_owned();
        }
        let row = |feed: &Feed| {
            let headroom = feed.number("oplog_headroom_seconds");
            vec![
                feed.name.clone(),
                format!("{} -> {}", feed.text("collection"), feed.text("topic")),
                feed.state(),
                output::grouped(feed.number("published").unwrap_or(0)),
                headroom.map(|seconds| format!("{seconds}s")).unwrap_or_default(),
                feed.note(),
            ]
        };
        let rows: Vec<Vec<String>> = feeds.iter().map(row).collect();
        output::table(&["FEED", "FROM -> TO", "STATE", "PUBLISHED", "HEADROOM", "NOTE"], &rows)
    })?;
    Ok(Status::Done)
}
