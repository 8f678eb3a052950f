//! `prom schema`: check, compare, validate without a server; register, look up and evolve with a
//! data directory or a server.

mod against;

mod bad_input;

mod check;

mod diff;

mod folder;

mod plan_text;

mod registry;

mod source;

mod upcaster;

mod verdict;

mod validate;

use clap::Subcommand;

use super::Status;
use crate::output::Output;
pub(super) use plan_text::{is_good, plan_text};
use registry::Verb;
pub(super) use registry::{of as registry_of, planned};
pub(super) use source::Source;

#[derive(Debug, Subcommand)]
pub(crate) enum SchemaCommand {
    /// Whether a new version breaks readers or writers. Exit code 0: no; 100: yes, with events
    /// that show it; 8: nobody can tell; 2: a file is not usable.
    Check(check::Check),
    /// Whether payloads match a schema. Exit code 0: all do; 100: some do not; 2: a file is not
    /// usable.
    Validate(validate::Validate),
    /// What changed between two schemas, and what that means for readers and writers.
    Diff(diff::Diff),
    /// Register a schema as the next version of a topic. Exit code 100 if something speaks against
    /// it.
    Add(registry::Add),
    /// List topics with schemas, or the versions of one.
    Ls(registry::List),
    /// Show a schema.
    Get(registry::Get),
    /// Which groups and how many stored events a new version would break. Exit code 100 if
    /// something speaks against it.
    Plan(registry::Plan),
    /// Show or set what holds for a topic's schemas and events.
    Policy(registry::Policy),
    /// A schema that stored events match, to begin with.
    Infer(registry::Infer),
    /// Write a caster from one version to the next, to be completed, and try it.
    Upcaster(upcaster::Upcaster),
    /// Refuse new events of a version; stored ones stay readable.
    Retire(registry::Version),
    /// Take new events of a retired version again.
    Restore(registry::Version),
    /// Remove a retired version that nothing needs any more.
    Rm(registry::Version),
}

pub(crate) fn run(command: &SchemaCommand, output: &Output) -> anyhow::Result<Status> {
    match command {
        SchemaCommand::Check(check) => check::run(check, output),
        SchemaCommand::Validate(validate) => validate::run(validate, output),
        SchemaCommand::Diff(diff) => diff::run(diff, output),
        SchemaCommand::Add(add) => registry::add(add, output),
        SchemaCommand::Ls(list) => registry::list(list, output),
        SchemaCommand::Get(get) => registry::get(get, output),
        SchemaCommand::Plan(plan) => registry::plan(plan, output),
        SchemaCommand::Policy(policy) => registry::policy(policy, output),
        SchemaCommand::Infer(infer) => registry::infer(infer, output),
        SchemaCommand::Upcaster(wish) => upcaster::run(wish, output),
        SchemaCommand::Retire(version) => registry::change(version, Verb::Retire, output),
        SchemaCommand::Restore(version) => registry::change(version, Verb::Restore, output),
        SchemaCommand::Rm(version) => registry::change(version, Verb::Remove, output),
    }
}
