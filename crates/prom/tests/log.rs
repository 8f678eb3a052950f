//! `prom log inspect|verify|stats`.

use std::os::unix::fs::FileExt;
use std::path::Path;

use promethean_event::{EventId, Key, NewEvent, Payload, Timestamp, Topic};
use promethean_log::{Append, Log, Options, TopicDefinition};

use crate::{json_lines, prom, stderr, stdout};

/// A data directory with 500 events in several segments.
fn data_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        segment_bytes_min: 16 * 1024,
        segment_bytes_max: 16 * 1024,
        ..Options::default()
    };
    let (log, _) = Log::open_dir(&directory.path().join("log"), options).unwrap();
    let topic = Topic::new("heartbeat.received").unwrap();
    log.define(TopicDefinition::new(topic.clone())).wait().unwrap();
    for number in 0..500 {
        let payload = Payload::of(&number).unwrap();
        let event =
            NewEvent::new(EventId::generate(), Timestamp::from_millis(1), topic.clone(), payload)
                .with_key(Key::new(format!("key-{number}")).unwrap());
        log.append(&Append { events: vec![event], ..Append::default() }).wait().unwrap();
    }
    log.settle().unwrap();
    log.close();
    directory
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_good_directory_passes() {
    let directory = data_directory();
    let output = prom(&["log", "verify", text(directory.path()), "--text"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("500 events"), "{}", stdout(&output));
    assert!(stdout(&output).contains("no damage found"));
}

#[test]
fn a_flipped_bit_is_named_by_file_and_range() {
    let directory = data_directory();
    let name = "0000000000000000-00000000.seg";
    let path = directory.path().join("log").join(name);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 3000).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 3000).unwrap();
    let before = std::fs::read(&path).unwrap();

    let output = prom(&["log", "verify", text(directory.path()), "--json"]);
    assert_eq!(output.status.code(), Some(100));
    let verdict: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(verdict["good"], false);
    let damage = &verdict["damage"][0];
    assert_eq!(damage["file"], name);
    let (from, to) = (damage["from_byte"].as_u64().unwrap(), damage["to_byte"].as_u64().unwrap());
    assert!(from <= 3000 && 3000 < to && to - from < 400, "{from}..{to}");
    let shown = prom(&["log", "verify", text(directory.path()), "--text"]);
    assert!(stdout(&shown).contains(&format!("{name} bytes {from} to {to}")), "{}", stdout(&shown));
    assert_eq!(std::fs::read(&path).unwrap(), before, "nothing is changed");
}

#[test]
fn statistics_and_segments_are_told_in_json_and_in_words() {
    let directory = data_directory();
    let output = prom(&["--json", "log", "stats", text(directory.path())]);
    let stats: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(stats["events"], 500);
    assert_eq!(stats["topics"][0]["topic"], "heartbeat.received");
    assert_eq!(stats["topics"][0]["lanes"][0]["next"], 500);
    let output = prom(&["--json", "log", "inspect", text(directory.path())]);
    let segments: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let segments = segments["segments"].as_array().unwrap();
    assert!(segments.len() > 3);
    assert_eq!(segments[0]["first_seq"], 0);
    assert_eq!(segments.last().unwrap()["sealed"], false);
    let words = stdout(&prom(&["log", "inspect", text(directory.path()), "--text"]));
    assert!(words.starts_with("SEGMENT") && words.contains("active"), "{words}");
    let words = stdout(&prom(&["log", "stats", text(directory.path()), "--text"]));
    assert!(words.contains("500 events in") && words.contains("heartbeat.received"), "{words}");
    let lines = json_lines(&["log", "inspect", text(directory.path())]);
    assert_eq!(lines.len(), segments.len(), "a pipe gets a line for each");
}

#[test]
fn a_directory_without_a_log_is_said_to_have_none() {
    let directory = tempfile::tempdir().unwrap();
    let output = prom(&["log", "verify", text(directory.path())]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("there is no log in"), "{}", stderr(&output));
    let output = prom(&["log", "verify", "does/not/exist", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let problem: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert!(problem["detail"].as_str().unwrap().contains("does/not/exist"));
}
