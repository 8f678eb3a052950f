//! HTTP: every resource is an [`Endpoint`] that says who may use it. There is no other way into
//! the router, so that a route without a rule cannot be made.

mod answer;

mod call;

mod time;

mod endpoint;

mod cross_origin;

mod publish;

mod scan;

mod events;

mod follow;

mod event;

mod replay;

mod export;

mod topics;

mod groups;

mod portion;

mod latest;

mod keys;

mod partitions;

mod dead_letters;

mod registry;

mod evolution;

mod confluent;

mod snapshots;

mod views;

mod trace;

mod jobs;

mod changefeeds;

mod tokens;

mod tickets;

mod audit;

mod health;

mod metrics;

mod openapi;

mod shapes;

mod upgrade;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use http::{HeaderValue, Method, StatusCode, header};

use crate::edge::Edge;
use crate::listener::Door;
use crate::quota::Bucket;
use crate::rejection::{Code, Rejection};
pub(crate) use answer::raw;
pub(crate) use endpoint::{Endpoint, Entrance};

/// Who is at the other end. Counts as one connection for as long as it is kept: a WebSocket
/// outlives the request that it began as.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    pub(crate) _door: Arc<Door>,
    pub(crate) buckets: Arc<Mutex<PeerBuckets>>,
}

/// What the requests of one connection may do together. A WebSocket has its own.
#[derive(Debug, Default)]
pub(crate) struct PeerBuckets {
    pub(crate) published: Bucket,
    pub(crate) delivered: Bucket,
}

impl Peer {
    pub(crate) fn new(address: SocketAddr, door: Door) -> Self {
        Self { address, _door: Arc::new(door), buckets: Arc::default() }
    }

    pub(crate) fn buckets(&self) -> MutexGuard<'_, PeerBuckets> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All resources, in the order in which an event meets them.
pub(crate) fn endpoints() -> Vec<Endpoint> {
    let mut all = vec![upgrade::ROOT, upgrade::WS, publish::ENDPOINT];
    all.extend([events::ENDPOINT, follow::ENDPOINT, event::ENDPOINT]);
    all.extend([replay::ENDPOINT, export::ENDPOINT, latest::ENDPOINT]);
    all.extend([keys::KEYS, keys::HISTORY]);
    all.extend([topics::LIST, topics::DEFINE, topics::REMOVE, partitions::ENDPOINT]);
    all.extend([groups::CURSORS, groups::LAG, groups::SEEK, groups::SHOW]);
    all.extend([groups::DEFINE, groups::REMOVE]);
    all.extend([dead_letters::LIST, dead_letters::REPLAY, dead_letters::DISCARD]);
    all.extend(registry::ENDPOINTS);
    all.extend(evolution::ENDPOINTS);
    all.extend(confluent::endpoints());
    all.extend(views::endpoints());
    all.extend([snapshots::ENDPOINT, trace::ENDPOINT]);
    all.extend(jobs::ENDPOINTS);
    all.extend(changefeeds::ENDPOINTS);
    all.extend(tokens::ENDPOINTS);
    all.push(tickets::ENDPOINT);
    all.push(audit::ENDPOINT);
    all.extend([metrics::ENDPOINT, health::LIVE, health::HEALTH, health::READY]);
    all.push(openapi::ENDPOINT);
    all
}

/// Whether what a request asks for is administration, which may have a listener of its own: clients
/// with two addresses choose by this. `path` is that of the request, without what is behind `?`.
pub fn is_administration(method: &Method, path: &str) -> bool {
    let method = if *method == Method::HEAD { "get" } else { method.as_str() };
    let segments: Vec<&str> = path.split('/').collect();
    let meant = |endpoint: &Endpoint| {
        let known: Vec<&str> = endpoint.path.split('/').collect();
        let is_same = |(known, given): (&&str, &&str)| known.starts_with('{') || known == given;
        let is_it = endpoint.method.name().eq_ignore_ascii_case(method)
            && known.len() == segments.len()
            && known.iter().zip(&segments).all(is_same);
        is_it.then(|| known.iter().filter(|segment| !segment.starts_with('{')).count())
    };
    // What is named goes before what is any, as in the router.
    let found = endpoints().into_iter().filter_map(|one| Some((meant(&one)?, one.guard)));
    let found = found.max_by_key(|(named, _)| *named);
    found.is_some_and(|(_, guard)| !Entrance::Data.serves(guard))
}

pub(crate) fn router(edge: &Arc<Edge>, entrance: Entrance) -> Router {
    let mut router = Router::new();
    let (here, elsewhere): (Vec<Endpoint>, Vec<Endpoint>) =
        endpoints().into_iter().partition(|endpoint| entrance.serves(endpoint.guard));
    for endpoint in &here {
        // Methods of one address are joined by the router.
        router = router.route(endpoint.path, endpoint.route(edge, entrance));
    }
    // An address that is here keeps its other methods to itself, too.
    for endpoint in elsewhere {
        if here.iter().any(|other| other.path == endpoint.path) {
            router = router.route(endpoint.path, endpoint.absent(edge));
        }
    }
    let unknown = Arc::clone(edge);
    let wrong_method = Arc::clone(edge);
    let shared = Arc::clone(edge);
    router
        .fallback(move |request: Request| refuse(Arc::clone(&unknown), request, Code::NotFound))
        .method_not_allowed_fallback(move |request: Request| {
            refuse(Arc::clone(&wrong_method), request, Code::MethodNotAllowed)
        })
        .layer(from_fn(move |request: Request, next: Next| {
            cross_origin::share(Arc::clone(&shared), request, next)
        }))
        .layer(from_fn(agree_or_close))
}

/// A connection that was to speak something else ends if that is refused: what comes behind such a
/// request is not looked at any more (`framing`).
async fn agree_or_close(request: Request, next: Next) -> Response {
    let wanted = request.headers().contains_key(header::UPGRADE);
    let mut response = next.run(request).await;
    if wanted && response.status() != StatusCode::SWITCHING_PROTOCOLS {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// A refusal of a request that has not been looked at.
pub(crate) fn refusal(edge: &Edge, refusal: &Rejection) -> Response {
    answer::problem(edge, refusal, &call::request_id())
}

async fn refuse(edge: Arc<Edge>, request: Request, code: Code) -> Response {
    let refusal = endpoint::admit_request(&edge, &request).err();
    answer::problem(&edge, &refusal.unwrap_or(Rejection::plain(code)), &call::request_id())
}
