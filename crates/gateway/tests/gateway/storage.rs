//! Disks that are full or fail (RELIABILITY P4 and P5), by a real socket over a simulated disk.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use promethean::{Bus, BusOptions};
use promethean_gateway::{Access, Settings};
use promethean_harness::conformance::StoreFactory;
use promethean_harness::conformance::bus::FragileStore;
use promethean_harness::conformance::factory::{EmbeddedFactory, MemoryFactory};
use promethean_harness::log_simulation::{Fault, FaultKind};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use super::server::TestServer;

async fn server(factory: &EmbeddedFactory) -> TestServer {
    let store = factory.open().await.unwrap();
    let bus = Bus::with_store(Arc::clone(&store), BusOptions::default());
    TestServer::over(bus, Access::Anonymous, |_| {}).await
}

/// P5: refused with 507, nothing torn is seen, reads and acks go on, and publishing goes on by
/// itself when there is room.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk() {
    let factory = EmbeddedFactory::new(3);
    let server = server(&factory).await;
    let mut consumer = server.negotiated().await;
    let subscribe = r#"{"op":"SUBSCRIBE","topic":"a","group":"g","opts":{"from":"earliest"}}"#;
    consumer.ask(subscribe).await;
    assert_eq!(server.post("/publish/a", "0").await.status, 201);
    let delivered = consumer.next_of("EVENT").await;

    let disk = factory.disk();
    disk.set_capacity(disk.used());
    let body = format!("\"{}\"", "x".repeat(2_000));
    let mut stored = 1;
    let refused = loop {
        let answer = server.post("/publish/a", &body).await;
        if answer.status != 201 {
            break answer;
        }
        stored += 1;
        assert!(stored < 1_000, "the disk is never full");
    };
    assert_eq!((refused.status, refused.code().as_str()), (507, "no_space"));
    let mut publisher = server.negotiated().await;
    let frame = format!(r#"{{"op":"PUBLISH","topic":"a","payload":{body},"corr":1}}"#);
    let refused = publisher.ask(frame.as_str()).await;
    assert_eq!((&refused["code"], &refused["corr"]), (&"no_space".into(), &1.into()));
    // What is there is read, and nothing else; what is out is acked, in room that was kept.
    let page = server.get("/events/a?limit=1000").await.json();
    assert_eq!(page["events"].as_array().unwrap().len(), stored);
    let token = delivered["ctx"]["token"].as_str().unwrap();
    consumer.say(format!(r#"{{"op":"ACK","token":"{token}","corr":"k"}}"#)).await;
    let ok = consumer.next_of("OK").await;
    assert_eq!(ok["corr"], "k");
    assert_eq!(server.get("/readyz").await.status, 200);

    disk.set_capacity(u64::MAX);
    assert_eq!(server.post("/publish/a", &body).await.status, 201);
    assert_eq!(publisher.ask(frame).await["op"], "OK");
}

/// P4: that publish and all later ones fail, nothing of it is seen, the server says that it is not
/// ready, and what was stored before can be read.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_write_or_sync() {
    let mut failed = 0;
    for at_call in 1..12 {
        let factory = EmbeddedFactory::new(at_call);
        let server = server(&factory).await;
        assert_eq!(server.post("/publish/a", "0").await.status, 201);
        factory.disk().arm(Some(Fault { at_call, kind: FaultKind::Error }));
        let mut stored = 1;
        // A fault may hit what nobody waits for, such as a file that is prepared; then it is over.
        let refused = loop {
            let answer = server.post("/publish/a", "1").await;
            if answer.status != 201 {
                break Some(answer);
            }
            stored += 1;
            if stored > 40 {
                break None;
            }
        };
        let Some(refused) = refused else { continue };
        failed += 1;
        assert_eq!((refused.status, refused.code().as_str()), (503, "storage_failed"));
        assert_eq!(server.post("/publish/a", "2").await.code(), "storage_failed");
        let mut publisher = server.negotiated().await;
        let refused = publisher.ask(r#"{"op":"PUBLISH","topic":"a","payload":3}"#).await;
        assert_eq!(refused["code"], "storage_failed");
        let ready = server.get("/readyz").await;
        assert_eq!((ready.status, ready.body.as_str()), (503, "degraded\n"));
        assert!(server.get("/readyz?verbose").await.body.contains("storage_failed"));
        assert_eq!(server.get("/livez").await.status, 200);
        let page = server.get("/events/a?limit=1000").await.json();
        assert_eq!(page["events"].as_array().unwrap().len(), stored, "at call {at_call}");
    }
    assert!(failed > 0, "no fault was ever met");
}

/// A server over a store that fails by order.
async fn fragile() -> (Arc<FragileStore>, TestServer) {
    fragile_with(|_| {}).await
}

async fn fragile_with(change: impl FnOnce(&mut Settings)) -> (Arc<FragileStore>, TestServer) {
    let fragile = Arc::new(FragileStore::new(MemoryFactory::default().open().await.unwrap()));
    let store: Arc<dyn promethean::store::Store> = Arc::<FragileStore>::clone(&fragile);
    let bus = Bus::with_store(store, BusOptions::default());
    (fragile, TestServer::over(bus, Access::Anonymous, change).await)
}

/// A read that failed was `internal`, which no client tries again, and a tail that could not read
/// was told `read_only`: while a replica set elects a primary, every read fails.
#[tokio::test]
async fn reads_that_fail_may_be_tried_again() {
    let (store, server) = fragile().await;
    assert_eq!(server.post("/publish/a", "1").await.status, 201);
    for path in ["/events/a", "/replay?topic=a"] {
        store.fail_reads(1);
        let refused = server.get(path).await;
        assert_eq!((refused.status, refused.code().as_str()), (503, "not_ready"), "{path}");
        assert_eq!(refused.json()["retry_ms"], 1_000);
        assert!(refused.head.contains("retry-after: 1"), "{refused:?}");
        assert_eq!(server.get(path).await.status, 200);
    }
    let mut client = server.negotiated().await;
    let follow = r#"{"op":"SUBSCRIBE","topic":"a","opts":{"from":"earliest"},"corr":1}"#;
    store.fail_reads(1);
    let sub = client.ask(follow).await["sub"].clone();
    let ended = client.next_of("ERR").await;
    assert_eq!((&ended["code"], &ended["sub"]), (&"not_ready".into(), &sub), "{ended}");
    assert_eq!(ended["retry_ms"], 1_000);
    client.say(follow).await;
    assert_eq!(client.next_of("EVENT").await["event"]["payload"], 1);
}

/// Of what one connection had under way, only the number was bounded: 4,096 frames of 1 MiB each.
#[tokio::test]
async fn what_is_under_way_is_bounded_in_bytes() {
    const FRAMES: usize = 48;
    let (store, server) = fragile().await;
    assert_eq!(server.post("/publish/a", "0").await.status, 201);
    store.hold_appends(true);
    let (mut sink, mut stream) = server.plain().await.socket.split();
    let body = "x".repeat(1_000_000);
    let mut sending = tokio::spawn(async move {
        for n in 0..FRAMES {
            let frame = format!(r#"{{"op":"PUBLISH","topic":"a","payload":"{body}","corr":{n}}}"#);
            sink.send(Message::text(frame)).await.unwrap();
        }
        sink
    });
    // More than sockets keep on both sides: it is not taken while nothing is answered.
    let waited = timeout(Duration::from_secs(1), &mut sending).await;
    assert!(waited.is_err(), "all {FRAMES} MB were read");
    store.hold_appends(false);
    for n in 0..FRAMES {
        let Some(Ok(Message::Text(text))) = stream.next().await else { panic!("{n} answers") };
        let ok: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&ok["op"], &ok["corr"]), (&"OK".into(), &n.into()));
    }
    drop(sending.await.unwrap());
}

/// P16: every request has an end. With a disk that hung, a publish was never answered.
#[tokio::test]
async fn publishes_that_the_store_does_not_answer() {
    let (store, server) =
        fragile_with(|settings| settings.bounds.publish = Duration::from_millis(200)).await;
    assert_eq!(server.post("/publish/a", "0").await.status, 201);
    store.hold_appends(true);
    let id = "018c2e65-4b00-7000-8000-000000000001";
    let refused = server.post(&format!("/publish/a?id={id}"), "1").await;
    assert_eq!((refused.status, refused.code().as_str()), (504, "indeterminate"));
    let mut client = server.plain().await;
    // Those that come together, those behind them, and one whose topic has to be made first.
    let publish = |n: usize, topic: &str| {
        format!(r#"{{"op":"PUBLISH","topic":"{topic}","payload":{n},"corr":{n}}}"#)
    };
    client.say_all((0..10).map(|n| publish(n, "a"))).await;
    client.say(publish(10, "a")).await;
    client.say(publish(11, "made.now")).await;
    let mut ids = Vec::new();
    for n in 0..12 {
        let answer = client.next().await;
        let (code, corr) = (&answer["code"], &answer["corr"]);
        assert_eq!((code, corr), (&"indeterminate".into(), &n.into()), "{answer}");
        let named = answer["ids"].as_array().unwrap();
        ids.extend(named.iter().map(|id| id.as_str().unwrap().to_owned()));
    }
    let made = server.post("/publish/a", r#"[{"payload":1},{"payload":2}]"#).await.json();
    store.hold_appends(false);
    assert_eq!(client.ask(publish(12, "a")).await["op"], "OK", "the connection goes on");
    let again = server.post(&format!("/publish/a?id={id}"), "1").await;
    assert_eq!((again.status, &again.json()["duplicate"]), (200, &true.into()));
    // Ids that the server had made were not named: nobody could publish the same once more.
    let made = made["ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap());
    let published = ids.iter().map(String::as_str).zip(0..).take(11).chain(made.zip(1..));
    let mut count = 0;
    for (id, n) in published {
        let again = server.post(&format!("/publish/a?id={id}"), &format!("{n}")).await;
        assert_eq!((again.status, &again.json()["duplicate"]), (200, &true.into()), "{id}");
        count += 1;
    }
    assert_eq!(count, 13);
}

/// Publishes to topics that were not there were waited for one after the other, and nothing else of the
/// connection happened until all of them had been.
#[tokio::test]
async fn nothing_waits_for_topics_that_are_made() {
    let (store, server) =
        fragile_with(|settings| settings.bounds.ping = Duration::from_millis(100)).await;
    let mut client = server.negotiated().await;
    store.hold_appends(true);
    let publish =
        |n: usize| format!(r#"{{"op":"PUBLISH","topic":"new-{n}","payload":{n},"corr":{n}}}"#);
    client.say_all((0..5).map(publish)).await;
    for _ in 0..3 {
        let asked = timeout(Duration::from_secs(10), client.socket.next()).await.unwrap();
        assert!(matches!(asked, Some(Ok(Message::Ping(_)))), "{asked:?}");
    }
    store.hold_appends(false);
    for n in 0..5 {
        let ok = client.next().await;
        assert_eq!((&ok["op"], &ok["corr"]), (&"OK".into(), &n.into()));
    }
}

/// A group whose beginning could not be kept had its connection wait for ever, with what was to be said
/// before.
#[tokio::test]
async fn a_subscription_that_is_not_made_is_refused() {
    let (store, server) =
        fragile_with(|settings| settings.bounds.publish = Duration::from_secs(1)).await;
    assert_eq!(server.post("/publish/a", "0").await.status, 201);
    let mut client = server.negotiated().await;
    store.hold_saves(true);
    let subscribe =
        r#"{"op":"SUBSCRIBE","topic":"a","group":"g","opts":{"from":"earliest"},"corr":"s"}"#;
    let wrong = r#"{"op":"NONE","corr":"w"}"#;
    client.say_all([wrong, subscribe, wrong].map(str::to_owned)).await;
    assert_eq!(client.next().await["corr"], "w");
    let refused = client.next().await;
    assert_eq!((&refused["corr"], &refused["code"]), (&"s".into(), &"not_ready".into()));
    assert_eq!(refused["retry_ms"], 1_000);
    assert_eq!(client.next().await["corr"], "w");
    store.hold_saves(false);
    assert_eq!(client.ask(subscribe).await["op"], "OK");
    assert_eq!(client.next_of("EVENT").await["event"]["payload"], 0);
}
