//! HTTP: every resource is an [`Endpoint`] that says who may use it. There is no other way into
//! the router, so that a route without a rule cannot be made.

mod answer;

mod call;

mod endpoint;

mod publish;

mod scan;

mod events;

mod replay;

mod export;

mod groups;

mod latest;

mod partitions;

mod dead_letters;

mod health;

mod metrics;

mod openapi;

mod upgrade;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;

use crate::edge::Edge;
use crate::listener::Door;
use crate::rejection::{Code, Rejection};
pub(crate) use endpoint::Endpoint;

/// Who is at the other end. Counts as one connection for as long as it is kept: a WebSocket
/// outlives the request that it began as.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) _door: Arc<Door>,
}

/// All resources, in the order in which an event meets them.
pub(crate) fn endpoints() -> Vec<Endpoint> {
    let mut all = vec![upgrade::ROOT, upgrade::WS, publish::ENDPOINT];
    all.extend([events::ENDPOINT, replay::ENDPOINT, export::ENDPOINT, latest::ENDPOINT]);
    all.extend([groups::CURSORS, groups::LAG, groups::SEEK, partitions::ENDPOINT]);
    all.extend([dead_letters::LIST, dead_letters::REPLAY, dead_letters::DISCARD]);
    all.extend([metrics::ENDPOINT, health::LIVE, health::READY, openapi::ENDPOINT]);
    all
}

pub(crate) fn router(edge: &Arc<Edge>) -> Router {
    let mut router = Router::new();
    for endpoint in endpoints() {
        router = router.route(endpoint.path, endpoint.route(edge));
    }
    let unknown = Arc::clone(edge);
    let wrong_method = Arc::clone(edge);
    router
        .fallback(move |request: Request| refuse(Arc::clone(&unknown), request, Code::NotFound))
        .method_not_allowed_fallback(move |request: Request| {
            refuse(Arc::clone(&wrong_method), request, Code::MethodNotAllowed)
        })
}

async fn refuse(edge: Arc<Edge>, request: Request, code: Code) -> Response {
    let refusal = endpoint::admit_request(&edge, &request).err();
    answer::problem(&edge, &refusal.unwrap_or(Rejection::plain(code)), &call::request_id())
}
