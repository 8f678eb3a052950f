//! RELIABILITY 4.1: administration, metrics and details of health on a listener of their own.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use promethean_gateway::{Access, Settings, is_administration};

use super::server::{Answer, TestServer, tokens};

fn apart(settings: &mut Settings) {
    settings.admin = vec!["127.0.0.1:0".parse().unwrap()];
}

/// A server with two entrances; which are data and administration.
async fn two(access: Access) -> (TestServer, SocketAddr, SocketAddr) {
    let server = TestServer::with(access, |settings| {
        apart(settings);
        settings.rates = promethean_gateway::Rates { auth_failures: None, ..Default::default() };
    })
    .await;
    let (data, admin) = (server.at, server.admin.unwrap());
    (server, data, admin)
}

async fn ask(
    server: &mut TestServer,
    at: SocketAddr,
    method: &str,
    path: &str,
    token: &str,
) -> Answer {
    server.at = at;
    let bearer = format!("Bearer {token}");
    let mut headers = vec![("content-type", "application/json")];
    if !token.is_empty() {
        headers.push(("authorization", bearer.as_str()));
    }
    server.send(method, path, &headers, b"{}").await
}

/// What tells an answer from another, but for what every answer has of its own.
fn told(answer: &Answer) -> (u16, Vec<String>, String) {
    let own = ["date:", "x-request-id:"];
    let lines = answer.head.lines().filter(|line| !own.iter().any(|own| line.starts_with(own)));
    let mut problem = answer.json();
    problem["instance"].take();
    (answer.status, lines.map(str::to_owned).collect(), problem.to_string())
}

/// Every resource of the server is at exactly one entrance, but for what is open to strangers. Which
/// one, its own declaration says: with a stranger's request the guard answers before anything else.
#[tokio::test]
async fn every_resource_is_at_one_entrance() {
    let (access, _) = tokens(&[&["admin:**"]]);
    let whole = TestServer::open().await.get("/openapi.json").await.json();
    let (mut server, data, admin) = two(access).await;
    let unknown = ask(&mut server, data, "GET", "/nowhere/at/all", "").await;
    assert_eq!((unknown.status, unknown.code().as_str()), (404, "not_found"));
    let mut places: BTreeMap<String, &str> = BTreeMap::new();
    for (path, methods) in whole["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            if operation["security"] == serde_json::json!([]) {
                continue;
            }
            let address: Vec<_> = path
                .split('/')
                .map(|part| if part.starts_with('{') { "x" } else { part })
                .collect();
            let (method, address) = (method.to_uppercase(), address.join("/"));
            let at_data = ask(&mut server, data, &method, &address, "").await;
            let at_admin = ask(&mut server, admin, &method, &address, "").await;
            let (place, there, absent) = match (at_data.status, at_admin.status) {
                (401, _) => ("data", &at_data, &at_admin),
                (_, 401) => ("admin", &at_admin, &at_data),
                other => panic!("{method} {path} is nowhere: {other:?}"),
            };
            assert_eq!(there.code(), "unauthorized");
            assert_eq!(told(absent), told(&unknown), "{method} {path}");
            let method_known = method.parse().unwrap();
            assert_eq!(is_administration(&method_known, &address), place == "admin", "{path}");
            places.insert(format!("{method} {path}"), place);
        }
    }
    for (resource, place) in [
        ("POST /publish/{topic}", "data"),
        ("GET /events/{topic}", "data"),
        ("GET /replay", "data"),
        ("GET /export", "data"),
        ("GET /views/{view}/snap/{key}", "data"),
        ("POST /tickets", "data"),
        ("GET /registry/{topic}", "data"),
        ("POST /registry/{topic}/versions", "admin"),
        ("GET /metrics", "admin"),
        ("GET /topics", "admin"),
        ("POST /topics/{topic}", "admin"),
        ("POST /groups/{group}/seek", "admin"),
        ("GET /ops/partitions", "admin"),
        ("GET /tokens", "admin"),
        ("POST /tokens", "admin"),
        ("GET /jobs", "admin"),
        ("GET /changefeeds", "admin"),
        ("GET /dead-letters", "admin"),
        ("POST /views/{view}/rebuild", "admin"),
    ] {
        assert_eq!(places.get(resource), Some(&place), "{resource}");
    }
}

/// Each describes what is there, and no more.
#[tokio::test]
async fn each_entrance_describes_itself() {
    let whole = TestServer::open().await.get("/openapi.json").await.json();
    let (mut server, data, admin) = two(Access::Anonymous).await;
    let mut seen = 0;
    for at in [data, admin] {
        let described = ask(&mut server, at, "GET", "/openapi.json", "").await.json();
        for methods in described["paths"].as_object().unwrap().values() {
            seen += methods.as_object().unwrap().len();
        }
        let is_admin = at == admin;
        assert_eq!(described["paths"].get("/metrics").is_some(), is_admin);
        assert_eq!(described["paths"].get("/publish/{topic}").is_some(), !is_admin);
    }
    let all = whole["paths"].as_object().unwrap().values();
    let all: usize = all.map(|methods| methods.as_object().unwrap().len()).sum();
    // Of health and of itself both say something.
    assert_eq!(seen, all + 4);
}

#[tokio::test]
async fn health_is_at_both_and_its_details_are_not() {
    let (access, secrets) = tokens(&[&["admin:ops"]]);
    let (mut server, data, admin) = two(access).await;
    for at in [data, admin] {
        for path in ["/livez", "/healthz", "/readyz", "/readyz?verbose"] {
            assert_eq!(ask(&mut server, at, "GET", path, "").await.body, "ok\n", "{path}");
        }
    }
    let path = "/readyz?verbose";
    assert_eq!(ask(&mut server, data, "GET", path, &secrets[0]).await.body, "ok\n");
    let detailed = ask(&mut server, admin, "GET", path, &secrets[0]).await;
    assert_eq!(detailed.json()["status"], "ok");
    assert_eq!(ask(&mut server, data, "GET", "/metrics", &secrets[0]).await.code(), "not_found");
    assert!(ask(&mut server, admin, "GET", "/metrics", &secrets[0]).await.body.contains("# TYPE"));
}

#[tokio::test]
async fn the_rules_are_the_same_at_both() {
    let (access, secrets) = tokens(&[&["publish:**"], &["admin:**"]]);
    let (mut server, data, admin) = two(access).await;
    assert_eq!(ask(&mut server, admin, "GET", "/topics", &secrets[0]).await.code(), "forbidden");
    assert_eq!(ask(&mut server, admin, "GET", "/topics", &secrets[1]).await.status, 200);
    assert_eq!(ask(&mut server, admin, "GET", "/topics", "prom_0_0").await.code(), "unauthorized");
    assert_eq!(ask(&mut server, data, "POST", "/publish/a", &secrets[0]).await.status, 201);
    for at in [data, admin] {
        server.at = at;
        let renamed = server.send("GET", "/livez", &[("host", "evil.example")], b"").await;
        assert_eq!(renamed.code(), "host_refused");
        let foreign = server.send("GET", "/livez", &[("origin", "http://evil.example")], b"").await;
        assert_eq!(foreign.code(), "origin_refused");
        assert_eq!(server.get("/livez?token=a").await.code(), "token_in_query");
    }
    // No WebSocket for administrators, either.
    server.at = admin;
    assert_eq!(server.connect(&[]).await.err(), Some(404));
    server.at = data;
    assert!(server.connect(&[]).await.is_ok());
}

/// Clients that have taken every connection there may be do not keep operators out.
#[tokio::test]
async fn a_full_house_leaves_the_other_door_open() {
    let mut server = TestServer::with(Access::Anonymous, |settings| {
        apart(settings);
        settings.bounds.connections = 1;
    })
    .await;
    let admin = server.admin.unwrap();
    let client = server.plain().await;
    assert_eq!(server.get("/livez").await.status, 503);
    server.at = admin;
    assert_eq!(server.get("/topics").await.status, 200);
    drop(client);
}

/// Both stop together.
#[tokio::test]
async fn both_stop() {
    let mut server = TestServer::with(Access::Anonymous, apart).await;
    server.handle.stop();
    (&mut server.running).await.unwrap();
    for at in [server.at, server.admin.unwrap()] {
        assert!(tokio::net::TcpStream::connect(at).await.is_err());
    }
}
