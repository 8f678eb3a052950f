//! RELIABILITY 4.4: every way in is asked for its right. The resources are those that the server
//! itself lists, so that a new one is tried here without anybody's having to think of it.

use promethean::Bus;
use promethean::causality::Causes;
use promethean::projection::{Changelog, View, Views};
use promethean_gateway::{Access, Shelf};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::server::{Answer, TestServer, tokens};

/// What only those may see who may read `secret.a`.
const CANARY: &str = "c4n4ry";

struct Scene {
    server: TestServer,
    _folder: TempDir,
    /// The id of the event.
    id: String,
}

impl Scene {
    /// A server that has an event in every form in which one can be read.
    async fn new(access: Access, all: &str) -> Self {
        let bus = Bus::memory();
        let folder = TempDir::new().unwrap();
        let views = Views::open(&bus, folder.path().join("state.db")).await.unwrap();
        views.changelog(Changelog::new(View::new("things"), "secret.a")).await.unwrap();
        let causes = Causes::open(&bus, folder.path().join("causes.db")).await.unwrap();
        let shelf = Shelf {
            views: Some(views),
            default_view: Some("things".into()),
            causes: Some(causes),
            jobs: Some(Shelf::jobs_of(&bus)),
            ..Shelf::default()
        };
        let server = TestServer::over(bus, access, |settings| {
            settings.shelf = shelf;
            settings.rates =
                promethean_gateway::Rates { auth_failures: None, ..Default::default() };
        })
        .await;
        let mut scene = Self { server, _folder: folder, id: String::new() };
        // Administrators of schemas see them, and no events by that.
        let schema = r#"{"schema":{"type":"object","title":"secret.a"}}"#;
        let registered = scene.send("POST", "/registry/secret.a/versions", all, schema).await;
        assert!(matches!(registered.status, 200 | 201), "{registered:?}");
        let body = format!(r#"{{"it":"{CANARY}"}}"#);
        let published = scene.send("POST", "/publish/secret.a?key=k", all, &body).await;
        assert_eq!(published.status, 201, "{published:?}");
        scene.id = published.json()["id"].as_str().unwrap().to_owned();
        // A dead letter of it.
        let mut consumer = scene.server.plain().await;
        consumer.ask(format!(r#"{{"op":"AUTH","token":"{all}"}}"#)).await;
        let subscribe =
            r#"{"op":"SUBSCRIBE","topic":"secret.a","group":"g","opts":{"from":"earliest"}}"#;
        consumer.ask(subscribe).await;
        let event = consumer.next_of("EVENT").await;
        let nack = format!(
            r#"{{"op":"NACK","topic":"secret.a","group":"g","id":{},"park":true,"reason":"{CANARY}"}}"#,
            event["event"]["id"]
        );
        assert_eq!(consumer.ask(nack).await["op"], "OK");
        loop {
            let seen = scene.send("GET", "/snap/k", all, "").await;
            let dead = scene.send("GET", "/dead-letters", all, "").await;
            if seen.body.contains(CANARY) && dead.body.contains(CANARY) {
                return scene;
            }
            tokio::task::yield_now().await;
        }
    }

    async fn send(&self, method: &str, path: &str, token: &str, body: &str) -> Answer {
        let bearer = format!("Bearer {token}");
        let headers = [("content-type", "application/json"), ("authorization", bearer.as_str())];
        self.server.send(method, path, &headers, body.as_bytes()).await
    }

    /// Every resource with every method, as addresses that name what is there.
    async fn requests(&self) -> Vec<Request> {
        let document = self.server.get("/openapi.json").await.json();
        let mut requests = Vec::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                for topic in ["secret.a", "dlq.secret.a", "**", "dlq.**"] {
                    let address = self.address(path, operation, topic);
                    requests.push(Request {
                        path: path.clone(),
                        method: method.to_uppercase(),
                        address,
                        is_open: operation["security"] == serde_json::json!([]),
                    });
                }
            }
        }
        requests
    }

    fn address(&self, path: &str, operation: &Value, topic: &str) -> String {
        let mut address = path.to_owned();
        let mut query = Vec::new();
        for parameter in operation["parameters"].as_array().unwrap() {
            let name = parameter["name"].as_str().unwrap();
            let value = match name {
                "topic" => topic,
                "subject" => "secret.a",
                "group" => "g",
                "key" => "k",
                "view" => "things",
                "id" if path.starts_with("/schemas") => "1",
                // It would leave out all others.
                "id" if parameter["in"] == "query" => continue,
                "id" => &self.id,
                "version" if parameter["in"] == "path" => "1",
                "at" | "to" => "now",
                "state" => "all",
                _ if parameter["in"] == "path" => "x",
                _ => continue,
            };
            if parameter["in"] == "path" {
                address = address.replace(&format!("{{{name}}}"), value);
            } else {
                query.push(format!("{name}={value}"));
            }
        }
        if query.is_empty() { address } else { format!("{address}?{}", query.join("&")) }
    }
}

#[derive(Debug)]
struct Request {
    path: String,
    method: String,
    address: String,
    is_open: bool,
}

const EVERYTHING: &[&str] = &["publish:**", "subscribe:**", "admin:**"];

#[tokio::test]
async fn no_resource_is_without_a_guard() {
    let (access, secrets) = tokens(&[EVERYTHING, &["publish:elsewhere"]]);
    let scene = Scene::new(access, &secrets[0]).await;
    let requests = scene.requests().await;
    assert!(requests.len() > 200, "{}", requests.len());
    for request in &requests {
        let Request { method, address, .. } = request;
        let headers = [("content-type", "application/json")];
        let stranger = scene.server.send(method, address, &headers, b"{}").await;
        if request.is_open {
            let open = ["/", "/ws", "/livez", "/healthz", "/readyz", "/openapi.json"];
            assert!(open.contains(&request.path.as_str()), "{request:?}");
            continue;
        }
        assert_eq!(
            (stranger.status, stranger.code().as_str()),
            (401, "unauthorized"),
            "{request:?}"
        );
        // Whoever may do anything may ask for a ticket, which allows no more.
        if request.path == "/tickets" {
            continue;
        }
        // Who may do something else may not do this. A list of nothing is no answer to what is
        // there.
        let other = scene.send(method, address, &secrets[1], "{}").await;
        let is_refused = matches!(other.status, 400 | 403 | 404);
        let is_empty = method == "GET" && other.status == 200;
        assert!(is_refused || is_empty, "{request:?}: {other:?}");
        for secret in [CANARY, "secret.a", "things", "\"g\""] {
            let named = is_empty && other.body.contains(secret);
            assert!(!named, "{request:?} names {secret}: {other:?}");
        }
    }
}

/// NATS 2026-26 (GHSA-7qmq): one way of reading forgot to ask. A deny holds on all of them, also on
/// those that give copies.
#[tokio::test]
async fn what_is_denied_is_seen_nowhere() {
    let denied = [EVERYTHING, &["!subscribe:secret.**"]].concat();
    let (access, secrets) = tokens(&[EVERYTHING, &denied]);
    let scene = Scene::new(access, &secrets[0]).await;
    let mut seen = std::collections::BTreeSet::new();
    for request in scene.requests().await {
        if request.method != "GET" {
            continue;
        }
        let may = scene.send("GET", &request.address, &secrets[0], "").await;
        if may.body.contains(CANARY) {
            seen.insert(request.path.clone());
        }
        let may_not = scene.send("GET", &request.address, &secrets[1], "").await;
        assert!(!may_not.body.contains(CANARY), "{request:?}: {may_not:?}");
    }
    // Otherwise nothing would have been shown.
    for path in [
        "/events/{topic}",
        "/replay",
        "/export",
        "/event/{id}",
        "/latest-by-key",
        "/keys/{topic}",
        "/history/{topic}",
        "/dead-letters",
        "/snap/{key}",
        "/views/{view}/snap/{key}",
        "/views/{view}/list",
    ] {
        assert!(seen.contains(path), "{path} shows nothing to those who may: {seen:?}");
    }
}

/// The same for those who follow: by WebSocket, with and without a group, and as an event stream.
#[tokio::test]
async fn what_is_denied_is_not_followed() {
    let denied = [EVERYTHING, &["!subscribe:secret.**"]].concat();
    let (access, secrets) = tokens(&[EVERYTHING, &denied]);
    let scene = Scene::new(access, &secrets[0]).await;
    let server = &scene.server;
    let mut client = server.negotiated().await;
    client.ask(format!(r#"{{"op":"AUTH","token":"{}"}}"#, secrets[1])).await;
    for (topic, group) in [
        ("secret.a", Some("h")),
        ("**", Some("h")),
        ("dlq.**", Some("h")),
        ("dlq.secret.a", Some("h")),
        ("secret.a", None),
        ("dlq.secret.a", None),
    ] {
        let group = group.map(|group| format!(r#","group":"{group}""#)).unwrap_or_default();
        let frame = format!(
            r#"{{"op":"SUBSCRIBE","topic":"{topic}"{group},"opts":{{"from":"earliest"}},"corr":1}}"#
        );
        let answer = client.ask(frame.as_str()).await;
        assert_eq!(answer["code"], "forbidden", "{frame}: {answer}");
    }
    // Of a pattern without a group, only what may be read comes.
    let tail = r#"{"op":"SUBSCRIBE","topic":"**","opts":{"from":"earliest"},"corr":2}"#;
    assert_eq!(client.ask(tail).await["op"], "OK");
    let mut stream = tokio::net::TcpStream::connect(server.at).await.unwrap();
    let head = format!(
        "GET /events?topic=**&from=earliest HTTP/1.1\r\nhost: {}\r\naccept: text/event-stream\r\nauthorization: Bearer {}\r\n\r\n",
        server.at, secrets[1]
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(scene.send("POST", "/publish/open.a", &secrets[0], "\"last\"").await.status, 201);
    let event = client.next_of("EVENT").await;
    assert_eq!(event["topic"], "open.a", "{event}");
    let mut heard = Vec::new();
    while !String::from_utf8_lossy(&heard).contains("last") {
        assert_ne!(stream.read_buf(&mut heard).await.unwrap(), 0);
    }
    assert!(!String::from_utf8_lossy(&heard).contains(CANARY));
}

/// Who sends something new, or to others, publishes.
#[tokio::test]
async fn a_mended_dead_letter_is_published() {
    let keeper: &[&str] = &["admin:dlq", "subscribe:**"];
    let (access, secrets) = tokens(&[EVERYTHING, keeper]);
    let scene = Scene::new(access, &secrets[0]).await;
    let list = scene.send("GET", "/dead-letters", &secrets[1], "").await.json();
    let id = list["dead_letters"][0]["id"].as_str().unwrap();
    let path = format!("/dead-letters/{id}/replay");
    for wish in [r#"{"event":{"payload":{}}}"#, r#"{"to":"all_groups"}"#] {
        let refused = scene.send("POST", &path, &secrets[1], wish).await;
        assert_eq!((refused.status, refused.code().as_str()), (403, "forbidden"), "{wish}");
    }
    assert_eq!(scene.send("POST", &path, &secrets[1], "").await.status, 200);
}
