//! Connections: how many there may be, how long they may say or take nothing, and how it is told.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use promethean_gateway::Access;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::protocol::Message;

use super::server::{Answer, TestServer};

#[tokio::test]
async fn a_client_that_says_nothing_is_closed() {
    let server = TestServer::with(Access::Anonymous, |settings| {
        settings.bounds.idle = Duration::from_millis(100);
        settings.bounds.ping = Duration::from_secs(60);
    })
    .await;
    assert_eq!(server.plain().await.closed().await, 1001);
}

/// RELIABILITY 4.2: a client is asked whether it lives, and one that does nothing else than say so stays.
#[tokio::test]
async fn a_client_that_only_answers_pings_stays() {
    let server = TestServer::with(Access::Anonymous, |settings| {
        settings.bounds.idle = Duration::from_secs(1);
        settings.bounds.ping = Duration::from_millis(100);
    })
    .await;
    let mut client = server.plain().await;
    // For as long as three silent ones would have had. The library answers by itself.
    for _ in 0..30 {
        let heard = timeout(Duration::from_secs(20), client.socket.next()).await.unwrap();
        assert!(matches!(heard, Some(Ok(Message::Ping(_)))), "{heard:?}");
    }
    assert_eq!(client.ask(r#"{"op":"PUBLISH","topic":"a","payload":1}"#).await["op"], "OK");
}

/// The reason by which a client is closed that does not keep up, as it is on the wire.
#[tokio::test]
async fn a_slow_consumer_is_told_that_it_is() {
    let server = TestServer::with(Access::Anonymous, |settings| {
        settings.bounds.outbox_bytes = 64 * 1024;
    })
    .await;
    let body = format!("\"{}\"", "x".repeat(200_000));
    assert_eq!(server.post("/publish/a", &body).await.status, 201);
    let mut client = server.negotiated().await;
    client.say(r#"{"op":"SUBSCRIBE","topic":"a","group":"g","opts":{"from":"earliest"}}"#).await;
    let close = loop {
        match timeout(Duration::from_secs(20), client.socket.next()).await.unwrap() {
            Some(Ok(Message::Close(close))) => break close.unwrap(),
            Some(Ok(_)) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((u16::from(close.code), close.reason.as_str()), (1008, "slow_consumer"));
    while refusals(&server, "slow_consumer").await != 1 {}
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

/// What is counted of a code.
pub(crate) async fn refusals(server: &TestServer, code: &str) -> u64 {
    let metrics = server.get("/metrics").await.body;
    let name = format!("refusals_total{{code=\"{code}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(name.as_str()));
    line.map_or(0, |count| count.parse().unwrap())
}

/// A credential that was not accepted counted twice over HTTP, and three times by a frame.
#[tokio::test]
async fn what_is_refused_is_counted_once() {
    let (access, secrets) = super::server::tokens(&[&["admin:ops.read", "publish:**"]]);
    let server = TestServer::with(access, |settings| {
        settings.bounds.auth = Duration::from_millis(100);
    })
    .await;
    let bearer = format!("Bearer {}", secrets[0]);
    let counted = async || {
        let answer =
            server.send("GET", "/metrics", &[("authorization", bearer.as_str())], b"").await;
        let lines = answer.body.lines().filter_map(|line| line.strip_prefix("refusals_total{"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(counted().await, Vec::<String>::new());
    let wrong = [("authorization", "Bearer x")];
    assert_eq!(server.send("GET", "/lag", &wrong, b"").await.status, 401);
    assert_eq!(counted().await, ["code=\"unauthorized\"} 1"]);
    let mut client = server.plain().await;
    assert_eq!(client.ask(r#"{"op":"AUTH","token":"x"}"#).await["code"], "unauthorized");
    assert_eq!(client.closed().await, 3000);
    assert_eq!(counted().await, ["code=\"unauthorized\"} 2"]);
    // Something else before AUTH, and nothing at all.
    let mut client = server.plain().await;
    client.say(r#"{"op":"PUBLISH","topic":"a","payload":1}"#).await;
    assert_eq!(client.closed().await, 3000);
    assert_eq!(counted().await, ["code=\"unauthorized\"} 3"]);
    assert_eq!(server.plain().await.closed().await, 3000);
    assert_eq!(counted().await, ["code=\"unauthorized\"} 4"]);
    // A refusal that closes nothing, and a Close that says it itself.
    let mut client = server.plain().await;
    client.ask(format!(r#"{{"op":"AUTH","token":"{}"}}"#, secrets[0])).await;
    assert_eq!(client.ask(r#"{"op":"SUBSCRIBE","topic":"a","group":"g"}"#).await["op"], "ERR");
    client.socket.send(Message::binary(vec![1])).await.unwrap();
    assert_eq!(client.closed().await, 1003);
    let all = ["code=\"binary_frame\"} 1", "code=\"forbidden\"} 1", "code=\"unauthorized\"} 4"];
    assert_eq!(counted().await, all);
}

/// How many connections the server has, without the one that asks.
async fn open_connections(server: &TestServer) -> u64 {
    let metrics = server.get("/metrics").await.body;
    let line = metrics.lines().find_map(|line| line.strip_prefix("connections "));
    line.unwrap_or_else(|| panic!("{metrics}")).parse::<u64>().unwrap() - 1
}

/// The same over HTTP: who asks for much and takes nothing does not stay.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_nobody_takes_is_broken_off() {
    let server = TestServer::with(Access::Anonymous, |settings| {
        settings.bounds.stalled = Duration::from_millis(300);
    })
    .await;
    let body = format!("\"{}\"", "x".repeat(1_000_000));
    // More than sockets keep on both sides.
    for _ in 0..24 {
        assert_eq!(server.post("/publish/a", &body).await.status, 201);
    }
    let mut greedy = TcpStream::connect(server.at).await.unwrap();
    let ask = format!("GET /export?topic=a HTTP/1.1\r\nhost: {}\r\n\r\n", server.at);
    greedy.write_all(ask.as_bytes()).await.unwrap();
    let mut first = [0; 1];
    greedy.read_exact(&mut first).await.unwrap();
    while open_connections(&server).await > 0 {}
    let mut heard = Vec::new();
    let _ = greedy.read_to_end(&mut heard).await;
    assert!(!String::from_utf8_lossy(&heard).contains("\"complete\""), "it is not the whole");
    // Who reads gets all of it.
    assert!(server.get("/export?topic=a").await.body.contains(r#"{"end":{"complete":true}}"#));
}

/// RELIABILITY 4.2: a hundred connections of one address, unless it is of this machine.
#[tokio::test]
async fn connections_of_an_address_are_bounded() {
    let Some(outside) = super::server::own_address() else {
        return;
    };
    let server = TestServer::with(Access::Anonymous, |settings| {
        settings.bounds.connections_per_ip = 2;
        settings.listen = vec!["0.0.0.0:0".parse().unwrap()];
        settings.waived = promethean_gateway::Waived { auth: true, tls: true };
    })
    .await;
    let (one, _two) = (server.plain_from(outside).await, server.plain_from(outside).await);
    let ask = format!("GET /livez HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", server.at);
    let answer = server.raw_from(outside, ask.as_bytes()).await;
    assert_eq!((answer.status, answer.code().as_str()), (429, "limit"));
    assert!(answer.head.contains("retry-after"), "{answer:?}");
    assert_eq!(server.get("/livez").await.status, 200, "others are let in");
    drop(one);
    while server.raw_from(outside, ask.as_bytes()).await.status != 200 {}
}

/// Slowloris on the other listener: who does not finish its handshake is closed.
#[tokio::test]
async fn handshakes_that_do_not_end() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let files = promethean_gateway::TlsFiles {
        certificate: folder.path().join("cert.pem"),
        key: folder.path().join("key.pem"),
    };
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let only_mine = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&files.key, only_mine).unwrap();
    }
    let server = TestServer::with(Access::Anonymous, |settings| {
        settings.tls = Some(files);
        settings.bounds.handshake = Duration::from_millis(200);
        settings.bounds.connections = 2;
    })
    .await;
    // Nothing at all, and the beginning of a record that says it is long.
    for begun in [&b""[..], b"\x16\x03\x01\x02\x00\x01"] {
        let mut stream = TcpStream::connect(server.at).await.unwrap();
        stream.write_all(begun).await.unwrap();
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard).await;
        assert!(heard.is_empty(), "{heard:?}");
    }
    // Who is turned away hears no plain text, at once.
    let (_one, _two) = (
        TcpStream::connect(server.at).await.unwrap(),
        TcpStream::connect(server.at).await.unwrap(),
    );
    let mut third = TcpStream::connect(server.at).await.unwrap();
    let mut heard = Vec::new();
    let _ = third.read_to_end(&mut heard).await;
    assert!(heard.is_empty(), "{}", String::from_utf8_lossy(&heard));
}

#[tokio::test]
async fn connections_are_bounded() {
    let server =
        TestServer::with(Access::Anonymous, |settings| settings.bounds.connections = 2).await;
    let (one, _two) = (server.plain().await, server.plain().await);
    // A client that has not said anything yet: a request that nobody reads may cost it the answer.
    let mut third = TcpStream::connect(server.at).await.unwrap();
    let mut heard = Vec::new();
    third.read_to_end(&mut heard).await.unwrap();
    let answer = Answer::read(&heard);
    assert_eq!((answer.status, answer.code().as_str()), (503, "not_ready"));
    assert!(answer.head.contains("retry-after: 1"));
    drop(one);
    while refusals(&server, "not_ready").await == 0 {}
}
