//! RELIABILITY 4.2 over a real socket: what is too large, too slow or not a protocol at all.

use std::time::Duration;

use futures_util::SinkExt;
use promethean_gateway::Access;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::protocol::Message;

use super::connections::refusals;
use super::server::{Answer, TestServer};

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
    let json = "content-type: application/json\r\n";
    let chunks = "1\r\n1\r\n0\r\n\r\n";
    for head in [
        format!("{publish}{host}content-length: 1\r\ncontent-length: 2\r\n\r\n1"),
        format!("{publish}{host}{json}content-length: 1\r\ncontent-length: 1\r\n\r\n1"),
        format!(
            "{publish}{host}{json}content-length: 6\r\ntransfer-encoding: chunked\r\n\r\n{chunks}"
        ),
        format!(
            "{publish}{host}{json}transfer-encoding: chunked\r\ncontent-length: 6\r\n\r\n{chunks}"
        ),
        format!("{publish}{host}{json}transfer-encoding: chunked, chunked\r\n\r\n{chunks}"),
        format!(
            "{publish}{host}{json}transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n{chunks}"
        ),
        format!("{publish}{host}{json}transfer-encoding: chunked\r\n\r\n1\n1\n0\n\n"),
        format!("GET /livez HTTP/1.1\r\n{host}{host}\r\n"),
        format!("GET /livez HTTP/1.1\r\n{host}host: evil.example\r\n\r\n"),
        format!("GET /livez HTTP/1.1\r\n{host}x-a: b\nx-c: d\r\n\r\n"),
        format!("GET /livez HTTP/1.1\n{}\n", host.replace('\r', "")),
        // The second of two, whose beginning only its predecessor's end tells.
        format!("GET /livez HTTP/1.1\r\n{host}\r\nGET /livez HTTP/1.1\n{host}\r\n"),
        format!("{publish}{host}content-length: 1\r\ntransfer-encoding: xchunked\r\n\r\n1"),
        format!("{publish}{host}transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
        format!("GET /livez HTTP/1.1\r\n{host}x-a: b\r\n folded\r\n\r\n"),
        format!("GET /livez HTTP/1.1\r\n{host}x-a : b\r\n\r\n"),
        format!("GET /livez HTTP/1.1\r\n{host}x-a: b\0c\r\n\r\n"),
        "GET /livez HTTP/9.9\r\n\r\n".to_owned(),
        "NONSENSE\r\n\r\n".to_owned(),
    ] {
        let answer = server.raw(head.as_bytes()).await;
        // Refused and closed; before it, only what stood before it was answered.
        let last = answer.last_status();
        assert!(matches!(last, 400 | 0 | 415), "{head:?}: {answer:?}");
    }
    // Behind a request for another protocol nothing is looked at: it is the last one, or is agreed to.
    let first = format!("GET /livez HTTP/1.1\r\n{host}upgrade: h2c\r\n\r\n");
    let answer = server.raw(format!("{first}GET /livez HTTP/1.1\n{host}\r\n").as_bytes()).await;
    assert_eq!((answer.status, answer.body.matches("HTTP/1.1").count()), (200, 0), "{answer:?}");
    // An address that names a host names the one that is meant.
    let elsewhere =
        format!("GET http://evil.example/livez HTTP/1.1\r\n{host}connection: close\r\n\r\n");
    assert_eq!(server.raw(elsewhere.as_bytes()).await.status, 421);
    let here =
        format!("GET http://{}/livez HTTP/1.1\r\n{host}connection: close\r\n\r\n", server.at);
    assert_eq!(server.raw(here.as_bytes()).await.status, 200);
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
    // Who has said nothing yet is closed without a word.
    let mut heard = String::new();
    silent.read_to_string(&mut heard).await.unwrap();
    assert_eq!(heard, "");
    let mut heard = Vec::new();
    half.read_to_end(&mut heard).await.unwrap();
    let answer = Answer::read(&heard);
    assert_eq!((answer.status, answer.code().as_str()), (408, "slow_request"));
    while refusals(&server, "slow_request").await != 1 {}
    // Nor is one that has been answered, and says nothing more.
    let mut answered = TcpStream::connect(server.at).await.unwrap();
    let ask = format!("GET /livez HTTP/1.1\r\nhost: {}\r\n\r\n", server.at);
    answered.write_all(ask.as_bytes()).await.unwrap();
    let mut heard = String::new();
    answered.read_to_string(&mut heard).await.unwrap();
    assert!(heard.starts_with("HTTP/1.1 200") && !heard.contains("408"), "{heard}");
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

/// RELIABILITY 4.2: what all requests hold together is bounded; the newest is sent away.
#[tokio::test]
async fn bodies_have_room_together_or_come_later() {
    let server = TestServer::with(Access::Anonymous, |settings| {
        settings.bounds.bodies_bytes = 1024 * 1024;
    })
    .await;
    let mut large = TcpStream::connect(server.at).await.unwrap();
    let head = format!(
        "POST /publish/a HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 1048000\r\n\r\n\"{}",
        server.at,
        "x".repeat(1_046_000)
    );
    large.write_all(head.as_bytes()).await.unwrap();
    let small = format!("\"{}\"", "x".repeat(2_000));
    let refused = loop {
        // Until the first one has its room.
        let answer = server.post("/publish/b", &small).await;
        if answer.status != 201 {
            break answer;
        }
    };
    assert_eq!((refused.status, refused.code().as_str()), (503, "not_ready"));
    assert!(refused.head.contains("retry-after"));
    assert_eq!(server.get("/livez").await.status, 200);
    large.write_all(format!("{}\"", "x".repeat(1_998)).as_bytes()).await.unwrap();
    let mut heard = String::new();
    large.read_to_string(&mut heard).await.unwrap();
    assert!(heard.starts_with("HTTP/1.1 201"), "{heard}");
    assert_eq!(server.post("/publish/b", &small).await.status, 201);
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
    let offered = upgrade.replace(
        "sec-websocket-key",
        "sec-websocket-extensions: permessage-deflate; client_max_window_bits\r\nsec-websocket-key",
    );
    // A goodbye after it, so that the server closes.
    let goodbye = b"\x88\x82\0\0\0\0\x03\xe8";
    let answer = server.raw(&[offered.as_bytes(), goodbye].concat()).await;
    assert_eq!(answer.status, 101);
    assert!(!answer.head.contains("sec-websocket-extensions"), "{answer:?}");
}

/// RELIABILITY 4.0: no second protocol on a port, such as HTTP/2 with its floods.
#[tokio::test]
async fn nothing_but_http_1_is_spoken() {
    let server = TestServer::open().await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let answer = server.raw(preface).await;
    assert!(matches!(answer.status, 400 | 505 | 0), "{answer:?}");
    let host = server.at.to_string();
    let upgrade = [
        ("connection", "upgrade, http2-settings"),
        ("upgrade", "h2c"),
        ("http2-settings", "AAMAAABkAAQAAP__"),
        ("host", host.as_str()),
    ];
    assert_ne!(server.send("GET", "/livez", &upgrade, b"").await.status, 101);
    assert_eq!(server.get("/livez").await.status, 200);
}

/// RELIABILITY 4.2, the rows of events: each limit, and one beyond it, over HTTP and by a frame.
#[tokio::test]
async fn events_beyond_their_limits() {
    let server = TestServer::open().await;
    let members = |count: usize| {
        let members: Vec<String> = (0..count).map(|n| format!("\"m{n}\":0")).collect();
        format!("{{{}}}", members.join(","))
    };
    let headers = |count: usize, bytes: usize| {
        let headers: Vec<String> =
            (0..count).map(|n| format!("\"x-{n}\":\"{}\"", "v".repeat(bytes))).collect();
        format!("{{{}}}", headers.join(","))
    };
    let deep = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    let key = |bytes: usize| "k".repeat(bytes);
    let mut client = server.plain().await;
    for (what, opts, payload, code) in [
        ("depth", String::new(), deep(63), None),
        ("depth", String::new(), deep(65), Some("too_complex")),
        ("members", String::new(), members(10_000), None),
        ("members", String::new(), members(10_001), Some("too_complex")),
        ("headers", format!(r#""headers":{}"#, headers(32, 1)), "1".into(), None),
        ("headers", format!(r#""headers":{}"#, headers(33, 1)), "1".into(), Some("bad_request")),
        (
            "bytes of headers",
            format!(r#""headers":{}"#, headers(9, 1_000)),
            "1".into(),
            Some("bad_request"),
        ),
        ("key", format!(r#""key":"{}""#, key(1_024)), "1".into(), None),
        ("key", format!(r#""key":"{}""#, key(1_025)), "1".into(), Some("bad_request")),
    ] {
        let frame = format!(
            r#"{{"op":"PUBLISH","topic":"a","payload":{payload},"opts":{{{opts}}},"corr":"c"}}"#
        );
        let answer = client.ask(frame).await;
        match code {
            None => assert_eq!(answer["op"], "OK", "{what}: {answer}"),
            Some(code) => assert_eq!(answer["code"], code, "{what}: {answer}"),
        }
        if answer["op"] == "ERR" {
            // So that not too many are wrong on one connection.
            client = server.plain().await;
        }
        // The same event, over HTTP. A list of one is told what the event is besides its payload.
        let opts = if opts.is_empty() { String::new() } else { format!(",{opts}") };
        let answer =
            server.post("/publish/a", &format!(r#"[{{"payload":{payload}{opts}}}]"#)).await;
        let status = if code.is_none() { 201 } else { 400 };
        assert_eq!(answer.status, status, "{what}: {answer:?}");
    }
    for (group, code) in [("g".repeat(128), None), ("g".repeat(129), Some("bad_request"))] {
        let frame = format!(r#"{{"op":"SUBSCRIBE","topic":"a","group":"{group}","corr":1}}"#);
        let answer = client.ask(frame).await;
        assert_eq!(answer["code"].as_str(), code, "{answer}");
    }
    let many = |count: usize| format!("[{}]", vec![r#"{"payload":1}"#; count].join(","));
    assert_eq!(server.post("/publish/b", &many(1_000)).await.status, 201);
    assert_eq!(server.post("/publish/b", &many(1_001)).await.status, 413);
    let large =
        format!("[{}]", vec![format!("{{\"payload\":\"{}\"}}", "x".repeat(900_000)); 10].join(","));
    assert_eq!(server.post("/publish/b", &large).await.status, 413);
}

/// RELIABILITY 4.2: what a client makes by naming it stays for ever, so that there is an end to it.
#[tokio::test]
async fn topics_and_groups_that_clients_make_are_bounded() {
    use promethean::memory::MemoryStore;
    use promethean::{Bus, BusOptions};
    let options = BusOptions::default().topics_max(3).groups_max(2);
    let bus = Bus::with_store(std::sync::Arc::new(MemoryStore::new()), options);
    let server = TestServer::over(bus, Access::Anonymous, |_| {}).await;
    for n in 0..3 {
        assert_eq!(server.post(&format!("/publish/t{n}"), "1").await.status, 201);
    }
    let refused = server.post("/publish/t3", "1").await;
    assert_eq!((refused.status, refused.code().as_str()), (409, "quota"));
    let mut client = server.plain().await;
    let publish = |n: u8| format!(r#"{{"op":"PUBLISH","topic":"t{n}","payload":1}}"#);
    assert_eq!(client.ask(publish(3)).await["code"], "quota");
    assert_eq!(client.ask(publish(2)).await["op"], "OK", "what is there goes on");
    // Whoever may define topics knows what he does.
    assert_eq!(server.post("/topics/t3", r#"{"partitions":1}"#).await.status, 200);
    assert_eq!(client.ask(publish(3)).await["op"], "OK");

    let subscribe = |n: u8| format!(r#"{{"op":"SUBSCRIBE","topic":"t0","group":"g{n}"}}"#);
    let leave = |n: u8| format!(r#"{{"op":"UNSUBSCRIBE","topic":"t0","group":"g{n}"}}"#);
    for n in 0..2 {
        assert_eq!(client.ask(subscribe(n)).await["op"], "OK");
        assert_eq!(client.ask(leave(n)).await["op"], "OK");
    }
    assert_eq!(client.ask(subscribe(2)).await["code"], "quota");
    let wish = r#"{"settings":{"topics":["t0"]}}"#;
    assert_eq!(server.post("/groups/g2", wish).await.code(), "quota");
    assert_eq!(client.ask(subscribe(1)).await["op"], "OK", "one that is there");
    assert_eq!(client.ask(leave(1)).await["op"], "OK");
    while server.send("DELETE", "/groups/g1", &[], b"").await.status != 200 {}
    assert_eq!(client.ask(subscribe(2)).await["op"], "OK");
}
