//! A change from one version to the next, over HTTP.

use serde_json::json;

use super::super::server::TestServer;
use super::{heartbeat, rename};

async fn begun() -> TestServer {
    let server = TestServer::open().await;
    let first = json!({"schema": heartbeat("mem_mb")}).to_string();
    assert_eq!(server.post("/registry/beat/versions", &first).await.status, 201);
    assert_eq!(server.post("/publish/beat?key=k", r#"{"host":"a","mem_mb":1}"#).await.status, 201);
    server
}

fn next() -> serde_json::Value {
    json!({"schema": heartbeat("mem_mib"), "up": rename("mem_mb", "mem_mib"),
           "down": rename("mem_mib", "mem_mb")})
}

#[tokio::test]
async fn from_start_to_end() {
    let server = begun().await;
    let started = server.post("/registry/beat/evolution/start", &next().to_string()).await;
    assert_eq!(started.status, 200, "{}", started.body);
    let evolution = &started.json()["evolution"];
    assert_eq!((&evolution["from"], &evolution["to"]), (&1.into(), &2.into()));
    // Again, it goes on where it stood.
    let again = server.post("/registry/beat/evolution/start", &next().to_string()).await;
    assert_eq!((again.status, &again.json()["evolution"]), (200, evolution));
    let other = json!({"schema": heartbeat("memory"), "up": rename("mem_mib", "memory")});
    let other = server.post("/registry/beat/evolution/start", &other.to_string()).await;
    assert_eq!(other.code(), "conflict", "{}", other.body);

    // Writers of the old form, who say nothing, and of the new one.
    assert_eq!(server.post("/publish/beat?key=k", r#"{"host":"a","mem_mb":2}"#).await.status, 201);
    let v2 = [("content-type", "application/json"), ("x-schema-version", "2")];
    let new = server.send("POST", "/publish/beat?key=k", &v2, br#"{"host":"a","mem_mib":3}"#).await;
    assert_eq!(new.status, 201, "{}", new.body);
    let copies = server.get("/events/beat.v2").await.json();
    let memory: Vec<_> = copies["events"].as_array().unwrap().iter().collect();
    assert_eq!(memory.len(), 2);
    assert!(memory.iter().all(|event| event["headers"]["x-dual-of"].is_string()));
    assert_eq!(memory[0]["payload"]["mem_mib"], 2);

    let status = server.get("/registry/beat/evolution").await.json();
    assert_eq!(status["retained"]["versions"]["1"]["events"], 2);
    assert_eq!(status["retained"]["copies"]["2"]["events"], 2);
    assert_eq!(
        (&status["counts"]["copied"], &status["counts"]["mismatches"]),
        (&2.into(), &0.into())
    );

    let into = json!({"into": "beat.history"}).to_string();
    let cut = server.post("/registry/beat/evolution/cutover", &into).await;
    assert_eq!(cut.status, 200, "{}", cut.body);
    let report = cut.json();
    assert_eq!((&report["replayed"], &report["unreadable"]), (&3.into(), &0.into()));
    assert_eq!((&report["added"], &report["evolution"]["stage"]), (&3.into(), &"cut_over".into()));
    let history = server.get("/events/beat.history").await.json();
    let forms: Vec<_> = history["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["payload"]["mem_mib"].clone())
        .collect();
    assert_eq!(forms, [json!(1), json!(2), json!(3)]);
    // The old form is not written any more, and nothing is written twice.
    let v1 = [("content-type", "application/json"), ("x-schema-version", "1")];
    let old = server.send("POST", "/publish/beat", &v1, br#"{"host":"a","mem_mb":2}"#).await;
    assert_eq!(old.code(), "schema_invalid", "{}", old.body);
    assert_eq!(server.post("/publish/beat", r#"{"host":"a","mem_mib":4}"#).await.status, 201);
    assert_eq!(server.get("/events/beat.v2").await.json()["events"].as_array().unwrap().len(), 2);
    assert_eq!(server.post("/registry/beat/evolution/cutover", "").await.code(), "conflict");
}

#[tokio::test]
async fn and_back() {
    let server = begun().await;
    server.post("/registry/beat/evolution/start", &next().to_string()).await;
    assert_eq!(server.post("/registry/beat/evolution/cutover", "").await.status, 200);
    assert_eq!(server.post("/publish/beat", r#"{"host":"a","mem_mib":4}"#).await.status, 201);
    let back = server.post("/registry/beat/evolution/rollback", "").await;
    assert_eq!(back.json()["evolution"]["stage"], "rolled_back", "{}", back.body);
    assert_eq!(server.post("/publish/beat", r#"{"host":"a","mem_mb":5}"#).await.status, 201);
    let old = server.get("/events/beat?reads=1").await.json();
    let memory: Vec<_> = old["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["payload"]["mem_mb"].clone())
        .collect();
    assert_eq!(memory, [json!(1), json!(4), json!(5)]);
    assert_eq!(server.post("/registry/beat/evolution/rollback", "").await.code(), "conflict");
}

#[tokio::test]
async fn the_way_back_needs_a_caster() {
    let server = begun().await;
    let mut one_way = next();
    one_way.as_object_mut().unwrap().remove("down");
    server.post("/registry/beat/evolution/start", &one_way.to_string()).await;
    let v2 = [("content-type", "application/json"), ("x-schema-version", "2")];
    server.send("POST", "/publish/beat", &v2, br#"{"host":"a","mem_mib":3}"#).await;
    let back = server.post("/registry/beat/evolution/rollback", "").await;
    assert_eq!(back.code(), "conflict");
    assert!(back.body.contains("1 events of version 2 are stored"), "{}", back.body);
    let forced = json!({"force": "nobody reads them"}).to_string();
    let back = server.post("/registry/beat/evolution/rollback", &forced).await.json();
    assert_eq!(back["evolution"]["forced"][0], "anonymous: nobody reads them");
}

/// An event that the casters cannot carry is found by the replay, not by a reader months later.
#[tokio::test]
async fn what_cannot_be_read_stops_the_cut_over() {
    let server = begun().await;
    let start = server.post("/registry/beat/evolution/start", &next().to_string()).await;
    assert_eq!(start.status, 200);
    let warn = json!({"payload": "warn", "dual_write": []}).to_string();
    server.send("PUT", "/registry/beat/policy", &[], warn.as_bytes()).await;
    let v1 = [("content-type", "application/json"), ("x-schema-version", "1")];
    let odd = server.send("POST", "/publish/beat", &v1, br#"{"host":"a"}"#).await;
    assert_eq!(odd.status, 201, "{}", odd.body);
    server.send("PUT", "/registry/beat/policy", &[], br#"{"payload": "enforce"}"#).await;
    let cut = server.post("/registry/beat/evolution/cutover", "").await;
    assert_eq!(cut.code(), "conflict");
    assert!(cut.body.contains("1 stored events cannot be read as 2"), "{}", cut.body);
    let forced = json!({"force": "it is noise"}).to_string();
    let cut = server.post("/registry/beat/evolution/cutover", &forced).await.json();
    assert_eq!((&cut["unreadable"], &cut["replayed"]), (&1.into(), &1.into()));
    assert_eq!(cut["evolution"]["forced"][0], "anonymous: it is noise");
}
