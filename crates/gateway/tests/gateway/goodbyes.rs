//! What a client said before its Close is answered, and then the Close.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use promethean::{Bus, BusOptions};
use promethean_gateway::Access;
use promethean_harness::conformance::StoreFactory;
use promethean_harness::conformance::bus::FragileStore;
use promethean_harness::conformance::factory::{EmbeddedFactory, MemoryFactory};
use serde_json::Value;
use tokio_tungstenite::tungstenite::protocol::Message;
use tokio_tungstenite::tungstenite::protocol::frame::CloseFrame;

use super::server::{Client, TestServer};

/// A goodbye of a code of its own, so that the answer to it is known.
fn goodbye() -> Message {
    Message::Close(Some(CloseFrame { code: 4321.into(), reason: "done".into() }))
}

/// Says all of it in one go, and then goodbye.
async fn say_and_leave(client: &mut Client, texts: impl IntoIterator<Item = String>) {
    for text in texts {
        client.socket.feed(Message::text(text)).await.unwrap();
    }
    client.socket.feed(goodbye()).await.unwrap();
    client.socket.flush().await.unwrap();
}

/// All that comes until the connection ends, and the code that it ends with.
async fn heard(client: &mut Client) -> (Vec<Value>, Option<u16>) {
    let (mut frames, mut code) = (Vec::new(), None);
    while let Some(Ok(message)) = client.socket.next().await {
        match message {
            Message::Text(text) => frames.push(serde_json::from_str(&text).unwrap()),
            Message::Close(close) => code = close.map(|close| close.code.into()),
            _ => {}
        }
    }
    (frames, code)
}

fn publish(n: usize) -> String {
    format!(r#"{{"op":"PUBLISH","topic":"a","payload":{n},"corr":{n}}}"#)
}

#[tokio::test]
async fn publishes_before_a_close_are_answered() {
    let disk = EmbeddedFactory::new(7).open().await.unwrap();
    for bus in [Bus::memory(), Bus::with_store(disk, BusOptions::default())] {
        let server = TestServer::over(bus, Access::Anonymous, |_| {}).await;
        // One, more than are heard at once, and more than may be under way.
        for count in [1, 200, 5_000] {
            let mut client = server.negotiated().await;
            say_and_leave(&mut client, (0..count).map(publish)).await;
            let (frames, code) = heard(&mut client).await;
            assert_eq!(code, Some(4321));
            let oks: Vec<&Value> = frames.iter().filter(|frame| frame["op"] == "OK").collect();
            assert_eq!((frames.len(), oks.len()), (count, count));
            assert!(oks.iter().enumerate().all(|(n, ok)| ok["corr"] == n), "not in their order");
        }
    }
}

/// What is refused is said, too; the connection ends as the client wanted it.
#[tokio::test]
async fn refusals_before_a_close_are_said() {
    let server = TestServer::open().await;
    let mut client = server.plain().await;
    let wrong = r#"{"op":"PUBLISH","topic":"NO","payload":1,"corr":"w"}"#.to_owned();
    say_and_leave(&mut client, [publish(0), wrong, publish(1)]).await;
    let (frames, code) = heard(&mut client).await;
    assert_eq!(code, Some(4321));
    let mut corrs: Vec<(&str, &Value)> =
        frames.iter().map(|frame| (frame["op"].as_str().unwrap(), &frame["corr"])).collect();
    corrs.sort_by_key(|(op, corr)| (*op, corr.to_string()));
    assert_eq!(corrs, [("ERR", &"w".into()), ("OK", &0.into()), ("OK", &1.into())]);
}

/// A client with an event out, whose acks cannot be kept.
async fn with_a_lease(farewell: Duration) -> (Arc<FragileStore>, TestServer, Client, String) {
    let fragile = Arc::new(FragileStore::new(MemoryFactory::default().open().await.unwrap()));
    let store: Arc<dyn promethean::store::Store> = Arc::<FragileStore>::clone(&fragile);
    let bus = Bus::with_store(store, BusOptions::default());
    let server = TestServer::over(bus, Access::Anonymous, |settings| {
        settings.bounds.farewell = farewell;
    })
    .await;
    let mut client = server.negotiated().await;
    let subscribe = r#"{"op":"SUBSCRIBE","topic":"a","group":"g","opts":{"from":"earliest"}}"#;
    client.ask(subscribe).await;
    assert_eq!(server.post("/publish/a", "1").await.status, 201);
    let event = client.next_of("EVENT").await;
    let token = event["ctx"]["token"].as_str().unwrap();
    fragile.hold_saves(true);
    let ack = format!(r#"{{"op":"ACK","token":"{token}","corr":"k"}}"#);
    (fragile, server, client, ack)
}

/// An answer that takes its time is waited for; nothing is delivered any more meanwhile.
#[tokio::test]
async fn a_close_waits_for_an_answer() {
    let (store, server, mut client, ack) = with_a_lease(Duration::from_secs(600)).await;
    say_and_leave(&mut client, [ack, publish(1)]).await;
    assert_eq!(client.next_of("OK").await["corr"], 1, "the publish does not wait for the ack");
    store.hold_saves(false);
    let (frames, code) = heard(&mut client).await;
    assert_eq!(code, Some(4321));
    let told: Vec<(&Value, &Value)> =
        frames.iter().map(|frame| (&frame["op"], &frame["corr"])).collect();
    assert_eq!(told, [(&"OK".into(), &"k".into())]);
    drop(server);
}

/// One that never comes is not: the connection ends.
#[tokio::test]
async fn a_close_does_not_wait_for_ever() {
    let (store, server, mut client, ack) = with_a_lease(Duration::from_millis(50)).await;
    say_and_leave(&mut client, [ack]).await;
    let (frames, code) = heard(&mut client).await;
    assert_eq!((frames.len(), code), (0, Some(4321)));
    store.hold_saves(false);
    drop(server);
}

/// A Close whose end does not come, or that is none, holds up nobody else and ends.
#[tokio::test]
async fn a_close_that_is_none() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = TestServer::with(Access::Anonymous, |settings| {
        settings.bounds.idle = Duration::from_millis(300);
    })
    .await;
    let upgrade = format!(
        "GET /ws HTTP/1.1\r\nhost: {}\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        server.at
    );
    for (what, bytes, code) in [
        ("one byte of it", &b"\x88"[..], 1001u16),
        ("half of it", b"\x88\x82\0\0\0\0\x03", 1001),
        ("in pieces", b"\x08\x82\0\0\0\0\x03\xe8", 1002),
        ("unmasked", b"\x88\x02\x03\xe8", 1002),
    ] {
        let mut stream = tokio::net::TcpStream::connect(server.at).await.unwrap();
        stream.write_all(&[upgrade.as_bytes(), bytes].concat()).await.unwrap();
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard).await;
        let end = heard.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
        let close = &heard[end..];
        assert!(close.starts_with(b"\x88"), "{what}: {close:?}");
        assert_eq!(u16::from_be_bytes([close[2], close[3]]), code, "{what}");
    }
}
