//! Server-sent events.

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::server::TestServer;

struct Stream {
    lines: tokio::io::Lines<BufReader<TcpStream>>,
}

impl Stream {
    async fn open(server: &TestServer, path: &str, more: &str) -> Self {
        let mut stream = TcpStream::connect(server.at).await.unwrap();
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\naccept: text/event-stream\r\n{more}\r\n",
            server.at
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut stream = Self { lines: BufReader::new(stream).lines() };
        assert_eq!(stream.lines.next_line().await.unwrap().unwrap(), "HTTP/1.1 200 OK");
        while !stream.lines.next_line().await.unwrap().unwrap().is_empty() {}
        stream
    }

    /// The next line that begins so, without its beginning.
    async fn line(&mut self, prefix: &str) -> String {
        loop {
            let line = self.lines.next_line().await.unwrap().unwrap();
            if let Some(rest) = line.strip_prefix(prefix) {
                return rest.to_owned();
            }
        }
    }
}

#[tokio::test]
async fn events_as_they_come_and_on_from_the_last_one() {
    let server = TestServer::open().await;
    server.post("/publish/a", "0").await;
    let mut stream = Stream::open(&server, "/events/a?from=earliest", "").await;
    assert!(stream.line("data: ").await.contains("\"payload\":0"));
    assert_eq!(stream.line("id: ").await, "0:1");
    server.post("/publish/a", "1").await;
    assert!(stream.line("data: ").await.contains("\"payload\":1"));
    assert_eq!(stream.line("id: ").await, "0:2");
    drop(stream);
    server.post("/publish/a", "2").await;
    let mut again = Stream::open(&server, "/events/a", "last-event-id: 0:2\r\n").await;
    assert!(again.line("data: ").await.contains("\"payload\":2"));
    // From a place that there is not.
    let mut astray = Stream::open(&server, "/events/a", "last-event-id: 0:99\r\n").await;
    assert_eq!(astray.line("event: ").await, "gap");
    assert!(astray.line("data: ").await.contains("beyond_end"));
}

#[tokio::test]
async fn filters_and_bad_requests() {
    let server = TestServer::open().await;
    server.post("/publish/a", r#"[{"payload":{"n":1}},{"payload":{"n":2}}]"#).await;
    let mut stream =
        Stream::open(&server, "/events/a?from=earliest&filter=payload.n%3D%3D2", "").await;
    assert!(stream.line("data: ").await.contains("{\"n\":2}"));
    let accept = ("accept", "text/event-stream");
    let bad = server.send("GET", "/events/a?filter=x", &[accept], b"").await;
    assert_eq!(bad.code(), "invalid_filter");
    let bad = server.send("GET", "/events/a", &[accept, ("last-event-id", "x")], b"").await;
    assert_eq!(bad.code(), "bad_request");
}
