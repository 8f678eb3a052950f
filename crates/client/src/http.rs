//! What is asked over HTTP: everything that is not a stream. One connection is kept for the next
//! question.

use std::fmt;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Method, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::error::{ConnectError, GroupError};
use crate::limits::HTTP_MS;
use crate::link::Route;
use crate::socket;

type Connection = SendRequest<Full<Bytes>>;

pub(crate) struct Http {
    route: Route,
    idle: Mutex<Option<Connection>>,
}

/// A question.
#[derive(Debug)]
pub(crate) struct Ask {
    method: Method,
    target: String,
    body: Bytes,
}

impl Ask {
    pub(crate) fn get(path: &str, query: &[(&str, &str)]) -> Self {
        Self { method: Method::GET, target: with_query(path, query), body: Bytes::new() }
    }

    pub(crate) fn delete(path: &str) -> Self {
        Self { method: Method::DELETE, target: path.to_owned(), body: Bytes::new() }
    }

    pub(crate) fn post(path: &str, body: &serde_json::Value) -> Self {
        let body = body.to_string().into();
        Self { method: Method::POST, target: path.to_owned(), body }
    }
}

fn with_query(path: &str, query: &[(&str, &str)]) -> String {
    if query.is_empty() {
        return path.to_owned();
    }
    let mut pairs = form_urlencoded::Serializer::new(String::new());
    pairs.extend_pairs(query);
    format!("{path}?{}", pairs.finish())
}

/// A part of a path.
pub(crate) fn segment(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}

impl Http {
    pub(crate) fn new(route: Route) -> Self {
        Self { route, idle: Mutex::new(None) }
    }

    /// Asks for an answer that comes line by line, over a connection of its own.
    pub(crate) async fn lines(&self, ask: Ask) -> Result<Lines, GroupError> {
        let answering = async {
            let token = self.route.credential.get().await?;
            let mut connection = self.connect().await?;
            self.answer(&mut connection, &ask, token.as_deref()).await
        };
        let answer = match timeout(Duration::from_millis(HTTP_MS), answering).await {
            Ok(answer) => answer?,
            Err(_) => return Err(self.unreachable("no answer in time").into()),
        };
        let status = answer.status();
        let mut lines = Lines { body: answer.into_body(), here: BytesMut::new() };
        if status.is_success() {
            return Ok(lines);
        }
        // A refusal is one document.
        let mut problem = Vec::new();
        while let Some(line) = lines.next().await? {
            problem.extend_from_slice(&line);
        }
        Err(socket::problem(status.as_u16(), &problem).into())
    }

    /// Asks, and reads the answer.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, ask: Ask) -> Result<T, GroupError> {
        let body = match timeout(Duration::from_millis(HTTP_MS), self.fetch(&ask)).await {
            Ok(body) => body?,
            Err(_) => return Err(self.unreachable("no answer in time").into()),
        };
        serde_json::from_slice(&body).map_err(|error| GroupError::NotUnderstood(error.to_string()))
    }

    async fn fetch(&self, ask: &Ask) -> Result<Bytes, GroupError> {
        let token = self.route.credential.get().await?;
        let idle = self.idle.lock().await.take().filter(|connection| !connection.is_closed());
        if let Some(connection) = idle {
            // The server may have closed it meanwhile; then a new one is asked. What is asked here
            // can be asked twice.
            match self.fetch_over(connection, ask, token.as_deref()).await {
                Err(GroupError::Connection(_)) => {}
                answered => return answered,
            }
        }
        let connection = self.connect().await?;
        self.fetch_over(connection, ask, token.as_deref()).await
    }

    async fn connect(&self) -> Result<Connection, GroupError> {
        let stream = socket::stream(&self.route.address, self.route.tls.as_ref()).await?;
        let shaken = handshake(TokioIo::new(stream)).await;
        let (connection, driver) = shaken.map_err(|error| self.unreachable(&error.to_string()))?;
        // Whoever asks hears of what goes wrong with it.
        tokio::spawn(driver);
        Ok(connection)
    }

    async fn fetch_over(
        &self,
        mut connection: Connection,
        ask: &Ask,
        token: Option<&str>,
    ) -> Result<Bytes, GroupError> {
        let answer = self.answer(&mut connection, ask, token).await?;
        let status = answer.status();
        let failed = |error: hyper::Error| self.unreachable(&error.to_string());
        let body = answer.into_body().collect().await.map_err(failed)?.to_bytes();
        *self.idle.lock().await = Some(connection);
        if !status.is_success() {
            return Err(socket::problem(status.as_u16(), &body).into());
        }
        Ok(body)
    }

    async fn answer(
        &self,
        connection: &mut Connection,
        ask: &Ask,
        token: Option<&str>,
    ) -> Result<http::Response<Incoming>, GroupError> {
        let mut request = http::Request::builder()
            .method(ask.method.clone())
            .uri(&ask.target)
            .header(header::HOST, self.route.address.authority())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, concat!("promethean-client/", env!("CARGO_PKG_VERSION")));
        if let Some(token) = token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request
            .body(Full::new(ask.body.clone()))
            .map_err(|error| self.unreachable(&error.to_string()))?;
        let failed = |error: hyper::Error| self.unreachable(&error.to_string());
        Ok(connection.send_request(request).await.map_err(failed)?)
    }

    fn unreachable(&self, why: &str) -> ConnectError {
        ConnectError::Unreachable { url: self.route.address.url.clone(), why: why.to_owned() }
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("route", &self.route).finish_non_exhaustive()
    }
}

/// An answer that comes line by line. The server waits while nobody reads.
#[derive(Debug)]
pub(crate) struct Lines {
    body: Incoming,
    here: BytesMut,
}

impl Lines {
    /// The next line, without its end; `None` after the last. A piece that does not come in time is
    /// an error.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, GroupError> {
        let mut looked_at = 0;
        loop {
            let found = self.here.iter().skip(looked_at).position(|&byte| byte == b'\n');
            if let Some(end) = found {
                let line = self.here.split_to(looked_at + end + 1).freeze();
                return Ok(Some(line.slice(..line.len() - 1)));
            }
            looked_at = self.here.len();
            let frame = timeout(Duration::from_millis(HTTP_MS), self.body.frame()).await;
            match frame {
                Err(_) => return Err(broken("the next piece did not come in time")),
                Ok(Some(Err(error))) => return Err(broken(&error.to_string())),
                Ok(Some(Ok(frame))) => {
                    self.here.extend_from_slice(frame.data_ref().map_or(&[], |data| &data[..]));
                }
                Ok(None) if self.here.is_empty() => return Ok(None),
                Ok(None) => return Ok(Some(self.here.split().freeze())),
            }
        }
    }
}

pub(crate) fn broken(why: &str) -> GroupError {
    GroupError::NotUnderstood(format!("it broke off: {why}"))
}
