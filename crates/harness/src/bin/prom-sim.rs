//! Simulators as a command: as many crashes as one likes, each replayed by its seed.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command reports to its terminal")]

use std::process::ExitCode;

use promethean_harness::group_simulation::{self, SimOptions};
use promethean_harness::log_simulation::{self, CrashOptions};

const USAGE: &str = "usage: prom-sim log [--crashes N] [--seed S] [--violations N]
       prom-sim log-trace SEED
       prom-sim groups [--seeds N] [--seed FIRST]
       prom-sim groups-trace SEED";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((command, rest)) = arguments.split_first() else {
        return usage("no command");
    };
    match command.as_str() {
        "log" => log(rest),
        "log-trace" => log_trace(rest),
        "groups" => groups(rest),
        "groups-trace" => groups_trace(rest),
        other => usage(&format!("no command {other}")),
    }
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("{problem}\n{USAGE}");
    ExitCode::from(2)
}

/// One seed, call by call.
fn log_trace(arguments: &[String]) -> ExitCode {
    let Some(Ok(seed)) = arguments.first().map(|text| text.parse()) else {
        return usage("log-trace takes a seed");
    };
    for line in log_simulation::trace_seed(seed, None) {
        println!("{line}");
    }
    ExitCode::SUCCESS
}

/// Crashes of the log: prints one JSON document; exit code 1 if a promise was broken.
fn log(arguments: &[String]) -> ExitCode {
    let mut options = CrashOptions::new(100_000, 1);
    for pair in arguments.chunks(2) {
        match pair {
            [flag, value] if flag == "--crashes" => match value.parse() {
                Ok(number) => options.crashes = number,
                Err(error) => return usage(&format!("--crashes {value}: {error}")),
            },
            [flag, value] if flag == "--seed" => match value.parse() {
                Ok(number) => options.seed = number,
                Err(error) => return usage(&format!("--seed {value}: {error}")),
            },
            [flag, value] if flag == "--violations" => match value.parse() {
                Ok(number) => options.violations_max = number,
                Err(error) => return usage(&format!("--violations {value}: {error}")),
            },
            other => return usage(&format!("cannot read {other:?}")),
        }
    }
    #[expect(clippy::disallowed_methods, reason = "the speed of the simulator is real time")]
    let started = std::time::Instant::now();
    let report = log_simulation::run(&options);
    let per_second = report.crashes as f64 / started.elapsed().as_secs_f64().max(1e-9);
    for failure in &report.violations {
        eprintln!("{failure}");
    }
    let document = serde_json::json!({
        "seeds": report.seeds,
        "crashes": report.crashes,
        "acked": report.acked,
        "violations": report.violations,
        "per_second": per_second.round(),
        "tally": report.tally,
    });
    println!("{document:#}");
    ExitCode::from(u8::from(!report.violations.is_empty()))
}

/// Groups, members and their faults: prints one JSON document; exit code 1 if a promise was broken.
fn groups(arguments: &[String]) -> ExitCode {
    let mut options = SimOptions::default();
    for pair in arguments.chunks(2) {
        let place = match pair {
            [flag, _] if flag == "--seeds" => &mut options.seeds,
            [flag, _] if flag == "--seed" => &mut options.first_seed,
            other => return usage(&format!("cannot read {other:?}")),
        };
        match pair.last().map(|text| text.parse()) {
            Some(Ok(number)) => *place = number,
            _ => return usage(&format!("not a number: {pair:?}")),
        }
    }
    let report = group_simulation::run(options);
    match serde_json::to_string_pretty(&report) {
        Ok(document) => println!("{document}"),
        Err(error) => eprintln!("the report cannot be written: {error}"),
    }
    ExitCode::from(u8::from(!report.violations.is_empty()))
}

/// One seed of the groups, step by step.
fn groups_trace(arguments: &[String]) -> ExitCode {
    let Some(Ok(first_seed)) = arguments.first().map(|text| text.parse()) else {
        return usage("groups-trace takes a seed");
    };
    let options = SimOptions { first_seed, seeds: 1, trace: true, ..SimOptions::default() };
    let report = group_simulation::run(options);
    report.trace.iter().for_each(|line| println!("{line}"));
    println!("{:#?}", report.violations);
    ExitCode::SUCCESS
}
