use clap::Parser;

use crate::command::Command;
use crate::output::Wishes;

/// Promethean: a durable event bus that carries its whole life cycle.
///
/// People get text, pipes get one JSON object on each line, `--json` gets one document.
#[derive(Debug, Parser)]
#[command(name = "prom", version, propagate_version = true)]
#[command(
    after_help = "Begin with:\n  prom dev --demo          a server with something going on\n  \
    prom tail 'process.**'   in a second shell: watch it\n\nMore: prom help COMMAND, prom man"
)]
pub(crate) struct Arguments {
    /// Print one JSON document; failures are problem documents on standard error.
    #[arg(long, global = true, help_heading = "Output")]
    pub(crate) json: bool,

    /// Print text also where no terminal is.
    #[arg(long, global = true, conflicts_with = "json", help_heading = "Output")]
    pub(crate) text: bool,

    /// No colours; the same as NO_COLOR=1.
    #[arg(long, global = true, help_heading = "Output")]
    pub(crate) no_color: bool,

    /// Say nothing but results and failures.
    #[arg(long, short, global = true, help_heading = "Output")]
    pub(crate) quiet: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Arguments {
    pub(crate) const fn wishes(&self) -> Wishes {
        let Self { json, text, no_color, quiet, .. } = self;
        Wishes { json: *json, text: *text, no_color: *no_color, quiet: *quiet }
    }
}
