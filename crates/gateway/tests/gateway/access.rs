//! RELIABILITY 4.3 to 4.5 over a real socket.

use promethean_gateway::Access;
use promethean_gateway::access::{Authenticator, MintedToken, TokenTable};

use futures_util::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::Message;

use super::server::{TestServer, tokens};

#[tokio::test]
async fn strangers_get_nothing() {
    let (access, _) = tokens(&[&["publish:**"]]);
    let server = TestServer::with(access, |_| {}).await;
    for path in [
        "/replay?topic=a",
        "/export?topic=a",
        "/events/a",
        "/cursors?group=g",
        "/lag",
        "/metrics",
        "/latest-by-key?topic=a&key=k",
        "/keys/a",
        "/history/a?key=k",
        "/ops/partitions",
        "/topics",
        "/groups/g",
        "/events?topic=a",
        "/event/018c2e65-4b00-7000-8000-000000000001",
        "/dead-letters",
    ] {
        let answer = server.get(path).await;
        assert_eq!((answer.status, answer.code().as_str()), (401, "unauthorized"), "{path}");
        assert!(answer.head.contains("www-authenticate: bearer"), "{path}");
    }
    for path in [
        "/publish/a",
        "/groups/g/seek",
        "/groups/g",
        "/topics/a",
        "/dead-letters/018c2e65-4b00-7000-8000-000000000001/replay",
        "/dead-letters/018c2e65-4b00-7000-8000-000000000001/discard",
    ] {
        assert_eq!(server.post(path, "{}").await.status, 401, "{path}");
    }
    for path in ["/groups/g", "/topics/a"] {
        assert_eq!(server.send("DELETE", path, &[], b"").await.status, 401, "{path}");
    }
    for path in ["/livez", "/healthz", "/readyz", "/readyz?verbose", "/openapi.json"] {
        assert_eq!(server.get(path).await.status, 200, "{path}");
    }
    assert_eq!(server.get("/readyz?verbose").await.body, "ok\n");
}

#[tokio::test]
async fn scopes_hold_on_every_way_in_and_out() {
    let (access, secrets) = tokens(&[&["publish:a.**", "subscribe:a.**@g"], &["admin:ops"]]);
    let server = TestServer::with(access, |_| {}).await;
    let bearer = |n: usize| format!("Bearer {}", secrets[n]);
    let (user, operator) = (bearer(0), bearer(1));
    let send = async |method: &str, path: &str, token: &str| {
        let headers = [("content-type", "application/json"), ("authorization", token)];
        server.send(method, path, &headers, b"1").await
    };
    assert_eq!(send("POST", "/publish/a.b", &user).await.status, 201);
    assert_eq!(send("POST", "/publish/b", &user).await.code(), "forbidden");
    assert_eq!(send("POST", "/publish/a.b", &operator).await.code(), "forbidden");
    // A right for one group is none to read.
    assert_eq!(send("GET", "/events/a.b", &user).await.code(), "forbidden");
    assert_eq!(send("GET", "/replay?topic=**", &user).await.code(), "forbidden");
    assert_eq!(send("GET", "/lag", &user).await.code(), "forbidden");
    assert_eq!(send("GET", "/topics", &user).await.code(), "forbidden");
    assert_eq!(send("DELETE", "/topics/a.b", &operator).await.code(), "forbidden");
    assert_eq!(send("DELETE", "/groups/g", &operator).await.code(), "forbidden");
    assert_eq!(send("GET", "/lag", &operator).await.status, 200);
    assert_eq!(send("GET", "/dead-letters", &operator).await.code(), "forbidden");
    assert!(send("GET", "/readyz?verbose", &operator).await.body.contains("\"status\":\"ok\""));

    let mut client = server.plain().await;
    let auth = format!(r#"{{"op":"AUTH","token":"{}","corr":"a"}}"#, secrets[0]);
    assert_eq!(client.ask(auth).await["corr"], "a");
    for (frame, code) in [
        (r#"{"op":"PUBLISH","topic":"b","payload":1}"#, "forbidden"),
        (r#"{"op":"SUBSCRIBE","topic":"a.b","group":"other"}"#, "forbidden"),
        (r#"{"op":"SUBSCRIBE","topic":"**","group":"g"}"#, "forbidden"),
        (r#"{"op":"SUBSCRIBE","topic":"a.b"}"#, "forbidden"),
    ] {
        assert_eq!(client.ask(frame).await["code"], code, "{frame}");
    }
    assert_eq!(client.ask(r#"{"op":"SUBSCRIBE","topic":"a.**","group":"g"}"#).await["op"], "OK");
}

#[tokio::test]
async fn frames_before_auth_close_the_connection() {
    let (access, secrets) = tokens(&[&["publish:**"], &[]]);
    let server = TestServer::with(access, |_| {}).await;
    for frame in [
        r#"{"op":"PUBLISH","topic":"a","payload":1}"#.to_owned(),
        r#"{"op":"SUBSCRIBE","topic":"a","group":"g"}"#.to_owned(),
        r#"{"op":"ACK","topic":"a","group":"g","id":"018c2e65-4b00-7000-8000-000000000001"}"#
            .to_owned(),
        r#"{"op":"AUTH","token":"prom_0_0"}"#.to_owned(),
        r#"{"op":"AUTH","token":""}"#.to_owned(),
        "nonsense".to_owned(),
    ] {
        let mut client = server.plain().await;
        client.say(frame.clone()).await;
        assert_eq!(client.closed().await, 3000, "{frame}");
    }
    // A token that allows nothing.
    let mut nobody = server.plain().await;
    nobody.say(format!(r#"{{"op":"AUTH","token":"{}"}}"#, secrets[1])).await;
    assert_eq!(nobody.closed().await, 3003);
    // In the head of the upgrade it is a status.
    let wrong = server.connect(&[("authorization", "Bearer prom_0_0")]).await;
    assert_eq!(wrong.err(), Some(401));
    let nothing = format!("Bearer {}", secrets[1]);
    assert_eq!(server.connect(&[("authorization", &nothing)]).await.err(), Some(403));
    let right = format!("Bearer {}", secrets[0]);
    let mut known = server.connect(&[("authorization", &right)]).await.unwrap();
    assert_eq!(known.ask(r#"{"op":"PUBLISH","topic":"a","payload":1}"#).await["op"], "OK");
}

#[tokio::test]
async fn silence_instead_of_auth_is_closed() {
    let (access, _) = tokens(&[&["publish:**"]]);
    let server =
        TestServer::with(access, |s| s.bounds.auth = std::time::Duration::from_millis(50)).await;
    assert_eq!(server.plain().await.closed().await, 3000);
}

#[tokio::test]
async fn a_token_that_ends_during_a_connection() {
    let mut minted =
        MintedToken::mint("ann", vec!["publish:**".into(), "subscribe:**".into()]).unwrap();
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    minted.stored.expires_at_ms = Some(now + 1_500);
    let other = MintedToken::mint("bob", vec!["publish:**".into()]).unwrap();
    let table = TokenTable::new([minted.stored.clone(), other.stored.clone()]).unwrap();
    let access = Access::Required(Box::new(Authenticator::new(table, None, Vec::new())));
    let server = TestServer::with(access, |settings| {
        settings.bounds.expired = std::time::Duration::from_millis(300);
    })
    .await;
    let mut client = server.plain().await;
    let ok = client.ask(format!(r#"{{"op":"AUTH","token":"{}"}}"#, minted.secret)).await;
    assert_eq!(ok["expires_at"], now + 1_500);
    client.ask(r#"{"op":"SUBSCRIBE","topic":"a","group":"g"}"#).await;
    client.say(r#"{"op":"PUBLISH","topic":"a","payload":1}"#).await;
    let event = client.next_of("EVENT").await;
    // Somebody else cannot take the connection over.
    let theirs = format!(r#"{{"op":"AUTH","token":"{}","corr":"x"}}"#, other.secret);
    client.say(theirs).await;
    assert_eq!(client.next_of("ERR").await["code"], "forbidden");
    assert_eq!(client.next_of("ERR").await["code"], "token_expired");
    // What is out may still be acked; nothing else is done.
    let late = client.ask(r#"{"op":"PUBLISH","topic":"a","payload":2}"#).await;
    assert_eq!(late["code"], "token_expired");
    let id = event["event"]["id"].as_str().unwrap();
    let ack = format!(r#"{{"op":"ACK","topic":"a","group":"g","id":"{id}","corr":"k"}}"#);
    assert_eq!(client.ask(ack).await["op"], "OK");
    // Nothing new comes, whatever is said about it; what is given back is taken.
    for op in ["PAUSE", "RESUME", "CREDIT"] {
        let frame = format!(r#"{{"op":"{op}","topic":"a","group":"g","credit":1,"corr":1}}"#);
        assert_eq!(client.ask(frame).await["code"], "token_expired", "{op}");
    }
    let bearer = format!("Bearer {}", other.secret);
    let headers = [("content-type", "application/json"), ("authorization", bearer.as_str())];
    assert_eq!(server.send("POST", "/publish/a", &headers, b"3").await.status, 201);
    let code = loop {
        match client.socket.next().await {
            Some(Ok(Message::Text(frame))) => assert!(!frame.contains("EVENT"), "{frame}"),
            Some(Ok(Message::Close(Some(close)))) => break u16::from(close.code),
            Some(Ok(_)) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(code, 3000);
}

/// A new credential in time: what was asked for goes on as it was, also of a pattern of which only
/// some topics may be read, and what the client has paused stays paused.
#[tokio::test]
async fn another_token_for_the_same_connection() {
    let scopes = || vec!["publish:**".to_owned(), "subscribe:a.**".to_owned()];
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    let mut first = MintedToken::mint("ann", scopes()).unwrap();
    first.stored.expires_at_ms = Some(now + 1_000);
    let second = MintedToken::mint("ann", scopes()).unwrap();
    let table = TokenTable::new([first.stored.clone(), second.stored.clone()]).unwrap();
    let access = Access::Required(Box::new(Authenticator::new(table, None, Vec::new())));
    let server = TestServer::with(access, |_| {}).await;
    let mut client = server.negotiated().await;
    client.ask(format!(r#"{{"op":"AUTH","token":"{}"}}"#, first.secret)).await;
    let tail = client.ask(r#"{"op":"SUBSCRIBE","topic":"**","corr":1}"#).await["sub"].clone();
    for group in ["g", "paused"] {
        client
            .ask(format!(r#"{{"op":"SUBSCRIBE","topic":"a.b","group":"{group}","corr":2}}"#))
            .await;
    }
    client.ask(r#"{"op":"PAUSE","topic":"a.b","group":"paused","corr":3}"#).await;
    assert_eq!(client.next_of("ERR").await["code"], "token_expired");
    let ok = client.ask(format!(r#"{{"op":"AUTH","token":"{}","corr":4}}"#, second.secret)).await;
    assert_eq!((&ok["op"], &ok["corr"]), (&"OK".into(), &4.into()), "{ok}");
    client.say(r#"{"op":"PUBLISH","topic":"a.b","payload":1,"corr":5}"#).await;
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let frame = client.next().await;
        match frame["op"].as_str().unwrap() {
            "EVENT" => seen.push(frame["group"].as_str().unwrap_or("tail").to_owned()),
            "OK" => seen.push("published".to_owned()),
            _ => panic!("{frame}"),
        }
    }
    seen.sort();
    assert_eq!(seen, ["g", "published", "tail"], "{tail}");
    client.ask(r#"{"op":"RESUME","topic":"a.b","group":"paused","corr":6}"#).await;
    assert_eq!(client.next_of("EVENT").await["group"], "paused");
}

/// RELIABILITY 4.3: a token that is taken back is as one that has ended, for those who are
/// connected too; what is out to them goes to others when they are closed.
#[tokio::test]
async fn a_token_that_is_taken_back_cuts_its_connections() {
    let mint = |subject: &str| {
        MintedToken::mint(subject, vec!["publish:**".into(), "subscribe:**".into()]).unwrap()
    };
    let (ann, again, bob) = (mint("ann"), mint("ann"), mint("bob"));
    let table = |of: &[&MintedToken]| {
        TokenTable::new(of.iter().map(|minted| minted.stored.clone())).unwrap()
    };
    let authenticator = Authenticator::new(table(&[&ann, &bob]), None, Vec::new());
    let server = TestServer::with(Access::Required(Box::new(authenticator)), |settings| {
        settings.bounds.expired = std::time::Duration::from_millis(300);
    })
    .await;
    let auth = |minted: &MintedToken| format!(r#"{{"op":"AUTH","token":"{}"}}"#, minted.secret);
    let mut cut = server.plain().await;
    let mut renewed = server.plain().await;
    let mut other = server.plain().await;
    for (client, token) in [(&mut cut, &ann), (&mut renewed, &ann), (&mut other, &bob)] {
        assert_eq!(client.ask(auth(token)).await["op"], "OK");
    }
    cut.ask(r#"{"op":"SUBSCRIBE","topic":"a","group":"g"}"#).await;
    assert_eq!(other.ask(r#"{"op":"PUBLISH","topic":"a","payload":1}"#).await["op"], "OK");
    cut.next_of("EVENT").await;
    assert_eq!(other.ask(r#"{"op":"SUBSCRIBE","topic":"a","group":"g"}"#).await["op"], "OK");
    // An event stream ends, too.
    let mut streamed = tokio::net::TcpStream::connect(server.at).await.unwrap();
    let head = format!(
        "GET /events?topic=a HTTP/1.1\r\nhost: {}\r\nconnection: close\r\naccept: text/event-stream\r\nauthorization: Bearer {}\r\n\r\n",
        server.at, ann.secret
    );
    streamed.write_all(head.as_bytes()).await.unwrap();
    let mut heard = Vec::new();
    while !String::from_utf8_lossy(&heard).contains("id: ") {
        assert_ne!(streamed.read_buf(&mut heard).await.unwrap(), 0);
    }
    server.handle.install_tokens(table(&[&again, &bob]));
    streamed.read_to_end(&mut heard).await.unwrap();
    assert!(heard.ends_with(b"0\r\n\r\n"), "in order");

    assert_eq!(renewed.next_of("ERR").await["code"], "token_expired");
    assert_eq!(renewed.ask(auth(&ann)).await["code"], "unauthorized");
    assert_eq!(renewed.ask(auth(&again)).await["op"], "OK");
    assert_eq!(cut.next_of("ERR").await["code"], "token_expired");
    let late = cut.ask(r#"{"op":"PUBLISH","topic":"a","payload":2}"#).await;
    assert_eq!(late["code"], "token_expired");
    assert_eq!(cut.closed().await, 3000);
    // Long before the lease would have run out.
    let event = other.next_of("EVENT").await;
    assert_eq!((&event["event"]["payload"], &event["ctx"]["attempt"]), (&1.into(), &2.into()));
    // Whoever has another token hears nothing of it.
    let fine = r#"{"op":"PUBLISH","topic":"b","payload":2}"#;
    assert_eq!(renewed.ask(fine).await["op"], "OK");
    assert_eq!(other.ask(fine).await["op"], "OK");
}

/// RELIABILITY 4.4: other rights reach those who are connected.
#[tokio::test]
async fn rights_that_are_changed_reach_open_connections() {
    let scopes = |scopes: &[&str]| scopes.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut ann = MintedToken::mint("ann", scopes(&["subscribe:**", "publish:**"])).unwrap();
    let table = |of: &MintedToken| TokenTable::new([of.stored.clone()]).unwrap();
    let authenticator = Authenticator::new(table(&ann), None, Vec::new());
    let server = TestServer::with(Access::Required(Box::new(authenticator)), |_| {}).await;
    let mut client = server.negotiated().await;
    assert_eq!(
        client.ask(format!(r#"{{"op":"AUTH","token":"{}"}}"#, ann.secret)).await["op"],
        "OK"
    );
    let mut subs = Vec::new();
    for topic in ["a", "b"] {
        let frame =
            format!(r#"{{"op":"SUBSCRIBE","topic":"{topic}","group":"g-{topic}","corr":1}}"#);
        subs.push(client.ask(frame).await["sub"].as_u64().unwrap());
    }
    ann.stored.scopes = scopes(&["subscribe:a", "publish:**"]);
    server.handle.install_tokens(table(&ann));
    let ended = client.next_of("ERR").await;
    assert_eq!((&ended["code"], &ended["sub"]), (&"forbidden".into(), &subs[1].into()), "{ended}");
    assert!(ended["corr"].is_null());
    client
        .say(r#"{"op":"PUBLISH","events":[{"topic":"b","payload":1},{"topic":"a","payload":1}]}"#)
        .await;
    assert_eq!(client.next_of("EVENT").await["topic"], "a");
    ann.stored.scopes = Vec::new();
    server.handle.install_tokens(table(&ann));
    assert_eq!(client.closed().await, 3003);
}

/// RELIABILITY 4.2: 50 connections of a subject, unless it is on this machine.
#[tokio::test]
async fn connections_of_a_subject_are_bounded() {
    let Some(outside) = super::server::own_address() else {
        return;
    };
    let (access, secrets) = tokens(&[&["publish:**"], &["publish:**"]]);
    let server = TestServer::with(access, |settings| {
        settings.bounds.connections_per_subject = 2;
        settings.listen = vec!["0.0.0.0:0".parse().unwrap()];
        settings.waived = promethean_gateway::Waived { auth: false, tls: true };
    })
    .await;
    let auth = |n: usize| format!(r#"{{"op":"AUTH","token":"{}"}}"#, secrets[n]);
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut client = server.plain_from(outside).await;
        assert_eq!(client.ask(auth(0)).await["op"], "OK");
        open.push(client);
    }
    let mut third = server.plain_from(outside).await;
    let refused = third.ask(auth(0)).await;
    assert_eq!(refused["code"], "limit");
    assert!(refused["retry_ms"].as_u64().is_some());
    assert_eq!(third.closed().await, 1013);
    let head = format!(
        "GET /ws HTTP/1.1\r\nhost: {}\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nauthorization: Bearer {}\r\n\r\n",
        server.at, secrets[0]
    );
    let answer = server.raw_from(outside, head.as_bytes()).await;
    assert_eq!((answer.status, answer.code().as_str()), (429, "limit"));
    assert!(answer.head.contains("retry-after"));
    // Others, and one after another, have room.
    assert_eq!(server.plain_from(outside).await.ask(auth(1)).await["op"], "OK");
    drop(open.pop());
    loop {
        let mut next = server.plain_from(outside).await;
        if next.ask(auth(0)).await["op"] == "OK" {
            break;
        }
    }
}

/// Event streams and exports were not counted, and behind a proxy on the machine nothing was.
#[tokio::test]
async fn streams_of_a_subject_are_bounded_as_well() {
    let (access, secrets) = tokens(&[&["publish:**", "subscribe:**"]]);
    let server = TestServer::with(access, |settings| {
        settings.bounds.connections_per_local_subject = Some(2);
    })
    .await;
    let bearer = format!("Bearer {}", secrets[0]);
    let headers = [("authorization", bearer.as_str()), ("accept", "text/event-stream")];
    assert_eq!(
        server
            .send("POST", "/publish/a", &[headers[0], ("content-type", "application/json")], b"1")
            .await
            .status,
        201
    );
    let head = format!(
        "GET /events/a HTTP/1.1\r\nhost: {}\r\naccept: text/event-stream\r\nauthorization: {bearer}\r\n\r\n",
        server.at
    );
    let mut stream = tokio::net::TcpStream::connect(server.at).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.read_exact(&mut [0; 12]).await.unwrap();
    let mut client = server.plain().await;
    let auth = format!(r#"{{"op":"AUTH","token":"{}"}}"#, secrets[0]);
    assert_eq!(client.ask(auth.as_str()).await["op"], "OK");
    for path in ["/events/a", "/events?topic=a", "/export?topic=a"] {
        let refused = server.send("GET", path, &headers, b"").await;
        assert_eq!((refused.status, refused.code().as_str()), (429, "limit"), "{path}");
    }
    assert_eq!(server.plain().await.ask(auth).await["code"], "limit");
    assert_eq!(server.send("GET", "/replay?topic=a", &headers, b"").await.status, 200);
    drop(stream);
    while server.send("GET", "/export?topic=a", &headers, b"").await.status != 200 {}
}

#[tokio::test]
async fn origins_hosts_and_tokens_in_addresses() {
    let server = TestServer::with(Access::Anonymous, |settings| {
        settings.origins.push("https://app.example".into());
    })
    .await;
    let own = format!("http://{}", server.at);
    for (origin, allowed) in [
        (own.as_str(), true),
        ("https://app.example", true),
        ("https://evil.example", false),
        ("null", false),
        ("https://app.example.evil.example", false),
    ] {
        let connected = server.connect(&[("origin", origin)]).await;
        assert_eq!(connected.err(), (!allowed).then_some(403), "{origin}");
        let headers = [("origin", origin), ("content-type", "application/json")];
        let status = server.send("POST", "/publish/a", &headers, b"1").await.status;
        assert_eq!(status, if allowed { 201 } else { 403 }, "{origin}");
    }
    for host in ["evil.example", "127.0.0.1.evil.example", ""] {
        let answer = server.send("GET", "/livez", &[("host", host)], b"").await;
        assert_eq!(answer.status, 421, "{host}");
    }
    for query in ["token=x", "access_token=x", "topic=a&jwt=x"] {
        let answer = server.get(&format!("/replay?{query}")).await;
        assert_eq!(answer.code(), "token_in_query", "{query}");
    }
    let with_token = "GET /ws?token=x HTTP/1.1";
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==";
    let head = format!("{with_token}\r\nhost: {}\r\n{upgrade}\r\n\r\n", server.at);
    let answer = server.raw(head.as_bytes()).await;
    assert_eq!((answer.status, answer.code().as_str()), (400, "token_in_query"));
    let preflight = [("origin", "https://evil.example"), ("access-control-request-method", "POST")];
    assert_eq!(server.send("OPTIONS", "/publish/a", &preflight, b"").await.status, 403);
}

/// Pages of origins that were named read answers and problems; nobody else's do.
#[tokio::test]
async fn pages_of_named_origins_read_answers() {
    let app = "https://app.example";
    let server =
        TestServer::with(Access::Anonymous, |settings| settings.origins.push(app.into())).await;
    let allowed = format!("access-control-allow-origin: {app}");
    let preflight = [("origin", app), ("access-control-request-method", "POST")];
    let answer = server.send("OPTIONS", "/publish/a", &preflight, b"").await;
    assert_eq!((answer.status, answer.body.as_str()), (204, ""));
    assert!(answer.head.contains(&allowed), "{answer:?}");
    assert!(answer.head.contains("access-control-allow-headers: authorization, content-type"));
    assert!(!answer.head.contains("allow-credentials"));
    for (path, status) in [("/lag", 200), ("/nowhere", 404), ("/replay", 400)] {
        let answer = server.send("GET", path, &[("origin", app)], b"").await;
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.head.contains(&allowed) && answer.head.contains("vary: origin"), "{path}");
    }
    let own = format!("http://{}", server.at);
    for origin in [own.as_str(), "https://evil.example"] {
        let answer = server.send("GET", "/lag", &[("origin", origin)], b"").await;
        assert!(!answer.head.contains("access-control"), "{answer:?}");
    }
}
