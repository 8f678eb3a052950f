//! `prom log`: a data directory's log, read without changing it.

mod inspect;

mod stats;

mod verify;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Subcommand};
use promethean_log::{RealDisk, Survey};

use super::Status;
use crate::output::Output;

#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// List the segments: what they cover, how large they are, whether they are complete.
    Inspect(Directory),
    /// Read everything and check it. Exit code 100 if anything is not as it was written.
    Verify(Directory),
    /// Count events and bytes by topic.
    Stats(Directory),
}

#[derive(Debug, Args)]
pub(crate) struct Directory {
    /// The data directory (or the log directory in it).
    #[arg(value_name = "DIR")]
    path: PathBuf,
}

pub(crate) fn run(command: &LogCommand, output: &Output) -> anyhow::Result<Status> {
    match command {
        LogCommand::Inspect(directory) => inspect::run(&directory.survey()?, output),
        LogCommand::Verify(directory) => verify::run(&directory.survey()?, output),
        LogCommand::Stats(directory) => stats::run(&directory.survey()?, output),
    }
}

impl Directory {
    fn survey(&self) -> anyhow::Result<Survey> {
        let path = log_directory(&self.path);
        let disk = RealDisk::open_existing(&path)
            .with_context(|| format!("cannot open the log in {}", path.display()))?;
        let survey = promethean_log::survey(&disk)
            .with_context(|| format!("cannot read the log in {}", path.display()))?;
        anyhow::ensure!(
            !survey.segments.is_empty() || !survey.damage.is_empty(),
            "there is no log in {}; name a data directory that `prom` has written",
            path.display()
        );
        Ok(survey)
    }
}

/// A data directory keeps its log in `log`.
fn log_directory(path: &Path) -> PathBuf {
    let inner = path.join("log");
    if inner.is_dir() { inner } else { path.to_owned() }
}
