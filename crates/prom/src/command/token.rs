//! `prom token` and `prom auth explain`: who may do what.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use promethean_event::{GroupName, Topic};
use promethean_gateway::access::{Action, MintedToken, Policy, Resource, StoredToken, TokenTable};
use serde::Serialize;

use super::Status;
use super::kept_tokens::{Keeping, Kept, KeptAnywhere, Told};
use crate::consent::{Consent, Harm};
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::{clock, times};

/// Make, list and revoke the static tokens of a server.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token. Its secret is shown once and kept nowhere.
    Mint(Mint),
    /// List tokens, without their secrets.
    Ls(List),
    /// Take a token back.
    Revoke(Revoke),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  prom token mint shop --scope 'publish:orders.*' --scope 'subscribe:orders.**@shop' --ttl 90d
  prom token mint ops --scope 'admin:ops.read' -o ops.token
  prom token mint shop --scope 'publish:orders.*' --url http://hub:7766 --token-file admin.token

A running server reads them within a second. Servers that share a MongoDB have their tokens there
(--store, or --url of any of them): made once, good at all of them.")]
pub(crate) struct Mint {
    /// Who it is for.
    subject: String,
    /// What it allows: `publish:PATTERN`, `subscribe:PATTERN[@GROUP]`, `admin:AREA`; with `!` before
    /// it, what it forbids, whatever else allows it. May be given several times.
    #[arg(long, required = true)]
    scope: Vec<String>,
    /// How long it is good [default: until it is revoked].
    #[arg(long, value_name = "TIME", value_parser = times::duration)]
    ttl: Option<Duration>,
    /// Write the secret to this file, for its owner's eyes only, instead of showing it.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    kept: KeptAnywhere,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    kept: KeptAnywhere,
}

#[derive(Debug, Args)]
pub(crate) struct Revoke {
    /// Id of the token.
    id: String,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    kept: KeptAnywhere,
}

/// Ask who may do what, and why.
#[derive(Debug, Subcommand)]
pub(crate) enum AuthCommand {
    /// Say whether a token allows something, and which of its scopes decides.
    Explain(Explain),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  prom auth explain --scope 'publish:orders.*' publish orders.placed
  prom auth explain --token-file shop.token subscribe orders.placed --group shop
  prom auth explain --subject admin ops-read")]
pub(crate) struct Explain {
    /// What is to be done.
    #[arg(value_enum)]
    action: Asked,
    /// With which topic; for what goes by topic.
    topic: Option<Topic>,
    /// For which group.
    #[arg(long)]
    group: Option<GroupName>,
    /// Scopes to try instead of those of a token; may be given several times.
    #[arg(long)]
    scope: Vec<String>,
    /// File with the token.
    #[arg(long, value_name = "FILE", conflicts_with = "scope")]
    token_file: Option<PathBuf>,
    /// Who has the token.
    #[arg(long, conflicts_with_all = ["scope", "token_file"])]
    subject: Option<String>,
    #[command(flatten)]
    kept: Kept,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Asked {
    Publish,
    Subscribe,
    Read,
    DlqRead,
    DlqReplay,
    GroupSeek,
    SchemaWrite,
    TopicAdmin,
    OpsRead,
    OpsAdmin,
}

impl Asked {
    const fn action(self) -> Action {
        match self {
            Self::Publish => Action::Publish,
            Self::Subscribe => Action::Subscribe,
            Self::Read => Action::Read,
            Self::DlqRead => Action::DlqRead,
            Self::DlqReplay => Action::DlqReplay,
            Self::GroupSeek => Action::CursorSet,
            Self::SchemaWrite => Action::SchemaWrite,
            Self::TopicAdmin => Action::TopicAdmin,
            Self::OpsRead => Action::OpsRead,
            Self::OpsAdmin => Action::OpsAdmin,
        }
    }
}

#[derive(Debug, Serialize)]
struct Shown {
    id: String,
    subject: String,
    scopes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at_ms: Option<u64>,
    expired: bool,
}

impl Shown {
    fn of(token: &Told) -> Self {
        let now = clock::timestamp().millis();
        Self {
            id: token.id.clone(),
            subject: token.subject.clone(),
            scopes: token.scopes.clone(),
            expires_at_ms: token.expires_at_ms,
            expired: token.expires_at_ms.is_some_and(|end| end <= now),
        }
    }
}

pub(crate) fn run(command: &TokenCommand, output: &Output) -> anyhow::Result<Status> {
    let kept = match command {
        TokenCommand::Mint(wish) => &wish.kept,
        TokenCommand::Ls(wish) => &wish.kept,
        TokenCommand::Revoke(wish) => &wish.kept,
    };
    super::block_on(async {
        let keeping = kept.open().await?;
        let done = match command {
            TokenCommand::Mint(wish) => mint(wish, &keeping, output).await,
            TokenCommand::Ls(_) => list(&keeping, output).await,
            TokenCommand::Revoke(wish) => revoke(wish, &keeping, output).await,
        };
        keeping.close().await;
        done
    })
}

async fn list(keeping: &Keeping, output: &Output) -> anyhow::Result<Status> {
    let tokens: Vec<Shown> = keeping.list().await?.iter().map(Shown::of).collect();
    output.list("tokens", &tokens, table)?;
    Ok(Status::Done)
}

fn table(tokens: &[Shown]) -> String {
    if tokens.is_empty() {
        return "no tokens; make one: prom token mint NAME --scope 'subscribe:**'".to_owned();
    }
    let now = clock::timestamp().millis();
    let row = |one: &Shown| {
        let ends = match one.expires_at_ms {
            None => "never".to_owned(),
            Some(_) if one.expired => "has ended".to_owned(),
            Some(end) => format!("in {}", output::span(end.saturating_sub(now))),
        };
        vec![one.id.clone(), one.subject.clone(), ends, one.scopes.join(" ")]
    };
    let rows: Vec<Vec<String>> = tokens.iter().map(row).collect();
    output::table(&["ID", "FOR", "ENDS", "ALLOWS"], &rows)
}

#[derive(Serialize)]
struct Minted<'a> {
    #[serde(flatten)]
    token: Shown,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<&'a str>,
}

async fn mint(wish: &Mint, keeping: &Keeping, output: &Output) -> anyhow::Result<Status> {
    let policy = Policy::of_scopes(wish.scope.iter().map(String::as_str))
        .map_err(|error| Failure::usage(error.to_string()))?;
    if policy.is_empty() {
        return Err(Failure::usage("these scopes allow nothing")
            .hint("write them like publish:orders.* or subscribe:** or admin:ops.read")
            .into());
    }
    let mut minted = MintedToken::mint(&wish.subject, wish.scope.clone())?;
    let now = clock::timestamp();
    let ttl_ms = wish.ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
    minted.stored.expires_at_ms = ttl_ms.map(|ttl| now.plus_millis(ttl).millis());
    // First of all: a token whose secret nobody got would be of no use.
    let place = wish.output.as_deref().map(super::private_file).transpose()?;
    let kept = keeping.mint(minted, ttl_ms).await;
    let token = match (kept, &wish.output) {
        (Ok(token), _) => token,
        (Err(error), Some(file)) => {
            // Nothing was written to it.
            fs::remove_file(file)?;
            return Err(error);
        }
        (Err(error), None) => return Err(error),
    };
    let secret = token.secret.as_deref().unwrap_or_default();
    if let (Some(mut place), Some(file)) = (place, &wish.output) {
        use std::io::Write;
        place
            .write_all(secret.as_bytes())
            .and_then(|()| place.sync_all())
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    let shown =
        Minted { token: Shown::of(&token), secret: wish.output.is_none().then_some(secret) };
    output.record(&shown, |shown| match (shown.secret, &wish.output) {
        (Some(secret), _) => secret.to_owned(),
        (None, file) => file.as_ref().map_or(String::new(), |file| file.display().to_string()),
    })?;
    output.progress(&format!(
        "token {} for {}; its secret is not kept. {} reads it within a second",
        token.id,
        wish.subject,
        sentence(keeping.heard())
    ));
    Ok(Status::Done)
}

/// As a sentence begins.
fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

async fn revoke(wish: &Revoke, keeping: &Keeping, output: &Output) -> anyhow::Result<Status> {
    let tokens = keeping.list().await?;
    let Some(token) = tokens.iter().find(|token| token.id == wish.id) else {
        let what = format!("there is no token {}", wish.id);
        return Err(Failure::new(Status::NotFound, what)
            .hint("list them with: prom token ls")
            .into());
    };
    output.progress(&format!(
        "Plan: revoke token {} of {}, which allows {}",
        token.id,
        token.subject,
        token.scopes.join(" ")
    ));
    if !wish.consent.given(Harm::Moderate, output)? {
        return Ok(Status::Done);
    }
    keeping.revoke(&token.id).await?;
    output
        .record(&serde_json::json!({ "revoked": token.id }), |_| format!("revoked {}", token.id))?;
    output.progress(&format!(
        "{} forgets it within a second, and closes who is connected by it",
        keeping.heard()
    ));
    Ok(Status::Done)
}

#[derive(Debug, Serialize)]
struct Verdict {
    allowed: bool,
    /// The scopes that allow it, or those that forbid it.
    by: Vec<String>,
    scopes: Vec<String>,
    why: String,
}

pub(crate) fn auth(command: &AuthCommand, output: &Output) -> anyhow::Result<Status> {
    let AuthCommand::Explain(explain) = command;
    let scopes = scopes_of(explain)?;
    let verdict = verdict(explain, scopes)?;
    output.record(&verdict, |verdict| {
        let word = if verdict.allowed { "allowed" } else { "refused" };
        let word =
            if verdict.allowed { output.paint().good(word) } else { output.paint().bad(word) };
        format!("{word}: {}", verdict.why)
    })?;
    Ok(if verdict.allowed { Status::Done } else { Status::Denied })
}

fn scopes_of(explain: &Explain) -> anyhow::Result<Vec<String>> {
    if !explain.scope.is_empty() {
        return Ok(explain.scope.clone());
    }
    let tokens = super::block_on(explain.kept.read())?;
    let found = match (&explain.token_file, &explain.subject) {
        (Some(file), _) => {
            let secret = fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            let id = secret.trim().strip_prefix("prom_").and_then(|rest| rest.split('_').next());
            let is_good = |token: &&StoredToken| {
                let table = TokenTable::new([(*token).clone()]);
                table.is_ok_and(|table| table.verify(secret.trim()).is_some())
            };
            tokens.iter().filter(|token| Some(token.id.as_str()) == id).find(is_good)
        }
        (None, Some(subject)) => tokens.iter().find(|token| token.subject == *subject),
        (None, None) => {
            let what = "say whose rights: --token-file, --subject or --scope";
            return Err(Failure::usage(what).into());
        }
    };
    let token = found.ok_or_else(|| {
        let what = format!("{} has no such token", explain.kept.path().display());
        Failure::new(Status::NotFound, what).hint("list them with: prom token ls")
    })?;
    if Shown::of(&token.clone().into()).expired {
        let what = format!("token {} of {} has ended", token.id, token.subject);
        return Err(Failure::new(Status::Denied, what)
            .hint("make a new one: prom token mint")
            .into());
    }
    Ok(token.scopes.clone())
}

fn verdict(explain: &Explain, scopes: Vec<String>) -> anyhow::Result<Verdict> {
    let action = explain.action.action();
    let resource = match (action.area(), &explain.topic) {
        (Some(_), _) => Resource::Server,
        (None, Some(topic)) => Resource::Topic(topic, explain.group.as_ref()),
        (None, None) => return Err(Failure::usage("this goes by topic: name one").into()),
    };
    let policy = Policy::of_scopes(scopes.iter().map(String::as_str))
        .map_err(|error| Failure::usage(error.to_string()))?;
    let allows = |scope: &&String| {
        Policy::of_scopes([scope.as_str()]).is_ok_and(|one| one.allows(action, resource))
    };
    let forbids = |scope: &&String| {
        let all = ["publish:**", "subscribe:**", "admin:**", scope.as_str()];
        Policy::of_scopes(all).is_ok_and(|one| !one.allows(action, resource))
    };
    let allowed = policy.allows(action, resource);
    let by: Vec<String> = if allowed {
        scopes.iter().filter(allows).cloned().collect()
    } else {
        scopes.iter().filter(forbids).cloned().collect()
    };
    let why = match (allowed, by.first()) {
        (true, Some(scope)) => format!("by scope {scope}"),
        (true, None) => "by the scopes together".to_owned(),
        (false, Some(scope)) => format!("scope {scope} forbids it"),
        (false, _) if scopes.is_empty() => {
            "the token has no scopes; what nothing allows is refused".into()
        }
        (false, _) => format!("none of its scopes allows it: {}", scopes.join(" ")),
    };
    Ok(Verdict { allowed, by, scopes, why })
}
