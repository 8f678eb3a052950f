//! `prom migrate`: everything of a data directory into a MongoDB, or back.

mod report;

mod side;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use promethean::migration::{self, Migration, Progress, Proof, Stage};
use promethean_event::Timestamp;
use promethean_gateway::TokenStore;
use serde_json::json;

use super::{Status, kept_tokens};
use crate::clock;
use crate::consent::{Consent, Harm};
use crate::failure::Failure;
use crate::output::{self, Output};

use report::{described, refused, told};
use side::{Place, Role, Side};

/// Between two looks at a source that is in use.
const LOOK: Duration = Duration::from_secs(1);
/// So few events in one look, and what is left will not take long.
const FEW: u64 = 1_000;
/// Clocks of hubs differ: events that are younger are left to the end where the target has one time
/// for all of them.
const SETTLE_MS: u64 = 10_000;

/// Move everything to another store: a data directory into a MongoDB, or back.
///
/// Events keep their partitions, offsets and times; groups their cursors and attempts; topics, schemas,
/// jobs, changefeeds and tokens come along. Views are built anew by the server of the target. The
/// servers of the source may go on meanwhile: what there is is copied and compared, then what has come
/// since, until they are stopped. Only the rest has to wait for that, and then they stay stopped: the
/// source is closed, so that nobody writes to it by mistake. Nothing of it is changed. What was cut off
/// goes on when the command is run again.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  prom migrate --from data --to 'mongodb://db1,db2,db3/prom?replicaSet=prom' --dry-run
  prom migrate --from data --to-file store.url --yes
  prom migrate --from data --to-file store.url --copy-only --yes
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
    /// Copy what there is and end; the source stays in use. The next run goes on from there.
    #[arg(long, conflicts_with = "abandon")]
    copy_only: bool,
    /// Open the source again: nothing of it was changed by the move.
    #[arg(long)]
    abandon: bool,
    #[command(flatten)]
    consent: Consent,
}

pub(crate) fn run(wish: &Migrate, output: &Output) -> anyhow::Result<Status> {
    let from = Place::new(wish.from.as_deref(), wish.from_file.as_deref())?;
    let to = Place::new(wish.to.as_deref(), wish.to_file.as_deref())?;
    super::block_on(async {
        let nowhere = || Failure::usage("say where from, with --from or --from-file");
        let from = from.ok_or_else(nowhere)?;
        match to {
            None if wish.abandon => abandon(&from, &wish.consent, output).await,
            None => Err(Failure::usage("say where to, with --to or --to-file").into()),
            Some(to) => migrate(&from, &to, wish, output).await,
        }
    })
}

async fn abandon(from: &Place, consent: &Consent, output: &Output) -> anyhow::Result<Status> {
    // Looked at first: a directory or database that is not there is not made.
    from.look(Role::Source).await?.store.close().await;
    let side = from.taken(Role::Source).await?;
    let done = abandon_side(&side, consent, output).await;
    side.store.close().await;
    done
}

async fn abandon_side(from: &Side, consent: &Consent, output: &Output) -> anyhow::Result<Status> {
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

/// A move between two open sides.
fn between(from: &Side, to: &Side) -> Migration {
    Migration::new((Arc::clone(&from.store), &from.name), (Arc::clone(&to.store), &to.name))
}

async fn migrate(
    from: &Place,
    to: &Place,
    wish: &Migrate,
    output: &Output,
) -> anyhow::Result<Status> {
    let (here, there) = (from.look(Role::Source).await?, to.look(Role::Target).await?);
    let plan = between(&here, &there).plan().await;
    here.store.close().await;
    there.store.close().await;
    let plan = plan.map_err(|error| refused(&error))?;
    output.progress(&described(&plan, (from, to)));
    if plan.begun == Some(Stage::Moved) {
        output.record(&json!({ "state": "moved" }), |_| "it was moved already".to_owned())?;
        return Ok(Status::Done);
    }
    if !wish.consent.given(Harm::Moderate, output)? {
        return Ok(Status::Done);
    }
    let target = to.taken(Role::Target).await?;
    let course = Course { from, to, target: &target, output };
    let done = course.run(wish.copy_only).await;
    target.store.close().await;
    done
}

/// A move that was agreed to.
struct Course<'a> {
    from: &'a Place,
    to: &'a Place,
    target: &'a Side,
    output: &'a Output,
}

impl Course<'_> {
    async fn run(&self, copy_only: bool) -> anyhow::Result<Status> {
        let mut proof = Proof::default();
        if copy_only {
            let copied = self.copy(&mut proof).await?;
            let shown = json!({ "state": "copied", "copied": copied, "events": proof.events() });
            self.output.record(&shown, |_| {
                let events = output::grouped(proof.events());
                format!("copied and compared: {events} events; run it again to go on")
            })?;
            return Ok(Status::Done);
        }
        let source = match self.from.take(Role::Source).await? {
            Ok(source) => source,
            Err(user) => self.follow(user, &mut proof).await?,
        };
        let done = self.finish(&source, &mut proof).await;
        source.store.close().await;
        done
    }

    /// Copies what there is now, from a source that others may use. Gives how much it was.
    async fn copy(&self, proof: &mut Proof) -> anyhow::Result<u64> {
        let source = self.from.look(Role::Source).await?;
        let migration = between(&source, self.target);
        let copied = async {
            migration.begin_copy().await?;
            migration.catch_up(self.settled(), proof, |_| {}).await
        };
        let copied = Box::pin(copied).await;
        source.store.close().await;
        copied.map_err(|error| refused(&error))
    }

    /// By when everything that will ever be there is.
    fn settled(&self) -> Timestamp {
        if self.from.is_mongodb() && !self.to.is_mongodb() {
            let now = clock::timestamp().millis();
            return Timestamp::from_millis(now.saturating_sub(SETTLE_MS));
        }
        Timestamp::from_millis(u64::MAX)
    }

    /// Copies while others use the source, until they do not any more.
    async fn follow(&self, mut user: String, proof: &mut Proof) -> anyhow::Result<Side> {
        self.output.progress(&format!("{user}, and may go on meanwhile"));
        let (bar, mut is_told) = (self.output.bar(None, "events"), false);
        loop {
            let copied = self.copy(proof).await?;
            bar.set_position(proof.events());
            if copied < FEW && !is_told {
                is_told = true;
                let events = output::grouped(proof.events());
                self.output.progress(&format!(
                    "copied and compared: {events} events. {user}: stop what uses it when you like, and the \
                     rest follows at once"
                ));
            }
            if copied < FEW {
                tokio::time::sleep(LOOK).await;
            }
            match self.from.take(Role::Source).await? {
                Ok(source) => {
                    bar.finish_and_clear();
                    return Ok(source);
                }
                Err(still) => user = still,
            }
        }
    }

    /// What is left, for one who has both sides to himself.
    async fn finish(&self, source: &Side, proof: &mut Proof) -> anyhow::Result<Status> {
        let migration = between(source, self.target);
        migration.begin().await.map_err(|error| refused(&error))?;
        // Again, now that none can come any more: they look for the mark when they start.
        source.alone().await?;
        self.target.alone().await?;
        let bar = self.output.bar(None, "events");
        let report = migration.run(proof, |progress| match progress {
            Progress::Events(count) => bar.inc(count),
            _ => bar.set_message("comparing both"),
        });
        let report = Box::pin(report).await.map_err(|error| refused(&error))?;
        bar.finish_and_clear();
        let tokens = move_tokens(source, self.target).await?;
        source.alone().await?;
        migration.end().await.map_err(|error| refused(&error))?;
        told(&report, tokens, (source, self.target), self.output)?;
        Ok(Status::Done)
    }
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
