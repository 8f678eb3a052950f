//! One file for each verb.

mod bench;

mod log;

mod serve;

mod dev;

use std::process::ExitCode;

use clap::Subcommand;

use crate::output::Output;

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a data directory to others: HTTP and WebSocket.
    Serve(Box<serve::Serve>),
    /// Serve this machine, for development: no credentials, nothing to set up.
    Dev(dev::Dev),
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
    /// Did not start, since what it was told is not safe or makes no sense.
    Misconfigured,
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        match status {
            Status::Done => Self::SUCCESS,
            Status::Failed => Self::FAILURE,
            Status::FoundProblems => Self::from(100),
            // EX_CONFIG of sysexits.h: a supervisor need not try again.
            Status::Misconfigured => Self::from(78),
        }
    }
}

pub(crate) fn run(command: Command, output: &Output) -> anyhow::Result<Status> {
    match command {
        Command::Serve(serve) => serve::run(&serve, output),
        Command::Dev(dev) => dev::run(&dev, output),
        Command::Log(command) => log::run(&command, output),
        Command::Bench(command) => bench::run(command, output),
    }
}
