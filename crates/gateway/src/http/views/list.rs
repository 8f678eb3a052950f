//! Documents by their declared fields.

use axum::response::Response;
use futures_util::FutureExt;
use promethean::projection::query::ListQuery;
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Named, named, snap};
use crate::access::Action;
use crate::http::answer;
use crate::http::call::Call;
use crate::http::endpoint::{Endpoint, Guard, Verb};
use crate::rejection::{Code, Rejection};

pub(super) const ENDPOINT: Endpoint = Endpoint {
    method: Verb::Get,
    path: "/views/{view}/list",
    guard: Guard::Topics(Action::Read),
    summary: "Documents by declared fields, as in host=a&pid.ge=100&sort=-pid&limit=50; page is the \
              token of the next page.",
    query: &["limit", "sort", "page", "min_position", "wait_ms", "*"],
    act: |call| list(call).boxed(),
};

#[derive(Serialize)]
struct Documents {
    documents: Vec<Box<RawValue>>,
    next: Option<String>,
}

async fn list(call: Call) -> Result<Response, Rejection> {
    let named = named(&call)?;
    snap::wait_for_position(&call, &named).await?;
    let declared = named.projection.view(&named.view).ok_or(Rejection::plain(Code::Internal))?;
    let parameters =
        call.query.pairs().filter(|(name, _)| *name != "min_position" && *name != "wait_ms");
    let query = ListQuery::parse(declared, parameters)
        .map_err(|error| Rejection::new(Code::BadRequest, error.to_string()))?;
    // Before the documents: they are at least as fresh as this says.
    let reached = reached(&named);
    let page = named.projection.list(&named.view, query).await?;
    let raw = page.documents.iter().map(|document| RawValue::from_string(document.to_json()));
    let documents = raw.collect::<Result<_, _>>().map_err(|_| Rejection::plain(Code::Internal))?;
    let body = serde_json::to_vec(&Documents { documents, next: page.next });
    let body = body.map_err(|_| Rejection::plain(Code::Internal))?;
    let (body, is_packed) = super::representation::encoded(&call.head.headers, body);
    let mut response = answer::bytes(200, answer::JSON, body);
    let headers = response.headers_mut();
    headers.insert(http::header::VARY, super::representation::VARY);
    if let Some(reached) = reached {
        headers.insert(super::representation::POSITION, reached);
    }
    if is_packed {
        let gzip = http::HeaderValue::from_static("gzip");
        headers.insert(http::header::CONTENT_ENCODING, gzip);
    }
    Ok(response)
}

/// Partitions whose places are told in a header. With more, see `GET /views/{view}`.
const PLACES_MAX: usize = 32;

/// How far the view has read, as a list.
fn reached(named: &Named) -> Option<http::HeaderValue> {
    let places = named.projection.places();
    if places.is_empty() || places.len() > PLACES_MAX {
        return None;
    }
    let places: Vec<String> = places.iter().map(ToString::to_string).collect();
    http::HeaderValue::from_str(&places.join(", ")).ok()
}
