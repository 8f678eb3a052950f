//! HTTP resources.

use super::server::TestServer;

#[tokio::test]
async fn publishing_in_all_forms() {
    let server = TestServer::open().await;
    let one = server.post("/publish/a?key=k", r#"{"z":1.50}"#).await;
    assert_eq!(one.status, 201);
    assert_eq!((&one.json()["offset"], &one.json()["partition"]), (&0.into(), &0.into()));
    let list = server.post("/publish/a", r#"[{"payload":1},{"payload":null,"key":"k"}]"#).await;
    assert_eq!(list.json()["events"].as_array().unwrap().len(), 2);
    let lines = [("content-type", "application/x-ndjson")];
    let answer =
        server.send("POST", "/publish/a", &lines, b"{\"payload\":2}\n{\"payload\":3}\n").await;
    assert_eq!(answer.json()["events"][1]["offset"], 4);
    let cloud = [("content-type", "application/cloudevents+json")];
    let body = br#"{"specversion":"1.0","id":"c1","source":"/s","type":"a","data":{"n":1}}"#;
    assert_eq!(server.send("POST", "/publish/a", &cloud, body).await.status, 201);
    assert_eq!(server.send("POST", "/publish/a", &cloud, body).await.status, 200);
    let page = server.get("/events/a").await;
    assert!(page.body.contains(r#""payload":{"z":1.50}"#), "{}", page.body);
    let accept = [("accept", "application/cloudevents-batch+json")];
    let batch = server.send("GET", "/events/a", &accept, b"").await.json();
    assert_eq!((&batch[5]["id"], &batch[5]["source"]), (&"c1".into(), &"/s".into()));
    let latest = server.get("/latest-by-key?topic=a&key=k&key=none").await.json();
    assert!(latest["events"]["k"].is_null() && latest["events"]["none"].is_null());
}

#[tokio::test]
async fn keys_and_the_past_of_one() {
    let server = TestServer::open().await;
    for (key, payload) in [("a1", "1"), ("b", "2"), ("a2", "3"), ("a1", "4"), ("a2", "null")] {
        assert_eq!(server.post(&format!("/publish/t?key={key}"), payload).await.status, 201);
    }
    let shown = |page: &serde_json::Value| -> Vec<(String, String)> {
        let events = page["events"].as_array().unwrap().iter();
        events.map(|e| (e["key"].as_str().unwrap().into(), e["payload"].to_string())).collect()
    };
    let is = |key: &str, payload: &str| (key.to_owned(), payload.to_owned());
    let all = server.get("/keys/t").await.json();
    assert_eq!(shown(&all), [is("a1", "4"), is("a2", "null"), is("b", "2")]);
    assert_eq!(all["more"], false);
    let first = server.get("/keys/t?prefix=a&limit=1").await.json();
    assert_eq!((shown(&first), &first["more"]), (vec![is("a1", "4")], &true.into()));
    let second = server.get("/keys/t?prefix=a&limit=1&after=a1").await.json();
    assert_eq!(shown(&second), [is("a2", "null")]);
    let past = server.get("/history/t?key=a1").await.json();
    assert_eq!(shown(&past), [is("a1", "4"), is("a1", "1")]);
    assert_eq!(shown(&server.get("/history/t?key=a1&limit=1").await.json()).len(), 1);
    assert_eq!(server.get("/history/t?key=none").await.json()["events"], serde_json::json!([]));
    for wrong in ["/keys/t?limit=0", "/keys/t?after=", "/history/t", "/history/t?key=", "/keys/T"] {
        assert_eq!(server.get(wrong).await.status, 400, "{wrong}");
    }
    assert_eq!(server.get("/keys/none").await.code(), "not_found");
}

#[tokio::test]
async fn idempotency() {
    let server = TestServer::open().await;
    let headers = [("content-type", "application/json"), ("idempotency-key", "order-7")];
    let first = server.send("POST", "/publish/a", &headers, b"1").await;
    let again = server.send("POST", "/publish/a", &headers, b"1").await;
    assert_eq!((first.status, again.status), (201, 200));
    assert_eq!(first.json()["id"], again.json()["id"]);
    assert_eq!(again.json()["duplicate"], true);
    let other = server.send("POST", "/publish/a", &headers, b"2").await;
    assert_eq!((other.status, other.code().as_str()), (409, "id_conflict"));
}

/// Pitfall 72: paging by time lost a quarter of the events.
#[tokio::test]
async fn replay_and_export_miss_nothing() {
    let server = TestServer::open().await;
    let list: Vec<String> =
        (0..1000).map(|n| format!(r#"{{"payload":{{"n":{n}}},"ts":7}}"#)).collect();
    for topic in ["a.x", "a.y"] {
        let body = format!("[{}]", list.join(","));
        assert_eq!(server.post(&format!("/publish/{topic}"), &body).await.status, 201);
    }
    let mut seen = Vec::new();
    let mut after = String::new();
    loop {
        let page = server.get(&format!("/replay?topic=a.*&limit=333{after}")).await.json();
        for event in page["events"].as_array().unwrap() {
            seen.push((
                event["topic"].as_str().unwrap().to_owned(),
                event["offset"].as_u64().unwrap(),
            ));
        }
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen.len(), 2000);
    assert!(seen.is_sorted());

    let export = server.get("/export?topic=a.*&filter=payload.n%20%3E%3D%20990").await;
    let lines: Vec<&str> = export.body.lines().collect();
    assert_eq!(lines.len(), 21, "{}", export.body);
    assert_eq!(lines[20], r#"{"end":{"complete":true}}"#);
    let rest = server.get("/export?topic=a.*&after=a.y/0/998").await;
    assert_eq!(rest.body.lines().count(), 3);
    assert_eq!(server.get("/replay?topic=a.*&filter=nope").await.code(), "invalid_filter");
    assert_eq!(server.get("/replay?topic=none").await.code(), "not_found");
    assert_eq!(server.get("/replay").await.status, 400);
}

#[tokio::test]
async fn groups_lag_and_seek() {
    let server = TestServer::open().await;
    let mut client = server.plain().await;
    client.ask(r#"{"op":"SUBSCRIBE","topic":"a","group":"g"}"#).await;
    for n in 0..3 {
        client.say(format!(r#"{{"op":"PUBLISH","topic":"a","payload":{n}}}"#)).await;
        let id = client.next_of("EVENT").await["event"]["id"].as_str().unwrap().to_owned();
        client
            .say(format!(r#"{{"op":"ACK","topic":"a","group":"g","id":"{id}","corr":"k"}}"#))
            .await;
        while client.next_of("OK").await["corr"] != "k" {}
    }
    let cursors = server.get("/cursors?group=g").await.json();
    assert_eq!(cursors["cursors"][0]["next"], 3);
    assert_eq!(server.get("/lag?group=g").await.json()["groups"][0]["events"], 0);
    for to in [r#"{"ts":1}"#, r#"{"ts":"1h ago"}"#, r#"{"ts":"yesterday 00:00"}"#] {
        let body = format!(r#"{{"to":{to}}}"#);
        let moved = server.post("/groups/g/seek", &body).await.json();
        assert_eq!(moved["moves"][0]["to"], 0, "{to}: {moved}");
    }
    let soon = server.post("/groups/g/seek", r#"{"to":{"ts":"soon"}}"#).await;
    assert_eq!(soon.code(), "bad_request");
    let plan = server.post("/groups/g/seek", r#"{"to":"earliest"}"#).await.json();
    assert_eq!((&plan["applied"], &plan["moves"][0]["again"]), (&false.into(), &3.into()));
    assert_eq!(server.get("/cursors?group=g").await.json()["cursors"][0]["next"], 3);
    let done = server.post("/groups/g/seek", r#"{"to":"earliest","apply":true}"#).await.json();
    assert_eq!(done["applied"], true);
    assert_eq!(client.next_of("EVENT").await["event"]["payload"], 0);
    for body in ["{}", "nonsense", r#"{"to":"x"}"#, r#"{"to":"latest","more":1}"#] {
        assert_eq!(server.post("/groups/g/seek", body).await.code(), "bad_request", "{body}");
    }
    assert_eq!(server.get("/cursors?group=none").await.code(), "not_found");
    let partitions = server.get("/ops/partitions").await.json();
    assert_eq!(partitions["partitions"][0]["next"], 3);
}

#[tokio::test]
async fn dead_letters() {
    let server = TestServer::open().await;
    let mut client = server.plain().await;
    client.ask(r#"{"op":"SUBSCRIBE","topic":"a","group":"g"}"#).await;
    client.say(r#"{"op":"PUBLISH","topic":"a","payload":{"n":1}}"#).await;
    let id = client.next_of("EVENT").await["event"]["id"].as_str().unwrap().to_owned();
    let park = format!(
        r#"{{"op":"NACK","topic":"a","group":"g","id":"{id}","reason":"bad n","park":true,"corr":"p"}}"#
    );
    client.say(park).await;
    while client.next_of("OK").await["corr"] != "p" {}
    let list = server.get("/dead-letters?group=g").await.json();
    let letter = &list["dead_letters"][0];
    assert_eq!((&letter["err"], &letter["reason"]), (&"bad n".into(), &"permanent".into()));
    assert_eq!(letter["original"]["payload"]["n"], 1);
    let letter = letter["id"].as_str().unwrap();
    let replay = server.post(&format!("/dead-letters/{letter}/replay"), "").await;
    assert_eq!(replay.json()["replayed"], 1, "{replay:?}");
    assert_eq!(client.next_of("EVENT").await["event"]["payload"]["n"], 1);
    assert_eq!(server.post(&format!("/dead-letters/{letter}/replay"), "").await.status, 409);
    assert_eq!(server.post(&format!("/dead-letters/{id}/discard"), "").await.code(), "not_found");
}

/// A listing that has no room for all says where to go on.
#[tokio::test]
async fn dead_letters_come_page_by_page_and_by_kind() {
    let server = TestServer::open().await;
    let mut client = server.plain().await;
    client.ask(r#"{"op":"SUBSCRIBE","topic":"a","group":"g"}"#).await;
    for (n, reason) in ["bad n", "no key", "bad n"].into_iter().enumerate() {
        client.say(format!(r#"{{"op":"PUBLISH","topic":"a","payload":{n}}}"#)).await;
        let id = client.next_of("EVENT").await["event"]["id"].as_str().unwrap().to_owned();
        let park = format!(
            r#"{{"op":"NACK","topic":"a","group":"g","id":"{id}","reason":"{reason}","park":true,"corr":"p"}}"#
        );
        client.say(park).await;
        while client.next_of("OK").await["corr"] != "p" {}
    }
    let numbers = |page: &serde_json::Value| -> Vec<u64> {
        let letters = page["dead_letters"].as_array().unwrap();
        letters.iter().map(|letter| letter["original"]["payload"].as_u64().unwrap()).collect()
    };
    let first = server.get("/dead-letters?limit=2").await.json();
    assert_eq!(numbers(&first), [0, 1]);
    let next = first["next"].as_str().unwrap();
    let rest = server.get(&format!("/dead-letters?limit=2&after={next}")).await.json();
    assert_eq!(numbers(&rest), [2]);
    assert!(rest["next"].is_null(), "that is all");
    let kind = first["dead_letters"][0]["fingerprint"].as_str().unwrap();
    for fingerprint in [kind, &kind[..8]] {
        let path = format!("/dead-letters?fingerprint={fingerprint}");
        assert_eq!(numbers(&server.get(&path).await.json()), [0, 2], "{fingerprint}");
    }
    assert_eq!(server.get("/dead-letters?after=nothing").await.status, 400);
}

#[tokio::test]
async fn metrics_and_description() {
    let server = TestServer::open().await;
    let mut client = server.plain().await;
    client.ask(r#"{"op":"SUBSCRIBE","topic":"a","group":"g"}"#).await;
    server.post("/publish/a", "1").await;
    client.next_of("EVENT").await;
    let text = server.get("/metrics").await.body;
    for line in [
        "events_published_total{topic=\"a\"} 1",
        "events_delivered_total{topic=\"a\",group=\"g\"} 1",
        "group_lag_events{topic=\"a\",group=\"g\"} 1",
        "ws_connections 1",
        "publish_duration_seconds_count 1",
        "promethean_events_delivered_total{topic=\"a\",group=\"g\"} 1",
        "# TYPE promethean_dead_letters_total counter",
        "# TYPE promethean_leases_expired_total counter",
        "# TYPE promethean_poll_duration_seconds histogram",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let mut described: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let count = described.len();
    described.sort_unstable();
    described.dedup();
    assert_eq!(described.len(), count, "each is described once: {text}");
    let document = server.get("/openapi.json").await.json();
    assert_eq!(document["openapi"], "3.1.0");
    assert!(document["paths"]["/publish/{topic}"]["post"].is_object());
    let answer = server.get("/nowhere").await;
    assert_eq!(answer.code(), "not_found");
    assert!(answer.head.contains("x-content-type-options: nosniff"));
}
