//! RELIABILITY 4.6: what is administrated, and who is refused, is noted in a chain of records.

use std::sync::Arc;
use std::time::Duration;

use promethean::Bus;
use promethean::memory::MemoryStore;
use promethean::store::{Durability, PageLimit, Read, Store};
use promethean_event::{Offset, Topic};
use promethean_gateway::access::{Authenticator, MintedToken, TokenTable};
use promethean_gateway::audit::{Verdict, Verifier};
use promethean_gateway::{Access, Rates};
use serde_json::Value;

use super::server::{Answer, TestServer, tokens};

async fn send(server: &TestServer, method: &str, path: &str, token: &str, body: &str) -> Answer {
    let bearer = format!("Bearer {token}");
    let headers = [("content-type", "application/json"), ("authorization", bearer.as_str())];
    server.send(method, path, &headers, body.as_bytes()).await
}

/// The records that are stored, oldest first, as they are there.
async fn stored(bus: &Bus) -> Vec<String> {
    let name = Topic::system("$audit").unwrap();
    let topics = bus.topics();
    let Some(lane) = topics.get(&name).and_then(|entry| entry.lanes().next()) else {
        return Vec::new();
    };
    let limit = PageLimit { events: 10_000, bytes: usize::MAX };
    let page = bus.store().read(Read::From { lane, from: Offset::new(0), limit }).await.unwrap();
    page.events.iter().map(|one| one.event.payload.as_str().to_owned()).collect()
}

async fn records(bus: &Bus) -> Vec<Value> {
    stored(bus).await.iter().map(|record| serde_json::from_str(record).unwrap()).collect()
}

fn verdict(records: &[String]) -> Verdict {
    let mut verifier = Verifier::default();
    (0..).zip(records).for_each(|(offset, record)| verifier.see(offset, record));
    verifier.end(&[])
}

fn outcomes<'a>(records: &'a [Value], resource: &str) -> Vec<(&'a str, &'a str)> {
    let text = |record: &'a Value, name: &str| record[name].as_str().unwrap_or_default();
    let of = records.iter().filter(|record| record["resource"] == resource);
    of.map(|record| (text(record, "action"), text(record, "outcome"))).collect()
}

#[tokio::test]
async fn what_is_administrated_is_noted_before_and_after() {
    let (access, secrets) = tokens(&[&["admin:**", "publish:**", "subscribe:**"]]);
    let server = TestServer::with(access, |_| {}).await;
    let admin = &secrets[0];
    assert_eq!(
        send(&server, "POST", "/topics/a.b", admin, r#"{"partitions":2}"#).await.status,
        200
    );
    assert_eq!(
        send(&server, "POST", "/topics/a.b", admin, r#"{"partitions":3}"#).await.status,
        409
    );
    let schema = r#"{"schema":{"type":"object"}}"#;
    let registered = send(&server, "POST", "/registry/a.b/versions", admin, schema).await;
    assert!(matches!(registered.status, 200 | 201), "{registered:?}");
    let group = r#"{"settings":{"topics":["a.b"]},"from":"earliest"}"#;
    assert!(send(&server, "POST", "/groups/g", admin, group).await.status < 300);
    let moved = send(&server, "POST", "/groups/g/seek", admin, r#"{"to":"latest"}"#).await;
    assert_eq!(moved.status, 200, "{moved:?}");
    assert_eq!(send(&server, "DELETE", "/groups/g", admin, "").await.status, 200);
    assert_eq!(send(&server, "DELETE", "/topics/a.b", admin, "").await.status, 200);
    // What changes nothing is not.
    assert_eq!(send(&server, "GET", "/topics", admin, "").await.status, 200);
    assert_eq!(send(&server, "POST", "/publish/c", admin, "1").await.status, 201);

    let records = records(&server.bus).await;
    for (resource, action, ends) in [
        ("POST /topics/a.b", "topic.admin", &["begun", "done", "begun", "refused"][..]),
        ("POST /registry/a.b/versions", "schema.write", &["begun", "done"]),
        ("POST /groups/g", "cursor.set", &["begun", "done"]),
        ("POST /groups/g/seek", "cursor.set", &["begun", "done"]),
        ("DELETE /groups/g", "cursor.set", &["begun", "done"]),
        ("DELETE /topics/a.b", "topic.admin", &["begun", "done"]),
    ] {
        let wanted: Vec<_> = ends.iter().map(|end| (action, *end)).collect();
        assert_eq!(outcomes(&records, resource), wanted, "{resource}");
    }
    assert_eq!(records.len(), 14, "{records:?}");
    let seek = records.iter().rfind(|record| record["resource"] == "POST /groups/g/seek").unwrap();
    assert_eq!(seek["about"]["applied"], false, "what was only planned is told apart");
    for pair in records.chunks(2) {
        assert_eq!(pair[0]["request"], pair[1]["request"]);
        assert_eq!(
            (&pair[0]["subject"], &pair[0]["peer"]),
            (&"user-0".into(), &"127.0.0.1".into())
        );
        assert!(pair[1]["status"].is_u64() && pair[0]["at"].is_u64());
    }
    assert_eq!(records[3]["code"], "conflict");
    assert_eq!(verdict(&stored(&server.bus).await).faults, vec![]);
}

/// Every resource that changes what only administrators may is noted, whatever comes of it; found in
/// the server's own description, so that a new one is tried without anybody's having to think of it.
#[tokio::test]
async fn every_change_is_noted() {
    let (access, secrets) = tokens(&[&["admin:**", "publish:**", "subscribe:**"]]);
    let server = TestServer::with(access, |_| {}).await;
    let document = server.get("/openapi.json").await.json();
    let mut tried = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let method = method.to_uppercase();
            let parts = path.split('/').map(|part| if part.starts_with('{') { "x" } else { part });
            let address = parts.collect::<Vec<_>>().join("/");
            let before = stored(&server.bus).await.len();
            let answer = send(&server, &method, &address, &secrets[0], "{}").await;
            let resource = format!("{method} {address}");
            let noted = stored(&server.bus).await.len() - before;
            let is_admin =
                promethean_gateway::is_administration(&method.parse().unwrap(), &address);
            let is_change = method != "GET" && (is_admin || path == "/replays");
            assert_eq!(noted, if is_change { 2 } else { 0 }, "{resource}: {answer:?} {operation}");
            tried += usize::from(is_change);
        }
    }
    assert!(tried > 20, "{tried}");
}

/// Who is refused a thousand times fills no disk: all of it is one record.
#[tokio::test]
async fn refusals_are_summed_up() {
    let (access, secrets) = tokens(&[&["publish:a"], &["admin:ops"]]);
    let server = TestServer::with(access, |settings| {
        settings.rates = Rates { auth_failures: None, ..Rates::default() };
        settings.bounds.refusals = Duration::from_secs(3_600);
    })
    .await;
    for _ in 0..60 {
        assert_eq!(send(&server, "DELETE", "/topics/a", &secrets[0], "").await.status, 403);
        assert_eq!(send(&server, "GET", "/lag", &secrets[0], "").await.status, 403);
        assert_eq!(send(&server, "GET", "/lag", "prom_0_s3cr3t", "").await.status, 401);
    }
    let mut client = server.plain().await;
    client.ask(format!(r#"{{"op":"AUTH","token":"{}"}}"#, secrets[0])).await;
    for _ in 0..5 {
        let refused = client.ask(r#"{"op":"PUBLISH","topic":"b","payload":1}"#).await;
        assert_eq!(refused["code"], "forbidden");
    }
    drop(client);
    assert_eq!(stored(&server.bus).await.len(), 0);
    let bus = server.bus.clone();
    server.handle.stop();
    server.running.await.unwrap();
    let records = records(&bus).await;
    assert_eq!(records.len(), 1, "{records:?}");
    assert_eq!(
        (&records[0]["action"], &records[0]["outcome"]),
        (&"access".into(), &"refused".into())
    );
    let lines = records[0]["about"]["refused"].as_array().unwrap();
    let count = |subject: &str, peer: &str, action: &str| {
        let found = lines.iter().find(|line| {
            let who =
                if subject.is_empty() { line["peer"] == peer } else { line["subject"] == subject };
            who && line["action"] == action
        });
        found.unwrap_or_else(|| panic!("{action}: {lines:?}"))["count"].as_u64().unwrap()
    };
    assert_eq!(count("user-0", "", "topic.admin"), 60);
    assert_eq!(count("user-0", "", "ops.read"), 60);
    assert_eq!(count("user-0", "", "frame"), 5);
    assert_eq!(count("", "127.0.0.1", "authenticate"), 60);
    assert_eq!(records[0]["about"]["others"], 0);
}

#[tokio::test]
async fn a_chain_goes_on_at_the_next_start() {
    let bus = Bus::memory();
    for _ in 0..2 {
        let server = TestServer::over(bus.clone(), Access::Anonymous, |_| {}).await;
        assert!(server.post("/topics/a", "{}").await.status < 300);
        server.handle.stop();
        server.running.await.unwrap();
    }
    let records = stored(&bus).await;
    let verdict = verdict(&records);
    assert_eq!((records.len(), verdict.chains.len(), verdict.faults), (4, 1, vec![]));
    assert_eq!((verdict.chains[0].first, verdict.chains[0].last), (1, 4));
}

/// Nothing is administrated that cannot be noted.
#[tokio::test]
async fn what_cannot_be_noted_is_not_done() {
    let store = Arc::new(MemoryStore::new());
    let bus = Bus::with_store(store.clone(), promethean::BusOptions::default());
    let server = TestServer::over(bus, Access::Anonymous, |_| {}).await;
    assert!(server.post("/topics/a", "{}").await.status < 300);
    // Somebody has written what is no record: the chain cannot go on behind it.
    let name = Topic::system("$audit").unwrap();
    let key = promethean_event::Key::new("main").unwrap();
    let payload = promethean_event::Payload::of("no record").unwrap();
    let id = promethean_event::EventId::derived("audit", b"main\x003");
    let at = promethean_event::Timestamp::from_millis(1);
    let event = promethean_event::NewEvent::new(id, at, name, payload).with_key(key);
    let append = promethean::store::Append {
        events: vec![event],
        durability: Durability::Synced,
        ..Default::default()
    };
    store.append(append).await.unwrap();
    let refused = server.post("/topics/b", "{}").await;
    assert_eq!(refused.code(), "internal");
    assert!(server.bus.topics().get(&Topic::new("b").unwrap()).is_none(), "it was not done");
    assert_eq!(server.send("DELETE", "/topics/a", &[], b"").await.code(), "internal");
    assert!(server.bus.topics().get(&Topic::new("a").unwrap()).is_some());
    // What needs no note goes on.
    assert_eq!(server.post("/publish/a", "1").await.status, 201);
}

#[tokio::test]
async fn the_log_is_read_page_by_page() {
    let (access, secrets) = tokens(&[&["admin:**"], &["publish:**", "subscribe:**"]]);
    let server = TestServer::with(access, |_| {}).await;
    let admin = &secrets[0];
    let empty = send(&server, "GET", "/audit", admin, "").await.json();
    assert_eq!((&empty["records"], &empty["next"]), (&serde_json::json!([]), &Value::Null));
    for name in ["a", "b", "c"] {
        assert!(send(&server, "POST", &format!("/topics/{name}"), admin, "{}").await.status < 300);
    }
    let raw = stored(&server.bus).await;
    let mut verifier = Verifier::default();
    let mut from = Some(0);
    let mut pages = 0;
    while let Some(place) = from {
        let path = format!("/audit?from={place}&limit=4");
        let answer = send(&server, "GET", &path, admin, "").await;
        // Byte by byte what is stored: otherwise nobody could verify it.
        let page = answer.json();
        for (n, row) in page["records"].as_array().unwrap().iter().enumerate() {
            let record = &raw[usize::try_from(place).unwrap() + n];
            assert!(answer.body.contains(record), "{answer:?}");
            verifier.see(row["offset"].as_u64().unwrap(), record);
        }
        from = page["next"].as_u64();
        pages += 1;
    }
    let verdict = verifier.end(&[]);
    assert_eq!((pages, verdict.records, verdict.faults), (2, 6, vec![]));
    let newest = send(&server, "GET", "/audit?limit=1", admin, "").await.json();
    assert_eq!(newest["records"][0]["offset"], 5);
    assert_eq!(newest["records"][0]["record"]["resource"], "POST /topics/c");
    let next = newest["next"].as_u64().unwrap();
    let before = send(&server, "GET", &format!("/audit?before={next}&limit=9"), admin, "").await;
    assert_eq!(before.json()["records"].as_array().unwrap().len(), 5);
    assert_eq!(before.json()["next"], Value::Null);
    let both = send(&server, "GET", "/audit?from=0&before=1", admin, "").await;
    assert_eq!(both.code(), "bad_request");
    // Nobody else reads it, by this or by another way, and nobody writes it.
    let user = &secrets[1];
    assert_eq!(send(&server, "GET", "/audit", user, "").await.code(), "forbidden");
    for path in
        ["/events/$audit", "/replay?topic=$audit", "/export?topic=$**", "/history/$audit?key=main"]
    {
        let refused = send(&server, "GET", path, user, "").await;
        assert!(!refused.body.contains("topic.admin"), "{path}: {refused:?}");
        assert!(refused.status >= 400 || !refused.body.contains("main"), "{path}: {refused:?}");
    }
    for (method, path) in [("POST", "/publish/$audit"), ("DELETE", "/topics/$audit")] {
        let refused = send(&server, method, path, admin, "{}").await;
        assert!(refused.status >= 400, "{method} {path}: {refused:?}");
    }
}

/// Tokens are named, never shown; nor is what anybody sends.
#[tokio::test]
async fn no_secret_is_in_a_record() {
    let ann = MintedToken::mint("ann", vec!["admin:**".into()]).unwrap();
    let bob = MintedToken::mint("bob", vec!["publish:**".into()]).unwrap();
    let table = |tokens: &[&MintedToken]| {
        TokenTable::new(tokens.iter().map(|one| one.stored.clone())).unwrap()
    };
    let access = Access::Required(Box::new(Authenticator::new(table(&[&ann]), None, Vec::new())));
    let server = TestServer::with(access, |_| {}).await;
    server.handle.install_tokens(table(&[&ann]));
    server.handle.install_tokens(table(&[&ann, &bob]));
    let ticket = send(&server, "POST", "/tickets", &ann.secret, "").await.json();
    let body = r#"{"settings":{"topics":["a"]},"password":"b0dy-s3cr3t"}"#;
    send(&server, "POST", "/groups/g", &ann.secret, body).await;
    send(&server, "POST", "/tokens", &ann.secret, r#"{"subject":"x","scopes":["publish:a"]}"#)
        .await;
    send(&server, "GET", "/topics", "prom_0_wr0ng-s3cr3t", "").await;
    let bus = server.bus.clone();
    server.handle.stop();
    server.running.await.unwrap();
    let all = stored(&bus).await.join("\n");
    for secret in [
        &ann.secret,
        &bob.secret,
        &ann.stored.sha256,
        ticket["ticket"].as_str().unwrap(),
        "s3cr3t",
        "Bearer",
    ] {
        assert!(!all.contains(secret), "{secret}: {all}");
    }
    let records = records(&bus).await;
    let changed = records.iter().find(|record| record["action"] == "tokens").unwrap();
    assert_eq!(changed["about"]["added"], serde_json::json!([bob.stored.id]));
}
