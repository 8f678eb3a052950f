//! `prom migrate`, on real servers: a directory into a MongoDB and back. Needs a replica set:
//! `scripts/mongod -- cargo nextest run -p prom migration`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use promethean_client::event::{EventId, Key, NewEvent, Payload, Start, Timestamp};
use promethean_client::{Bus, Connect};
use serde_json::Value;

use super::hubs::url;
use super::server::Server;
use super::{prom, stderr, stdout};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn serve(arguments: &[&str]) -> Server {
    let usual = ["--listen", "127.0.0.1:0", "--no-rate-limits"];
    Server::start(&[&["serve"], arguments, &usual].concat())
}

/// Runs `prom` at a server as its administrator; it has to do well.
fn ask(server: &Server, token: &Path, arguments: &[&str]) -> String {
    let at = ["--url", &server.url(), "--token-file", text(token)];
    let output = prom(&[arguments, &at].concat());
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

/// Everything that can be seen of events and groups: places, times, cursors.
fn seen(server: &Server, token: &Path) -> (BTreeSet<String>, Value) {
    let events = ask(server, token, &["export", "orders.placed"]);
    let group = ask(server, token, &["group", "get", "shop", "--json"]);
    (events.lines().map(str::to_owned).collect(), serde_json::from_str(&group).unwrap())
}

async fn connect(server: &Server, token: &Path) -> Bus {
    let token = std::fs::read_to_string(token).unwrap();
    Connect::new(&server.url()).token(token.trim()).connect().await.unwrap()
}

/// Consumes and confirms; gives the numbers of the events.
async fn consume(server: &Server, token: &Path, count: usize) -> Vec<u64> {
    let bus = connect(server, token).await;
    let subscribe = bus.subscribe_to(["orders.placed"], "shop").from(Start::Earliest);
    let mut stream = subscribe.stream().await.unwrap();
    let mut numbers = Vec::new();
    while numbers.len() < count {
        let delivered = stream.next().await.unwrap().unwrap();
        numbers.push(delivered.event().payload.decode().unwrap());
        delivered.ack().await.unwrap();
    }
    // More than were asked for must not come, if that was all of them.
    let more = tokio::time::timeout(Duration::from_millis(300), stream.next()).await;
    if count == 250 {
        assert!(more.is_err(), "an event came a second time");
    }
    numbers
}

async fn publish(server: &Server, token: &Path, numbers: std::ops::Range<u64>) {
    let event = |number: u64| {
        let (ts, topic) = (Timestamp::from_millis(number), "orders.placed".parse().unwrap());
        let event = NewEvent::new(EventId::generate(), ts, topic, Payload::of(&number).unwrap());
        event.with_key(Key::new(format!("key-{}", number % 10)).unwrap())
    };
    let bus = connect(server, token).await;
    bus.publish_batch(numbers.map(event).collect()).await.unwrap();
}

struct Scene {
    folder: tempfile::TempDir,
    store: String,
    token: PathBuf,
}

impl Scene {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Everything is moved; gives what it says as JSON.
fn migrate(from: &str, to: &str) -> Value {
    let moved = prom(&["migrate", "--from", from, "--to", to, "--yes", "--json"]);
    assert_eq!(moved.status.code(), Some(0), "{}", stderr(&moved));
    serde_json::from_str(&stdout(&moved)).unwrap()
}

/// Refused with this exit code and these words.
fn refused(arguments: &[&str], code: i32, words: &str) {
    let output = prom(arguments);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    assert!(said.contains(words), "{arguments:?}: {said}");
}

#[test]
fn a_directory_moves_into_mongodb_and_back() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("a/admin.token");
    let scene = Scene { folder, store: url(), token };
    let (a, b, hub) = (scene.path("a"), scene.path("b"), scene.path("hub"));
    let server = serve(&["--data", text(&a)]);
    ask(&server, &scene.token, &["topic", "add", "orders.placed", "--partitions", "3"]);
    runtime.block_on(publish(&server, &scene.token, 0..300));
    let mut consumed = runtime.block_on(consume(&server, &scene.token, 50));
    let before = seen(&server, &scene.token);
    refused(&["migrate", "--from", text(&a), "--to", &scene.store, "--yes"], 6, "stop its server");
    assert_eq!(server.stop(), Some(0));

    let planned = prom(&["migrate", "--from", text(&a), "--to", &scene.store, "--dry-run"]);
    assert_eq!(planned.status.code(), Some(0), "{}", stderr(&planned));
    assert!(stderr(&planned).contains("up to 300 events"), "{}", stderr(&planned));
    let moved = migrate(text(&a), &scene.store);
    assert_eq!(
        (&moved["events"], &moved["groups"], &moved["tokens"]),
        (&300.into(), &1.into(), &1.into())
    );
    assert_eq!(migrate(text(&a), &scene.store)["state"], "moved", "again: nothing to do");
    refused(&["serve", "--data", text(&a), "--listen", "127.0.0.1:0"], 6, "was moved");
    refused(&["pub", "orders.placed", "1", "--data", text(&a)], 6, "was moved");

    // The token of the directory is good at the hub, and the group goes on where it was.
    let server = serve(&["--store", &scene.store, "--data", text(&hub)]);
    assert_eq!(seen(&server, &scene.token).0, before.0, "events at their places and times");
    consumed.extend(runtime.block_on(consume(&server, &scene.token, 250)));
    consumed.sort_unstable();
    assert_eq!(consumed, (0..300).collect::<Vec<u64>>(), "each event once");
    refused(&["migrate", "--from", &scene.store, "--to", text(&b), "--yes"], 6, "hub uses");
    let at_hub = seen(&server, &scene.token);
    assert_eq!(server.stop(), Some(0));

    let back = migrate(&scene.store, text(&b));
    assert_eq!((&back["events"], &back["tokens"]), (&300.into(), &1.into()));
    assert_eq!(back["hash"], moved["hash"], "the same content on the way back");
    refused(&["serve", "--store", &scene.store, "--data", text(&hub)], 6, "was moved");
    let server = serve(&["--data", text(&b)]);
    assert_eq!(seen(&server, &scene.token), at_hub);
    assert_eq!(server.stop(), Some(0));
    // A source can be used again by who wants that.
    assert!(prom(&["migrate", "--abandon", "--from", text(&a), "--yes"]).status.success());
    let server = serve(&["--data", text(&a)]);
    assert_eq!(seen(&server, &scene.token).0, before.0);
    assert_eq!(server.stop(), Some(0));
}

/// Killed again and again, it ends up with everything.
#[test]
fn a_move_that_is_killed_goes_on_when_it_is_run_again() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("a/admin.token");
    let scene = Scene { folder, store: url(), token };
    let a = scene.path("a");
    let server = serve(&["--data", text(&a)]);
    for number in 0..20 {
        runtime.block_on(publish(&server, &scene.token, number * 500..(number + 1) * 500));
    }
    assert_eq!(server.stop(), Some(0));
    let arguments = ["migrate", "--from", text(&a), "--to", &scene.store, "--yes", "--json"];
    let mut patience = Duration::from_millis(40);
    let mut kills = 0;
    let moved = loop {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_prom"));
        let child = child.args(arguments).stdout(std::process::Stdio::piped());
        let mut child = child.stderr(std::process::Stdio::null()).spawn().unwrap();
        runtime.block_on(async { tokio::time::sleep(patience).await });
        if child.try_wait().unwrap().is_none() && kills < 8 {
            child.kill().unwrap();
            kills += 1;
        }
        let output = child.wait_with_output().unwrap();
        if output.status.success() {
            break serde_json::from_slice::<Value>(&output.stdout).unwrap();
        }
        patience *= 2;
    };
    assert_eq!(moved["state"], "moved");
    let server = serve(&["--store", &scene.store, "--data", text(&scene.path("hub"))]);
    assert_eq!(ask(&server, &scene.token, &["export", "orders.placed"]).lines().count(), 10_000);
    assert_eq!(server.stop(), Some(0));
}
