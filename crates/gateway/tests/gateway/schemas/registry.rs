//! The resources of our own.

use serde_json::json;

use super::super::server::{TestServer, tokens};
use super::{heartbeat, rename};

#[tokio::test]
async fn registering_is_idempotent_and_enforced() {
    let server = TestServer::open().await;
    let wish = json!({"schema": heartbeat("mem_mb")}).to_string();
    let first = server.post("/registry/beat/versions", &wish).await;
    assert_eq!((first.status, &first.json()["version"]), (201, &1.into()), "{}", first.body);
    let again = server.post("/registry/beat/versions", &wish).await;
    assert_eq!((again.status, &again.json()["added"]), (200, &false.into()));
    // As a text it is the same document.
    let text = json!({"schema": heartbeat("mem_mb").to_string()}).to_string();
    assert_eq!(server.post("/registry/beat/versions", &text).await.json()["version"], 1);

    let bad = server.post("/publish/beat", r#"{"host": 7}"#).await;
    assert_eq!((bad.status, bad.code().as_str()), (422, "schema_invalid"));
    let why = &bad.json()["refused"][0]["why"];
    assert_eq!((&why["code"], &why["version"]), (&"invalid".into(), &1.into()), "{}", bad.body);
    let pointers: Vec<_> =
        why["mismatches"].as_array().unwrap().iter().map(|m| m["pointer"].clone()).collect();
    assert!(pointers.contains(&"/host".into()), "{}", bad.body);
    assert_eq!(server.get("/events/beat").await.status, 404, "nothing is stored");
    assert_eq!(server.post("/publish/beat", r#"{"host": "a", "mem_mb": 1}"#).await.status, 201);

    let listed = server.get("/registry").await.json();
    assert_eq!(listed["topics"][0]["topic"], "beat");
    assert_eq!(listed["topics"][0]["latest"], 1);
    let one = server.get("/registry/beat/versions/latest").await.json();
    assert_eq!(one["schema"], heartbeat("mem_mb"));
    assert_eq!(server.get("/registry/beat/versions/7").await.code(), "not_found");
    assert_eq!(server.get("/registry/other").await.code(), "not_found");
    for bad in ["{", r#"{"schema": 1}"#, r#"{"schema": {"type": "x"}}"#, "{}"] {
        assert_eq!(server.post("/registry/beat/versions", bad).await.status, 400, "{bad}");
    }
}

#[tokio::test]
async fn a_version_that_breaks_is_refused_with_its_plan() {
    let server = TestServer::open().await;
    let wish = |memory: &str| json!({"schema": heartbeat(memory)});
    server.post("/registry/beat/versions", &wish("mem_mb").to_string()).await;
    for n in 0..3 {
        let event = json!({"host": "a", "mem_mb": n}).to_string();
        assert_eq!(server.post("/publish/beat?key=k", &event).await.status, 201);
    }
    let refused = server.post("/registry/beat/versions", &wish("mem_mib").to_string()).await;
    assert_eq!((refused.status, refused.code().as_str()), (409, "incompatible"));
    let objection = &refused.json()["plan"]["objections"][0];
    assert_eq!(objection["objection"], "incompatible");
    assert!(objection["findings"][0]["counter_example"]["mem_mb"].is_number(), "{objection}");

    // A plan says the same, and counts what is stored.
    let mut with_bad_caster = wish("mem_mib");
    with_bad_caster["up"] = rename("mem_mb", "memory");
    with_bad_caster["sample"] = "all".into();
    let plan = server.post("/registry/beat/plan", &with_bad_caster.to_string()).await.json();
    assert_eq!((&plan["tried"]["stored"], &plan["tried"]["stored_broken"]), (&3.into(), &3.into()));
    with_bad_caster["up"] = rename("mem_mb", "mem_mib");
    let plan = server.post("/registry/beat/plan", &with_bad_caster.to_string()).await.json();
    assert_eq!(plan["objections"], json!([]), "{plan}");
    assert_eq!(server.get("/registry/beat").await.json()["versions"].as_array().unwrap().len(), 1);
    let done = server.post("/registry/beat/versions", &with_bad_caster.to_string()).await;
    assert_eq!((done.status, &done.json()["version"]), (201, &2.into()));

    // Events in the form of a version.
    let page = server.get("/events/beat?reads=latest").await.json();
    assert_eq!(page["events"][2]["payload"], json!({"host": "a", "mem_mib": 2}));
    assert_eq!(page["events"][2]["headers"]["x-schema-version"], "2");
    let written = server.get("/replay?topic=beat").await.json();
    assert_eq!(written["events"][2]["payload"], json!({"host": "a", "mem_mb": 2}));
    let export = server.get("/export?topic=beat&reads=2&filter=payload.mem_mib%20%3E%201").await;
    assert_eq!(export.body.lines().count(), 2, "{}", export.body);
    let key = "/latest-by-key?topic=beat&key=k";
    let newest = server.get(&format!("{key}&reads=latest")).await.json();
    assert_eq!(newest["events"]["k"]["payload"], json!({"host": "a", "mem_mib": 2}), "{newest}");
    let newest = server.get(&format!("{key}&reads=9")).await.json();
    assert!(newest["events"]["k"].is_null(), "{newest}");
    assert!(newest["unreadable"]["k"].as_str().unwrap().contains("version 9"), "{newest}");
    let unknown = server.get("/events/beat?reads=9").await.json();
    assert_eq!(unknown["unreadable"].as_array().unwrap().len(), 3);
    for bad in ["x", "0", "-1", ""] {
        assert_eq!(server.get(&format!("/events/beat?reads={bad}")).await.status, 400, "{bad}");
    }
}

#[tokio::test]
async fn dead_letters_show_the_form_that_is_asked_for() {
    let server = TestServer::open().await;
    let wish = json!({"schema": heartbeat("mem_mb")});
    server.post("/registry/beat/versions", &wish.to_string()).await;
    let mut client = server.plain().await;
    client.ask(r#"{"op":"SUBSCRIBE","topic":"beat","group":"g"}"#).await;
    server.post("/publish/beat", r#"{"host": "a", "mem_mb": 1}"#).await;
    let id = client.next_of("EVENT").await["event"]["id"].clone();
    let park = json!({"op": "NACK", "topic": "beat", "group": "g", "id": id, "park": true});
    client.ask(&park.to_string()).await;
    let mut next = json!({"schema": heartbeat("mem_mib"), "up": rename("mem_mb", "mem_mib")});
    next["force"] = "nobody reads it".into();
    assert_eq!(server.post("/registry/beat/versions", &next.to_string()).await.status, 201);
    let original = async |reads: &str| {
        let list = server.get(&format!("/dead-letters?reads={reads}")).await.json();
        list["dead_letters"][0].clone()
    };
    let written = json!({"host": "a", "mem_mb": 1});
    assert_eq!(original("written").await["original"]["payload"], written);
    let newest = original("latest").await;
    assert_eq!(newest["original"]["payload"], json!({"host": "a", "mem_mib": 1}), "{newest}");
    let unknown = original("9").await;
    assert_eq!(unknown["original"]["payload"], written);
    assert!(unknown["unreadable"].as_str().unwrap().contains("version 9"), "{unknown}");
}

#[tokio::test]
async fn groups_that_would_break_are_named() {
    let server = TestServer::open().await;
    let wish = json!({"schema": heartbeat("mem_mb")});
    server.post("/registry/beat/versions", &wish.to_string()).await;
    let mut client = server.plain().await;
    let subscribe = json!({"op": "SUBSCRIBE", "topic": "beat", "group": "old",
                           "opts": {"from": "earliest", "reads": 1}});
    client.say(&subscribe.to_string()).await;
    assert_eq!(client.next().await["op"], "OK");
    let mut next = json!({"schema": heartbeat("mem_mib"), "up": rename("mem_mb", "mem_mib")});
    let refused = server.post("/registry/beat/versions", &next.to_string()).await.json();
    let reader = &refused["plan"]["readers"][0];
    assert_eq!((&reader["group"], &reader["fate"]), (&"old".into(), &"breaks".into()), "{refused}");
    // By force it goes, and who did it and why is kept.
    next["force"] = "the group is gone tomorrow".into();
    assert_eq!(server.post("/registry/beat/versions", &next.to_string()).await.status, 201);
    let forced = server.get("/registry/beat").await.json()["versions"][1]["forced"].clone();
    assert_eq!(forced, "anonymous: the group is gone tomorrow");
}

#[tokio::test]
async fn policies_casters_and_ends() {
    let server = TestServer::open().await;
    let send = async |method: &str, path: &str, body: serde_json::Value| {
        server.send(method, path, &[], body.to_string().as_bytes()).await
    };
    server.post("/registry/a/versions", &json!({"schema": heartbeat("m")}).to_string()).await;
    let set = send("PUT", "/registry/a/policy", json!({"payload": "warn", "compat": "full"})).await;
    assert_eq!((set.status, &set.json()["payload"]), (200, &"warn".into()));
    assert_eq!(server.post("/publish/a", "{}").await.status, 201);
    assert_eq!(server.get("/registry/a/policy").await.json()["compat"], "full");
    let all = send("PUT", "/registry", json!({"unregistered": "refuse"})).await;
    assert_eq!(all.status, 200);
    assert_eq!(server.post("/publish/unknown", "1").await.code(), "schema_invalid");
    let next = json!({"schema": heartbeat("n"), "up": rename("m", "n"), "down": rename("n", "m")});
    assert_eq!(server.post("/registry/a/versions", &next.to_string()).await.status, 201);
    let casters = json!({"down": {"by": "operations", "operations": [
        {"op": "rename", "pointer": "/n", "to": "m"}, {"op": "remove", "pointer": "/x"}]}});
    let recast = send("PUT", "/registry/a/versions/2/casters", casters).await;
    assert_eq!(recast.status, 200, "{}", recast.body);
    assert_eq!(server.post("/registry/a/versions/1/retire", "").await.status, 200);
    assert_eq!(server.post("/registry/a/versions/2/retire", "").await.code(), "conflict");
    let gone = send("DELETE", "/registry/a/versions/1", json!({})).await;
    assert_eq!(gone.code(), "conflict", "an event of it is stored");
    assert_eq!(server.post("/registry/a/versions/1/restore", "").await.status, 200);
    assert_eq!(server.get("/registry/a/retained").await.json()["versions"]["1"]["events"], 1);
}

#[tokio::test]
async fn a_schema_from_stored_events() {
    let server = TestServer::open().await;
    assert_eq!(server.get("/registry/a/inferred").await.code(), "not_found");
    server.post("/publish/a", r#"[{"payload":{"n":1,"s":"x"}},{"payload":{"n":1.5}}]"#).await;
    let inferred = server.get("/registry/a/inferred?sample=10").await.json();
    assert_eq!(inferred["events"], 2);
    assert_eq!(inferred["schema"]["required"], json!(["n"]));
    assert_eq!(inferred["schema"]["properties"]["n"]["type"], "number");
}

#[tokio::test]
async fn who_may_see_and_who_may_change() {
    let (access, secrets) = tokens(&[&["publish:a.**"], &["subscribe:b"], &["admin:schemas"]]);
    let server = TestServer::with(access, |_| {}).await;
    let bearer = |n: usize| format!("Bearer {}", secrets[n]);
    let send = async |method: &str, path: &str, who: usize| {
        let token = bearer(who);
        let body = json!({"schema": heartbeat("m")}).to_string();
        server.send(method, path, &[("authorization", token.as_str())], body.as_bytes()).await
    };
    for topic in ["a.x", "b"] {
        let path = format!("/registry/{topic}/versions");
        assert_eq!(send("POST", &path, 0).await.code(), "forbidden");
        assert_eq!(send("POST", &path, 2).await.status, 201);
        assert_eq!(server.post(&path, "{}").await.status, 401);
    }
    for (who, sees) in [(0, vec!["a.x"]), (1, vec!["b"]), (2, vec!["a.x", "b"])] {
        let listed = send("GET", "/registry", who).await.json();
        let topics: Vec<String> = listed["topics"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["topic"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(topics, sees, "{who}");
        let subjects = send("GET", "/subjects", who).await.json();
        assert_eq!(subjects, json!(sees));
    }
    assert_eq!(send("GET", "/registry/b/versions/1", 0).await.code(), "forbidden");
    assert_eq!(send("GET", "/registry/b/versions/1", 1).await.status, 200);
    assert_eq!(send("GET", "/subjects/b/versions/1", 0).await.json()["error_code"], 40301);
    // Whoever may only write may not look into events by way of schemas.
    assert_eq!(send("GET", "/registry/a.x/inferred", 0).await.code(), "forbidden");
    for path in ["/registry/b/evolution/cutover", "/subjects/b/versions"] {
        assert_eq!(send("POST", path, 1).await.status, 403, "{path}");
    }
    assert_eq!(send("PUT", "/config", 1).await.status, 403);
}
