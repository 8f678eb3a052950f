//! `prom`, the binary of Promethean: parses, wires, prints. What it does is in the libraries.

mod arguments;

mod command;

mod manifest;

mod rules;

mod consent;

mod reach;

mod demo;

mod feeding;

mod shelf;

mod times;

mod clock;

mod told_time;

mod failure;

mod output;

mod logging;

mod template;

mod spelling;

#[cfg(test)]
mod reference;

use std::process::ExitCode;

use clap::Parser;

/// Requests are taken by one thread and often answered by another. The allocator of the C library
/// makes threads wait for each other then: a third of the requests a second went there
/// (docs/benchmarks.md, "The allocator").
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments = match arguments::Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return misunderstood(&error),
    };
    let output = output::Output::new(arguments.wishes());
    match command::run(arguments.command, &output) {
        Ok(status) => status.into(),
        Err(error) => match failure::status_of(&error) {
            Some(status) => {
                output.failure(&error);
                status.into()
            }
            // Whoever read has seen enough.
            None => ExitCode::SUCCESS,
        },
    }
}

/// Help was asked for, or what was typed makes no sense: programs get that as a document, too.
fn misunderstood(error: &clap::Error) -> ExitCode {
    let asked_for_json = std::env::args().any(|argument| argument == "--json");
    // Checks exit as plugins of monitors do, to which 2 is bad news, and 3 is none.
    let is_check = std::env::args().nth(1).is_some_and(|command| command == "check");
    let status = if is_check { command::Status::Unreachable } else { command::Status::Usage };
    if error.use_stderr() && asked_for_json {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        let wishes = output::Wishes { json: true, ..output::Wishes::default() };
        let failure = failure::Failure { status, ..failure::Failure::usage(first) };
        output::Output::new(wishes).failure(&failure.into());
    } else {
        // Who does not read what was asked for has seen enough.
        let _ = error.print();
    }
    if error.use_stderr() { status.into() } else { ExitCode::SUCCESS }
}
