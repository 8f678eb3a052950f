//! One file for each verb.

mod bench;

mod log;

use std::process::ExitCode;

use clap::Subcommand;

use crate::output::Output;

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Look at the log of a data directory, without a server.
    #[command(subcommand)]
    Log(log::LogCommand),
    /// Measure, as ratios to a reference measured in the same run.
    #[command(subcommand)]
    Bench(bench::BenchCommand),
}

/// How a command that ran went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Done,
    Failed,
    /// Ran as it should, and found problems.
    FoundProblems,
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        match status {
            Status::Done => Self::SUCCESS,
            Status::Failed => Self::FAILURE,
            Status::FoundProblems => Self::from(100),
        }
    }
}

pub(crate) fn run(command: Command, output: &Output) -> anyhow::Result<Status> {
    match command {
        Command::Log(command) => log::run(&command, output),
        Command::Bench(command) => bench::run(command, output),
    }
}
