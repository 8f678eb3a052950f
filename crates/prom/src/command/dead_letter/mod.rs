//! `prom dlq`: what groups have given up, and what becomes of it.

mod letter;

mod listing;

mod show;

mod replay;

mod edit;

use clap::{Args, Subcommand};
use promethean_event::{EventId, GroupName, Pattern};
use serde::Deserialize;

use super::Status;
use crate::consent::Harm;
use crate::failure::Failure;
use crate::output::Output;
use crate::reach::{Ask, At, Missing, Reach};
use letter::Letter;

/// Look at dead letters, mend and replay them.
#[derive(Debug, Subcommand)]
pub(crate) enum DeadLetterCommand {
    /// List dead letters by the kind of their error.
    Ls(listing::List),
    /// Show one dead letter: the event, the error, every attempt.
    Show(show::Show),
    /// Change the event of a dead letter and give it back to its group.
    Edit(edit::Edit),
    /// Give dead letters back to the groups that gave them up.
    Replay(replay::Replay),
    /// Give dead letters up for good.
    Rm(replay::Remove),
}

/// Which dead letters.
#[derive(Debug, Clone, Default, Args)]
struct Selection {
    /// With errors of this kind (a fingerprint of `prom dlq ls`).
    #[arg(long, value_name = "FINGERPRINT", help_heading = "Which dead letters")]
    error: Option<String>,
    /// Of these topics.
    #[arg(long, value_name = "PATTERN", help_heading = "Which dead letters")]
    topic: Option<Pattern>,
    /// Given up by this group.
    #[arg(long, help_heading = "Which dead letters")]
    group: Option<GroupName>,
}

impl Selection {
    const fn is_empty(&self) -> bool {
        self.error.is_none() && self.topic.is_none() && self.group.is_none()
    }
}

/// Dead letters can be told again what was done to them, but for those who were served meanwhile.
fn harm(reach: &Reach) -> Harm<'static> {
    if reach.is_protected() { Harm::Severe("dlq") } else { Harm::Moderate }
}

#[derive(Debug, Deserialize)]
struct Letters {
    dead_letters: Vec<Letter>,
    #[serde(default)]
    next: Option<EventId>,
}

/// So many are looked at in one go.
const LISTED_MAX: usize = 10_000;
/// Of these, a server lists so many at once.
const PAGE_MAX: usize = 1_000;

/// Dead letters in a state; those that are there, up to [`LISTED_MAX`].
async fn letters(reach: &Reach, which: &Selection, state: &str) -> anyhow::Result<Vec<Letter>> {
    let ask = Ask::get("/dead-letters")
        .query("topic", which.topic.as_ref())
        .query("group", which.group.as_ref())
        .query("fingerprint", which.error.as_deref())
        .query("state", Some(state))
        .query("limit", Some(PAGE_MAX));
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page: Letters = reach.json(ask.clone().query("after", after)).await?;
        found.extend(page.dead_letters);
        after = page.next;
        if after.is_none() || found.len() >= LISTED_MAX {
            found.truncate(LISTED_MAX);
            return Ok(found);
        }
    }
}

/// The same dead letter, with its event in the form of a version.
async fn in_form(reach: &Reach, letter: Letter, form: &str) -> anyhow::Result<Letter> {
    let ask = Ask::get("/dead-letters").query("id", Some(letter.id)).query("state", Some("all"));
    let found = reach.json::<Letters>(ask.query("reads", Some(form))).await?;
    Ok(found.dead_letters.into_iter().next().unwrap_or(letter))
}

/// One dead letter by its id, or by how the id ends.
async fn named(reach: &Reach, text: &str) -> anyhow::Result<Letter> {
    let end = text.trim_start_matches('…');
    let unknown = || {
        Failure::new(Status::NotFound, format!("there is no dead letter {text}"))
            .hint(format!("list them with: prom dlq ls --each{}", reach.flag()))
    };
    if let Ok(id) = end.parse::<EventId>() {
        let ask = Ask::get("/dead-letters").query("id", Some(id)).query("state", Some("all"));
        let found = reach.json::<Letters>(ask).await?.dead_letters.into_iter().next();
        return found.ok_or_else(|| unknown().into());
    }
    let all = letters(reach, &Selection::default(), "all").await?;
    let mut found = all.into_iter().filter(|letter| letter.id.to_string().ends_with(end));
    match (found.next(), found.next()) {
        (Some(letter), None) => Ok(letter),
        (None, _) => Err(unknown().into()),
        (Some(_), Some(_)) => {
            let what = format!("several dead letters end with {end}");
            Err(Failure::usage(what).hint("give more of the id").into())
        }
    }
}

pub(crate) fn run(command: DeadLetterCommand, output: &Output) -> anyhow::Result<Status> {
    super::block_on(async move {
        let at: &At = match &command {
            DeadLetterCommand::Ls(list) => &list.at,
            DeadLetterCommand::Show(show) => &show.at,
            DeadLetterCommand::Edit(edit) => &edit.at,
            DeadLetterCommand::Replay(replay) => &replay.at,
            DeadLetterCommand::Rm(remove) => &remove.at,
        };
        let reach = at.open(Missing::Refuse).await?;
        let done = match &command {
            DeadLetterCommand::Ls(list) => listing::run(list, &reach, output).await,
            DeadLetterCommand::Show(show) => show::run(show, &reach, output).await,
            DeadLetterCommand::Edit(edit) => edit::run(edit, &reach, output).await,
            DeadLetterCommand::Replay(wish) => replay::run(wish, &reach, output).await,
            DeadLetterCommand::Rm(wish) => replay::remove(wish, &reach, output).await,
        };
        reach.close().await;
        done
    })
}
