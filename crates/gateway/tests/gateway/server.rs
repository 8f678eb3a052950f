//! A server on a port of its own, and clients that say exactly what a test wants said.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use promethean::Bus;
use promethean_gateway::access::{Authenticator, MintedToken, TokenTable};
use promethean_gateway::{Access, Server, ServerHandle, Settings};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, client_async, connect_async};

/// Long enough for any machine; a test that gets here has failed.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct TestServer {
    pub(crate) bus: Bus,
    pub(crate) at: SocketAddr,
    /// Where administration is, if it is elsewhere.
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) handle: ServerHandle,
    pub(crate) running: JoinHandle<()>,
}

impl TestServer {
    pub(crate) async fn open() -> Self {
        Self::with(Access::Anonymous, |_| {}).await
    }

    pub(crate) async fn with(access: Access, change: impl FnOnce(&mut Settings)) -> Self {
        Self::over(Bus::memory(), access, change).await
    }

    pub(crate) async fn over(bus: Bus, access: Access, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings::local(access);
        settings.listen = vec!["127.0.0.1:0".parse().unwrap()];
        change(&mut settings);
        let server = Server::bind(bus.clone(), settings).await.unwrap();
        let (at, handle) = (server.addresses()[0], server.handle());
        let admin = server.admin_addresses().first().copied();
        let running = tokio::spawn(server.run());
        Self { bus, at, admin, handle, running }
    }

    pub(crate) async fn plain(&self) -> Client {
        self.connect(&[]).await.unwrap()
    }

    /// A client of `prom.v1`, after HELLO.
    pub(crate) async fn negotiated(&self) -> Client {
        let mut client = self.connect(&[("sec-websocket-protocol", "prom.v1")]).await.unwrap();
        let hello = client.next().await;
        assert_eq!(hello["op"], "HELLO");
        client
    }

    /// Connects, or says with which status it was refused.
    pub(crate) async fn connect(&self, headers: &[(&'static str, &str)]) -> Result<Client, u16> {
        let mut request = format!("ws://{}/ws", self.at).into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        match timeout(PATIENCE, connect_async(request)).await.unwrap() {
            Ok((socket, _)) => Ok(Client { socket }),
            Err(tokio_tungstenite::tungstenite::Error::Http(response)) => {
                Err(response.status().as_u16())
            }
            Err(other) => panic!("{other}"),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], b"").await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        self.send("POST", path, &[("content-type", "application/json")], body.as_bytes()).await
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
        if !headers.iter().any(|(name, _)| *name == "host") {
            head.push_str(&format!("host: {}\r\n", self.at));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
        self.raw(&[head.as_bytes(), body].concat()).await
    }

    /// Says these bytes, and hears what comes until the server closes.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> Answer {
        hear(TcpStream::connect(self.at).await.unwrap(), bytes).await
    }

    /// The same from another address of this machine.
    pub(crate) async fn raw_from(&self, ip: IpAddr, bytes: &[u8]) -> Answer {
        hear(self.stream_from(ip).await, bytes).await
    }

    /// A plain client at another address of this machine.
    pub(crate) async fn plain_from(&self, ip: IpAddr) -> Client {
        let stream = MaybeTlsStream::Plain(self.stream_from(ip).await);
        let (socket, _) = client_async(format!("ws://{}/ws", self.at), stream).await.unwrap();
        Client { socket }
    }

    async fn stream_from(&self, ip: IpAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::new(ip, 0)).unwrap();
        socket.connect(self.at).await.unwrap()
    }
}

async fn hear(mut stream: TcpStream, bytes: &[u8]) -> Answer {
    // The server may answer and close before it has read everything.
    let _ = stream.write_all(bytes).await;
    let mut heard = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut heard)).await.unwrap();
    Answer::read(&heard)
}

/// What an HTTP request was answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn read(heard: &[u8]) -> Self {
        let text = String::from_utf8_lossy(heard).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        let head = head.to_ascii_lowercase();
        let body =
            if head.contains("transfer-encoding: chunked") { unchunked(body) } else { body.into() };
        Self { status, head, body }
    }

    /// The status of the last answer, where there were several.
    pub(crate) fn last_status(&self) -> u16 {
        let last = self.body.rsplit_once("HTTP/1.1 ").map(|(_, answer)| answer);
        last.and_then(|answer| answer.get(..3)?.parse().ok()).unwrap_or(self.status)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// The code of a problem document, which every refusal is.
    pub(crate) fn code(&self) -> String {
        assert!(self.head.contains("application/problem+json"), "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status);
        problem["code"].as_str().unwrap().to_owned()
    }
}

fn unchunked(mut body: &str) -> String {
    let mut out = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap_or(0);
        if size == 0 {
            break;
        }
        out.push_str(&rest[..size]);
        body = rest[size..].trim_start_matches("\r\n");
    }
    out
}

pub(crate) struct Client {
    pub(crate) socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
}

impl Client {
    pub(crate) async fn say(&mut self, text: impl Into<String>) {
        self.socket.send(Message::text(text.into())).await.unwrap();
    }

    /// Says many things in one go.
    pub(crate) async fn say_all(&mut self, texts: impl IntoIterator<Item = String>) {
        for text in texts {
            self.socket.feed(Message::text(text)).await.unwrap();
        }
        self.socket.flush().await.unwrap();
    }

    /// The next frame.
    pub(crate) async fn next(&mut self) -> Value {
        loop {
            match timeout(PATIENCE, self.socket.next()).await.expect("no frame came") {
                Some(Ok(Message::Text(text))) => return serde_json::from_str(&text).unwrap(),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Says something, and hears the answer.
    pub(crate) async fn ask(&mut self, text: impl Into<String>) -> Value {
        self.say(text).await;
        self.next().await
    }

    /// The next frame of a kind; others in between are passed over.
    pub(crate) async fn next_of(&mut self, op: &str) -> Value {
        loop {
            let frame = self.next().await;
            if frame["op"] == op {
                return frame;
            }
        }
    }

    /// Passes over frames until the server closes; with which code.
    pub(crate) async fn closed(&mut self) -> u16 {
        loop {
            match timeout(PATIENCE, self.socket.next()).await.expect("it was not closed") {
                Some(Ok(Message::Close(Some(frame)))) => return frame.code.into(),
                Some(Ok(Message::Close(None))) | None => return 1005,
                Some(Ok(_)) => {}
                Some(Err(_)) => return 1006,
            }
        }
    }
}

/// Access by static tokens with these scopes; the secrets, in order.
pub(crate) fn tokens(scopes: &[&[&str]]) -> (Access, Vec<String>) {
    let minted: Vec<MintedToken> = scopes
        .iter()
        .enumerate()
        .map(|(n, scopes)| {
            let scopes = scopes.iter().map(ToString::to_string).collect();
            MintedToken::mint(&format!("user-{n}"), scopes).unwrap()
        })
        .collect();
    let table = TokenTable::new(minted.iter().map(|one| one.stored.clone())).unwrap();
    let authenticator = Authenticator::new(table, None, Vec::new());
    (Access::Required(Box::new(authenticator)), minted.into_iter().map(|one| one.secret).collect())
}

/// An address of this machine that is not loopback; none on a machine without a network.
pub(crate) fn own_address() -> Option<IpAddr> {
    // Nothing is sent: connecting a datagram socket only asks for the way.
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip())
}
