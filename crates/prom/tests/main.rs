//! The real binary, as a user runs it.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets what it did not expect should stop there"
)]

mod access;
mod apart;
mod audit;
mod changefeeds;
mod client;
mod crowd;
mod demo;
mod documents;
mod drain;
mod events;
mod hubs;
mod kills;
mod lint;
mod log;
mod logs;
mod manifest;
mod migration;
mod operate;
mod production;
mod project;
mod schema;
mod serve;
mod server;
mod storage;
mod terminal;
mod tls;
mod tour;

mod views;

use std::process::{Command, Output};

/// Runs `prom` with arguments, and waits for it.
fn prom(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_prom")).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Runs `prom` with arguments and standard input, and waits for it.
fn prom_with(arguments: &[&str], input: &str) -> Output {
    use std::io::Write;
    let mut child = Command::new(env!("CARGO_BIN_EXE_prom"))
        .args(arguments)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// Runs `prom`, which has to do well, and gives the JSON on each line.
fn json_lines(arguments: &[&str]) -> Vec<serde_json::Value> {
    let output = prom(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
    stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Asks until it is so, with rests between: how long a question takes says nothing of how long what
/// is asked about does.
fn eventually(is_so: impl Fn() -> bool) {
    let rest = || std::thread::park_timeout(std::time::Duration::from_millis(20));
    let asked = |_| {
        is_so() || {
            rest();
            false
        }
    };
    assert!((0..3_000).any(asked), "it never was");
}
