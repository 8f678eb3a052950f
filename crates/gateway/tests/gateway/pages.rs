//! Answers that are bounded in bytes, and places to begin at.

use std::sync::Arc;

use promethean::store::Durability;
use promethean_gateway::Access;
use promethean_gateway::access::TokenTable;
use promethean_harness::conformance::StoreFactory;
use promethean_harness::conformance::bus::FragileStore;
use promethean_harness::conformance::factory::MemoryFactory;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::server::TestServer;

/// A thousand events are a thousand mebibytes at worst: an answer has a few of them, and says where
/// to go on. An export, which has all of them, is made of such answers.
#[tokio::test]
async fn large_events_come_a_few_at_a_time() {
    const EVENTS: usize = 24;
    let server = TestServer::open().await;
    let body = format!("\"{}\"", "x".repeat(1_000_000));
    for n in 0..EVENTS {
        let path = format!("/publish/a?key=k{n:02}");
        assert_eq!(server.post(&path, &body).await.status, 201);
    }
    for path in ["/events/a?limit=1000", "/replay?topic=a&limit=1000"] {
        let mut seen = Vec::new();
        let mut after = String::new();
        loop {
            let answer = server.get(&format!("{path}{after}")).await;
            assert!(answer.body.len() < 11_000_000, "{} bytes at once", answer.body.len());
            let page = answer.json();
            let events = page["events"].as_array().unwrap();
            seen.extend(events.iter().map(|event| event["offset"].as_u64().unwrap()));
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
        assert!(seen.iter().copied().eq(0..EVENTS as u64), "{seen:?}");
    }
    let mut keys: Vec<String> = Vec::new();
    loop {
        let after = keys.last().map(|key| format!("&after={key}")).unwrap_or_default();
        let answer = server.get(&format!("/keys/a?limit=1000{after}")).await;
        assert!(answer.body.len() < 17_000_000, "{} bytes at once", answer.body.len());
        let page = answer.json();
        let events = page["events"].as_array().unwrap();
        keys.extend(events.iter().map(|event| event["key"].as_str().unwrap().to_owned()));
        if page["more"] == false {
            break;
        }
    }
    assert_eq!(keys.len(), EVENTS);
    assert!(keys.is_sorted());
    let export = server.get("/export?topic=a").await;
    let lines: Vec<&str> = export.body.lines().collect();
    assert_eq!((lines.len(), lines[EVENTS]), (EVENTS + 1, r#"{"end":{"complete":true}}"#));
}

/// So it is with what is found by key.
#[tokio::test]
async fn large_events_of_keys_come_a_few_at_a_time() {
    const KEYS: usize = 24;
    let server = TestServer::open().await;
    let body = format!("\"{}\"", "x".repeat(1_000_000));
    // Small ones first, so that no more is known of the rest than that it may be large.
    for n in 0..KEYS {
        let payload = if n < 4 { "1" } else { &body };
        let of_key = server.post(&format!("/publish/a?key=k{n:02}"), payload).await;
        let of_one = server.post("/publish/a?key=one", &body).await;
        assert_eq!((of_key.status, of_one.status), (201, 201));
    }
    let mut left: Vec<String> = (0..KEYS).map(|n| format!("k{n:02}")).collect();
    left.push("never".to_owned());
    let mut seen = Vec::new();
    let mut answers = 0;
    while !left.is_empty() {
        let keys = left.iter().map(|key| format!("&key={key}")).collect::<String>();
        let answer = server.get(&format!("/latest-by-key?topic=a{keys}")).await;
        assert!(answer.body.len() < 17_000_000, "{} bytes at once", answer.body.len());
        let page = answer.json();
        seen.extend(page["events"].as_object().unwrap().clone());
        let rest = page.get("left").map(|left| left.as_array().unwrap().clone());
        let rest = rest.into_iter().flatten().map(|key| key.as_str().unwrap().to_owned());
        left = rest.collect();
        answers += 1;
    }
    assert!(answers > 1);
    let wanted = (0..KEYS).map(|n| format!("k{n:02}")).chain(["never".to_owned()]);
    assert!(seen.iter().map(|(key, _)| key.clone()).eq(wanted), "each once, in order");
    assert!(seen.iter().all(|(key, event)| event.is_null() == (key == "never")));

    let answer = server.get("/history/a?key=one&limit=1000").await;
    assert!(answer.body.len() < 11_000_000, "{} bytes at once", answer.body.len());
    let offsets = |page: &Value| -> Vec<u64> {
        let events = page["events"].as_array().unwrap();
        events.iter().map(|event| event["offset"].as_u64().unwrap()).collect()
    };
    let page = answer.json();
    let found = offsets(&page);
    assert_eq!((found[0], &page["more"]), (2 * KEYS as u64 - 1, &true.into()));
    assert!(found.len() >= 8 && found.is_sorted_by(|newer, older| *newer == older + 2));
    let few = server.get("/history/a?key=one&limit=2").await.json();
    assert_eq!((offsets(&few).len(), &few["more"]), (2, &false.into()), "as many as were wanted");
    for _ in 0..100 {
        assert_eq!(server.post("/publish/a?key=small", "1").await.status, 201);
    }
    let small = server.get("/history/a?key=small&limit=1000").await.json();
    assert_eq!((offsets(&small).len(), &small["more"]), (100, &false.into()));
}

#[tokio::test]
async fn large_dead_letters_come_a_few_at_a_time() {
    const LETTERS: usize = 24;
    let server = TestServer::open().await;
    let mut client = server.plain().await;
    client.ask(r#"{"op":"SUBSCRIBE","topic":"a","group":"g"}"#).await;
    let body = format!("\"{}\"", "x".repeat(900_000));
    for _ in 0..LETTERS {
        let id = publish(&server, "a", &body).await;
        client.next_of("EVENT").await;
        let park = format!(
            r#"{{"op":"NACK","topic":"a","group":"g","id":"{id}","reason":"no","park":true,"corr":1}}"#
        );
        assert_eq!(client.ask(park).await["op"], "OK");
    }
    let mut seen = Vec::new();
    let mut after = String::new();
    loop {
        let answer = server.get(&format!("/dead-letters?limit=1000{after}")).await;
        assert!(answer.body.len() < 11_000_000, "{} bytes at once", answer.body.len());
        let page = answer.json();
        let letters = page["dead_letters"].as_array().unwrap();
        seen.extend(letters.iter().map(|letter| letter["offset"].as_u64().unwrap()));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert!(seen.iter().copied().eq(0..LETTERS as u64), "{seen:?}");
}

async fn publish(server: &TestServer, topic: &str, payload: &str) -> String {
    let answer = server.post(&format!("/publish/{topic}"), payload).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()["id"].as_str().unwrap().to_owned()
}

/// A tail that begins after an event that is not there began at the end, and said nothing about what
/// it left out; and so it did in every other topic of a pattern, wherever the event was.
#[tokio::test]
async fn a_tail_begins_after_an_event_in_all_its_topics_or_not_at_all() {
    let server = TestServer::open().await;
    publish(&server, "a.x", "0").await;
    let id = publish(&server, "a.x", "2").await;
    publish(&server, "a.y", "3").await;
    publish(&server, "a.x", "4").await;

    let mut client = server.negotiated().await;
    let subscribe = |id: &str| {
        format!(
            r#"{{"op":"SUBSCRIBE","topic":"a.*","opts":{{"from":"after_id","after_id":"{id}"}},"corr":1}}"#
        )
    };
    assert_eq!(client.ask(subscribe(&id)).await["op"], "OK");
    let mut seen = Vec::new();
    for _ in 0..2 {
        seen.push(client.next_of("EVENT").await["event"]["payload"].as_u64().unwrap());
    }
    seen.sort_unstable();
    assert_eq!(seen, [3, 4]);

    let unknown = "018c2e65-4b00-7000-8000-000000000001";
    let mut stranger = server.negotiated().await;
    let refused = stranger.ask(subscribe(unknown)).await;
    assert_eq!((&refused["op"], &refused["code"]), (&"ERR".into(), &"not_found".into()));
    let accept = [("accept", "text/event-stream")];
    for path in ["/events/a.x", "/events"] {
        let path =
            format!("{path}?from={unknown}{}", if path == "/events" { "&topic=a.*" } else { "" });
        let refused = server.send("GET", &path, &accept, b"").await;
        assert_eq!((refused.status, refused.code().as_str()), (404, "not_found"), "{path}");
    }
    let mut stream = tokio::net::TcpStream::connect(server.at).await.unwrap();
    let head = format!(
        "GET /events?topic=a.*&from={id} HTTP/1.1\r\nhost: {}\r\naccept: text/event-stream\r\n\r\n",
        server.at
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut heard = Vec::new();
    let has = |heard: &[u8], text: &str| String::from_utf8_lossy(heard).contains(text);
    while !has(&heard, "\"payload\":3") || !has(&heard, "\"payload\":4") {
        assert_ne!(stream.read_buf(&mut heard).await.unwrap(), 0);
    }
    assert!(!has(&heard, "\"payload\":2"), "{}", String::from_utf8_lossy(&heard));
}

/// Who may not read a topic does not learn either whether it has an event.
#[tokio::test]
async fn a_place_to_begin_at_tells_nothing_about_others() {
    let (access, secrets) = super::server::tokens(&[&["publish:**"], &["subscribe:a"]]);
    let server = TestServer::with(access, |_| {}).await;
    let bearer = |n: usize| format!("Bearer {}", secrets[n]);
    let send = async |method: &str, path: &str, n: usize| {
        let token = bearer(n);
        let headers = [
            ("content-type", "application/json"),
            ("accept", "text/event-stream"),
            ("authorization", token.as_str()),
        ];
        server.send(method, path, &headers, b"1").await
    };
    let id = send("POST", "/publish/secret", 0).await.json()["id"].as_str().unwrap().to_owned();
    send("POST", "/publish/a", 0).await;
    assert_eq!(send("GET", &format!("/events/a?from={id}"), 1).await.code(), "not_found");
}

/// RELIABILITY P1: what is less than durable says so.
#[tokio::test]
async fn weaker_durability_is_named_in_the_answer() {
    let server = TestServer::with(Access::Anonymous, |settings| {
        settings.durabilities.insert("quick".parse().unwrap(), Durability::Written);
        settings.durabilities.insert("careless".parse().unwrap(), Durability::None);
    })
    .await;
    let said = async |path: &str, body: &str| -> Value { server.post(path, body).await.json() };
    assert_eq!(said("/publish/quick", "1").await["durability"], "written");
    assert_eq!(said("/publish/careless", "1").await["durability"], "none");
    let many = said("/publish/quick", r#"[{"payload":1},{"payload":2}]"#).await;
    assert_eq!(many["events"][1]["durability"], "written");
    assert!(said("/publish/usual", "1").await.get("durability").is_none());

    let one = |topic: &str| format!(r#"{{"op":"PUBLISH","topic":"{topic}","payload":1,"corr":1}}"#);
    let both = |a: &str, b: &str| {
        format!(
            r#"{{"op":"PUBLISH","events":[{{"topic":"{a}","payload":1}},{{"topic":"{b}","payload":1}}],"corr":1}}"#
        )
    };
    for mut client in [server.plain().await, server.negotiated().await] {
        // The strongest that one of its topics asks for holds for a batch.
        let cases = [
            (one("quick"), Some("written")),
            (one("careless"), Some("none")),
            (one("usual"), None),
            (both("careless", "careless"), Some("none")),
            (both("careless", "quick"), Some("written")),
            (both("careless", "usual"), None),
        ];
        for (publish, wanted) in cases {
            let answer = client.ask(&publish).await;
            assert_eq!(answer["op"], "OK", "{publish}");
            assert_eq!(answer.get("durability").and_then(Value::as_str), wanted, "{publish}");
        }
    }
}

/// An event of which a filter takes more than it may was passed over: by a group for good, its cursor with
/// it, and nobody knew.
#[tokio::test]
async fn what_a_filter_cannot_decide_about_is_not_lost() {
    let server = TestServer::open().await;
    let body = |text: &str| format!(r#"{{"a":"{text}"}}"#);
    let large = "x".repeat(20_000);
    for text in ["x", &large, "y", "x"] {
        publish(&server, "large", &body(text)).await;
    }
    let mut client = server.negotiated().await;
    let opts = r#"{"from":"earliest","filter":"payload.a == 'x'","batch":true}"#;
    let offsets = |frame: &Value| -> Vec<u64> {
        let events = frame["events"].as_array().unwrap();
        events.iter().map(|one| one["event"]["offset"].as_u64().unwrap()).collect()
    };
    client
        .ask(format!(r#"{{"op":"SUBSCRIBE","topic":"large","group":"g","opts":{opts},"corr":1}}"#))
        .await;
    let mut got = Vec::new();
    while got.len() < 3 {
        got.extend(offsets(&client.next_of("EVENTS").await));
    }
    assert_eq!(got, [0, 1, 3], "one too many rather than one too few");

    // Where it is comes in its place: who goes on behind it has had what was before it.
    let mut client = server.negotiated().await;
    client.ask(format!(r#"{{"op":"SUBSCRIBE","topic":"large","opts":{opts},"corr":1}}"#)).await;
    assert_eq!(offsets(&client.next().await), [0]);
    let gap = client.next().await;
    assert_eq!((&gap["op"], &gap["reason"]), (&"GAP".into(), &"more than a filter takes".into()));
    assert_eq!((&gap["from"], &gap["to"]), (&1.into(), &2.into()));
    assert_eq!(offsets(&client.next().await), [3]);

    let query = "filter=payload.a%3D%3D%27x%27";
    let page = server.get(&format!("/events/large?{query}")).await.json();
    let found = page["events"].as_array().unwrap();
    assert_eq!((&found[0]["offset"], &found[1]["offset"]), (&0.into(), &3.into()));
    let told = &page["unreadable"][0];
    assert_eq!((&told["offset"], &told["reason"]), (&1.into(), &"more than a filter takes".into()));
    let export = server.get(&format!("/export?topic=large&{query}")).await.body;
    assert!(export.contains(r#"{"unreadable":{"id""#), "{export}");
    let metrics = server.get("/metrics").await.body;
    assert!(metrics.contains(r#"filter_undecided_total{topic="large",group="g"} 1"#), "{metrics}");
    assert!(metrics.contains(r#"filter_undecided_total{topic="large",group=""} 3"#), "{metrics}");
}

/// The beginning of an export of much more than is on its way at once.
async fn begun_export(server: &TestServer, more: &str) -> tokio::net::TcpStream {
    let mut stream = tokio::net::TcpStream::connect(server.at).await.unwrap();
    let head = format!(
        "GET /export?topic=a HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n{more}\r\n",
        server.at
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.read_exact(&mut [0; 1]).await.unwrap();
    stream
}

/// The last line of an export.
async fn last_line(mut stream: tokio::net::TcpStream) -> Value {
    let mut heard = Vec::new();
    stream.read_to_end(&mut heard).await.unwrap();
    let heard = String::from_utf8_lossy(&heard);
    let last = heard.lines().rev().find(|line| line.starts_with('{')).unwrap();
    serde_json::from_str::<Value>(last).unwrap_or_else(|_| panic!("{} bytes", last.len()))
}

/// What is not all of it says so, and why. One that the server stopped under was cut off.
#[tokio::test]
async fn an_export_that_is_cut_short_says_so() {
    let fragile = FragileStore::new(MemoryFactory::default().open().await.unwrap());
    let fragile = Arc::new(fragile);
    let store: Arc<dyn promethean::store::Store> = Arc::<FragileStore>::clone(&fragile);
    let bus = promethean::Bus::with_store(store, promethean::BusOptions::default());
    let server = TestServer::over(bus.clone(), Access::Anonymous, |_| {}).await;
    let body = format!("\"{}\"", "x".repeat(1_000_000));
    for _ in 0..32 {
        publish(&server, "a", &body).await;
    }
    let cut = |code: &str| serde_json::json!({ "end": { "complete": false, "code": code } });
    let export = begun_export(&server, "").await;
    fragile.fail_reads(1);
    assert_eq!(last_line(export).await, cut("not_ready"));
    let export = begun_export(&server, "").await;
    server.handle.stop();
    assert_eq!(last_line(export).await, cut("going_away"));
    server.running.await.unwrap();

    let (access, secrets) = super::server::tokens(&[&["subscribe:**"]]);
    let server = TestServer::over(bus, access, |_| {}).await;
    let bearer = format!("authorization: Bearer {}\r\n", secrets[0]);
    let export = begun_export(&server, &bearer).await;
    server.handle.install_tokens(TokenTable::default());
    assert_eq!(last_line(export).await, cut("token_expired"));
}

/// A page as CloudEvents is an array: it could not say that there is more, or that something is left
/// out, and said neither.
#[tokio::test]
async fn a_page_of_cloud_events_says_where_it_goes_on_and_what_is_missing() {
    let server = TestServer::open().await;
    let large = "x".repeat(20_000);
    for text in ["x", "y", &large, "x", "x"] {
        publish(&server, "a", &format!(r#"{{"a":"{text}"}}"#)).await;
    }
    let accept = [("accept", "application/cloudevents-batch+json")];
    let mut path = "/events/a?limit=1&filter=payload.a+%3D%3D+%27x%27".to_owned();
    let (mut seen, mut missing) = (Vec::new(), Vec::new());
    loop {
        let answer = server.send("GET", &path, &accept, b"").await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        let batch = answer.json();
        let sequences = batch.as_array().unwrap().iter().map(|one| one["sequence"].clone());
        seen.extend(sequences);
        let said = |name: &str| answer.head.lines().find_map(|line| line.strip_prefix(name));
        missing.extend(said("x-missing: ").map(str::to_owned));
        match said("link: <").map(|link| link.strip_suffix(">; rel=\"next\"").unwrap()) {
            Some(next) => path = next.to_owned(),
            None => break,
        }
    }
    let sequence = |offset: u64| Value::from(format!("00000-{offset:020}"));
    assert_eq!(seen, [sequence(0), sequence(3), sequence(4)]);
    assert_eq!(missing, ["0/2-3 unreadable"]);
}

/// Events that cannot be read were named without a bound: only those that can be were counted.
#[tokio::test]
async fn what_a_page_has_not_is_bounded_too() {
    let server = TestServer::open().await;
    let values = vec!["1"; 1_001].join(",");
    let batch = vec![format!(r#"{{"payload":{{"a":[{values}]}}}}"#); 800].join(",");
    for _ in 0..3 {
        assert_eq!(server.post("/publish/much", &format!("[{batch}]")).await.status, 201);
    }
    let ask = "/events/much?limit=700&filter=payload.a%3D%3D%27x%27";
    let (mut named, mut next) = (Vec::new(), serde_json::Value::Null);
    for pages in 1.. {
        let after = next.as_str().map(|next| format!("&after={next}")).unwrap_or_default();
        let page = server.get(&format!("{ask}{after}")).await.json();
        let unreadable = page["unreadable"].as_array().cloned().unwrap_or_default();
        assert!(unreadable.len() <= 1_700, "{}", unreadable.len());
        named.extend(unreadable.iter().map(|one| one["offset"].as_u64().unwrap()));
        next = page["next"].clone();
        if next.is_null() {
            assert!(pages > 1);
            break;
        }
    }
    assert!(named.into_iter().eq(0..2_400), "each once");
}
