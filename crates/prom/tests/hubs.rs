//! Several servers on one MongoDB, as users run them. Needs a replica set: `scripts/mongod -- cargo
//! nextest run -p prom hubs`.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use promethean_client::Bus;
use promethean_client::event::{EventId, Key, NewEvent, Payload, Start, Timestamp};

use super::server::Server;
use super::{eventually, json_lines, prom, stderr, stdout};

pub(crate) fn url() -> String {
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

/// Each hub notes what is administrated at it in a chain of its own, which goes on at its next start.
#[test]
fn every_hub_has_a_chain_of_its_own_in_the_audit_log() {
    let (folder, url) = (tempfile::tempdir().unwrap(), url());
    let b = hub(&url, folder.path(), "b");
    for topic in ["first", "second"] {
        let a = hub(&url, folder.path(), "a");
        let (at_a, at_b) = (a.url(), b.url());
        std::thread::scope(|scope| {
            for (at, hub) in [(&at_a, "a"), (&at_b, "b")] {
                scope.spawn(move || {
                    asked(&["topic", "add", &format!("{topic}.{hub}"), "--url", at])
                });
            }
        });
        let verdict = asked(&["audit", "verify", "--url", &at_b]);
        assert_eq!(verdict["faults"], serde_json::json!([]), "{verdict}");
        assert_eq!(a.stop(), Some(0));
    }
    let verdict = asked(&["audit", "verify", "--url", &b.url()]);
    for name in ["a", "b"] {
        let chain = std::fs::read_to_string(folder.path().join(name).join("audit-chain")).unwrap();
        let chains = verdict["chains"].as_array().unwrap();
        let found = chains.iter().find(|one| one["chain"] == chain.trim());
        let found = found.unwrap_or_else(|| panic!("{chain}: {verdict}"));
        assert_eq!((&found["first"], &found["last"]), (&1.into(), &4.into()), "{verdict}");
    }
    assert_eq!(b.stop(), Some(0));
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
    assert_eq!(verdict("clock").as_deref(), Some("good"), "it is the same machine");
    assert_eq!(verdict("failover").as_deref(), Some("good"), "as scripts/mongod starts them");
    assert_eq!(verdict("catch_up").as_deref(), Some("good"), "the same");
    assert_eq!(verdict("sharding").as_deref(), Some("good"), "it is one set");
    assert_eq!(verdict("projections").as_deref(), Some("good"), "there are none");
    assert_eq!(verdict("retention").as_deref(), Some("good"), "there are no groups");
    let text = prom(&["doctor", "--production", "--store", &url]);
    assert!(stdout(&text).contains("to put right"), "{}", stdout(&text));
}

/// Tokens are in the store: made at one hub, good at every one, taken back at every one.
#[test]
fn tokens_are_those_of_all_hubs() {
    let (folder, store) = (tempfile::tempdir().unwrap(), url());
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let serve = |name: &str| {
        let data = path(name);
        Server::start(&["serve", "--store", &store, "--data", &data, "--listen", "127.0.0.1:0"])
    };
    let (a, b) = (serve("a"), serve("b"));
    let admin = path("a/admin.token");
    assert!(!folder.path().join("b/admin.token").exists(), "one administrator is enough");
    let as_admin = ["--token-file", &admin, "--url", &b.url()];
    let mint = |subject: &str, scope: &str, at: &[&str]| {
        prom(&[&["token", "mint", subject, "--scope", scope, "--json"], at].concat())
    };
    let minted = mint("shop", "publish:orders.*", &as_admin);
    assert_eq!(minted.status.code(), Some(0), "{}", stderr(&minted));
    let minted: serde_json::Value = serde_json::from_str(&stdout(&minted)).unwrap();
    std::fs::write(path("shop.token"), minted["secret"].as_str().unwrap()).unwrap();
    let publish = |hub: &Server| {
        let file = path("shop.token");
        let at = ["--url", &hub.url(), "--token-file", &file];
        prom(&[&["pub", "orders.placed", "1"][..], &at].concat()).status.code()
    };
    for hub in [&a, &b] {
        eventually(|| publish(hub) == Some(0));
    }
    // Nobody gives away more than he has.
    let ops = mint("ops", "admin:ops", &as_admin);
    let ops: serde_json::Value = serde_json::from_str(&stdout(&ops)).unwrap();
    std::fs::write(path("ops.token"), ops["secret"].as_str().unwrap()).unwrap();
    let as_ops = ["--token-file", &path("ops.token"), "--url", &a.url()];
    eventually(|| mint("reader", "admin:ops.read", &as_ops).status.code() == Some(0));
    assert_eq!(mint("more", "publish:**", &as_ops).status.code(), Some(5));

    let listed = json_lines(&["token", "ls", "--store", &store]);
    assert_eq!(listed.len(), 4, "{listed:?}");
    assert!(
        listed.iter().all(|token| token.get("sha256").is_none() && token.get("secret").is_none())
    );
    let id = minted["id"].as_str().unwrap();
    let revoked = prom(&["token", "revoke", id, "--store", &store, "--yes"]);
    assert_eq!(revoked.status.code(), Some(0), "{}", stderr(&revoked));
    for hub in [&a, &b] {
        eventually(|| publish(hub) == Some(5));
    }
    assert_eq!((a.stop(), b.stop()), (Some(0), Some(0)));
}

/// A job goes on at another hub when the one that does it dies, and adds nothing twice.
#[test]
fn a_job_is_taken_over_from_a_hub_that_is_killed() {
    let (folder, url) = (tempfile::tempdir().unwrap(), url());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (a, b) = (hub(&url, folder.path(), "a"), hub(&url, folder.path(), "b"));
    runtime.block_on(async {
        let bus = Bus::connect(&a.url()).await.unwrap();
        bus.publish_batch((0..600).map(order).collect()).await.unwrap();
    });
    assert!(prom(&["topic", "add", "copies", "--url", &a.url()]).status.success());
    let replay = ["replay", "orders", "--to", "copies", "--rate", "100", "--yes", "--detach"];
    let begun = prom(&[&replay[..], &["--url", &a.url()]].concat());
    assert_eq!(begun.status.code(), Some(0), "{}", stderr(&begun));
    let copies = || json_lines(&["export", "copies", "--url", &b.url()]);
    let has_copies = || prom(&["export", "copies", "--url", &b.url()]).status.success();
    eventually(|| has_copies() && !copies().is_empty());
    assert!(copies().len() < 600, "it was over before it could be taken over");
    drop(a);
    let jobs = || json_lines(&["job", "ls", "--url", &b.url()]);
    eventually(|| jobs().iter().any(|job| job["state"] == "done"));
    let job = &jobs()[0];
    assert!(job["taken_over"].as_u64() >= Some(1), "{job}");
    assert_eq!(copies().len(), 600);
    assert_eq!(b.stop(), Some(0));
}

mod zombies {
    //! Hubs as processes that sleep beyond their lease, and go on as if nothing had been.

    use super::*;

    fn rounds() -> u64 {
        std::env::var("PROM_FAULT_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
    }

    fn signal(server: &Server, name: &str) {
        let id = server.id().to_string();
        let sent = std::process::Command::new("kill").args([name, &id]).status().unwrap();
        assert!(sent.success());
    }

    /// What consumers saw: hub, event, and whether its ack was confirmed.
    type Acks = Arc<Mutex<Vec<(usize, u64, bool)>>>;

    async fn consume(server: &Server, number: usize, acks: &Acks) {
        let bus = Bus::connect(&server.url()).await.unwrap();
        let subscribe = bus.subscribe_to(["orders"], "shop").from(Start::Earliest);
        let mut stream = subscribe.stream().await.unwrap();
        let acks = Arc::clone(acks);
        tokio::spawn(async move {
            let _bus = bus;
            while let Some(Ok(delivered)) = stream.next().await {
                let event: u64 = delivered.event().payload.decode().unwrap();
                let is_confirmed = delivered.ack().await.is_ok();
                acks.lock().unwrap().push((number, event, is_confirmed));
            }
        });
    }

    #[test]
    fn what_a_hub_confirms_after_it_slept_does_not_count() {
        let (folder, url) = (tempfile::tempdir().unwrap(), url());
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let (a, b) = (hub(&url, folder.path(), "a"), hub(&url, folder.path(), "b"));
            let acks = Acks::default();
            consume(&a, 0, &acks).await;
            consume(&b, 1, &acks).await;
            let bus = Bus::connect(&b.url()).await.unwrap();
            let mut published = 0;
            let mut publish = async |count: u64| {
                bus.publish_batch((published..published + count).map(order).collect())
                    .await
                    .unwrap();
                published += count;
                published
            };
            let confirmed_at = |hub: usize| {
                acks.lock().unwrap().iter().filter(|(at, _, is)| *at == hub && *is).count()
            };
            for _ in 0..rounds() {
                let (at_a, at_b) = (confirmed_at(0), confirmed_at(1));
                while confirmed_at(0) == at_a || confirmed_at(1) == at_b {
                    assert!(publish(10).await < 100_000, "one of the hubs gets nothing");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                signal(&a, "-STOP");
                // It is out of leases by then, and all that is published comes to the other.
                let all = publish(100).await;
                let has = |number: u64| {
                    acks.lock()
                        .unwrap()
                        .iter()
                        .any(|(at, event, is)| *event == number && *is && *at == 1)
                };
                until("the other takes over", || (all - 100..all).all(has)).await;
                signal(&a, "-CONT");
            }
            let all = publish(10).await;
            let is_done = || {
                let acks = acks.lock().unwrap();
                (0..all).all(|number| acks.iter().any(|(_, event, is)| *event == number && *is))
            };
            until("every event is confirmed", is_done).await;
            let acks = acks.lock().unwrap().clone();
            for number in 0..all {
                let of = acks.iter().filter(|(_, event, is)| *event == number && *is);
                assert_eq!(of.count(), 1, "event {number} was confirmed more than once");
            }
        });
    }
}
