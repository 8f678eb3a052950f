//! `prom completions` and `prom man`: the program about itself.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Command as Clap, CommandFactory};

use super::Status;
use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::output::Output;

/// Print completions for a shell.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  prom completions bash > ~/.local/share/bash-completion/completions/prom
  prom completions zsh > \"${fpath[1]}/_prom\"
  prom completions fish > ~/.config/fish/completions/prom.fish")]
pub(crate) struct Completions {
    /// The shell.
    shell: Shell,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Shell {
    Bash,
    Elvish,
    Fish,
    Nushell,
    #[value(name = "powershell")]
    Power,
    Zsh,
}

/// Show manual pages; in a pipe, as `man` reads them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  prom man tail
  prom man --into ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// The command, such as `tail` or `topic add` [default: prom itself].
    command: Vec<String>,
    /// Write all pages into a directory.
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    into: Option<PathBuf>,
}

pub(crate) fn completions(wish: &Completions) -> anyhow::Result<Status> {
    use clap_complete::shells;

    let mut text = Vec::new();
    let (command, to) = (&mut Arguments::command(), &mut text);
    match wish.shell {
        Shell::Bash => clap_complete::generate(shells::Bash, command, "prom", to),
        Shell::Elvish => clap_complete::generate(shells::Elvish, command, "prom", to),
        Shell::Fish => clap_complete::generate(shells::Fish, command, "prom", to),
        Shell::Nushell => {
            clap_complete::generate(clap_complete_nushell::Nushell, command, "prom", to);
        }
        Shell::Power => clap_complete::generate(shells::PowerShell, command, "prom", to),
        Shell::Zsh => clap_complete::generate(shells::Zsh, command, "prom", to),
    }
    std::io::stdout().write_all(&text)?;
    Ok(Status::Done)
}

pub(crate) fn man(wish: &Man, output: &Output) -> anyhow::Result<Status> {
    let mut root = Arguments::command();
    root.build();
    if let Some(folder) = &wish.into {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        clap_mangen::generate_to(root, folder)?;
        output.progress(&format!("manual pages are in {}", folder.display()));
        return Ok(Status::Done);
    }
    let mut command: &Clap = &root;
    for name in &wish.command {
        command = command.find_subcommand(name).ok_or_else(|| {
            let what = format!("there is no command {}", wish.command.join(" "));
            Failure::new(Status::NotFound, what).hint("see all with: prom help")
        })?;
    }
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut text)?;
    let is_seen = std::io::stdout().is_terminal();
    if is_seen && read_by_man(&text)? {
        return Ok(Status::Done);
    }
    if is_seen {
        // Without `man` nobody reads its language.
        return output
            .print(&command.clone().render_long_help().to_string())
            .map(|()| Status::Done);
    }
    std::io::stdout().write_all(&text)?;
    Ok(Status::Done)
}

/// Lets `man` show a page; false if there is none.
fn read_by_man(page: &[u8]) -> anyhow::Result<bool> {
    let mut file = tempfile::Builder::new().prefix("prom-").suffix(".1").tempfile()?;
    file.write_all(page)?;
    match std::process::Command::new("man").arg(file.path()).status() {
        Ok(ended) => Ok(ended.success()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).context("cannot start man"),
    }
}
