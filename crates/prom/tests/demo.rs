//! `prom dev --demo`.

use super::json_lines;
use super::server::Server;
use crate::prom;

const KEY: &str = "key == \"dev:stt:1\"";

/// A beat of a process that does not exist, so many seconds ago.
fn beat(url: &str, ago: &str) {
    let payload = r#"{"pid":1,"name":"stt","host":"dev","cpu_pct":3,"mem_mb":90}"#;
    let done = prom(&["pub", "heartbeat.received", payload, "--ts", ago, "--url", url]);
    assert_eq!(done.status.code(), Some(0), "{}", super::stderr(&done));
}

fn statuses(events: &[serde_json::Value]) -> Vec<&str> {
    events.iter().map(|event| event["payload"]["status"].as_str().unwrap_or("gone")).collect()
}

#[test]
fn the_processes_of_this_machine_are_alive() {
    let server = Server::start(&["dev", "--demo", "--port", "0"]);
    let url = server.url();
    let seen = json_lines(&["tail", "process.**", "--url", &url, "-c", "3", "--since", "earliest"]);
    assert_eq!(statuses(&seen), ["alive"; 3]);
    let own = server.id().to_string();
    let of_server = format!("payload.pid == {own}");
    let found = json_lines(&[
        "tail",
        "process.state",
        "--url",
        &url,
        "-c",
        "2",
        "--since",
        "earliest",
        "--where",
        &of_server,
    ]);
    assert_eq!(found[0]["payload"]["name"], "prom");
    assert!(found[1]["payload"]["mem_mb"].as_f64().unwrap() > 0.0);
    assert_eq!(found[1]["caused_by"].as_array().unwrap().len(), 1);
    assert_eq!(server.stop(), Some(0));
}

#[test]
fn silence_makes_stale_and_then_gone() {
    let server = Server::start(&["dev", "--demo", "--port", "0"]);
    let url = server.url();
    beat(&url, "58s ago");
    let tail =
        ["tail", "process.state", "--url", &url, "-c", "3", "--since", "earliest", "--where", KEY];
    let seen = json_lines(&tail);
    assert_eq!(statuses(&seen), ["alive", "stale", "gone"]);
    assert!(seen[2]["payload"].is_null());
    assert_eq!(server.stop(), Some(0));
}

/// Pitfall 139: a process that died while the projector was down has to turn stale.
#[test]
fn what_was_known_is_known_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let arguments = ["dev", "--demo", "--port", "0", "--data", data];
    let server = Server::start(&arguments);
    beat(&server.url(), "12s ago");
    let tail = ["--since", "earliest", "--where", KEY];
    let seen = json_lines(
        &[&["tail", "process.state", "--url", &server.url(), "-c", "1"][..], &tail].concat(),
    );
    assert_eq!(statuses(&seen), ["alive"]);
    assert_eq!(server.stop(), Some(0));

    let server = Server::start(&arguments);
    let seen = json_lines(
        &[&["tail", "process.state", "--url", &server.url(), "-c", "2"][..], &tail].concat(),
    );
    assert_eq!(statuses(&seen), ["alive", "stale"]);
    assert_eq!(server.stop(), Some(0));
}
