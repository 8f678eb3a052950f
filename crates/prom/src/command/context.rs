//! `prom ctx`: servers by name.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;

use super::Status;
use crate::consent::{Consent, Harm};
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::reach::{Context, Contexts, check_url};

/// Keep servers by name, and choose one.
#[derive(Debug, Subcommand)]
pub(crate) enum ContextCommand {
    /// List contexts.
    Ls,
    /// Keep a server under a name; the first one is used at once.
    Add(Add),
    /// Use a context from now on; `-` for the one before.
    Use {
        /// Its name.
        name: String,
    },
    /// Use the context before this one; as `use -`.
    #[command(name = "-")]
    Back,
    /// Forget a context.
    Rm(Remove),
}

#[derive(Debug, Args)]
pub(crate) struct Add {
    /// Its name.
    name: String,
    /// The server.
    #[arg(long)]
    url: String,
    /// Where its administration is, if it has an address of its own.
    #[arg(long, value_name = "URL")]
    admin_url: Option<String>,
    /// File with the token to show.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Changes have to be confirmed by name.
    #[arg(long)]
    protected: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// Its name.
    name: String,
    #[command(flatten)]
    consent: Consent,
}

#[derive(Debug, Serialize)]
struct Shown<'a> {
    name: &'a str,
    current: bool,
    #[serde(flatten)]
    context: &'a Context,
}

pub(crate) fn run(command: ContextCommand, output: &Output) -> anyhow::Result<Status> {
    let mut contexts = Contexts::read()?;
    match command {
        ContextCommand::Ls => list(&contexts, output)?,
        ContextCommand::Add(add) => {
            check_url(&add.url)?;
            add.admin_url.as_deref().map_or(Ok(()), check_url)?;
            // It is used from other directories, too.
            let token_file = add.token_file.map(std::path::absolute).transpose()?;
            let Add { url, admin_url, protected, .. } = add;
            let context = Context { url, admin_url, token_file, protected };
            if contexts.context.insert(add.name.clone(), context).is_some() {
                output.progress("it was there, and is replaced");
            }
            contexts.current.get_or_insert_with(|| add.name.clone());
            contexts.write()?;
            list(&contexts, output)?;
        }
        ContextCommand::Use { name } => choose(contexts, name, output)?,
        ContextCommand::Back => choose(contexts, "-".to_owned(), output)?,
        ContextCommand::Rm(remove) => {
            let Remove { name, consent } = remove;
            let url = &contexts.get(&name)?.url;
            output.progress(&format!("Plan: forget context {name}, which is {url}"));
            if consent.given(Harm::Moderate, output)? {
                contexts.context.remove(&name);
                contexts.current.take_if(|current| *current == name);
                contexts.previous.take_if(|previous| *previous == name);
                contexts.write()?;
                let removed = serde_json::json!({ "removed": name });
                output.record(&removed, |_| format!("removed {name}"))?;
            }
        }
    }
    Ok(Status::Done)
}

fn choose(mut contexts: Contexts, name: String, output: &Output) -> anyhow::Result<()> {
    let name = match (name.as_str(), contexts.previous.clone()) {
        ("-", Some(previous)) => previous,
        ("-", None) => {
            return Err(Failure::usage("there is no context before this one").into());
        }
        _ => name,
    };
    contexts.get(&name)?;
    contexts.previous = contexts.current.replace(name);
    contexts.write()?;
    list(&contexts, output)
}

fn list(contexts: &Contexts, output: &Output) -> anyhow::Result<()> {
    let shown: Vec<Shown<'_>> = contexts
        .context
        .iter()
        .map(|(name, context)| Shown {
            current: contexts.current.as_ref() == Some(name),
            name,
            context,
        })
        .collect();
    output.list("contexts", &shown, |shown| {
        if shown.is_empty() {
            return "no contexts; add one: prom ctx add NAME --url URL".to_owned();
        }
        let row = |one: &Shown<'_>| {
            let token = one.context.token_file.as_ref();
            vec![
                if one.current { "*".to_owned() } else { String::new() },
                one.name.to_owned(),
                one.context.url.clone(),
                token.map_or("-".to_owned(), |file| file.display().to_string()),
                if one.context.protected { "protected".to_owned() } else { String::new() },
            ]
        };
        let rows: Vec<Vec<String>> = shown.iter().map(row).collect();
        output::table(&["", "NAME", "URL", "TOKEN", ""], &rows)
    })
}
