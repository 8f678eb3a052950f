use axum::RequestPartsExt;
use axum::extract::ws::{WebSocketUpgrade, rejection::WebSocketUpgradeRejection};
use axum::response::Response;
use futures_util::FutureExt;
use http::header;

use super::call::Call;
use super::endpoint::{Endpoint, Guard, Verb, bearer};
use crate::limits::{FRAME_BYTES_MAX, READ_BUFFER_BYTES, WRITE_BUFFER_BYTES};
use crate::rejection::{Code, Rejection};
use crate::session::{self, Dialect};

pub(super) const ROOT: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/",
    guard: Guard::Frames,
    summary: "A WebSocket, as PROTOCOL.md lays it down.",
    query: &[],
    act: |call| upgrade(call).boxed(),
};

pub(super) const WS: Endpoint = Endpoint { path: "/ws", ..ROOT };

async fn upgrade(mut call: Call) -> Result<Response, Rejection> {
    // A page that others control is known by its origin, which was checked; a client without one
    // has to have a credential, in the head or in its first frame.
    let credential = bearer(&call.head.headers)?.is_some();
    let principal = (credential || call.edge.anonymous().is_some()).then(|| call.principal.clone());
    let upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection> = call.head.extract().await;
    let upgrade = upgrade.map_err(|_| {
        let wanted = call.head.headers.contains_key(header::UPGRADE);
        let code = if wanted { Code::BadRequest } else { Code::NotFound };
        Rejection::new(code, "connect here with a WebSocket of version 13")
    })?;
    if call.edge.is_draining() {
        return Err(Rejection::plain(Code::GoingAway).after_ms(1_000));
    }
    let (edge, peer) = (call.edge, call.peer);
    // All four bounds are said: by default a message may have 64 MiB, and what is written grows
    // without end.
    let upgrade = upgrade
        .protocols([session::PROTOCOL])
        .max_message_size(FRAME_BYTES_MAX)
        .max_frame_size(FRAME_BYTES_MAX)
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .max_write_buffer_size(WRITE_BUFFER_BYTES + 4 * FRAME_BYTES_MAX);
    let dialect = if upgrade.selected_protocol().is_some() { Dialect::V1 } else { Dialect::Plain };
    Ok(upgrade.on_upgrade(move |socket| session::run(edge, socket, peer, dialect, principal)))
}
