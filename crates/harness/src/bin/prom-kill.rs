//! Kills a process with a bus in it, or the server, as often as one likes, and checks what was
//! written down.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command reports to its terminal")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use promethean_harness::kills::{KillOptions, Report, run, run_child};
use promethean_harness::server_kills::{self, ServerKillOptions};

const USAGE: &str = "usage: prom-kill [server] --kills N [--seed S] [--prom BINARY] --dir FOLDER
  without `server`: a process with the bus in it, which is this one
  server: `prom serve` under load over WebSocket and HTTP; BINARY is the prom next to this one";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let texts: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match texts.as_slice() {
        ["child", folder, history] => child(folder, history, false),
        ["child", folder, history, "finish"] => child(folder, history, true),
        ["server", rest @ ..] => server(rest),
        _ => embedded(&texts),
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

/// What can be said on the command line.
struct Wishes {
    kills: u32,
    seed: u64,
    folder: PathBuf,
    prom: Option<PathBuf>,
}

fn wishes(arguments: &[&str]) -> Result<Wishes, String> {
    let (mut kills, mut seed, mut folder, mut prom) = (200, 1, None, None);
    for pair in arguments.chunks(2) {
        let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is not a number"));
        match *pair {
            ["--kills", value] => kills = number(value)?,
            ["--seed", value] => seed = number(value)?.into(),
            ["--dir", value] => folder = Some(PathBuf::from(value)),
            ["--prom", value] => prom = Some(PathBuf::from(value)),
            _ => return Err(format!("cannot read {pair:?}")),
        }
    }
    let folder = folder.ok_or("--dir is missing")?;
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(Wishes { kills, seed, folder, prom })
}

fn embedded(arguments: &[&str]) -> ExitCode {
    let run = |wishes: Wishes, own: PathBuf| {
        let Wishes { kills, seed, folder, .. } = wishes;
        run(&KillOptions { binary: own, folder, kills, seed }).map_err(|error| error.to_string())
    };
    report(arguments, run)
}

fn server(arguments: &[&str]) -> ExitCode {
    let run = |wishes: Wishes, own: PathBuf| {
        let Wishes { kills, seed, folder, prom } = wishes;
        let binary = prom.unwrap_or_else(|| own.with_file_name("prom"));
        let options = ServerKillOptions { binary, folder, kills, seed };
        server_kills::run(&options).map_err(|error| error.to_string())
    };
    report(arguments, run)
}

fn report(
    arguments: &[&str],
    run: impl FnOnce(Wishes, PathBuf) -> Result<Report, String>,
) -> ExitCode {
    let own = std::env::current_exe().map_err(|error| error.to_string());
    let (wishes, own) = match (wishes(arguments), own) {
        (Ok(wishes), Ok(own)) => (wishes, own),
        (Err(error), _) | (_, Err(error)) => {
            eprintln!("{error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(wishes, own) {
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
