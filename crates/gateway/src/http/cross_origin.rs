//! Pages of origins that the operator named may read answers: cross-origin resource sharing, as the
//! Fetch standard has it. Nothing is shared with others, and cookies are not used at all.

use std::sync::Arc;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, Method, header};

use super::answer;
use super::endpoint::admit_request;
use crate::edge::Edge;

const METHODS: &str = "GET, POST, PUT, DELETE";
const REQUEST_HEADERS: &str = "authorization, content-type, idempotency-key, last-event-id, \
                               if-match, if-none-match, traceparent";
const ANSWER_HEADERS: &str = "etag, link, retry-after, x-missing, x-position, x-request-id";
/// How long a browser need not ask again.
const ASK_AGAIN_S: &str = "600";

/// Answers what browsers ask before they send, and lets the page see the answer.
pub(super) async fn share(edge: Arc<Edge>, request: Request, next: Next) -> Response {
    let Some(origin) = named_origin(&edge, request.headers()) else {
        return next.run(request).await;
    };
    let asks_first = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if asks_first && admit_request(&edge, &request).is_ok() {
        permission()
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(ANSWER_HEADERS));
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    response
}

/// The origin of the page that asks, if an operator named it. The server's own needs no permission.
fn named_origin(edge: &Edge, headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(header::ORIGIN)?;
    let text = origin.to_str().ok()?;
    edge.settings.origins.iter().any(|known| known == text).then(|| origin.clone())
}

fn permission() -> Response {
    let mut response = answer::bytes(204, answer::JSON, "");
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_TYPE);
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_METHODS, METHODS),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS),
        (header::ACCESS_CONTROL_MAX_AGE, ASK_AGAIN_S),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
