//! What a person sees and types: `prom` on a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::{prom, prom_with, stderr, stdout};

/// Where `prom` runs on a terminal.
struct Terminal<'a> {
    environment: &'a [(&'a str, &'a str)],
    /// What is typed, ahead of being asked.
    typed: &'a str,
}

const PLAIN: Terminal<'_> = Terminal { environment: &[], typed: "" };

impl Terminal<'_> {
    /// Runs it to its end: its exit code, and everything that the screen has shown.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&screen).unwrap();
        unlockpt(&screen).unwrap();
        let name = ptsname(&screen, Vec::new()).unwrap();
        let name = std::ffi::OsStr::from_bytes(name.to_bytes());
        let line = || File::options().read(true).write(true).open(name).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_prom"));
        command.args(arguments).stdin(line()).stdout(line()).stderr(line());
        command.env("TERM", "xterm").env_remove("NO_COLOR").env_remove("FORCE_COLOR");
        let mut child = command.envs(self.environment.iter().copied()).spawn().unwrap();
        // The last of this side: what is read ends when the child does.
        drop(command);
        let mut screen = File::from(screen);
        screen.write_all(self.typed.as_bytes()).unwrap();
        let mut shown = Vec::new();
        let mut piece = [0; 4096];
        // The end is an error, since nobody has the other side any more.
        while let Ok(read @ 1..) = screen.read(&mut piece) {
            shown.extend_from_slice(&piece[..read]);
        }
        let code = child.wait().unwrap().code();
        (code, String::from_utf8(shown).unwrap())
    }
}

#[test]
fn a_terminal_gets_text_and_a_pipe_gets_lines() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let at = ["--data", data.to_str().unwrap()];
    let (code, shown) =
        PLAIN.run(&[&["pub", "a.b", r#"{"n": 1}"#, "--key", "k"][..], &at].concat());
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("a.b/0/0") && shown.contains("see it again: prom get"), "{shown}");
    let tail = [&["tail", "a.b", "--no-follow"][..], &at].concat();
    let (_, shown) = PLAIN.run(&tail);
    assert!(shown.contains("TIME") && shown.contains("\u{1b}["), "{shown}");
    assert!(stdout(&prom(&tail)).starts_with(r#"{"id":"#));
    for plain in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let (_, shown) = Terminal { environment: &[plain], typed: "" }.run(&tail);
        assert!(shown.contains("TIME") && !shown.contains('\u{1b}'), "{plain:?}: {shown}");
    }
    let (_, shown) = PLAIN.run(&[&tail[..], &["--no-color"]].concat());
    assert!(!shown.contains('\u{1b}'), "{shown}");
    // Each channel for itself: a file does not get colours because the other one is a terminal.
    let nobody = ["tail", "a", "--url", "http://127.0.0.1:1"];
    assert!(PLAIN.run(&nobody).1.contains("\u{1b}[31merror:"));
    assert!(stderr(&prom(&nobody)).starts_with("error: "));
}

/// What is read from a terminal: as the heading says, in columns that hold what they are given.
#[test]
fn columns_of_a_tail_stand_under_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let at = ["--data", data.to_str().unwrap()];
    let lines: String = ["a-key-that-is-longer-than-usual", "k"]
        .iter()
        .map(|key| format!("{{\"payload\":1,\"key\":\"{key}\"}}\n"))
        .collect();
    let published = prom_with(&[&["pub", "orders.placed", "-"][..], &at].concat(), &lines);
    assert!(published.status.success(), "{}", stderr(&published));
    let tail = ["tail", "orders.*", "--no-follow", "--no-color"];
    let (_, shown) = PLAIN.run(&[&tail[..], &at].concat());
    let places: Vec<Option<usize>> = shown
        .lines()
        .map(|line| line.find("  ID ").map_or_else(|| line.find("  …"), Some))
        .collect();
    assert_eq!(places.len(), 3, "{shown}");
    assert!(places[0].is_some() && places.iter().all(|place| *place == places[0]), "{shown}");
}

#[test]
fn what_deletes_asks_for_the_name() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let at = ["--data", data.to_str().unwrap()];
    assert!(prom(&[&["pub", "a.b", "1"][..], &at].concat()).status.success());
    let remove = [&["topic", "rm", "a.b"][..], &at].concat();
    let said = |typed: &str| Terminal { environment: &[], typed }.run(&remove);
    let (code, shown) = said("a.c\n");
    assert_eq!(code, Some(2), "what was not confirmed is not done: {shown}");
    assert!(shown.contains("Plan: remove a.b with 1 event at"), "{shown}");
    assert!(shown.contains("Type a.b to go ahead") && shown.contains("nothing was changed"));
    let (code, shown) = said("a.b\n");
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("removed a.b"), "{shown}");
    let gone = prom(&[&["topic", "get", "a.b"][..], &at].concat());
    assert_eq!(gone.status.code(), Some(4));
}

#[test]
fn what_changes_asks_for_a_yes() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let at = ["--data", data.to_str().unwrap()];
    assert!(
        prom(&[&["topic", "add", "a", "--retention", "1d"][..], &at].concat()).status.success()
    );
    let longer = [&["topic", "set", "a", "--retention", "2d"][..], &at].concat();
    let said = |typed: &str, more: &[&str]| {
        Terminal { environment: &[], typed }.run(&[&longer, more].concat())
    };
    assert!(said("n\n", &[]).1.contains("nothing was changed"));
    assert!(said("\n", &[]).1.contains("nothing was changed"));
    let (code, shown) = said("y\n", &["--no-input"]);
    assert_eq!(code, Some(2), "{shown}");
    assert!(shown.contains("run it again with --yes"), "{shown}");
    let (code, shown) = said("y\n", &[]);
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("1 d -> 2 d") && shown.contains("keeps       2 d"), "{shown}");
}
