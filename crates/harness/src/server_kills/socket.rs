use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::{Failure, Place};

/// A WebSocket. What ends with its server says `None`.
pub(super) struct Socket(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Socket {
    pub(super) async fn connect(
        place: &Place,
        protocol: Option<&'static str>,
    ) -> Result<Option<Self>, Failure> {
        let mut request = format!("ws://{}/ws", place.at).into_client_request()?;
        let head = request.headers_mut();
        head.insert("authorization", format!("Bearer {}", place.token).parse()?);
        if let Some(protocol) = protocol {
            head.insert("sec-websocket-protocol", protocol.parse()?);
        }
        match connect_async(request).await {
            Ok((socket, _)) => Ok(Some(Self(socket))),
            Err(tokio_tungstenite::tungstenite::Error::Http(response)) => {
                Err(format!("the upgrade was refused: {}", response.status()).into())
            }
            Err(_) => Ok(None),
        }
    }

    pub(super) async fn say(&mut self, frame: &Value) -> Option<()> {
        self.0.send(Message::text(frame.to_string())).await.ok()
    }

    /// The next frame.
    pub(super) async fn next(&mut self) -> Result<Option<Value>, Failure> {
        loop {
            match self.0.next().await {
                Some(Ok(Message::Text(text))) => return Ok(Some(serde_json::from_str(&text)?)),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Close(Some(close)))) => {
                    return Err(format!("closed with {}: {}", close.code, close.reason).into());
                }
                _ => return Ok(None),
            }
        }
    }
}
