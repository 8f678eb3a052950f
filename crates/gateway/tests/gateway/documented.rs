//! The commands of `docs/http.md`, as a reader types them, and the conversations of `PROTOCOL.md`.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use super::server::TestServer;

const PAGE: &str = include_str!("../../../../docs/http.md");

/// The shell commands of a page, in order.
fn commands(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut block: Option<String> = None;
    for line in page.lines() {
        match (&mut block, line) {
            (None, "```sh") => block = Some(String::new()),
            (Some(_), "```") => found.extend(block.take()),
            (Some(text), line) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, _) => {}
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_page_works() {
    let server = TestServer::open().await;
    let blocks = commands(PAGE);
    assert!(blocks.len() >= 4, "{blocks:?}");
    for block in blocks {
        // A refusal is a failure; nothing else is changed but where the server is.
        let script = format!(
            "set -eu\ncurl() {{ command curl --fail-with-body --silent --show-error \"$@\"; }}\n{}",
            block.replace("localhost:7766", &server.at.to_string())
        );
        let run = move || Command::new("bash").arg("-c").arg(script).output().unwrap();
        let done = tokio::task::spawn_blocking(run).await.unwrap();
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(done.status.success(), "{block}\n{said}\n{:?}", done.stderr);
    }
    let beats = server.get("/events/beat?reads=2").await.json();
    assert_eq!(beats["events"][0]["payload"]["mem_mib"], 512);
}

const PROTOCOL: &str = include_str!("../../../../PROTOCOL.md");

/// The conversations of a page: what is spoken, and the lines.
fn conversations(page: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    let mut open: Option<(String, Vec<String>)> = None;
    for line in page.lines() {
        if let Some(dialect) = line.strip_prefix("```conversation ") {
            open = Some((dialect.to_owned(), Vec::new()));
        } else if line == "```" {
            found.extend(open.take());
        } else if let Some((_, lines)) = &mut open {
            lines.push(line.to_owned());
        }
    }
    found
}

/// Whether a frame is as it is shown: every member that is shown is there. Values with names are
/// remembered, and have to be the same when they come again.
fn compare(shown: &Value, frame: &Value, names: &mut BTreeMap<String, Value>) -> bool {
    match shown {
        Value::String(text) if text == "…" => !frame.is_null(),
        Value::String(text) if text.starts_with('$') => {
            names.entry(text.clone()).or_insert_with(|| frame.clone()) == frame
        }
        Value::Object(members) => {
            members.iter().all(|(name, shown)| compare(shown, &frame[name], names))
        }
        Value::Array(entries) => {
            frame.as_array().is_some_and(|there| there.len() == entries.len())
                && entries.iter().enumerate().all(|(n, shown)| compare(shown, &frame[n], names))
        }
        same => same == frame,
    }
}

/// Every frame that the protocol shows is sent as it stands there, and answered so.
#[tokio::test]
async fn the_conversations_of_the_protocol_happen() {
    let all = conversations(PROTOCOL);
    assert_eq!(all.iter().map(|(dialect, _)| dialect).collect::<Vec<_>>(), ["plain", "prom.v1"]);
    for (dialect, lines) in all {
        let server = TestServer::open().await;
        let speaks = [("sec-websocket-protocol", dialect.as_str())];
        let headers = if dialect == "plain" { &[][..] } else { &speaks[..] };
        let mut client = server.connect(headers).await.unwrap();
        let mut names = BTreeMap::new();
        let mut waiting = Vec::new();
        for line in lines {
            if let Some(said) = line.strip_prefix("> ") {
                let said =
                    names.iter().fold(said.to_owned(), |said, (name, value): (&String, &Value)| {
                        said.replace(name.as_str(), value.as_str().unwrap())
                    });
                client.say(said).await;
                continue;
            }
            let shown: Value = serde_json::from_str(line.strip_prefix("< ").unwrap()).unwrap();
            // An answer and an event are nobody's turn: they may come in either order.
            let frame = loop {
                if let Some(at) = waiting.iter().position(|one: &Value| one["op"] == shown["op"]) {
                    break waiting.remove(at);
                }
                waiting.push(client.next().await);
            };
            assert!(compare(&shown, &frame, &mut names), "{line}\n{frame}");
        }
    }
}
