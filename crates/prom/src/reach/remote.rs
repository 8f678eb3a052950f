//! A server, over HTTP. One connection is kept for the next question.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::Uri;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use promethean_gateway::PORT;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::ask::{Answer, Ask, Asked};
use crate::command::Status;
use crate::failure::Failure;

pub(super) type Connection = SendRequest<Full<Bytes>>;

#[derive(Debug)]
pub(crate) struct Remote {
    url: String,
    host: String,
    port: u16,
    is_secure: bool,
    token: Option<String>,
    patience: Duration,
    way: Way,
    idle: Mutex<Option<Connection>>,
    /// Where administration is, if it is not here.
    admin: Option<Box<Self>>,
}

/// How a user got there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Way {
    /// What was said on the command line, as flags.
    pub(super) said: String,
    /// By a context that wants changes to be confirmed by name.
    pub(super) is_protected: bool,
}

impl Remote {
    pub(super) fn new(
        url: &str,
        token: Option<String>,
        patience: Duration,
        way: Way,
    ) -> Result<Self, Failure> {
        let wrong = |why: &str| {
            Failure::usage(format!("{url:?} is not the address of a server: {why}"))
                .hint("write it like http://127.0.0.1:7766")
        };
        // A WebSocket address names the same server.
        let plain = match url.split_once("://") {
            Some(("ws", rest)) => format!("http://{rest}"),
            Some(("wss", rest)) => format!("https://{rest}"),
            Some(_) => url.to_owned(),
            None => format!("http://{url}"),
        };
        let uri: Uri =
            plain.parse().map_err(|error: http::uri::InvalidUri| wrong(&error.to_string()))?;
        let is_secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("only http and https are spoken here")),
        };
        let host = uri.host().ok_or_else(|| wrong("it has no host"))?.to_owned();
        if token.is_some() && !is_secure && !is_loopback(&host) {
            return Err(wrong("a token would be sent in plain text").hint("use https"));
        }
        let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { PORT });
        let url = plain.trim_end_matches('/').to_owned();
        let idle = Mutex::new(None);
        Ok(Self { url, host, port, is_secure, token, patience, way, idle, admin: None })
    }

    /// The same, with another address for administration.
    pub(super) fn with_admin(self, url: Option<&str>) -> Result<Self, Failure> {
        let Some(url) = url else { return Ok(self) };
        let admin = Self::new(url, self.token.clone(), self.patience, Way::default())?;
        Ok(Self { admin: Some(Box::new(admin)), ..self })
    }

    /// Of what kind a question is.
    pub(super) fn asked(&self, ask: &Ask) -> Asked {
        Asked { administration: ask.is_administration(), apart: self.admin.is_some() }
    }

    /// Who answers it.
    fn for_question(&self, asked: Asked) -> &Self {
        self.admin.as_deref().filter(|_| asked.administration).unwrap_or(self)
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) const fn way(&self) -> &Way {
        &self.way
    }

    pub(super) async fn ask(&self, ask: Ask) -> anyhow::Result<Answer> {
        self.for_question(self.asked(&ask)).ask_here(ask).await
    }

    async fn ask_here(&self, ask: Ask) -> anyhow::Result<Answer> {
        let idle = self.idle.lock().await.take().filter(|connection| !connection.is_closed());
        if let Some(connection) = idle {
            // The server may have closed it meanwhile; then a new one is asked. Questions can be
            // asked twice: events that are published carry their ids.
            if let Ok(answer) = self.ask_over(connection, &ask).await {
                return Ok(answer);
            }
        }
        let connection = self.connect().await?;
        self.ask_over(connection, &ask).await
    }

    /// Keeps a connection whose answer has been read.
    pub(super) async fn keep(&self, asked: Asked, connection: Connection) {
        *self.for_question(asked).idle.lock().await = Some(connection);
    }

    async fn ask_over(&self, mut connection: Connection, ask: &Ask) -> anyhow::Result<Answer> {
        let target = ask.target();
        let mut request = http::Request::builder()
            .method(ask.method.clone())
            .uri(&target)
            .header(http::header::HOST, format!("{}:{}", self.host, self.port))
            .header(http::header::USER_AGENT, concat!("prom/", env!("CARGO_PKG_VERSION")));
        for (name, value) in &ask.headers {
            request = request.header(name, value);
        }
        if let Some(token) = &self.token {
            request = request.header(http::header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request =
            request.body(Full::new(ask.body.clone())).context("the request is not one")?;
        let answer = timeout(self.patience, connection.send_request(request)).await;
        let late = || format!("{} did not answer within {:?}", self.url, self.patience);
        let answer = answer.map_err(|_| Failure::new(Status::Unreachable, late()))?;
        let answer = answer.map_err(|error| {
            Failure::new(Status::Unreachable, format!("{} did not answer: {error}", self.url))
        })?;
        let status = answer.status().as_u16();
        let body = answer.into_body().map_err(io::Error::other).boxed_unsync();
        Ok(Answer { status, body, connection: Some(connection) })
    }

    async fn connect(&self) -> anyhow::Result<Connection> {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        let connecting = async {
            let stream = TcpStream::connect((host, self.port)).await?;
            stream.set_nodelay(true)?;
            if !self.is_secure {
                return opened(stream).await;
            }
            let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
            opened(trusting()?.connect(name, stream).await?).await
        };
        let failed = |why: String| {
            let failure = Failure::new(
                Status::Unreachable,
                format!("nothing answers at {}: {why}", self.url),
            );
            failure.hint(
                "start a server with `prom dev`, name one with --url, or use a directory with --data",
            )
        };
        match timeout(self.patience, connecting).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(failed(error.to_string()).into()),
            Err(_) => Err(failed(format!("no connection within {:?}", self.patience)).into()),
        }
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || address.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

async fn opened(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> io::Result<Connection> {
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // Whoever asks hears of what goes wrong with it.
    tokio::spawn(connection);
    Ok(sender)
}

/// Trusts whom the machine trusts.
fn trusting() -> io::Result<TlsConnector> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(io::Error::other("this machine has no certificates to trust"));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

pub(super) fn read_token(file: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(file);
    let text = text.with_context(|| format!("cannot read the token in {}", file.display()))?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(url: &str, token: Option<&str>) -> Result<Remote, Failure> {
        Remote::new(url, token.map(str::to_owned), Duration::from_secs(1), Way::default())
    }

    #[test]
    fn addresses() {
        for usual in ["http://127.0.0.1:7766", "localhost", "ws://[::1]:7766/", "127.0.0.1:7766"] {
            let remote = remote(usual, None).unwrap();
            assert!(is_loopback(&remote.host), "{usual}");
            assert_eq!((remote.is_secure, remote.port), (false, PORT), "{usual}");
        }
        assert_eq!(remote("https://bus.example", None).unwrap().port, 443);
        for wrong in ["ftp://a", "http://", "http://a b", ""] {
            assert_eq!(remote(wrong, None).unwrap_err().status, Status::Usage, "{wrong}");
        }
    }

    #[test]
    fn administration_is_asked_where_it_is() {
        let remote = remote("localhost:1", None).unwrap().with_admin(Some("localhost:2")).unwrap();
        let port = |ask: Ask| remote.for_question(remote.asked(&ask)).port;
        assert_eq!(port(Ask::get("/topics").query("topic", Some("a"))), 2);
        assert_eq!(port(Ask::post("/groups/g/seek")), 2);
        assert_eq!(port(Ask::post("/registry/a/versions")), 2);
        assert_eq!(port(Ask::get("/registry/a/versions")), 1);
        assert_eq!(port(Ask::post("/publish/a").query("key", Some("k"))), 1);
        assert_eq!(port(Ask::get("/livez")), 1);
        assert_eq!(port(Ask::get("/nowhere")), 1);
    }

    #[test]
    fn tokens_do_not_travel_in_plain_text() {
        assert!(remote("http://bus.example", Some("t")).is_err());
        assert!(remote("https://bus.example", Some("t")).is_ok());
        assert!(remote("http://localhost", Some("t")).is_ok());
    }
}
