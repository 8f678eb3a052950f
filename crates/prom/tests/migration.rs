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
    let mut group: Value = serde_json::from_str(&group).unwrap();
    // How old something is depends on when it is asked.
    group.as_object_mut().unwrap().remove("age_ms");
    for partition in group["partitions"].as_array_mut().unwrap() {
        partition.as_object_mut().unwrap().remove("age_ms");
    }
    (events.lines().map(str::to_owned).collect(), group)
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
    if count >= 250 {
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
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("a/admin.token");
        Self { folder, store: url(), token }
    }

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

/// How many records the audit log has, each as it was written: they move as well.
fn audited(server: &Server, token: &Path) -> u64 {
    let verdict: Value =
        serde_json::from_str(&ask(server, token, &["audit", "verify", "--json"])).unwrap();
    verdict["records"].as_u64().unwrap()
}

#[test]
fn a_directory_moves_into_mongodb_and_back() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let scene = Scene::new();
    let (a, b, hub) = (scene.path("a"), scene.path("b"), scene.path("hub"));
    let server = serve(&["--data", text(&a)]);
    ask(&server, &scene.token, &["topic", "add", "orders.placed", "--partitions", "3"]);
    runtime.block_on(publish(&server, &scene.token, 0..300));
    let mut consumed = runtime.block_on(consume(&server, &scene.token, 50));
    let before = seen(&server, &scene.token);
    let acts = audited(&server, &scene.token);
    assert!(acts > 0, "a topic was made");
    assert_eq!(server.stop(), Some(0));

    let moved = migrate(text(&a), &scene.store);
    assert_eq!(
        (&moved["events"], &moved["groups"], &moved["tokens"]),
        (&(300 + acts).into(), &1.into(), &1.into())
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
    let at_hub = seen(&server, &scene.token);
    assert_eq!(audited(&server, &scene.token), acts);
    assert_eq!(server.stop(), Some(0));

    let back = migrate(&scene.store, text(&b));
    assert_eq!((&back["events"], &back["tokens"]), (&(300 + acts).into(), &1.into()));
    assert_eq!(back["hash"], moved["hash"], "the same content on the way back");
    refused(&["serve", "--store", &scene.store, "--data", text(&hub)], 6, "was moved");
    // A token that is minted there is good nowhere, and one that is revoked there is good here.
    for command in [&["token", "ls"][..], &["token", "mint", "late", "--scope", "publish:orders.*"]]
    {
        refused(&[command, &["--store", &scene.store]].concat(), 6, "was moved");
    }
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
    let scene = Scene::new();
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

/// Everything in a folder: names, lengths, and what is in it.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push((path.clone(), std::fs::read(path).unwrap())),
            }
        }
    }
    found.sort();
    found
}

/// A plan makes nothing and changes nothing, on either side, also where a server runs.
#[test]
fn a_plan_leaves_both_sides_as_they_are() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let scene = Scene::new();
    let (a, b) = (scene.path("a"), scene.path("b"));
    let planned = |from: &str, to: &str, events: u64| {
        let planned = prom(&["migrate", "--from", from, "--to", to, "--dry-run"]);
        assert_eq!(planned.status.code(), Some(0), "{}", stderr(&planned));
        assert!(
            stderr(&planned).contains(&format!("up to {events} events")),
            "{}",
            stderr(&planned)
        );
        // Without a yes nothing is made, either.
        refused(&["migrate", "--from", from, "--to", to, "--no-input"], 2, "needs a confirmation");
    };
    let server = serve(&["--data", text(&a)]);
    ask(&server, &scene.token, &["topic", "add", "orders.placed", "--partitions", "3"]);
    runtime.block_on(publish(&server, &scene.token, 0..300));
    let events = 300 + audited(&server, &scene.token);
    planned(text(&a), &scene.store, events);
    assert_eq!(server.stop(), Some(0));
    let before = contents(&a);
    planned(text(&a), &scene.store, events);
    planned(text(&a), text(&b), events);
    assert!(contents(&a) == before, "the plan has changed the source");
    assert!(!b.exists(), "the plan has made the target");
    // Nothing is there: the database was not made.
    refused(&["migrate", "--from", &scene.store, "--to", text(&b), "--dry-run"], 4, "nothing of a");
}

/// Moves while the server of the source runs: child process, told to stop by what it says.
struct Moving {
    child: std::process::Child,
    said: std::sync::mpsc::Receiver<String>,
}

impl Moving {
    fn begin(from: &str, to: &str) -> Self {
        use std::io::BufRead;
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_prom"));
        command.args(["migrate", "--from", from, "--to", to, "--yes"]);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = std::io::BufReader::new(child.stderr.take().unwrap()).lines();
        let (sender, said) = std::sync::mpsc::sync_channel(1_000);
        std::thread::spawn(move || {
            lines.map_while(Result::ok).for_each(|line| drop(sender.send(line)));
        });
        Self { child, said }
    }

    /// Waits until it says something with these words.
    fn says(&self, words: &str) -> String {
        loop {
            let line = self.said.recv_timeout(Duration::from_secs(120)).unwrap();
            if line.contains(words) {
                return line;
            }
        }
    }

    fn ends(self) -> Value {
        let output = self.child.wait_with_output().unwrap();
        let said: Vec<String> = self.said.iter().collect();
        assert_eq!(output.status.code(), Some(0), "{said:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// The server goes on while everything is copied: events come, topics come and go, a group goes on.
/// The copy is killed and begun again. When the server stops, the rest follows by itself.
#[test]
fn a_server_runs_while_it_is_moved() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let scene = Scene::new();
    let (a, b, hub) = (scene.path("a"), scene.path("b"), scene.path("hub"));
    let server = serve(&["--data", text(&a)]);
    let at = |arguments: &[&str]| ask(&server, &scene.token, arguments);
    at(&["topic", "add", "orders.placed", "--partitions", "3"]);
    for topic in ["gone.soon", "made.anew"] {
        at(&["pub", topic, "1"]);
    }
    runtime.block_on(publish(&server, &scene.token, 0..300));
    let events = 302 + audited(&server, &scene.token);
    let copy = ["migrate", "--from", text(&a), "--to", &scene.store, "--yes", "--copy-only"];
    let copied = prom(&copy);
    assert_eq!(copied.status.code(), Some(0), "{}", stderr(&copied));
    let copied: Value = serde_json::from_str(&stdout(&copied)).unwrap();
    assert_eq!((&copied["state"], &copied["events"]), (&"copied".into(), &events.into()));
    refused(&["serve", "--store", &scene.store, "--data", text(&hub)], 6, "being moved here");

    let mut moving = Moving::begin(text(&a), &scene.store);
    moving.says("and the rest follows at once");
    moving.child.kill().unwrap();
    moving.child.wait().unwrap();
    at(&["topic", "rm", "gone.soon", "--confirm=gone.soon"]);
    at(&["topic", "rm", "made.anew", "--confirm=made.anew"]);
    at(&["pub", "made.anew", "2"]);
    at(&["pub", "made.later", "3"]);
    let moving = Moving::begin(text(&a), &scene.store);
    runtime.block_on(publish(&server, &scene.token, 300..500));
    let mut consumed = runtime.block_on(consume(&server, &scene.token, 50));
    moving.says("and the rest follows at once");
    runtime.block_on(publish(&server, &scene.token, 500..600));
    let before = seen(&server, &scene.token);
    let events = 602 + audited(&server, &scene.token);
    assert_eq!(server.stop(), Some(0));
    let moved = moving.ends();
    assert_eq!((&moved["state"], &moved["events"]), (&"moved".into(), &events.into()));
    // Three of users', and the audit log.
    assert_eq!((&moved["topics"], &moved["groups"]), (&4.into(), &1.into()));
    refused(&["serve", "--data", text(&a), "--listen", "127.0.0.1:0"], 6, "was moved");

    // And back, while the hub runs.
    let server = serve(&["--store", &scene.store, "--data", text(&hub)]);
    assert_eq!(seen(&server, &scene.token).0, before.0, "events at their places and times");
    assert_eq!(ask(&server, &scene.token, &["export", "made.anew"]).lines().count(), 1);
    consumed.extend(runtime.block_on(consume(&server, &scene.token, 550)));
    consumed.sort_unstable();
    assert_eq!(consumed, (0..600).collect::<Vec<u64>>(), "each event once");
    let moving = Moving::begin(&scene.store, text(&b));
    moving.says("hub uses");
    runtime.block_on(publish(&server, &scene.token, 600..700));
    let at_hub = seen(&server, &scene.token);
    let events = 702 + audited(&server, &scene.token);
    moving.says("and the rest follows at once");
    assert_eq!(server.stop(), Some(0));
    assert_eq!(moving.ends()["events"], events);
    let server = serve(&["--data", text(&b)]);
    assert_eq!(seen(&server, &scene.token), at_hub);
    assert_eq!(server.stop(), Some(0));
}

/// All that there is to see of schemas and of a view: documents, and that they are what events say.
fn shown(server: &Server, token: &Path) -> Value {
    let json = |arguments: &[&str]| -> Value {
        let said = ask(server, token, &[arguments, &["--json"]].concat());
        serde_json::from_str(&said).unwrap()
    };
    ask(server, token, &["view", "warm", "orders"]);
    let verified = json(&["view", "verify", "orders"]);
    assert_eq!(verified["different"], 0, "{verified}");
    let view = json(&["view", "list", "orders", "--limit", "100"]);
    let versions = json(&["schema", "ls", "orders.placed"]);
    let policy = json(&["schema", "policy", "orders.placed"]);
    let documents = [1, 2]
        .map(|version| ask(server, token, &["schema", "get", &format!("orders.placed@{version}")]));
    serde_json::json!({
        "documents": view["documents"], "versions": versions, "policy": policy, "schemas": documents,
    })
}

/// Schemas are moved with their versions and hold at the target; a view is built there of what was
/// moved, and is the same. Both ways.
#[test]
fn schemas_and_views_are_the_same_after_a_move_and_back() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let scene = Scene::new();
    let (a, b, hub) = (scene.path("a"), scene.path("b"), scene.path("hub"));
    let manifest = scene.path("prom.toml");
    let declared = "version = 1\n[topic.\"orders.placed\"]\npartitions = 3\n\
                    [views.orders]\ntopic = \"orders.placed\"\nfields = { n = \"integer\" }\n";
    std::fs::write(&manifest, declared).unwrap();
    let start = |arguments: &[&str]| serve(&[&["--config", text(&manifest)], arguments].concat());
    let schema = |name: &str, fields: &str| {
        let path = scene.path(name);
        let properties = format!(r#""properties": {{"n": {{"type": "integer"}}{fields}}}"#);
        let schema = format!(r#"{{"type": "object", "required": ["n"], {properties}}}"#);
        std::fs::write(&path, schema).unwrap();
        path
    };
    let publish = async |server: &Server, numbers: std::ops::Range<u64>| {
        let event = |number: u64| {
            let payload = match number % 9 {
                8 => Payload::null(),
                _ => Payload::of(&serde_json::json!({ "n": number, "who": "ann" })).unwrap(),
            };
            let (ts, topic) = (Timestamp::from_millis(number), "orders.placed".parse().unwrap());
            let event = NewEvent::new(EventId::generate(), ts, topic, payload);
            event.with_key(Key::new(format!("key-{}", number % 20)).unwrap())
        };
        let bus = connect(server, &scene.token).await;
        bus.publish_batch(numbers.map(event).collect()).await.unwrap();
    };
    // Both versions hold: what matches neither is refused, wherever everything is by now.
    let wrong = |server: &Server| {
        let at = ["--url", &server.url(), "--token-file", text(&scene.token)];
        let wrong =
            prom(&[&["pub", "orders.placed", r#"{"n":"text"}"#, "--key", "x"], &at[..]].concat());
        assert_eq!(wrong.status.code(), Some(1), "{}", stderr(&wrong));
        assert!(stderr(&wrong).contains("does not match version 2"), "{}", stderr(&wrong));
    };

    let server = start(&["--data", text(&a)]);
    let first = schema("v1.json", "");
    let second = schema("v2.json", r#", "who": {"type": "string"}"#);
    for file in [&first, &second] {
        ask(&server, &scene.token, &["schema", "add", "orders.placed", text(file)]);
    }
    runtime.block_on(publish(&server, 0..200));
    wrong(&server);
    let before = shown(&server, &scene.token);
    let acts = audited(&server, &scene.token);
    assert!(before["documents"].as_array().is_some_and(|all| all.len() > 10), "{before:#}");
    assert_eq!(server.stop(), Some(0));

    assert_eq!(migrate(text(&a), &scene.store)["events"], 200 + acts);
    let server = start(&["--store", &scene.store, "--data", text(&hub)]);
    assert_eq!(shown(&server, &scene.token), before, "in MongoDB");
    wrong(&server);
    runtime.block_on(publish(&server, 200..300));
    let later = shown(&server, &scene.token);
    assert_ne!(later["documents"], before["documents"], "the view goes on there");
    let acts = audited(&server, &scene.token);
    assert_eq!(server.stop(), Some(0));

    assert_eq!(migrate(&scene.store, text(&b))["events"], 300 + acts);
    let server = start(&["--data", text(&b)]);
    assert_eq!(shown(&server, &scene.token), later, "back in a directory");
    wrong(&server);
    assert_eq!(server.stop(), Some(0));
}
