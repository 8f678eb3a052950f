use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

use super::call::request_id;
use crate::edge::Edge;
use crate::rejection::{Code, Rejection};

pub(super) const JSON: &str = "application/json";

/// A body of one piece.
pub(super) fn bytes(status: u16, kind: &'static str, body: impl Into<Bytes>) -> Response {
    with_body(status, kind, Body::from(body.into()))
}

/// A body that is still being made.
pub(super) fn with_body(status: u16, kind: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    // What is read here is some client's own; no cache in between keeps it.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A value as JSON.
pub(super) fn json(status: u16, value: &impl Serialize) -> Result<Response, Rejection> {
    let body = serde_json::to_vec(value).map_err(|_| Rejection::plain(Code::Internal))?;
    Ok(bytes(status, JSON, body))
}

/// A refusal as a problem document.
pub(super) fn problem(edge: &Edge, refusal: &Rejection, request: &str) -> Response {
    edge.count_refusal(refusal.code);
    let body = serde_json::to_vec(&refusal.problem(request)).unwrap_or_default();
    let mut response = bytes(refusal.code.status(), "application/problem+json", body);
    let headers = response.headers_mut();
    if let Some(seconds) = refusal.retry_after_s() {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if refusal.code.status() == 401 {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if refusal.code == Code::SlowRequest {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// A refusal where nothing of HTTP is there that could say it: the bytes of a whole answer.
pub(crate) fn raw(refusal: &Rejection) -> Vec<u8> {
    let status = StatusCode::from_u16(refusal.code.status()).unwrap_or_default();
    let body = serde_json::to_string(&refusal.problem(&request_id())).unwrap_or_default();
    let retry = refusal.retry_after_s();
    let retry = retry.map(|seconds| format!("retry-after: {seconds}\r\n")).unwrap_or_default();
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\ncache-control: no-store\r\n\
         {retry}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
    .into_bytes()
}
