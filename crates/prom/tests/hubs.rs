//! Several servers on one MongoDB, as users run them. Needs a replica set: `scripts/mongod -- cargo
//! nextest run -p prom hubs`.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use promethean_client::Bus;
use promethean_client::event::{EventId, Key, NewEvent, Payload, Start, Timestamp};

use super::server::Server;
use super::{prom, stderr, stdout};

fn url() -> String {
    let url = std::env::var("PROM_MONGO_URL").unwrap_or_else(|_| {
        panic!(
            "PROM_MONGO_URL is not set: this test needs a MongoDB replica set. Run it as \
             scripts/mongod -- cargo nextest run -p prom hubs"
        )
    });
    url.replacen("/?", &format!("/test-{}?", EventId::generate()), 1)
}

/// A hub with a directory of its own, that lets everybody in.
fn hub(url: &str, folder: &Path, name: &str) -> Server {
    hub_with(url, folder, name, "")
}

fn hub_with(url: &str, folder: &Path, name: &str, more: &str) -> Server {
    let manifest = folder.join(format!("{name}.toml"));
    let text = format!(
        "[store]\nkind = \"mongodb\"\nurl = \"{url}\"\npath = \"{name}\"\nhub_lease = \"1s\"\n\
         [auth]\nmode = \"off\"\n[topic.orders]\npartitions = 4\n{more}"
    );
    std::fs::write(&manifest, text).unwrap();
    let file = manifest.to_str().unwrap();
    Server::start(&["serve", "--config", file, "--listen", "127.0.0.1:0", "--no-rate-limits"])
}

fn order(number: u64) -> NewEvent {
    let (ts, topic) = (Timestamp::from_millis(1), "orders".parse().unwrap());
    let payload = Payload::of(&number).unwrap();
    let event = NewEvent::new(EventId::generate(), ts, topic, payload);
    event.with_key(Key::new(format!("key-{}", number % 10)).unwrap())
}

type Seen = Arc<Mutex<Vec<(usize, u64)>>>;

/// A consumer at a hub, for as long as the runtime lives.
async fn consume(server: &Server, number: usize, seen: &Seen) {
    let bus = Bus::connect(&server.url()).await.unwrap();
    let subscribe = bus.subscribe_to(["orders"], "shop").from(Start::Earliest);
    let mut stream = subscribe.stream().await.unwrap();
    let seen = Arc::clone(seen);
    tokio::spawn(async move {
        let _bus = bus;
        while let Some(Ok(delivered)) = stream.next().await {
            let event: u64 = delivered.event().payload.decode().unwrap();
            seen.lock().unwrap().push((number, event));
            // Refused or lost: it comes again.
            drop(delivered.ack().await);
        }
    });
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    assert!(waited.is_ok(), "not within a minute: {what}");
}

/// One is killed under load: the other takes over, and nothing that was confirmed is lost.
#[test]
fn two_servers_share_a_group_and_one_is_killed() {
    let (folder, url) = (tempfile::tempdir().unwrap(), url());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let a = hub(&url, folder.path(), "a");
        let b = hub(&url, folder.path(), "b");
        let seen = Seen::default();
        consume(&a, 0, &seen).await;
        consume(&b, 1, &seen).await;
        let at_a = Bus::connect(&a.url()).await.unwrap();
        let at_b = Bus::connect(&b.url()).await.unwrap();
        let served = |hub: usize| seen.lock().unwrap().iter().any(|(at, _)| *at == hub);
        let mut published = 0;
        while !(served(0) && served(1)) {
            assert!(published < 20_000, "one of the hubs gets nothing");
            at_a.publish_batch((published..published + 10).map(order).collect()).await.unwrap();
            published += 10;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // Dropping it kills it.
        drop(at_a);
        drop(a);
        at_b.publish_batch((published..published + 100).map(order).collect()).await.unwrap();
        published += 100;
        let has = |number: u64| seen.lock().unwrap().iter().any(|(_, seen)| *seen == number);
        until("every event has come", || (0..published).all(has)).await;
        let shown = prom(&["group", "get", "shop", "--url", &b.url(), "--json"]);
        assert_eq!(shown.status.code(), Some(0), "{}", stderr(&shown));
        assert_eq!(b.stop(), Some(0));
    });
}

/// What a command says, as JSON, once it goes.
fn asked(arguments: &[&str]) -> serde_json::Value {
    let said = prom(&[arguments, &["--json"]].concat());
    assert_eq!(said.status.code(), Some(0), "{arguments:?}: {}", stderr(&said));
    serde_json::from_str(&stdout(&said)).unwrap()
}

/// Views and snapshots on MongoDB, as a user has them: declared, read from any hub, looked back at,
/// built anew, checked, and kept by another hub when the first is killed.
#[test]
fn views_are_kept_in_mongodb_and_served_by_every_hub() {
    let (folder, url) = (tempfile::tempdir().unwrap(), url());
    let more = "snapshot = true\nsnapshot_every = \"100ms\"\n\
                [views.newest]\ntopic = \"orders\"\nfields = { n = \"integer\" }\n\
                indexes = [[\"n\"]]\ndefault = true\n";
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let a = hub_with(&url, folder.path(), "a", more);
        let b = hub_with(&url, folder.path(), "b", more);
        let publish = async |server: &Server, numbers: std::ops::Range<u64>| {
            let bus = Bus::connect(&server.url()).await.unwrap();
            let event = |n: u64| {
                let event = order(n);
                NewEvent { payload: Payload::of(&serde_json::json!({ "n": n })).unwrap(), ..event }
            };
            bus.publish_batch(numbers.map(event).collect()).await.unwrap();
        };
        publish(&a, 0..50).await;
        let (at_a, at_b) = (a.url(), b.url());
        let value = |at: &str, key: &str| {
            let said = prom(&["view", "get", "newest", key, "--url", at, "--json"]);
            let json =
                serde_json::from_str::<serde_json::Value>(&stdout(&said)).unwrap_or_default();
            json["n"].as_u64()
        };
        for at in [&at_a, &at_b] {
            until("the view shows it", || value(at, "key-3") == Some(43)).await;
        }
        let list =
            |at: &str| asked(&["view", "list", "newest", "n.ge=45", "--url", at]).to_string();
        assert_eq!(list(&at_a), list(&at_b));
        assert!(list(&at_b).contains("key-7"), "{}", list(&at_b));
        // One keeps it, the other stands by and says so.
        let state = |at: &str| {
            let listed = asked(&["view", "ls", "--url", at]);
            listed["views"][0]["state"].as_str().map(str::to_owned)
        };
        let states = [state(&at_a), state(&at_b)].map(Option::unwrap_or_default);
        let mut sorted = states.clone();
        sorted.sort();
        assert_eq!(sorted, ["elsewhere", "running"]);
        let other = if states[0] == "elsewhere" { &at_a } else { &at_b };
        let before = asked(&["view", "get", "newest", "key-3", "--url", other]);
        let verified = asked(&["view", "verify", "newest", "--url", other]);
        assert_eq!(verified["different"], 0, "{verified}");
        asked(&["view", "rebuild", "newest", "--url", other, "--yes"]);
        until("who built it anew keeps it", || state(other).as_deref() == Some("running")).await;
        // The keeper is killed.
        let (keeper, left) = if states[0] == "elsewhere" { (a, b) } else { (b, a) };
        publish(&left, 50..90).await;
        drop(keeper);
        publish(&left, 90..100).await;
        let at = left.url();
        until("the other keeps it", || state(&at).as_deref() == Some("running")).await;
        until("and shows all", || value(&at, "key-9") == Some(99)).await;
        let verified = asked(&["view", "verify", "newest", "--url", &at]);
        assert_eq!((&verified["different"], &verified["documents"]), (&0.into(), &10.into()));
        // What it was.
        let then = before["_pos"].as_str().unwrap();
        let past = asked(&["at", then, "newest", "key-3", "--url", &at]).to_string();
        assert!(past.contains("\"n\":43") && value(&at, "key-3") == Some(93), "{past}");
        // The snapshot of the topic has the newest state of each key.
        let shown = || {
            let ask = ["tail", "orders.snapshot", "--no-follow", "--url", &at];
            stdout(&prom(&[&ask[..], &["--json"]].concat()))
        };
        until("the snapshot follows", || shown().contains("\"n\":99")).await;
        assert_eq!(left.stop(), Some(0));
    });
}

#[test]
fn a_server_that_stands_alone_or_is_away_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let secret = "mongodb://hub:s3cret@127.0.0.1:1/prom?serverSelectionTimeoutMS=200";
    for command in [&["serve", "--data", data][..], &["doctor", "--production"]] {
        let refused = prom(&[command, &["--store", secret]].concat());
        assert_eq!(refused.status.code(), Some(3), "{}", stderr(&refused));
        assert!(!stderr(&refused).contains("s3cret"), "{}", stderr(&refused));
    }
    let refused = prom(&["serve", "--data", data, "--store", "postgres://u:s3cret@db"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("mongodb://") && !stderr(&refused).contains("s3cret"));
}

#[test]
fn passwords_do_not_go_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = folder.path().join("prom.toml");
    let file = manifest.to_str().unwrap();
    let store = "[store]\nkind = \"mongodb\"\nurl = \"mongodb://db1/prom\"\n";
    let cases = [
        (store.replace("db1", "hub:s3cret@db1"), "url_file"),
        ("[store]\nkind = \"mongodb\"\n".to_owned(), "url"),
        ("[store]\nurl = \"mongodb://db1/prom\"\n".to_owned(), "mongodb"),
    ];
    for (text, word) in cases {
        std::fs::write(&manifest, &text).unwrap();
        let refused = prom(&["serve", "--config", file]);
        assert_eq!(refused.status.code(), Some(78), "{text}: {}", stderr(&refused));
        let said = stderr(&refused);
        assert!(said.contains(word) && !said.contains("s3cret"), "{text}: {said}");
    }
}

#[test]
fn the_doctor_lists_what_to_put_right() {
    let url = url();
    let looked = prom(&["doctor", "--production", "--store", &url, "--json"]);
    assert_eq!(looked.status.code(), Some(100), "{}", stderr(&looked));
    let report: serde_json::Value = serde_json::from_str(&stdout(&looked)).unwrap();
    let verdict = |check: &str| {
        let findings = report["findings"].as_array().unwrap();
        let found = findings.iter().find(|finding| finding["check"] == check);
        found.map(|finding| finding["verdict"].as_str().unwrap().to_owned())
    };
    assert_eq!(verdict("version").as_deref(), Some("good"));
    assert_eq!(verdict("auth").as_deref(), Some("error"), "there are no users");
    assert_eq!(verdict("hosts").as_deref(), Some("warning"), "all on this machine");
    assert_eq!(verdict("indexes").as_deref(), Some("good"), "a hub makes them");
    let text = prom(&["doctor", "--production", "--store", &url]);
    assert!(stdout(&text).contains("to put right"), "{}", stdout(&text));
}
