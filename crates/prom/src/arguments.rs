use clap::Parser;

use crate::command::Command;

/// Promethean: a durable event bus that carries its whole life cycle.
#[derive(Debug, Parser)]
#[command(name = "prom", version, propagate_version = true)]
pub(crate) struct Arguments {
    /// Print one JSON document instead of text.
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}
