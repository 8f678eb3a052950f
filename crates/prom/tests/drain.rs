//! SIGTERM to the real server while clients are at work.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use promethean_harness::stopwatch::Stopwatch;
use serde_json::Value;
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use super::server::Server;

type Socket =
    tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>>;

async fn connect(server: &Server) -> Socket {
    let mut request = format!("ws://{}/ws", server.at).into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", "prom.v1".parse().unwrap());
    connect_async(request).await.unwrap().0
}

async fn say(socket: &mut Socket, frame: impl Into<String>) {
    socket.send(Message::text(frame.into())).await.unwrap();
}

/// The next frame; none after the last, with the code that closed the connection.
async fn next(socket: &mut Socket) -> Result<Value, u16> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text).unwrap()),
            Some(Ok(Message::Close(close))) => return Err(close.map_or(1005, |c| c.code.into())),
            Some(Ok(_)) => {}
            _ => return Err(1006),
        }
    }
}

async fn next_of(socket: &mut Socket, op: &str) -> Value {
    loop {
        let frame = next(socket).await.unwrap();
        if frame["op"] == op {
            return frame;
        }
    }
}

/// RELIABILITY P35: what is under way is answered, leases go back, exit 0 within 10 s.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_asked_to_stop_finishes() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let arguments = [
        "serve",
        "--insecure-no-auth",
        "--no-rate-limits",
        "--listen",
        "127.0.0.1:0",
        "--data",
        data.to_str().unwrap(),
    ];
    let server = Server::start(&arguments);
    let mut consumer = connect(&server).await;
    let subscribe = r#"{"op":"SUBSCRIBE","topic":"a","group":"g","opts":{"from":"earliest"}}"#;
    say(&mut consumer, subscribe).await;
    next_of(&mut consumer, "OK").await;
    let mut publisher = connect(&server).await;
    next_of(&mut publisher, "HELLO").await;
    const SENT: u64 = 300;
    for n in 0..SENT {
        let frame = format!(r#"{{"op":"PUBLISH","topic":"a","payload":{n},"corr":{n}}}"#);
        publisher.feed(Message::text(frame)).await.unwrap();
    }
    publisher.flush().await.unwrap();
    let first = next_of(&mut consumer, "EVENT").await;
    assert_eq!(first["ctx"]["attempt"], 1);

    let begun = Stopwatch::start();
    let stopping = tokio::task::spawn_blocking(move || server.stop());
    // Each publish is answered; those that came too late are refused, not forgotten. A refusal
    // takes no time, and may overtake answers that wait for the disk.
    let (mut stored, mut refused) = (0_u64, Vec::new());
    let code = loop {
        match next(&mut publisher).await {
            Ok(frame) if frame["op"] == "DRAIN" => {}
            Ok(frame) => {
                if frame["op"] == "OK" {
                    assert_eq!(frame["corr"], stored, "{frame}");
                    stored += 1;
                } else {
                    assert_eq!(frame["code"], "going_away", "{frame}");
                    refused.push(frame["corr"].as_u64().unwrap());
                }
            }
            Err(code) => break code,
        }
    };
    assert_eq!(code, 1012);
    assert!(stored > 0);
    assert!(refused.iter().copied().eq(stored..stored + refused.len() as u64), "{refused:?}");
    next_of(&mut consumer, "DRAIN").await;
    // The consumer does nothing more: it is closed in time all the same.
    while next(&mut consumer).await.is_ok() {}
    assert_eq!(stopping.await.unwrap(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());

    // What was answered is there, and what was out comes again at once, to whoever asks.
    let server = Server::start(&arguments);
    let mut consumer = connect(&server).await;
    say(&mut consumer, subscribe).await;
    let again = next_of(&mut consumer, "EVENT").await;
    assert_eq!((&again["event"]["offset"], &again["ctx"]["attempt"]), (&0.into(), &2.into()));
    let mut seen = 1;
    while seen < stored {
        let event = next_of(&mut consumer, "EVENT").await;
        assert_eq!(event["event"]["offset"], seen);
        seen += 1;
    }
    assert_eq!(tokio::task::spawn_blocking(move || server.stop()).await.unwrap(), Some(0));
}
