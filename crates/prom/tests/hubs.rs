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
    let manifest = folder.join(format!("{name}.toml"));
    let text = format!(
        "[store]\nkind = \"mongodb\"\nurl = \"{url}\"\npath = \"{name}\"\nhub_lease = \"1s\"\n\
         [auth]\nmode = \"off\"\n[topic.orders]\npartitions = 4\n"
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
fn views_and_passwords_do_not_go_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = folder.path().join("prom.toml");
    let file = manifest.to_str().unwrap();
    let store = "[store]\nkind = \"mongodb\"\nurl = \"mongodb://db1/prom\"\n";
    let cases = [
        (format!("{store}[views.newest]\ntopic = \"orders\"\n"), "not on MongoDB yet"),
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
