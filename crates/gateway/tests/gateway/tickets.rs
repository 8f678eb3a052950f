//! RELIABILITY 4.3: what a web page shows instead of a token.

use promethean_gateway::access::{Authenticator, MintedToken, TokenTable};
use promethean_gateway::{Access, Rates};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::server::{Answer, TestServer, tokens};

/// Asks for a ticket.
async fn ticket(server: &TestServer, secret: &str) -> String {
    let answer = asked(server, secret).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    assert!(answer.head.contains("cache-control: no-store"), "{answer:?}");
    answer.json()["ticket"].as_str().unwrap().to_owned()
}

async fn asked(server: &TestServer, secret: &str) -> Answer {
    let bearer = format!("Bearer {secret}");
    server.send("POST", "/tickets", &[("authorization", bearer.as_str())], b"").await
}

/// The head of the answer to an upgrade that offers these subprotocols.
async fn upgrade(server: &TestServer, offered: &str, more: &str) -> String {
    let mut stream = TcpStream::connect(server.at).await.unwrap();
    let request = format!(
        "GET /ws HTTP/1.1\r\nhost: {}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         sec-websocket-protocol: {offered}\r\n{more}\r\n",
        server.at
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut heard = Vec::new();
    while !String::from_utf8_lossy(&heard).contains("\r\n\r\n") {
        assert_ne!(stream.read_buf(&mut heard).await.unwrap(), 0, "{heard:?}");
    }
    String::from_utf8_lossy(&heard).into_owned()
}

fn status(head: &str) -> &str {
    head.split(' ').nth(1).unwrap()
}

#[tokio::test]
async fn a_page_connects_by_a_ticket_once() {
    let (access, secrets) = tokens(&[&["publish:a.**"]]);
    let server = TestServer::with(access, |_| {}).await;
    let ticket = ticket(&server, &secrets[0]).await;
    let offered = format!("prom.v1, ticket.{ticket}");
    let mut page = server.connect(&[("sec-websocket-protocol", &offered)]).await.unwrap();
    assert_eq!(page.next().await["op"], "HELLO");
    // Nothing is left to be said about who it is, and it is who asked.
    let mine = r#"{"op":"PUBLISH","topic":"a.b","payload":1}"#;
    assert_eq!(page.ask(mine).await["op"], "OK");
    let foreign = r#"{"op":"PUBLISH","topic":"b","payload":1}"#;
    assert_eq!(page.ask(foreign).await["code"], "forbidden");
    let again = server.connect(&[("sec-websocket-protocol", &offered)]).await;
    assert_eq!(again.err(), Some(401), "a ticket is used once");
}

/// Only what was chosen is named: a browser that offered `prom.v1` hears of nothing else.
#[tokio::test]
async fn a_ticket_is_not_echoed() {
    let (access, secrets) = tokens(&[&["publish:**"]]);
    let server = TestServer::with(access, |_| {}).await;
    let one = ticket(&server, &secrets[0]).await;
    let head = upgrade(&server, &format!("ticket.{one}, prom.v1"), "").await;
    assert_eq!(status(&head), "101", "{head}");
    assert!(head.contains("sec-websocket-protocol: prom.v1\r\n") && !head.contains(&one), "{head}");
    // A client that is no browser may do without.
    let plain = ticket(&server, &secrets[0]).await;
    let head = upgrade(&server, &format!("ticket.{plain}"), "").await;
    assert_eq!(status(&head), "101", "{head}");
    assert!(!head.contains("sec-websocket-protocol"), "{head}");
}

#[tokio::test]
async fn a_bad_ticket_is_a_bad_credential() {
    let (access, secrets) = tokens(&[&["publish:**"], &[]]);
    let server = TestServer::with(access, |settings| {
        settings.rates = Rates { auth_failures: None, ..Rates::default() };
    })
    .await;
    let reference = upgrade(&server, "prom.v1", "authorization: Bearer prom_0_0\r\n").await;
    let told = |head: &str| {
        let lines = head.lines().filter(|line| !line.starts_with("x-request-id"));
        let lines = lines.filter(|line| !line.starts_with("date")).map(str::to_owned);
        lines.collect::<Vec<_>>().join("\n")
    };
    let used = ticket(&server, &secrets[0]).await;
    upgrade(&server, &format!("prom.v1, ticket.{used}"), "").await;
    let fresh = [ticket(&server, &secrets[0]).await, ticket(&server, &secrets[0]).await];
    let two = format!("prom.v1, ticket.{}, ticket.{}", fresh[0], fresh[1]);
    for offered in [
        "prom.v1, ticket.",
        "prom.v1, ticket.nonsense",
        &format!("prom.v1, ticket.{}", "0".repeat(64)),
        &format!("prom.v1, ticket.{used}"),
        &format!("prom.v1, ticket.{}", secrets[0]),
        &two,
    ] {
        let head = upgrade(&server, offered, "").await;
        let head = head.split("\r\n\r\n").next().unwrap();
        assert_eq!(told(head), told(reference.split("\r\n\r\n").next().unwrap()), "{offered}");
    }
    // Beside a token it is one credential too many.
    let bearer = format!("authorization: Bearer {}\r\n", secrets[0]);
    let both = upgrade(&server, &format!("prom.v1, ticket.{}", fresh[0]), &bearer).await;
    assert_eq!(status(&both), "401");
    // And it is no credential anywhere else.
    let mut client = server.plain().await;
    client.say(format!(r#"{{"op":"AUTH","token":"{}"}}"#, fresh[0])).await;
    assert_eq!(client.closed().await, 3000);
    // Who is nobody, or may do nothing, gets none.
    assert_eq!(server.post("/tickets", "").await.code(), "unauthorized");
    assert_eq!(asked(&server, &secrets[1]).await.code(), "forbidden");
}

/// Guessing is counted like guessing tokens.
#[tokio::test]
async fn guesses_are_counted() {
    let (access, _) = tokens(&[&["publish:**"]]);
    let server = TestServer::with(access, |_| {}).await;
    let mut last = String::new();
    for _ in 0..=promethean_gateway::limits::AUTH_FAILURES_MAX {
        last = upgrade(&server, "prom.v1, ticket.0", "").await;
    }
    assert_eq!(status(&last), "429", "{last}");
}

#[tokio::test]
async fn a_foreign_page_does_not_use_it_up() {
    let (access, secrets) = tokens(&[&["publish:**"]]);
    let server = TestServer::with(access, |_| {}).await;
    let ticket = ticket(&server, &secrets[0]).await;
    let offered = format!("prom.v1, ticket.{ticket}");
    let foreign = upgrade(&server, &offered, "origin: http://evil.example\r\n").await;
    assert_eq!(status(&foreign), "403");
    let own = format!("origin: http://{}\r\n", server.at);
    assert_eq!(status(&upgrade(&server, &offered, &own).await), "101");
}

/// A ticket is worth what its token is worth when it is used, and what was opened by it ends as
/// what was opened by the token.
#[tokio::test]
async fn a_token_that_is_taken_back_takes_its_tickets_along() {
    let ann = MintedToken::mint("ann", vec!["publish:**".into()]).unwrap();
    let table = TokenTable::new([ann.stored.clone()]).unwrap();
    let access = Access::Required(Box::new(Authenticator::new(table, None, Vec::new())));
    let server = TestServer::with(access, |settings| {
        settings.bounds.expired = std::time::Duration::ZERO;
    })
    .await;
    let (early, late) = (ticket(&server, &ann.secret).await, ticket(&server, &ann.secret).await);
    let narrow = ticket(&server, &ann.secret).await;
    let offered = |ticket: &str| format!("prom.v1, ticket.{ticket}");
    let mut page = server.connect(&[("sec-websocket-protocol", &offered(&early))]).await.unwrap();
    page.next_of("HELLO").await;
    // Its rights are those of now, not of when the ticket was made.
    let mut less = ann.stored.clone();
    less.scopes = vec!["publish:a".into()];
    server.handle.install_tokens(TokenTable::new([less]).unwrap());
    let mut other = server.connect(&[("sec-websocket-protocol", &offered(&narrow))]).await.unwrap();
    other.next_of("HELLO").await;
    let frame = r#"{"op":"PUBLISH","topic":"b","payload":1}"#;
    assert_eq!(other.ask(frame).await["code"], "forbidden");
    server.handle.install_tokens(TokenTable::default());
    assert_eq!(page.closed().await, 3000);
    let refused = server.connect(&[("sec-websocket-protocol", &offered(&late))]).await;
    assert_eq!(refused.err(), Some(401));
}

#[tokio::test]
async fn a_subject_asks_for_only_so_many() {
    let (access, secrets) = tokens(&[&["publish:**"], &["publish:**"]]);
    let server = TestServer::with(access, |_| {}).await;
    for _ in 0..promethean_gateway::limits::TICKETS_PER_SUBJECT_MAX {
        ticket(&server, &secrets[0]).await;
    }
    let refused = asked(&server, &secrets[0]).await;
    assert_eq!((refused.status, refused.code().as_str()), (429, "limit"));
    assert!(refused.head.contains("retry-after: "), "{refused:?}");
    ticket(&server, &secrets[1]).await;
}
