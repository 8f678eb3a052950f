//! RELIABILITY 4.2 over a real socket: what is too large, too slow or not a protocol at all.

use std::time::Duration;

use futures_util::SinkExt;
use promethean_gateway::Access;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::protocol::Message;

use super::server::TestServer;

#[tokio::test]
async fn requests_beyond_their_limits() {
    let server = TestServer::open().await;
    let long = "x".repeat(5_000);
    assert_eq!(server.get(&format!("/lag?group={long}")).await.status, 414);
    let head = "x".repeat(17_000);
    assert_eq!(server.send("GET", "/livez", &[("x-long", &head)], b"").await.status, 431);
    let names: Vec<String> = (0..80).map(|n| format!("x-{n}")).collect();
    let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
    assert_eq!(server.send("GET", "/livez", &many, b"").await.status, 431);
    let json = [("content-type", "application/json")];
    let large = format!("\"{}\"", "x".repeat(1024 * 1024));
    let answer = server.send("POST", "/publish/a", &json, large.as_bytes()).await;
    assert_eq!(answer.code(), "too_large");
    // Said, not sent: refused before anything is read.
    let head = format!(
        "POST /publish/a HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 99999999999\r\n\r\n",
        server.at
    );
    assert_eq!(server.raw(head.as_bytes()).await.status, 413);
    let zipped = [("content-type", "application/json"), ("content-encoding", "gzip")];
    assert_eq!(server.send("POST", "/publish/a", &zipped, b"1").await.status, 415);
    let form = [("content-type", "application/x-www-form-urlencoded")];
    assert_eq!(server.send("POST", "/publish/a", &form, b"a=1").await.status, 415);
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(70), "]".repeat(70));
    assert_eq!(server.post("/publish/a", &deep).await.code(), "too_complex");
    let headers: Vec<(String, String)> =
        (0..33).map(|n| (format!("x-h{n}"), "v".to_owned())).collect();
    let mut headers: Vec<(&str, &str)> =
        headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    headers.push(("content-type", "application/json"));
    assert_eq!(server.send("POST", "/publish/a", &headers, b"1").await.code(), "invalid_event");
}

/// Names that want to be something else.
#[tokio::test]
async fn crafted_names() {
    let server = TestServer::open().await;
    for name in [
        "A",
        "a%20b",
        "a%00",
        "..%2f..%2fetc",
        "a%3A%3Ab",
        "%D0%B0",
        "a..b",
        ".",
        "$groups",
        "*",
        "a.**",
        &"a".repeat(300),
    ] {
        let answer = server.post(&format!("/publish/{name}"), "1").await;
        assert!(matches!(answer.status, 400 | 403), "{name}: {answer:?}");
        answer.code();
    }
    assert_eq!(server.post("/publish/a/b", "1").await.code(), "not_found");
    assert_eq!(server.send("PUT", "/publish/a", &[], b"").await.code(), "method_not_allowed");
    assert_eq!(server.get("/replay?topic=a&limit=0").await.status, 400);
    assert_eq!(server.get("/replay?topic=a&limit=1001").await.status, 400);
    assert_eq!(server.get("/replay?topic=a&limit=x").await.status, 400);
    assert_eq!(server.get("/replay?topic=a&topic=b").await.status, 400);
    assert_eq!(server.get("/replay?topik=a").await.status, 400);
}

#[tokio::test]
async fn request_smuggling() {
    let server = TestServer::open().await;
    let host = format!("host: {}\r\n", server.at);
    let publish = "POST /publish/a HTTP/1.1\r\n";
    for head in [
        format!("{publish}{host}content-length: 1\r\ncontent-length: 2\r\n\r\n1"),
        format!("{publish}{host}content-length: 1\r\ntransfer-encoding: xchunked\r\n\r\n1"),
        format!("{publish}{host}transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
        format!("GET /livez HTTP/1.1\r\n{host}x-a: b\r\n folded\r\n\r\n"),
        format!("GET /livez HTTP/1.1\r\n{host}x-a : b\r\n\r\n"),
        format!("GET /livez HTTP/1.1\r\n{host}x-a: b\0c\r\n\r\n"),
        "GET /livez HTTP/9.9\r\n\r\n".to_owned(),
        "NONSENSE\r\n\r\n".to_owned(),
    ] {
        let answer = server.raw(head.as_bytes()).await;
        assert!(matches!(answer.status, 400 | 0 | 415), "{head:?}: {answer:?}");
    }
    assert_eq!(server.get("/ops/partitions").await.json()["partitions"], serde_json::json!([]));
}

/// hyper's own timer is off without a Timer: a client that sends a head byte by byte stays.
#[tokio::test]
async fn slow_heads_and_bodies() {
    let server = TestServer::with(Access::Anonymous, |settings| {
        settings.bounds.head = Duration::from_millis(100);
        settings.bounds.body_idle = Duration::from_millis(100);
    })
    .await;
    let mut silent = TcpStream::connect(server.at).await.unwrap();
    let mut half = TcpStream::connect(server.at).await.unwrap();
    half.write_all(b"GET /livez HTTP/1.1\r\nhost: lo").await.unwrap();
    for stream in [&mut silent, &mut half] {
        let mut heard = Vec::new();
        // Ends because the server closes, whatever it says.
        let _ = stream.read_to_end(&mut heard).await;
    }
    let head = format!(
        "POST /publish/a HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n1",
        server.at
    );
    let answer = server.raw(head.as_bytes()).await;
    assert_eq!((answer.status, answer.code().as_str()), (408, "slow_request"));
}

/// Each byte comes in time, and the whole does not.
#[tokio::test]
async fn a_body_that_never_ends() {
    let server = TestServer::with(Access::Anonymous, |settings| {
        settings.bounds.body_idle = Duration::from_secs(20);
        settings.bounds.body = Duration::from_millis(300);
    })
    .await;
    let stream = TcpStream::connect(server.at).await.unwrap();
    let (mut reading, mut writing) = stream.into_split();
    let head = format!(
        "POST /publish/a HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n1",
        server.at
    );
    writing.write_all(head.as_bytes()).await.unwrap();
    let drip = tokio::spawn(async move { while writing.write_all(b"1").await.is_ok() {} });
    let mut heard = Vec::new();
    let _ = reading.read_to_end(&mut heard).await;
    drip.abort();
    let heard = String::from_utf8_lossy(&heard);
    assert!(heard.starts_with("HTTP/1.1 408") && heard.contains("slow_request"), "{heard}");
    assert_eq!(server.get("/ops/partitions").await.json()["partitions"], serde_json::json!([]));
}

/// A message of empty pieces would have no end, and no size.
#[tokio::test]
async fn messages_in_too_many_pieces() {
    let server = TestServer::open().await;
    let upgrade = format!(
        "GET /ws HTTP/1.1\r\nhost: {}\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        server.at
    );
    for (pieces, code) in [(64usize, 1000u16), (65, 1008), (10_000, 1008)] {
        let mut bytes = upgrade.clone().into_bytes();
        bytes.extend(b"\x01\x81\0\0\0\0{");
        bytes.extend(b"\x00\x80\0\0\0\0".repeat(pieces - 2));
        bytes.extend(b"\x80\x81\0\0\0\0}");
        // A goodbye, which is answered if it is got to.
        bytes.extend(b"\x88\x82\0\0\0\0\x03\xe8");
        let mut stream = TcpStream::connect(server.at).await.unwrap();
        let _ = stream.write_all(&bytes).await;
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard).await;
        let close = heard.windows(2).rposition(|head| head[0] == 0x88).unwrap();
        let got = u16::from_be_bytes([heard[close + 2], heard[close + 3]]);
        assert_eq!(got, code, "{pieces} pieces: {heard:?}");
    }
    assert_eq!(server.get("/livez").await.status, 200);
}

#[tokio::test]
async fn frames_that_are_none() {
    let server = TestServer::open().await;
    let mut binary = server.plain().await;
    binary.socket.send(Message::binary(vec![1, 2])).await.unwrap();
    assert_eq!(binary.closed().await, 1003);

    let mut large = server.plain().await;
    let text = format!(r#"{{"op":"PUBLISH","topic":"a","payload":"{}"}}"#, "x".repeat(1024 * 1024));
    let _ = large.socket.send(Message::text(text)).await;
    assert_eq!(large.closed().await, 1009);

    let mut nonsense = server.plain().await;
    for _ in 0..5 {
        nonsense.say("{").await;
    }
    for _ in 0..5 {
        assert_eq!(nonsense.next().await["code"], "bad_request");
    }
    assert_eq!(nonsense.closed().await, 1008);
}

/// Bytes after the upgrade, as no library would send them.
#[tokio::test]
async fn broken_websockets() {
    let server = TestServer::open().await;
    let upgrade = format!(
        "GET /ws HTTP/1.1\r\nhost: {}\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        server.at
    );
    for (what, frame, code) in [
        ("unmasked", &b"\x81\x02hi"[..], 1002u16),
        ("reserved opcode", b"\x83\x80\0\0\0\0", 1002),
        ("reserved bit", b"\xc1\x80\0\0\0\0", 1002),
        ("not UTF-8", b"\x81\x82\0\0\0\0\xff\xfe", 1007),
        // NATS CVE-2026-27889: a length that overflows.
        ("1 GiB", b"\x81\xff\0\0\0\0\x40\0\0\0\0\0\0\0", 1009),
        ("2^63", b"\x81\xff\x80\0\0\0\0\0\0\0\0\0\0\0", 1009),
        ("fragmented ping", b"\x09\x80\0\0\0\0", 1002),
    ] {
        let mut stream = TcpStream::connect(server.at).await.unwrap();
        stream.write_all(&[upgrade.as_bytes(), frame].concat()).await.unwrap();
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard).await;
        let end = heard.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
        let close = &heard[end..];
        assert!(close.starts_with(b"\x88"), "{what}: {close:?}");
        assert_eq!(u16::from_be_bytes([close[2], close[3]]), code, "{what}");
    }
    // The process lives.
    assert_eq!(server.get("/livez").await.status, 200);
    assert_eq!(server.get("/ws").await.status, 404);
    let old = [("connection", "upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "8")];
    assert_eq!(server.send("GET", "/ws", &old, b"").await.status, 400);
    // Compression is not negotiated, whatever is offered (NATS CVE-2026-27571).
    let offered = server.connect(&[("sec-websocket-extensions", "permessage-deflate")]).await;
    assert!(offered.is_ok());
}

#[tokio::test]
async fn a_client_that_says_nothing_is_closed() {
    let server = TestServer::with(Access::Anonymous, |settings| {
        settings.bounds.idle = Duration::from_millis(100);
        settings.bounds.ping = Duration::from_secs(60);
    })
    .await;
    assert_eq!(server.plain().await.closed().await, 1001);
}

/// A client that publishes without ever reading is bounded, and goes.
#[tokio::test]
async fn a_client_that_does_not_read_is_closed() {
    let server = TestServer::with(Access::Anonymous, |settings| {
        settings.bounds.outbox_bytes = 64 * 1024;
        settings.bounds.stalled = Duration::from_millis(300);
    })
    .await;
    let mut client = server.plain().await;
    client.ask(r#"{"op":"SUBSCRIBE","topic":"a","group":"g"}"#).await;
    let frame = format!(r#"{{"op":"PUBLISH","topic":"a","payload":"{}"}}"#, "x".repeat(60_000));
    // Until the server has closed the connection: what it would have had to keep has no end.
    let mut sent = 0u64;
    while client.socket.send(Message::text(frame.clone())).await.is_ok() {
        sent += 1;
        assert!(sent < 100_000, "it was never closed");
    }
    // What it did not take is still there for others.
    let mut other = server.plain().await;
    other.ask(r#"{"op":"SUBSCRIBE","topic":"a","group":"g"}"#).await;
    other.next_of("EVENT").await;
}

#[tokio::test]
async fn connections_are_bounded() {
    let server =
        TestServer::with(Access::Anonymous, |settings| settings.bounds.connections = 2).await;
    let (_one, _two) = (server.plain().await, server.plain().await);
    let answer = server.get("/livez").await;
    assert_eq!(answer.status, 503);
    assert!(answer.head.contains("retry-after"));
}
