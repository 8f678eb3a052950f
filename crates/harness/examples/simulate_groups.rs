//! Runs the simulator of delivery groups and prints its report as JSON:
//! `cargo run --release -p promethean-harness --example simulate_groups -- [SEEDS] [FIRST_SEED]`.
//! Exits with 1 if a promise was broken.
#![expect(clippy::print_stdout, reason = "printing the report is what it is for")]

use std::process::ExitCode;

use promethean_harness::group_simulation::{SimOptions, run};

fn main() -> ExitCode {
    let usual = SimOptions::default();
    let mut arguments = std::env::args().skip(1);
    let mut number = |usual| match arguments.next().map(|text| text.parse()) {
        None => Some(usual),
        Some(Ok(number)) => Some(number),
        Some(Err(_)) => None,
    };
    let (Some(seeds), Some(first_seed)) = (number(usual.seeds), number(usual.first_seed)) else {
        println!("usage: simulate_groups [SEEDS] [FIRST_SEED]");
        return ExitCode::from(2);
    };
    let report = run(SimOptions { seeds, first_seed, ..usual });
    match serde_json::to_string(&report) {
        Ok(json) => println!("{json}"),
        Err(error) => println!("the report cannot be written: {error}"),
    }
    ExitCode::from(u8::from(!report.violations.is_empty()))
}
