use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::{Failure, Place};

/// A connection for requests, one after the other. What ends with its server says `None`.
pub(super) struct Http {
    stream: BufReader<TcpStream>,
    place: Place,
}

impl Http {
    pub(super) async fn connect(place: &Place) -> Option<Self> {
        let stream = TcpStream::connect(&place.at).await.ok()?;
        Some(Self { stream: BufReader::new(stream), place: place.clone() })
    }

    /// Asks; status and body of the answer.
    pub(super) async fn ask(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<Option<(u16, Value)>, Failure> {
        let Place { at, token } = &self.place;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {at}\r\nauthorization: Bearer {token}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        if self.stream.get_mut().write_all(request.as_bytes()).await.is_err() {
            return Ok(None);
        }
        let Some(status) = self.line().await else {
            return Ok(None);
        };
        let status = status.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status: u16 = status.ok_or("not an answer of HTTP")?;
        let mut length = 0;
        loop {
            let Some(line) = self.line().await else {
                return Ok(None);
            };
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
        let mut body = vec![0; length];
        if self.stream.read_exact(&mut body).await.is_err() {
            return Ok(None);
        }
        Ok(Some((status, serde_json::from_slice(&body)?)))
    }

    async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line).await.ok()?;
        line.ends_with('\n').then(|| line.trim_end().to_owned()).filter(|_| read > 0)
    }
}
