//! `prom migrate`: everything of a data directory into a MongoDB, or back.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use promethean::embedded::{EmbeddedOptions, EmbeddedStore, OpenError};
use promethean::migration::{self, Migration, MigrationPlan, MigrationReport, Progress, Stage};
use promethean::store::{Clock, Store};
use promethean_event::Timestamp;
use promethean_gateway::TokenStore;
use promethean_mongo::MongoStore;
use serde_json::json;

use super::{Status, kept_tokens, place};
use crate::consent::{Consent, Harm};
use crate::failure::Failure;
use crate::output::{self, Output};

/// Move everything to another store: a data directory into a MongoDB, or back.
///
/// Events keep their partitions, offsets and times; groups their cursors and attempts; topics, schemas,
/// jobs, changefeeds and tokens come along. Views are built anew by the server of the target. Servers of
/// both sides have to be stopped: one that runs is an error, and none starts before the move has ended.
/// What was cut off goes on when the command is run again. At the end both are read and compared; then
/// the source is closed, so that nobody writes to it by mistake.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  prom migrate --from data --to 'mongodb://db1,db2,db3/prom?replicaSet=prom' --dry-run
  prom migrate --from data --to-file store.url --yes
  prom migrate --from-file store.url --to data-again --yes
  prom migrate --abandon --from data      use the source again, whatever became of the move")]
pub(crate) struct Migrate {
    /// Data directory or MongoDB to move from.
    #[arg(long, value_name = "PLACE", required_unless_present = "from_file")]
    from: Option<String>,
    /// File with the connection string to move from: the way to give one with a password.
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    from_file: Option<PathBuf>,
    /// Data directory or MongoDB to move to. It has to be empty.
    #[arg(long, value_name = "PLACE", conflicts_with = "abandon")]
    to: Option<String>,
    /// File with the connection string to move to.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["to", "abandon"])]
    to_file: Option<PathBuf>,
    /// Open the source again: nothing of it was changed by the move.
    #[arg(long)]
    abandon: bool,
    #[command(flatten)]
    consent: Consent,
}

/// One side of a move.
#[derive(Debug)]
enum Place {
    Directory(PathBuf),
    Mongodb(String),
}

/// A side that is open, for this process alone.
struct Side {
    name: String,
    store: Arc<dyn Store>,
    /// To ask who else is there.
    mongodb: Option<Arc<MongoStore>>,
    directory: Option<PathBuf>,
}

/// A time before all events, so that theirs are taken.
#[derive(Debug)]
struct BeforeAll;

impl Clock for BeforeAll {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(0)
    }
}

impl Place {
    fn new(given: Option<&str>, file: Option<&Path>) -> anyhow::Result<Option<Self>> {
        Ok(match (given, file) {
            (Some(text), _) if text.contains("://") => Some(Self::Mongodb(place::checked(text)?)),
            (Some(text), _) => Some(Self::Directory(PathBuf::from(text))),
            (None, Some(file)) => Some(Self::Mongodb(place::read(file)?)),
            (None, None) => None,
        })
    }

    async fn open(&self, role: Role) -> anyhow::Result<Side> {
        match self {
            Self::Directory(path) => open_directory(path, role).await,
            Self::Mongodb(url) => {
                let store = place::open(url).await?;
                let name = place::shown(url);
                let mongodb = Some(Arc::clone(&store));
                Ok(Side { name, store, mongodb, directory: None })
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Source,
    Target,
}

async fn open_directory(path: &Path, role: Role) -> anyhow::Result<Side> {
    let name = path.display().to_string();
    if role == Role::Source && !path.join("log").exists() {
        let what = format!("there is no data directory at {name}");
        return Err(Failure::new(Status::NotFound, what).into());
    }
    super::private_directory(path)?;
    let mut options = EmbeddedOptions::default();
    if role == Role::Target {
        options.log.clock = Arc::new(BeforeAll);
    }
    let place = path.to_owned();
    let opened = tokio::task::spawn_blocking(move || EmbeddedStore::open(&place, options)).await?;
    match opened {
        Ok((store, _)) => {
            let directory = Some(path.to_owned());
            Ok(Side { name, store: Arc::new(store), mongodb: None, directory })
        }
        Err(OpenError::Log(error @ promethean_log::OpenError::Locked { .. })) => {
            let hint = "a directory is moved while nobody has it open: stop its server";
            Err(Failure::new(Status::Conflict, error.to_string()).hint(hint).into())
        }
        Err(error) => Err(anyhow::Error::new(error).context(format!("cannot open {name}"))),
    }
}

impl Side {
    /// Refused while hubs are there. One that was killed counts as there until its lease ends.
    async fn alone(&self) -> anyhow::Result<()> {
        let Some(store) = &self.mongodb else { return Ok(()) };
        let hubs = store.hubs_there().await?;
        if hubs == 0 {
            return Ok(());
        }
        let hubs = output::count(hubs, "hub uses", "hubs use");
        let hint = "stop them with SIGTERM; one that was killed is gone when its lease has ended";
        Err(Failure::new(Status::Conflict, format!("{hubs} {}", self.name)).hint(hint).into())
    }
}

pub(crate) fn run(wish: &Migrate, output: &Output) -> anyhow::Result<Status> {
    let from = Place::new(wish.from.as_deref(), wish.from_file.as_deref())?;
    let to = Place::new(wish.to.as_deref(), wish.to_file.as_deref())?;
    super::block_on(async {
        let nowhere = || Failure::usage("say where from, with --from or --from-file");
        let from = from.ok_or_else(nowhere)?.open(Role::Source).await?;
        let done = match to {
            None if wish.abandon => abandon(&from, &wish.consent, output).await,
            None => Err(Failure::usage("say where to, with --to or --to-file").into()),
            Some(to) => {
                let to = to.open(Role::Target).await?;
                let done = migrate((&from, &to), &wish.consent, output).await;
                to.store.close().await;
                done
            }
        };
        from.store.close().await;
        done
    })
}

async fn abandon(from: &Side, consent: &Consent, output: &Output) -> anyhow::Result<Status> {
    let Some(mark) = migration::standing(&*from.store).await? else {
        output.progress(&format!("{} is not part of a move", from.name));
        return Ok(Status::Done);
    };
    output.progress(&format!(
        "Plan: open {} again; what {} has got of it stays there, and is not brought up to date",
        from.name, mark.other
    ));
    if !consent.given(Harm::Moderate, output)? {
        return Ok(Status::Done);
    }
    if !migration::abandon(&*from.store).await? {
        let what = format!("{} is the target of a move that has not ended", from.name);
        let hint = "end it, or remove what is there";
        return Err(Failure::new(Status::Conflict, what).hint(hint).into());
    }
    output.record(&json!({ "opened": from.name }), |_| format!("{} is open again", from.name))?;
    Ok(Status::Done)
}

async fn migrate(
    (from, to): (&Side, &Side),
    consent: &Consent,
    output: &Output,
) -> anyhow::Result<Status> {
    let migration =
        Migration::new((Arc::clone(&from.store), &from.name), (Arc::clone(&to.store), &to.name));
    from.alone().await?;
    to.alone().await?;
    let plan = migration.plan().await.map_err(|error| refused(&error))?;
    output.progress(&described(&plan, (from, to)));
    if plan.begun == Some(Stage::Moved) {
        output.record(&json!({ "state": "moved" }), |_| "it was moved already".to_owned())?;
        return Ok(Status::Done);
    }
    if !consent.given(Harm::Moderate, output)? {
        return Ok(Status::Done);
    }
    migration.begin().await.map_err(|error| refused(&error))?;
    // Again, now that none can come any more: they look for the mark when they start.
    from.alone().await?;
    to.alone().await?;
    let offsets = plan.topics.iter().map(|topic| topic.offsets - topic.there).sum();
    let bar = output.bar(Some(offsets), "events");
    let report = migration.run(|progress| match progress {
        Progress::Events(count) => bar.inc(count),
        _ => bar.set_message("comparing both"),
    });
    let report = report.await.map_err(|error| refused(&error))?;
    bar.finish_and_clear();
    let tokens = move_tokens(from, to).await?;
    from.alone().await?;
    migration.end().await.map_err(|error| refused(&error))?;
    told(&report, tokens, (from, to), output)?;
    Ok(Status::Done)
}

/// Tokens of a directory are in a file, those of a MongoDB in it.
async fn move_tokens(from: &Side, to: &Side) -> anyhow::Result<usize> {
    let tokens = match &from.directory {
        Some(directory) => kept_tokens::of_file(&directory.join("tokens.json"))?,
        None => TokenStore::new(Arc::clone(&from.store)).list().await?,
    };
    match &to.directory {
        Some(directory) if !tokens.is_empty() => {
            kept_tokens::write_file(&directory.join("tokens.json"), &tokens)?;
        }
        Some(_) => {}
        None => TokenStore::new(Arc::clone(&to.store)).take_over(&tokens).await?,
    }
    Ok(tokens.len())
}

fn refused(error: &migration::MigrateError) -> anyhow::Error {
    use migration::MigrateError as E;
    let status = match error {
        E::NotEmpty(_) | E::Another { .. } => Status::Conflict,
        E::Differs(_) => Status::FoundProblems,
        _ => Status::Failed,
    };
    let failure = Failure::new(status, error.to_string());
    match status {
        Status::Failed => failure.hint("run the command again: it goes on where it was").into(),
        Status::FoundProblems => {
            failure.hint("the source is as it was; see that nobody writes to either side").into()
        }
        _ => failure.into(),
    }
}

fn described(plan: &MigrationPlan, (from, to): (&Side, &Side)) -> String {
    let offsets: u64 = plan.topics.iter().map(|topic| topic.offsets).sum();
    let there: u64 = plan.topics.iter().map(|topic| topic.there).sum();
    let mut lines = vec![format!("Plan: move {} to {}", from.name, to.name)];
    let topics = output::count(plan.topics.len(), "topic", "topics");
    lines.push(format!("  {topics} with up to {} events", output::grouped(offsets)));
    if there > 0 {
        lines.push(format!("  of these, {} are there already", output::grouped(there)));
    }
    lines.push(format!(
        "  {} with cursors and attempts",
        output::count(usize::try_from(plan.groups).unwrap_or(usize::MAX), "group", "groups")
    ));
    for (space, count) in &plan.entries {
        lines.push(format!("  {count} of `{space}`"));
    }
    lines.push("  tokens; views are built anew by the server of the target".to_owned());
    lines.push(format!("  afterwards {} is closed, and its files stay", from.name));
    lines.join("\n")
}

fn told(
    report: &MigrationReport,
    tokens: usize,
    (from, to): (&Side, &Side),
    output: &Output,
) -> anyhow::Result<()> {
    let hash = format!("{:032x}", report.hash);
    let shown = json!({
        "state": "moved", "from": from.name, "to": to.name, "topics": report.topics,
        "events": report.events, "groups": report.groups, "entries": report.entries,
        "tokens": tokens, "hash": hash,
    });
    output.record(&shown, |_| {
        format!(
            "moved and compared: {} events of {} topics, {} groups, {} entries, {tokens} tokens\n\
             content hash {hash}, the same on both sides",
            output::grouped(report.events),
            report.topics,
            report.groups,
            report.entries
        )
    })?;
    let flag = match &to.directory {
        Some(directory) => format!("--data {}", directory.display()),
        None => "--store-file FILE".to_owned(),
    };
    output.progress(&format!("start its server: prom serve {flag}"));
    output.progress(&format!(
        "{} is closed; to use it after all: prom migrate --abandon --from ...",
        from.name
    ));
    Ok(())
}
