use std::sync::Arc;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use axum::body::Body;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::call::Call;
use super::endpoint::{Endpoint, Guard, Verb, bearer};
use crate::limits::{FRAME_BYTES_MAX, READ_BUFFER_BYTES, WRITE_BUFFER_BYTES};
use crate::rejection::{Code, Rejection};
use crate::session::{self, Dialect, Farewell, Fragments, Upgraded};

pub(super) const ROOT: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/",
    guard: Guard::Frames,
    summary: "A WebSocket, as PROTOCOL.md lays it down.",
    query: &[],
    act: |call| upgrade(call).boxed(),
};

pub(super) const WS: Endpoint = Endpoint { path: "/ws", ..ROOT };

/// How a subprotocol begins that is none, but a ticket.
const TICKET: &str = "ticket.";

async fn upgrade(mut call: Call) -> Result<Response, Rejection> {
    // A page that others control is known by its origin, which was checked; a client without one
    // has to have a credential, in the head or in its first frame.
    let credential = bearer(&call.head.headers)?.is_some();
    let mut principal =
        (credential || call.edge.anonymous().is_some()).then(|| call.principal.clone());
    let accept = accept(&call.head.headers)?;
    let on_upgrade = call.head.extensions.remove::<OnUpgrade>();
    let on_upgrade = on_upgrade.ok_or(Rejection::plain(Code::BadRequest))?;
    if call.edge.is_draining() {
        return Err(Rejection::plain(Code::GoingAway).after_ms(1_000));
    }
    // Last, so that a request that would be refused anyway does not use it up.
    let ticket = ticket(&call.head.headers, credential)?;
    if let Some(ticket) = ticket {
        principal = Some(call.edge.redeem(ticket, call.peer.address.ip())?);
    }
    let known = match principal {
        Some(principal) if principal.policy().is_empty() => {
            return Err(Rejection::new(Code::Forbidden, "the token allows nothing"));
        }
        Some(principal) => {
            let presence = call.edge.attend(&principal, call.peer.address.ip())?;
            Some((principal, presence))
        }
        None => None,
    };
    let named = tokens(&call.head.headers, &header::SEC_WEBSOCKET_PROTOCOL);
    let dialect = if named.contains(&session::PROTOCOL) { Dialect::V1 } else { Dialect::Plain };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
    if dialect == Dialect::V1 {
        let name = HeaderValue::from_static(session::PROTOCOL);
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, name);
    }
    let (edge, peer) = (call.edge, call.peer);
    tokio::spawn(async move {
        // The client may be gone before it was answered.
        let Ok(upgraded) = on_upgrade.await else { return };
        let farewell = Arc::new(Farewell::default());
        let stream = Fragments::new(TokioIo::new(upgraded), Arc::clone(&farewell));
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(bounds())).await;
        session::run(edge, Upgraded { socket, farewell }, peer, dialect, known).await;
    });
    Ok(response)
}

/// All of them are said: by default a message may have 64 MiB, and what is written grows without
/// end.
fn bounds() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(FRAME_BYTES_MAX))
        .max_frame_size(Some(FRAME_BYTES_MAX))
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_write_buffer_size(WRITE_BUFFER_BYTES + 4 * FRAME_BYTES_MAX)
}

/// The answer to the key of a request that wants a WebSocket (RFC 6455, 4.2).
fn accept(headers: &HeaderMap) -> Result<HeaderValue, Rejection> {
    const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let refused = |code| Rejection::new(code, "connect here with a WebSocket of version 13");
    if !headers.contains_key(header::UPGRADE) {
        return Err(refused(Code::NotFound));
    }
    let says = |name: &HeaderName, wanted: &str| {
        tokens(headers, name).iter().any(|one| one.eq_ignore_ascii_case(wanted))
    };
    let key = headers.get(header::SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes);
    let key = key.filter(|key| STANDARD.decode(key).is_ok_and(|nonce| nonce.len() == 16));
    let wanted = says(&header::CONNECTION, "upgrade")
        && says(&header::UPGRADE, "websocket")
        && says(&header::SEC_WEBSOCKET_VERSION, "13");
    let key = key.filter(|_| wanted).ok_or_else(|| refused(Code::BadRequest))?;
    let sum = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, GUID].concat());
    HeaderValue::from_str(&STANDARD.encode(sum)).map_err(|_| Rejection::plain(Code::Internal))
}

/// The ticket among the subprotocols that are offered: browsers let a page name those, and no other
/// header. Who shows two credentials is refused as if both were wrong.
fn ticket(headers: &HeaderMap, credential: bool) -> Result<Option<&str>, Rejection> {
    let named = tokens(headers, &header::SEC_WEBSOCKET_PROTOCOL);
    let mut given = named.into_iter().filter_map(|name| name.strip_prefix(TICKET));
    let ticket = given.next();
    if ticket.is_some() && (credential || given.next().is_some()) {
        return Err(Rejection::plain(Code::Unauthorized));
    }
    Ok(ticket)
}

/// What a header lists, over all its lines.
fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Vec<&'a str> {
    let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(changes: &[(HeaderName, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            (header::CONNECTION, "keep-alive, Upgrade"),
            (header::UPGRADE, "WebSocket"),
            (header::SEC_WEBSOCKET_VERSION, "13"),
            (header::SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ=="),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        for (name, value) in changes {
            headers.insert(name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn the_key_is_answered_as_in_the_standard() {
        assert_eq!(accept(&asked(&[])).unwrap(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        for change in [
            (header::CONNECTION, "close"),
            (header::UPGRADE, "h2c"),
            (header::SEC_WEBSOCKET_VERSION, "8"),
            (header::SEC_WEBSOCKET_KEY, "short"),
        ] {
            let refused = accept(&asked(&[change])).unwrap_err();
            assert_eq!(refused.code, Code::BadRequest);
        }
        assert_eq!(accept(&HeaderMap::new()).unwrap_err().code, Code::NotFound);
    }
}
