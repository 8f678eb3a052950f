//! Resources for those who run a bus.

use promethean::{Delivered, Failure, Start};
use promethean_event::Event;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::server::TestServer;

#[tokio::test]
async fn topics_are_made_changed_and_removed() {
    let server = TestServer::open().await;
    let rules = r#"{"partitions":3,"retention_ms":1000,"compaction":{"tombstone_ms":5}}"#;
    let made = server.post("/topics/a.b", rules).await;
    assert_eq!(made.status, 200, "{made:?}");
    assert_eq!(made.json()["bounds"].as_array().unwrap().len(), 3);
    server.post("/publish/a.b?key=k", "1").await;
    server.post("/publish/c", "1").await;
    let listed = server.get("/topics?topic=a.*").await.json();
    let topics = listed["topics"].as_array().unwrap();
    assert_eq!(topics.len(), 1);
    assert_eq!((&topics[0]["events"], &topics[0]["retention_ms"]), (&1.into(), &1000.into()));
    assert_eq!(topics[0]["compaction"]["tombstone_ms"], 5);
    assert!(topics[0]["newest"].as_u64().is_some());

    let longer = server.post("/topics/a.b", r#"{"partitions":3,"retention_ms":2000}"#).await;
    assert_eq!(
        (&longer.json()["retention_ms"], &longer.json()["compaction"]),
        (&2000.into(), &().into())
    );
    let other = server.post("/topics/a.b", r#"{"partitions":4}"#).await;
    assert_eq!(
        (other.status, other.code().as_str()),
        (409, "conflict"),
        "keys stay where they are"
    );
    for wrong in [r#"{"partitions":0}"#, r#"{"retention_ms":0}"#, r#"{"retention":1}"#, "1"] {
        assert_eq!(server.post("/topics/x", wrong).await.status, 400, "{wrong}");
    }
    assert_eq!(server.send("DELETE", "/topics/a.b", &[], b"").await.status, 200);
    assert_eq!(server.send("DELETE", "/topics/a.b", &[], b"").await.code(), "not_found");
    assert_eq!(server.get("/topics").await.json()["topics"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn groups_are_made_shown_and_removed() {
    let server = TestServer::open().await;
    server.post("/publish/a", "1").await;
    let wish = r#"{"settings":{"topics":["a"],"max_attempts":3},"from":"earliest"}"#;
    let made = server.post("/groups/g", wish).await;
    assert_eq!(made.status, 200, "{made:?}");
    let shown = server.get("/groups/g").await.json();
    assert_eq!((&shown["settings"]["max_attempts"], &shown["events"]), (&3.into(), &1.into()));
    assert_eq!(shown["members"], 0);
    let other = r#"{"settings":{"topics":["a"],"max_attempts":7}}"#;
    assert_eq!(server.post("/groups/g", other).await.status, 200, "nobody is in the way");
    assert_eq!(server.get("/groups/g").await.json()["settings"]["max_attempts"], 7);
    assert_eq!(server.get("/groups/g").await.json()["events"], 1, "its place stays");
    let member = server.bus.subscribe_to(["a"], "g").max_attempts(7).stream().await.unwrap();
    assert_eq!(server.post("/groups/g", wish).await.code(), "conflict");
    assert_eq!(server.send("DELETE", "/groups/g", &[], b"").await.code(), "conflict");
    drop(member);
    assert_eq!(server.post("/groups/none", r#"{"settings":{"topics":[]}}"#).await.status, 400);
    let misspelt = r#"{"settings":{"topics":["a"],"max_atempts":3}}"#;
    let refused = server.post("/groups/none", misspelt).await;
    assert_eq!(refused.code(), "bad_request");
    assert!(refused.body.contains("max_atempts") && refused.body.contains("max_attempts"));
    assert_eq!(server.get("/groups/none").await.code(), "not_found");
}

#[tokio::test]
async fn an_event_is_found_by_its_id_in_every_topic_that_has_it() {
    let server = TestServer::open().await;
    let id = "018c2e65-4b00-7000-8000-000000000001";
    for topic in ["a", "b"] {
        assert_eq!(
            server.post(&format!("/publish/{topic}?id={id}"), r#"{"n":1.0}"#).await.status,
            201
        );
    }
    let found = server.get(&format!("/event/{id}")).await;
    assert_eq!(found.json()["events"].as_array().unwrap().len(), 2);
    assert!(found.body.contains(r#""payload":{"n":1.0}"#));
    let found = server.get(&format!("/event/{id}?topic=b")).await.json();
    assert_eq!(found["events"][0]["topic"], "b");
    let other = "018c2e65-4b00-7000-8000-000000000002";
    assert_eq!(server.get(&format!("/event/{other}")).await.code(), "not_found");
}

/// Reads a stream until a text is in it.
async fn hear(stream: &mut tokio::net::TcpStream, until: &str) -> String {
    let mut heard = Vec::new();
    let mut piece = [0; 4096];
    while !String::from_utf8_lossy(&heard).contains(until) {
        let read = stream.read(&mut piece).await.unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&heard));
        heard.extend_from_slice(&piece[..read]);
    }
    String::from_utf8_lossy(&heard).into_owned()
}

/// A stream says at once where it is, so that also one that was cut off before its first event
/// misses nothing, and a topic that is made meanwhile is not missed either.
#[tokio::test]
async fn many_topics_are_followed_and_resumed() {
    let server = TestServer::open().await;
    server.post("/publish/a.x", "0").await;
    let open = async |more: &str| {
        let mut stream = tokio::net::TcpStream::connect(server.at).await.unwrap();
        let head = format!(
            "GET /events?topic=a.*,b HTTP/1.1\r\nhost: {}\r\naccept: text/event-stream\r\n{more}\r\n",
            server.at
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    };
    let mut stream = open("").await;
    let begin = hear(&mut stream, "id: a.x/0/1\n").await;
    assert!(!begin.contains("data:"), "{begin}");
    drop(stream);
    for (topic, payload) in [("a.x", "1"), ("a.y", "2"), ("b", "3"), ("c", "4")] {
        server.post(&format!("/publish/{topic}"), payload).await;
    }
    let mut stream = open("last-event-id: a.x/0/1\r\n").await;
    let mut heard = hear(&mut stream, "\"payload\":1").await;
    for wanted in ["\"payload\":2", "\"payload\":3"] {
        if !heard.contains(wanted) {
            heard.push_str(&hear(&mut stream, wanted).await);
        }
    }
    assert!(!heard.contains("\"payload\":0") && !heard.contains("\"payload\":4"), "{heard}");
    let page = server.get("/events?topic=a.*").await;
    assert_eq!(page.code(), "bad_request", "a page is asked of /replay");
    let wrong = [("accept", "text/event-stream"), ("last-event-id", "x")];
    assert_eq!(server.send("GET", "/events?topic=a", &wrong, b"").await.status, 400);
}

#[tokio::test]
async fn a_dead_letter_is_mended_and_reaches_its_group_only() {
    let server = TestServer::open().await;
    let (told, mut seen) = tokio::sync::mpsc::channel::<(String, String)>(16);
    let mut consumers = Vec::new();
    for group in ["careful", "careless"] {
        let told = told.clone();
        let handle = move |delivered: Delivered<Event>| {
            let told = told.clone();
            async move {
                let payload = delivered.event().payload.as_str().to_owned();
                let refused = group == "careful" && payload == "\"bad\"";
                let _ = told.send((group.to_owned(), payload)).await;
                if refused { Err(Failure::park("bad")) } else { Ok(()) }
            }
        };
        let wish = server.bus.subscribe_to(["a"], group).from(Start::Earliest);
        consumers.push(wish.handle(handle).await.unwrap());
    }
    server.post("/publish/a?key=k", "\"bad\"").await;
    for _ in 0..2 {
        seen.recv().await.unwrap();
    }
    server.bus.caught_up(&"careful".parse().unwrap()).await.unwrap();
    let list = server.get("/dead-letters").await;
    assert_eq!(list.body.matches("\"offset\"").count(), 2, "of the letter and of the event in it");
    let id = list.json()["dead_letters"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(
        server.get(&format!("/dead-letters?id={id}")).await.json()["dead_letters"][0]["id"],
        id
    );
    // Headers as anybody may give them: others got into the log by this.
    for header in ["authorization", "cookie", "host"] {
        let wish = format!(r#"{{"event":{{"payload":"good","headers":{{"{header}":"x"}}}}}}"#);
        let refused = server.post(&format!("/dead-letters/{id}/replay"), &wish).await;
        assert_eq!((refused.status, refused.code().as_str()), (400, "invalid_event"), "{header}");
    }
    let wish =
        r#"{"event":{"payload":"good","key":"k","headers":{"x-source-offset":"7","x-by":"me"}}}"#;
    let replayed = server.post(&format!("/dead-letters/{id}/replay"), wish).await;
    assert_eq!(replayed.status, 200, "{replayed:?}");
    let page = server.get("/events/a").await.json();
    let headers = &page["events"][1]["headers"];
    assert_eq!((&headers["x-by"], &headers["x-source-offset"]), (&"me".into(), &().into()));
    assert_eq!(seen.recv().await.unwrap(), ("careful".into(), "\"good\"".into()));
    for group in ["careful", "careless"] {
        server.bus.caught_up(&group.parse().unwrap()).await.unwrap();
    }
    assert!(seen.try_recv().is_err(), "the other group has not failed, and gets nothing");
    let replayed = server.get("/dead-letters?state=replayed").await.json();
    assert_eq!(replayed["dead_letters"][0]["id"], id);
    assert_eq!(server.get("/dead-letters?state=lost").await.status, 400);
}
