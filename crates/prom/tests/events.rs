//! `prom pub` and `prom tail`: with a server, and without one.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use super::server::Server;
use super::{json_lines, prom, prom_with, stderr, stdout};

const LINES: &str = "{\"payload\":{\"n\":1.50},\"key\":\"k\",\"headers\":{\"x-a\":\"b\"}}\n\n{\"payload\":2,\"tags\":[\"t\"]}\n{\"payload\":null,\"key\":\"k\"}\n";

#[test]
fn lines_are_published_and_tailed_in_a_directory_and_over_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Server::start(&["dev", "--port", "0"]);
    for at in [["--data", data.to_str().unwrap()], ["--url", &server.url()]] {
        let published = prom_with(&[&["pub", "numbers", "-"][..], &at].concat(), LINES);
        assert_eq!(published.status.code(), Some(0), "{}", stderr(&published));
        let text = stdout(&published);
        let receipts: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(receipts.len(), 3);
        assert_eq!((&receipts[2]["offset"], &receipts[2]["topic"]), (&2.into(), &"numbers".into()));

        let tail = ["tail", "numbers", "--since", "earliest", "-c", "3"];
        let output = prom(&[&tail[..], &at].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stdout(&output).contains(r#""payload":{"n":1.50}"#), "payloads stay as they were");
        let events = json_lines(&[&tail[..], &at].concat());
        assert_eq!(events[0]["id"], receipts[0]["id"]);
        assert_eq!(events[0]["headers"]["x-a"], "b");
        assert!(events[2]["payload"].is_null());

        let few = [&["tail", "num*", "--no-follow"][..], &at].concat();
        assert!(!prom(&few).status.success(), "a star is a whole part of a name");
        let where_key = [&["tail", "*", "--no-follow", "--key", "k"][..], &at].concat();
        assert_eq!(json_lines(&where_key).len(), 2);
        let where_tag = [&["tail", "**", "numbers", "--no-follow", "--tag", "t"][..], &at].concat();
        assert_eq!(json_lines(&where_tag).len(), 1, "each event once, also by two patterns");
    }
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn what_is_tailed_can_be_published_again_and_adds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = ["--data", data.to_str().unwrap()];
    prom_with(&[&["pub", "a", "-"][..], &data].concat(), LINES);
    let events = stdout(&prom(&[&["tail", "a", "--no-follow"][..], &data].concat()));
    let again = prom_with(&[&["pub", "a", "-"][..], &data].concat(), &events);
    assert_eq!(stdout(&again).matches("\"duplicate\":true").count(), 3, "{}", stderr(&again));
    let copied = prom_with(&[&["pub", "b", "-"][..], &data].concat(), &events);
    assert_eq!(stdout(&copied).matches("\"duplicate\":false").count(), 3, "{}", stderr(&copied));
}

#[test]
fn a_bad_line_is_named_by_its_number_and_those_before_it_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = ["--data", data.to_str().unwrap()];
    let input = "{\"payload\":1}\n\n{\"payload\":2}\n{\"nothing\":3}\n{\"payload\":4}\n";
    let output = prom_with(&[&["pub", "a", "-"][..], &data].concat(), input);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("line 4: there is no payload"), "{}", stderr(&output));
    assert!(stderr(&output).contains("after 2 events that were published"));
    assert_eq!(json_lines(&[&["tail", "a", "--no-follow"][..], &data].concat()).len(), 2);
    let wrong = "{\"payload\":1}\n\n{\"payload\":2,\"key\":7}\n";
    let output = prom_with(&[&["pub", "a", "-"][..], &data].concat(), wrong);
    assert!(stderr(&output).contains("line 3: "), "{}", stderr(&output));
}

#[test]
fn one_event_with_everything() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = ["--data", data.to_str().unwrap()];
    let id = "01a1e27c-651e-7436-8169-22c4b9e53898";
    let publish = ["pub", "a.b", r#"{"x": 1}"#, "--key", "k", "-H", "x-a: b", "--tag", "t"];
    let more = ["--id", id, "--caused-by", id, "--ts", "2026-11-10T14:00:00Z"];
    let first = json_lines(&[&publish[..], &more, &data].concat());
    assert_eq!((&first[0]["id"], &first[0]["duplicate"]), (&id.into(), &false.into()));
    let again = json_lines(&[&publish[..], &more, &data].concat());
    assert_eq!(again[0]["duplicate"], true);
    let event = &json_lines(&[&["tail", "a.b", "--no-follow"][..], &data].concat())[0];
    assert_eq!(event["ts"], 1_794_319_200_000_u64);
    assert_eq!((&event["tags"][0], &event["caused_by"][0]), (&"t".into(), &id.into()));
    assert_eq!(event["headers"]["x-a"], "b");
    let text = prom(&[&["pub", "a.b", "not json"][..], &data].concat());
    assert_eq!(text.status.code(), Some(2));
    assert!(stderr(&text).contains("a text needs its quotes"));
    let gone = prom(&[&["pub", "a.b", "--null"][..], &data].concat());
    assert_eq!(gone.status.code(), Some(2), "a tombstone is of a key");
}

/// What flags say holds for every line that does not say it itself; nothing is said in vain.
#[test]
fn flags_hold_for_lines_that_say_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = ["--data", data.to_str().unwrap()];
    let flags = ["--key", "k", "-H", "x-a:b", "--tag", "t", "--ts", "2026-11-10T14:00:00Z"];
    let lines = "{\"payload\":1}\n{\"payload\":2,\"key\":\"own\",\"tags\":[],\"ts\":7}\n";
    let published = prom_with(&[&["pub", "a", "-"][..], &flags, &data].concat(), lines);
    assert_eq!(published.status.code(), Some(0), "{}", stderr(&published));
    assert!(stderr(&published).contains("ts "), "the time that was understood is said");
    let events = json_lines(&[&["tail", "a", "--no-follow"][..], &data].concat());
    let facts = |event: &serde_json::Value| {
        ["key", "headers", "tags", "ts"].map(|name| event[name].to_string())
    };
    assert_eq!(facts(&events[0]), ["\"k\"", r#"{"x-a":"b"}"#, r#"["t"]"#, "1794319200000"]);
    assert_eq!(facts(&events[1]), ["\"own\"", r#"{"x-a":"b"}"#, "null", "7"]);
    let id = "01a1e27c-651e-7436-8169-22c4b9e53898";
    let one = prom_with(&[&["pub", "a", "-", "--id", id][..], &data].concat(), lines);
    assert_eq!(one.status.code(), Some(2), "an id is for one event");
}

/// Every way to write a time bounds what is stored: none of them means all of it.
#[test]
fn bounds_are_times_however_they_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = ["--data", data.to_str().unwrap()];
    let publish = |payload: &str| {
        let receipt = json_lines(&[&["pub", "a", payload][..], &data].concat());
        receipt[0]["id"].as_str().unwrap().to_owned()
    };
    let (_, second) = (publish("1"), publish("2"));
    publish("3");
    let count = |command: &[&str]| {
        let output = prom(&[command, &data].concat());
        assert_eq!(output.status.code(), Some(0), "{command:?}: {}", stderr(&output));
        stdout(&output).lines().count()
    };
    for read in [&["export", "a"][..], &["tail", "a", "--no-follow"]] {
        let bounded = |flags: &[&str]| count(&[read, flags].concat());
        assert_eq!(bounded(&["--since", "earliest", "--until", "latest"]), 3);
        assert_eq!(bounded(&["--since", "latest"]), 0);
        assert_eq!(bounded(&["--until", "earliest"]), 0);
        assert_eq!(bounded(&["--until", "1960-01-01"]), 0);
        assert_eq!(bounded(&["--since", &second]), 2, "an id is the time when it was made");
        assert_eq!(bounded(&["--until", &second]), 1);
    }
    assert_eq!(count(&["tail", "a", "--no-follow", "--from", &second]), 1, "after it");
    let timeless = "00000000-0000-4000-8000-000000000000";
    let refused = prom(&[&["export", "a", "--since", timeless][..], &data].concat());
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("holds no time"), "{}", stderr(&refused));
}

/// What a terminal shows of an id is enough to ask for the event.
#[test]
fn an_event_is_found_by_the_end_of_its_id() {
    let server = Server::start(&["dev", "--port", "0"]);
    let url = server.url();
    let receipt = json_lines(&["pub", "a", "{\"n\": 1}", "--url", &url]);
    let id = receipt[0]["id"].as_str().unwrap();
    let end = format!("…{}", &id[id.len() - 6..]);
    for command in [["get", &end], ["trace", &end]] {
        let found = json_lines(&[&command[..], &["--url", &url]].concat());
        assert_eq!(found[0]["id"], id, "{command:?}");
    }
    let other = if id.ends_with('0') { "1111" } else { "0000" };
    let none = prom(&["get", other, "--url", &url]);
    assert_eq!(none.status.code(), Some(4), "{}", stderr(&none));
    assert!(stderr(&none).contains("give the whole id"), "{}", stderr(&none));
    assert_eq!(prom(&["get", "xyz", "--url", &url]).status.code(), Some(2));
    assert_eq!(server.stop(), Some(0));
}

/// A server goes away and comes back: nothing is missed, nothing comes twice.
#[test]
fn a_tail_goes_on_after_a_restart_of_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let server = Server::start(&["dev", "--port", "0", "--data", data]);
    let (url, port) = (server.url(), server.at.rsplit(':').next().unwrap().to_owned());
    prom(&["pub", "a", "0", "--url", &url]);
    let mut tail = Command::new(env!("CARGO_BIN_EXE_prom"))
        .args(["tail", "**", "--since", "earliest", "--url", &url, "-c", "4"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("\"payload\":0"));
    assert_eq!(server.stop(), Some(0));
    // Also a topic that the tail has never heard of.
    for (topic, payload) in [("a", "1"), ("b", "2")] {
        assert!(prom(&["pub", topic, payload, "--data", data]).status.success());
    }
    let server = Server::start(&["dev", "--port", &port, "--data", data]);
    assert!(lines.next().unwrap().unwrap().contains("\"payload\":1"));
    assert!(lines.next().unwrap().unwrap().contains("\"payload\":2"));
    prom(&["pub", "a", "3", "--url", &url]);
    assert!(lines.next().unwrap().unwrap().contains("\"payload\":3"));
    assert!(lines.next().is_none());
    assert_eq!(tail.wait().unwrap().code(), Some(0));
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn sigterm_ends_well() {
    let server = Server::start(&["dev", "--port", "0"]);
    let url = server.url();
    prom(&["pub", "a", "0", "--url", &url]);
    let ended = |arguments: &[&str], input: Option<&str>, wait_for: &str| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_prom"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        if let Some(text) = input {
            stdin.write_all(text.as_bytes()).unwrap();
        }
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.next().unwrap().unwrap().contains(wait_for));
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
        let code = child.wait().unwrap().code();
        drop(stdin);
        code
    };
    assert_eq!(
        ended(&["tail", "a", "--since", "earliest", "--url", &url], None, "payload"),
        Some(0)
    );
    assert_eq!(
        ended(&["pub", "a", "-", "--url", &url], Some("{\"payload\":1}\n"), "offset"),
        Some(0)
    );
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn habits_are_corrected() {
    let nonsense = prom(&["topic", "lss", "--json"]);
    assert_eq!(nonsense.status.code(), Some(2));
    let problem: serde_json::Value = serde_json::from_slice(&nonsense.stderr).unwrap();
    assert_eq!((&problem["code"], &problem["exit"]), (&"usage".into(), &2.into()));
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    assert!(prom(&["pub", "a", "1", "--key", "k\u{1b}[2J", "--data", data]).status.success());
    let whenever = prom(&["tail", "a", "--since", "whenever", "--data", data]);
    assert_eq!(whenever.status.code(), Some(2), "{}", stderr(&whenever));
    let shown = stdout(&prom(&["tail", "a", "--no-follow", "--text", "--data", data]));
    assert!(shown.contains('\u{fffd}') && !shown.contains('\u{1b}'), "{shown}");
    let corrected = prom(&["tail", "a", "-n", "5"]);
    assert_eq!(corrected.status.code(), Some(2));
    assert!(stderr(&corrected).contains("say -c 5"), "{}", stderr(&corrected));
}

#[test]
fn who_cannot_be_reached_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let nobody = prom(&["tail", "a", "--url", "http://127.0.0.1:1"]);
    assert_eq!(nobody.status.code(), Some(3));
    assert!(stderr(&nobody).contains("prom dev"), "{}", stderr(&nobody));
    let nothing = prom(&["tail", "a", "--data", data]);
    assert_eq!(nothing.status.code(), Some(4));
    let server = Server::start(&["dev", "--port", "0", "--data", data]);
    let taken = prom(&["pub", "a", "1", "--data", data, "--json"]);
    assert_eq!(taken.status.code(), Some(6));
    let problem: serde_json::Value =
        serde_json::from_str(stderr(&taken).lines().last().unwrap()).unwrap();
    assert!(problem["hint"].as_str().unwrap().contains(&format!("--url {}", server.url())));
    assert_eq!(problem["code"], "conflict");
    let second = prom(&["dev", "--port", "0", "--data", data]);
    assert_eq!(second.status.code(), Some(6), "{}", stderr(&second));
    assert!(stderr(&second).contains(&format!("--url {}", server.url())), "{}", stderr(&second));
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let many: String = (0..2000).map(|n| format!("{{\"payload\":\"{n:0>100}\"}}\n")).collect();
    assert!(prom_with(&["pub", "a", "-", "--data", data], &many).status.success());
    let mut tail = Command::new(env!("CARGO_BIN_EXE_prom"))
        .args(["tail", "a", "--no-follow", "--data", data])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().is_ok());
    drop(lines);
    assert_eq!(tail.wait().unwrap().code(), Some(0));
}

#[test]
fn a_format_says_what_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let payload = r#"{"cpu": {"pct": 91.5}, "name": "stt"}"#;
    let published =
        prom(&["pub", "a", payload, "--key", "k", "--ts", "2026-01-02T03:04:05Z", "--data", data]);
    assert!(published.status.success(), "{}", stderr(&published));
    let tail = ["tail", "a", "--no-follow", "--data", data, "--format"];
    let format = "{time} {topic}@{offset} {key}: {payload.name} {payload.cpu.pct}";
    let shown = prom(&[&tail[..], &[format]].concat());
    assert_eq!(stdout(&shown), "2026-01-02T03:04:05.000Z a@0 k: stt 91.5\n");
    let wrong = prom(&[&tail[..], &["{nothing}"]].concat());
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("an event has no \"nothing\""), "{}", stderr(&wrong));
}

/// A name that is spelt wrong is no riddle.
#[test]
fn a_topic_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let at = ["--data", data.to_str().unwrap()];
    assert!(prom(&[&["pub", "orders.placed", "1"][..], &at].concat()).status.success());
    for command in [&["tail", "ordes.placed", "--no-follow"][..], &["topic", "get", "ordes.placed"]]
    {
        let absent = prom(&[command, &at].concat());
        assert_eq!(absent.status.code(), Some(4), "{command:?}");
        let said = stderr(&absent);
        assert!(said.contains("there is no topic ordes.placed"), "{said}");
        assert!(said.contains("did you mean orders.placed?"), "{said}");
    }
    let following = ["tail", "ordes.placed", "--text", "-c", "1", "--until", "now"];
    assert_eq!(prom(&[&following[..], &at].concat()).status.code(), Some(4));
}
