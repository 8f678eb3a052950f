//! One file for each verb.

mod bench;

mod evolve;

mod lint;

mod log;

mod project;

mod schema;

mod place;

mod server;

mod serve;

mod dev;

mod publish;

mod sending;

mod gaps;

mod tail;

mod short_id;

mod get;

mod export;

mod topic;

mod group;

mod dead_letter;

mod view;

mod past;

mod trace;

mod replay;

mod job;

mod changefeed;

mod migrate;

pub(crate) mod moved;

mod apply;

mod audit;

mod credentials;

mod kept_tokens;

mod token;

mod doctor;

mod context;

mod manual;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Subcommand;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::output::Output;

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve this machine, for development: no credentials, nothing to set up.
    Dev(dev::Dev),
    /// Serve a data directory to others: HTTP and WebSocket.
    Serve(Box<serve::Serve>),
    Pub(publish::Pub),
    Tail(tail::Tail),
    Get(get::Get),
    #[command(subcommand)]
    Topic(topic::TopicCommand),
    #[command(subcommand)]
    Group(group::GroupCommand),
    #[command(subcommand, name = "dlq")]
    DeadLetter(dead_letter::DeadLetterCommand),
    #[command(subcommand)]
    View(Box<view::ViewCommand>),
    At(past::AtMoment),
    Diff(past::Diff),
    Why(past::Why),
    History(past::History),
    Trace(trace::Trace),
    Replay(Box<replay::Replay>),
    #[command(subcommand)]
    Job(job::JobCommand),
    #[command(subcommand)]
    Changefeed(Box<changefeed::ChangefeedCommand>),
    Migrate(Box<migrate::Migrate>),
    Export(export::Export),
    Import(export::Import),
    Plan(apply::Plan),
    Apply(apply::Apply),
    #[command(subcommand)]
    Check(apply::CheckCommand),
    #[command(subcommand)]
    Token(token::TokenCommand),
    #[command(subcommand)]
    Auth(token::AuthCommand),
    Audit(Box<audit::Audit>),
    #[command(subcommand, name = "ctx")]
    Context(context::ContextCommand),
    Doctor(doctor::Doctor),
    /// Look at the log of a data directory, without a server.
    #[command(subcommand)]
    Log(log::LogCommand),
    /// Check, compare, register and evolve the schemas of topics.
    #[command(subcommand)]
    Schema(Box<schema::SchemaCommand>),
    /// Bring a topic from one version of its schema to the next, step by step.
    #[command(subcommand)]
    Evolve(Box<evolve::EvolveCommand>),
    /// Read source code for the topics and headers that it uses, and judge them.
    Lint(lint::Lint),
    /// Measure, as ratios to a reference measured in the same run.
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    Completions(manual::Completions),
    Man(manual::Man),
}

/// How a command went. Each has its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Done,
    Failed,
    /// What was typed or given makes no sense, or was not confirmed.
    Usage,
    /// Nobody answers; trying again may help.
    Unreachable,
    NotFound,
    /// Not known, or not allowed.
    Denied,
    /// The state does not allow it.
    Conflict,
    /// Too much, too fast.
    Limited,
    /// Some of it failed, or could not be decided.
    Partial,
    /// Did not start, since what it was told is not safe or makes no sense.
    Misconfigured,
    /// Ran as it should, and found problems.
    FoundProblems,
    /// Ctrl-C.
    Interrupted,
}

impl Status {
    /// The exit code.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Unreachable => 3,
            Self::NotFound => 4,
            Self::Denied => 5,
            Self::Conflict => 6,
            Self::Limited => 7,
            Self::Partial => 8,
            // EX_CONFIG of sysexits.h: a supervisor need not try again.
            Self::Misconfigured => 78,
            Self::FoundProblems => 100,
            Self::Interrupted => 130,
        }
    }

    /// Its name for programs, and what it says to people.
    pub(crate) const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Done => ("done", "Done"),
            Self::Failed => ("failed", "It failed"),
            Self::Usage => (
                "usage",
                "The command or a file it was given is not understood, or it was not confirmed",
            ),
            Self::Unreachable => ("unreachable", "The server cannot be reached"),
            Self::NotFound => ("not_found", "There is no such thing"),
            Self::Denied => ("denied", "Not known, or not allowed"),
            Self::Conflict => ("conflict", "The state does not allow this"),
            Self::Limited => ("limited", "Too much, too fast"),
            Self::Partial => ("partial", "Some of it failed, or could not be decided"),
            Self::Misconfigured => ("misconfigured", "The settings are not safe or make no sense"),
            Self::FoundProblems => ("found_problems", "It ran, and found problems"),
            Self::Interrupted => ("interrupted", "Interrupted"),
        }
    }

    /// All of them, by code.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 12] = [
        Self::Done,
        Self::Failed,
        Self::Usage,
        Self::Unreachable,
        Self::NotFound,
        Self::Denied,
        Self::Conflict,
        Self::Limited,
        Self::Partial,
        Self::Misconfigured,
        Self::FoundProblems,
        Self::Interrupted,
    ];
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(status.code())
    }
}

pub(crate) fn run(command: Command, output: &Output) -> anyhow::Result<Status> {
    match command {
        Command::Dev(dev) => dev::run(&dev, output),
        Command::Serve(serve) => serve::run(*serve, output),
        Command::Pub(publish) => publish::run(publish, output),
        Command::Tail(tail) => tail::run(tail, output),
        Command::Get(get) => get::run(get, output),
        Command::Topic(command) => topic::run(command, output),
        Command::Group(command) => group::run(command, output),
        Command::DeadLetter(command) => dead_letter::run(command, output),
        Command::View(command) => view::run(*command, output),
        Command::At(wish) => past::at(wish, output),
        Command::Diff(wish) => past::diff(wish, output),
        Command::Why(wish) => past::why(wish, output),
        Command::History(wish) => past::history(wish, output),
        Command::Trace(wish) => trace::run(wish, output),
        Command::Replay(wish) => replay::run(*wish, output),
        Command::Job(command) => job::run(command, output),
        Command::Changefeed(command) => changefeed::run(*command, output),
        Command::Migrate(wish) => migrate::run(&wish, output),
        Command::Export(wish) => export::export(wish, output),
        Command::Import(wish) => export::import(wish, output),
        Command::Plan(wish) => apply::plan(wish, output),
        Command::Apply(wish) => apply::apply(wish, output),
        Command::Check(command) => apply::check(&command, output),
        Command::Token(command) => token::run(&command, output),
        Command::Auth(command) => token::auth(&command, output),
        Command::Audit(wish) => audit::run(*wish, output),
        Command::Context(command) => context::run(command, output),
        Command::Completions(wish) => manual::completions(&wish),
        Command::Man(wish) => manual::man(&wish, output),
        Command::Doctor(doctor) => doctor::run(&doctor, output),
        Command::Log(command) => log::run(&command, output),
        Command::Schema(command) => schema::run(&command, output),
        Command::Evolve(command) => evolve::run(*command, output),
        Command::Lint(lint) => lint::run(&lint, output),
        Command::Bench(command) => bench::run(command, output),
    }
}

/// Runs something that waits for others.
fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(work);
    // A thread that waits for standard input is not waited for.
    runtime.shutdown_background();
    done
}

/// SIGTERM: finish what was begun, and end well.
fn stop_signal() -> anyhow::Result<Signal> {
    Ok(signal(SignalKind::terminate())?)
}

/// Ctrl-C.
fn interrupt_signal() -> anyhow::Result<Signal> {
    Ok(signal(SignalKind::interrupt())?)
}

/// Makes a directory that is for this user only.
pub(crate) fn private_directory(path: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    if path.exists() {
        return Ok(());
    }
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.with_context(|| format!("cannot make {}", path.display()))
}

/// Reads a file with secrets; one that others can read is refused.
fn secret_file(path: &Path) -> anyhow::Result<Vec<u8>> {
    use std::os::unix::fs::PermissionsExt;
    let of = || format!("cannot read {}", path.display());
    let mode = std::fs::metadata(path).with_context(of)?.permissions().mode();
    if mode & 0o007 != 0 {
        bail!("{} can be read by others; chmod 600 it", path.display());
    }
    std::fs::read(path).with_context(of)
}

/// Makes a file that is for this user only.
fn private_file(path: &Path) -> anyhow::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    made.with_context(|| format!("cannot write {}", path.display()))
}

fn write_private(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    use std::io::Write;
    let mut file = private_file(path)?;
    file.write_all(bytes)?;
    Ok(file.sync_all()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_its_own_code_and_name() {
        let codes: std::collections::BTreeSet<u8> = Status::ALL.map(Status::code).into();
        let names: std::collections::BTreeSet<&str> = Status::ALL.map(|s| s.words().0).into();
        assert_eq!((codes.len(), names.len()), (Status::ALL.len(), Status::ALL.len()));
    }

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        crate::arguments::Arguments::command().debug_assert();
    }
}
