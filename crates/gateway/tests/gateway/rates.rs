//! RELIABILITY 4.2, the row of rates, over a real socket.

use futures_util::SinkExt;
use promethean_gateway::quota::Rate;
use promethean_gateway::{Access, DeliveryRates, Rates};
use promethean_harness::stopwatch::Stopwatch;
use tokio_tungstenite::tungstenite::Message;

use super::server::{TestServer, tokens};

#[tokio::test]
async fn rates_refuse_with_a_time_to_wait() {
    let one = Rate::per_second(2).ok();
    let server = TestServer::with(Access::Anonymous, |settings| {
        settings.rates = Rates { connection: one, ..Rates::default() };
    })
    .await;
    let mut client = server.plain().await;
    let frame = r#"{"op":"PUBLISH","topic":"a","payload":1}"#;
    assert_eq!(client.ask(frame).await["op"], "OK");
    assert_eq!(client.ask(frame).await["op"], "OK");
    let refused = client.ask(frame).await;
    assert_eq!(refused["code"], "rate_limited");
    assert!((1..=1000).contains(&refused["retry_ms"].as_u64().unwrap()));
    let many = r#"{"op":"PUBLISH","events":[{"topic":"a","payload":1},{"topic":"a","payload":1},{"topic":"a","payload":1}]}"#;
    assert_eq!(client.ask(many).await["code"], "too_large");

    let server = TestServer::with(Access::Anonymous, |settings| {
        settings.rates = Rates { topic: Rate::new(1, 1).ok(), ..Rates::default() };
    })
    .await;
    assert_eq!(server.post("/publish/a", "1").await.status, 201);
    let refused = server.post("/publish/a", "1").await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "rate_limited"));
    assert!(refused.head.contains("retry-after: 1"));
    assert_eq!(server.post("/publish/b", "1").await.status, 201);
}

/// What `prom serve` starts with refused batches of 201 events for good, while HELLO said that a
/// thousand may come at once.
#[tokio::test]
async fn the_usual_rates_let_a_whole_batch_through() {
    let server = TestServer::with(Access::Anonymous, |settings| settings.rates = Rates::cautious());
    let server = server.await;
    let mut client = server.negotiated().await;
    let batch = vec![r#"{"topic":"a","payload":1}"#; 1_000].join(",");
    let batch = format!(r#"{{"op":"PUBLISH","events":[{batch}]}}"#);
    let stored = client.ask(batch.as_str()).await;
    assert_eq!(stored["places"].as_array().map(Vec::len), Some(1_000), "{stored}");
    let refused = client.ask(batch).await;
    assert_eq!(refused["code"], "rate_limited", "{refused}");
    assert!((1..=5_000).contains(&refused["retry_ms"].as_u64().unwrap()), "{refused}");
}

/// Pitfall 64, of a topic: what can never pass is told so, and what was refused uses up nothing of
/// what others may send.
#[tokio::test]
async fn what_is_refused_takes_nothing() {
    let (access, secrets) = tokens(&[&["publish:**"], &["publish:**"]]);
    let server = TestServer::with(access, |settings| {
        settings.rates = Rates {
            connection: Rate::per_minute(10).ok(),
            principal: Rate::per_minute(10).ok(),
            topic: Rate::per_minute(2).ok(),
            ..Rates::default()
        };
    })
    .await;
    let mut clients = Vec::new();
    for secret in &secrets {
        let mut client = server.plain().await;
        client.ask(format!(r#"{{"op":"AUTH","token":"{secret}"}}"#)).await;
        clients.push(client);
    }
    let one = r#"{"topic":"a","payload":1}"#;
    let other = r#"{"topic":"b","payload":1}"#;
    let batch = |events: &[&str]| format!(r#"{{"op":"PUBLISH","events":[{}]}}"#, events.join(","));
    for _ in 0..20 {
        let refused = clients[0].ask(batch(&[other, one, one, one])).await;
        assert_eq!(refused["code"], "too_large", "{refused}");
    }
    assert_eq!(clients[1].ask(batch(&[one])).await["op"], "OK");
    for _ in 0..20 {
        let refused = clients[0].ask(batch(&[other, one, one])).await;
        assert_eq!(refused["code"], "rate_limited", "{refused}");
    }
    // Of neither topic, nor of the sender's own, was anything taken.
    assert_eq!(clients[0].ask(batch(&[other, other, one])).await["op"], "OK");
}

/// Pitfall 49: a rate on what is delivered dropped events. They are late, in order, and all there.
#[tokio::test]
async fn rates_of_delivery_delay_and_lose_nothing() {
    let rate = Rate::new(50, 5).ok();
    for delivery in [
        DeliveryRates { connection: rate, ..DeliveryRates::default() },
        DeliveryRates { principal: rate, ..DeliveryRates::default() },
        DeliveryRates { topic: rate, ..DeliveryRates::default() },
    ] {
        let server = TestServer::with(Access::Anonymous, |settings| {
            settings.rates = Rates { delivery, ..Rates::default() };
        })
        .await;
        let events: Vec<String> = (0..40).map(|n| format!(r#"{{"payload":{n}}}"#)).collect();
        assert_eq!(server.post("/publish/a", &format!("[{}]", events.join(","))).await.status, 201);
        let tail = r#"{"op":"SUBSCRIBE","topic":"a","opts":{"from":"earliest"},"corr":1}"#;
        let group = r#"{"op":"SUBSCRIBE","topic":"a","group":"g","opts":{"from":"earliest","max_in_flight":5},"corr":1}"#;
        for subscribe in [tail, group] {
            let mut client = server.plain().await;
            let begun = Stopwatch::start();
            client.ask(subscribe).await;
            for n in 0..40 {
                let event = client.next_of("EVENT").await;
                assert_eq!(
                    (&event["event"]["payload"], &event["ctx"]["attempt"]),
                    (&n.into(), &1.into())
                );
                let id = &event["event"]["id"];
                client.say(format!(r#"{{"op":"ACK","topic":"a","group":"g","id":{id}}}"#)).await;
            }
            // A page comes at once, and the next one when it is paid for. A tail has one page here.
            let least = if subscribe == group { 500 } else { 0 };
            assert!(begun.elapsed() >= std::time::Duration::from_millis(least), "{subscribe}");
        }
    }
}

/// RELIABILITY 4.2: over all connections of a principal; and who goes on regardless has to go.
#[tokio::test]
async fn rates_of_a_principal_and_their_abuse() {
    let (access, secrets) = tokens(&[&["publish:**"], &["publish:**"]]);
    let server = TestServer::with(access, |settings| {
        settings.rates = Rates { principal: Rate::per_minute(2).ok(), ..Rates::default() };
        settings.bounds.abuse = std::time::Duration::from_millis(200);
    })
    .await;
    let mut clients = Vec::new();
    for secret in [&secrets[0], &secrets[0], &secrets[1]] {
        let mut client = server.plain().await;
        client.ask(format!(r#"{{"op":"AUTH","token":"{secret}"}}"#)).await;
        clients.push(client);
    }
    let frame = r#"{"op":"PUBLISH","topic":"a","payload":1}"#;
    assert_eq!(clients[0].ask(frame).await["op"], "OK");
    assert_eq!(clients[1].ask(frame).await["op"], "OK");
    let refused = clients[0].ask(frame).await;
    assert_eq!(refused["code"], "rate_limited");
    assert!(refused["retry_ms"].as_u64().unwrap() > 1_000);
    assert_eq!(clients[2].ask(frame).await["op"], "OK", "another principal");
    let bearer = format!("Bearer {}", secrets[0]);
    let headers = [("content-type", "application/json"), ("authorization", bearer.as_str())];
    let answer = server.send("POST", "/publish/a", &headers, b"1").await;
    assert_eq!((answer.status, answer.code().as_str()), (429, "rate_limited"));
    assert!(answer.head.contains("retry-after"));
    while clients[0].socket.send(Message::text(frame)).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(matches!(clients[0].closed().await, 1008 | 1006));
    assert_eq!(clients[1].ask(frame).await["code"], "rate_limited", "it asked only once");
}

#[tokio::test]
async fn too_many_wrong_tokens_of_one_address() {
    let (access, _) = tokens(&[&["publish:**"]]);
    let server = TestServer::with(access, |_| {}).await;
    let mut seen = Vec::new();
    for _ in 0..12 {
        let answer = server.send("GET", "/lag", &[("authorization", "Bearer x")], b"").await;
        seen.push(answer.status);
    }
    assert_eq!(seen[..10], [401; 10]);
    assert_eq!(seen[10..], [429; 2]);
}

/// Rates of a connection were only for WebSockets, and pages and exports had none at all.
#[tokio::test]
async fn rates_hold_over_http() {
    let server = TestServer::with(Access::Anonymous, |settings| {
        settings.rates = Rates { connection: Rate::per_minute(3).ok(), ..Rates::default() };
    })
    .await;
    let publish = format!(
        "POST /publish/a HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: 1\r\n",
        server.at
    );
    let (more, last) = (format!("{publish}\r\n1"), format!("{publish}connection: close\r\n\r\n1"));
    let answers = server.raw([more.repeat(3), last].concat().as_bytes()).await;
    assert_eq!(answers.status, 201, "{answers:?}");
    let statuses = answers.body.matches("HTTP/1.1 201").count();
    assert_eq!((statuses, answers.last_status()), (2, 429), "{answers:?}");
    assert!(answers.body.contains("rate_limited"), "{answers:?}");
    assert_eq!(server.post("/publish/a", "1").await.status, 201, "another connection");

    let rate = Rate::new(10, 5).ok();
    for delivery in [
        DeliveryRates { principal: rate, ..DeliveryRates::default() },
        DeliveryRates { topic: rate, ..DeliveryRates::default() },
    ] {
        let server = TestServer::with(Access::Anonymous, |settings| {
            settings.rates = Rates { delivery, ..Rates::default() };
        })
        .await;
        for _ in 0..2 {
            let some = [r#"{"payload":1}"#; 10].join(",");
            assert_eq!(server.post("/publish/a", &format!("[{some}]")).await.status, 201);
        }
        let page = server.get("/events/a?limit=20").await;
        assert_eq!(page.json()["events"].as_array().unwrap().len(), 20);
        let refused = server.get("/events/a?limit=20").await;
        assert_eq!((refused.status, refused.code().as_str()), (429, "rate_limited"));
        assert!((1..=1_500).contains(&refused.json()["retry_ms"].as_u64().unwrap()));
        let refused = server.get("/replay?topic=a&limit=1").await;
        assert_eq!((refused.status, refused.code().as_str()), (429, "rate_limited"));
        // What is paid for is given again.
        while server.get("/events/a?limit=1").await.status != 200 {}
    }
}

/// An export took as many events of a topic as it liked, whatever its rate.
#[tokio::test]
async fn rates_of_a_topic_hold_for_exports() {
    let server = TestServer::with(Access::Anonymous, |settings| {
        let topic = Rate::new(2_000, 500).ok();
        let delivery = DeliveryRates { topic, ..DeliveryRates::default() };
        settings.rates = Rates { delivery, ..Rates::default() };
    })
    .await;
    let some = [r#"{"payload":1}"#; 1_000].join(",");
    for _ in 0..3 {
        assert_eq!(server.post("/publish/a", &format!("[{some}]")).await.status, 201);
    }
    let begun = Stopwatch::start();
    let export = server.get("/export?topic=a").await.body;
    assert_eq!(export.lines().count(), 3_001);
    // The second page waits for 500 events, the third one for 1,000.
    assert!(begun.elapsed() >= std::time::Duration::from_millis(700), "{:?}", begun.elapsed());
}

/// A page of many topics ends before one of which more was delivered than may be.
#[tokio::test]
async fn a_replay_waits_for_each_of_its_topics() {
    let server = TestServer::with(Access::Anonymous, |settings| {
        let topic = Rate::per_minute(5).ok();
        let delivery = DeliveryRates { topic, ..DeliveryRates::default() };
        settings.rates = Rates { delivery, ..Rates::default() };
    })
    .await;
    let some = [r#"{"payload":1}"#; 20].join(",");
    for topic in ["a", "b", "c"] {
        assert_eq!(
            server.post(&format!("/publish/{topic}"), &format!("[{some}]")).await.status,
            201
        );
    }
    assert_eq!(server.get("/events/b").await.status, 200);
    let page = server.get("/replay?topic=*").await.json();
    assert_eq!((page["events"].as_array().unwrap().len(), &page["next"]), (20, &"b/0/0".into()));
    assert_eq!(server.get("/replay?topic=*&after=b/0/0").await.code(), "rate_limited");
    assert_eq!(server.get("/replay?topic=*&after=c/0/0").await.status, 200);
}
