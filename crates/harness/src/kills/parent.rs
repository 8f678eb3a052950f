use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Serialize;

use super::checker::{Verdict, check};
use super::history;

/// How often to kill, and what.
#[derive(Debug, Clone)]
pub struct KillOptions {
    /// The binary that is killed: it is called with `child FOLDER HISTORY` (and `finish`).
    pub binary: PathBuf,
    /// Where it works.
    pub folder: PathBuf,
    /// How often.
    pub kills: u32,
    /// When, by chance.
    pub seed: u64,
}

/// What came of it.
#[derive(Debug, Serialize)]
pub struct Report {
    /// How often the process was killed.
    pub kills: u32,
    /// What the checker says.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// Kills, finishes, checks.
pub fn run(options: &KillOptions) -> io::Result<Report> {
    let history = options.folder.join("history.ndjson");
    let mut random = options.seed | 1;
    for _ in 0..options.kills {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        kill_once(options, &history, Duration::from_micros(1_000 + random % 40_000))?;
    }
    let status = command(options, &history).arg("finish").stdout(Stdio::null()).status()?;
    if !status.success() {
        return Err(io::Error::other(format!("the last process failed: {status}")));
    }
    Ok(Report { kills: options.kills, verdict: check(&history::read(&history)?) })
}

fn command(options: &KillOptions, history: &Path) -> Command {
    let mut command = Command::new(&options.binary);
    command.arg("child").arg(&options.folder).arg(history);
    command
}

/// Starts the process, waits until it works, and kills it a little later.
#[expect(clippy::disallowed_methods, reason = "a kill comes at some time, by chance")]
fn kill_once(options: &KillOptions, history: &Path, after: Duration) -> io::Result<()> {
    let mut child = command(options, history).stdout(Stdio::piped()).spawn()?;
    let stdout = child.stdout.take().ok_or_else(|| io::Error::other("no pipe"))?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    if line.trim() != "ready" {
        let status = child.wait()?;
        return Err(io::Error::other(format!("the process did not get ready: {status}")));
    }
    std::thread::sleep(after);
    child.kill()?;
    child.wait()?;
    Ok(())
}
