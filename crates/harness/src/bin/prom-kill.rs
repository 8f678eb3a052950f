//! Kills a process with a bus in it, as often as one likes, and checks what it has written down.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command reports to its terminal")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use promethean_harness::kills::{KillOptions, run, run_child};

const USAGE: &str = "usage: prom-kill --kills N [--seed S] --dir FOLDER";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let texts: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match texts.as_slice() {
        ["child", folder, history] => child(folder, history, false),
        ["child", folder, history, "finish"] => child(folder, history, true),
        _ => parent(&texts),
    }
}

fn child(folder: &str, history: &str, finish: bool) -> ExitCode {
    match run_child(Path::new(folder), Path::new(history), finish) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn parent(arguments: &[&str]) -> ExitCode {
    let (mut kills, mut seed, mut folder) = (200, 1, None);
    for pair in arguments.chunks(2) {
        match *pair {
            ["--kills", value] => kills = value.parse().unwrap_or(kills),
            ["--seed", value] => seed = value.parse().unwrap_or(seed),
            ["--dir", value] => folder = Some(PathBuf::from(value)),
            _ => {
                eprintln!("cannot read {pair:?}\n{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    let (Some(folder), Ok(binary)) = (folder, std::env::current_exe()) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&KillOptions { binary, folder, kills, seed }) {
        Ok(report) => {
            println!("{:#}", serde_json::json!(report));
            ExitCode::from(u8::from(!report.verdict.violations.is_empty()))
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
