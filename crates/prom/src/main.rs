//! `prom`, the binary of Promethean: parses, wires, prints. What it does is in the libraries.

#![expect(clippy::print_stderr, reason = "printing is what this binary is for")]

mod arguments;

mod command;

mod output;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = arguments::Arguments::parse();
    let output = output::Output::new(arguments.json);
    match command::run(arguments.command, &output) {
        Ok(status) => status.into(),
        Err(error) => {
            output.failure(&error);
            command::Status::Failed.into()
        }
    }
}
