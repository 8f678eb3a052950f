use axum::response::Response;
use futures_util::FutureExt;
use serde::Serialize;

use super::answer;
use super::call::Call;
use super::endpoint::{Endpoint, Guard, Verb};
use crate::limits::TICKET_LIFE_MS;
use crate::rejection::{Code, Rejection};

pub(super) const ENDPOINT: Endpoint = Endpoint {
    method: Verb::Post,
    path: "/tickets",
    guard: Guard::Known,
    summary: "A ticket by which a web page opens one WebSocket as the caller, at this hub, soon.",
    query: &[],
    act: |call| give(call).boxed(),
};

#[derive(Serialize)]
struct Given {
    ticket: String,
    /// When it is worth nothing any more, in epoch milliseconds.
    expires_at: u64,
}

async fn give(call: Call) -> Result<Response, Rejection> {
    if call.principal.policy().is_empty() {
        return Err(Rejection::new(Code::Forbidden, "the token allows nothing"));
    }
    let now_ms = call.edge.clock.now_ms();
    let ticket = call.edge.tickets.give(&call.principal, call.edge.clock.elapsed())?;
    answer::json(201, &Given { ticket, expires_at: now_ms + TICKET_LIFE_MS })
}
