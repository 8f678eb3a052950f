//! Nothing that hurts is done without a plan and a yes.

use std::io::{BufRead, IsTerminal, Write};

use clap::Args;

use crate::failure::Failure;
use crate::output::Output;

/// How a user agrees.
#[derive(Debug, Clone, Args)]
pub(crate) struct Consent {
    /// Say what would be done, and do nothing.
    #[arg(long, short = 'n', help_heading = "Consent")]
    dry_run: bool,
    /// Do it without asking.
    #[arg(long, short, help_heading = "Consent")]
    yes: bool,
    /// Do what deletes without asking, by the name of what is deleted.
    #[arg(long, value_name = "NAME", help_heading = "Consent")]
    confirm: Option<String>,
    /// Never ask; fail instead.
    #[arg(long, help_heading = "Consent")]
    no_input: bool,
}

/// How much a change may hurt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Harm<'a> {
    /// It can be undone, or is done again easily: yes or no.
    Moderate,
    /// Something is gone afterwards: its name has to be said.
    Severe(&'a str),
}

impl Consent {
    pub(crate) const fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Whether to go ahead with a plan that was shown. What was not agreed to is not done.
    pub(crate) fn given(&self, harm: Harm<'_>, output: &Output) -> anyhow::Result<bool> {
        if self.dry_run {
            output.progress("nothing was changed; leave --dry-run away to do it");
            return Ok(false);
        }
        let (agreed, flag) = match harm {
            Harm::Moderate => (self.yes || self.confirm.is_some(), "--yes".to_owned()),
            Harm::Severe(name) => {
                let flag = format!("--confirm={name}");
                match &self.confirm {
                    Some(given) if given != name => {
                        let what = format!("--confirm={given} is not what would be deleted");
                        return Err(Failure::usage(what).hint(format!("say {flag}")).into());
                    }
                    given => (given.is_some(), flag),
                }
            }
        };
        if agreed {
            return Ok(true);
        }
        let can_ask = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        if self.no_input || !can_ask {
            let what = "nothing was changed: this needs a confirmation";
            return Err(Failure::usage(what).hint(format!("run it again with {flag}")).into());
        }
        let said = match harm {
            Harm::Moderate => matches!(asked("Go ahead? [y/N] ")?.as_str(), "y" | "yes" | "Y"),
            Harm::Severe(name) => {
                asked(&format!("This deletes. Type {name} to go ahead: "))? == name
            }
        };
        if !said {
            // A script that goes on regardless would take it for done.
            return Err(Failure::usage("it was not confirmed; nothing was changed").into());
        }
        Ok(true)
    }
}

fn asked(question: &str) -> anyhow::Result<String> {
    let mut stderr = std::io::stderr().lock();
    write!(stderr, "{question}")?;
    stderr.flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim().to_owned())
}
