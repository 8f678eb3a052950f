//! What a document looks like on its way out: its tag, how long it may be kept, and whether it is
//! compressed. The same for `GET` and `HEAD`, so that both have the same tag.

use std::io::Write;

use axum::body::Body;
use axum::response::Response;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use promethean::projection::query::{Access, Conditions, Outcome, Validator};
use promethean::projection::{Document, Position};

use crate::http::answer;
use crate::http::call::Call;
use crate::rejection::{Code, Rejection};

/// Bodies below this are not worth compressing.
const GZIP_BYTES_MIN: usize = 1_024;

/// What is the same for every answer about a view.
pub(super) const VARY: HeaderValue =
    HeaderValue::from_static("accept, accept-encoding, authorization");
/// Up to where the view has read: how fresh the answer is.
pub(super) const POSITION: HeaderName = HeaderName::from_static("x-position");

/// How a document stands: what is the same of it for `GET`, `HEAD` and 304.
pub(super) struct Standing {
    /// Its tag, uncompressed.
    pub(super) tag: String,
    /// How long it may be kept.
    pub(super) caching: HeaderValue,
    /// The last event that is surely in it, or did not concern it; not told of what was.
    pub(super) reached: Option<Position>,
}

/// The lines of a header that lists.
fn lines<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Vec<&'a str> {
    headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("?")).collect()
}

/// Whether the client reads gzip: named without `q=0`, or `*`.
fn reads_gzip(headers: &HeaderMap) -> bool {
    let mut wanted = false;
    for member in lines(headers, &header::ACCEPT_ENCODING).iter().flat_map(|line| line.split(',')) {
        let mut parts = member.split(';').map(str::trim);
        let coding = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q="));
        let refused = weight.is_some_and(|weight| weight.parse::<f32>().is_ok_and(|q| q <= 0.0));
        if coding.eq_ignore_ascii_case("gzip") {
            return !refused;
        }
        wanted |= coding == "*" && !refused;
    }
    wanted
}

/// A body as the client reads it, and whether it was compressed.
pub(super) fn encoded(headers: &HeaderMap, body: Vec<u8>) -> (Vec<u8>, bool) {
    if body.len() < GZIP_BYTES_MIN || !reads_gzip(headers) {
        return (body, false);
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 2), Compression::fast());
    // Writing into memory does not fail; if it did, the plain body is as good.
    match encoder.write_all(&body).and_then(|()| encoder.finish()) {
        Ok(packed) => (packed, true),
        Err(_) => (body, false),
    }
}

/// The tag of a document, for this request.
pub(super) fn tag(document: &Document, definition: &str, version: Option<u32>) -> String {
    Validator::of(document, definition, version).etag()
}

/// What the conditions of a request say about what is there.
pub(super) fn judged(call: &Call, current: &str) -> Outcome {
    let headers = &call.head.headers;
    let (if_match, if_none_match) =
        (lines(headers, &header::IF_MATCH), lines(headers, &header::IF_NONE_MATCH));
    let conditions = Conditions { if_match: &if_match, if_none_match: &if_none_match };
    let access = match call.head.method {
        Method::GET | Method::HEAD => Access::Read,
        _ => Access::Write,
    };
    conditions.evaluate(access, Some(current))
}

/// Whether the client has a version already that it can compare.
pub(super) fn has_conditions(call: &Call) -> bool {
    let headers = &call.head.headers;
    headers.contains_key(header::IF_NONE_MATCH) || headers.contains_key(header::IF_MATCH)
}

fn marked(response: &mut Response, standing: Standing) -> Result<(), Rejection> {
    let headers = response.headers_mut();
    let value =
        |text: &str| HeaderValue::from_str(text).map_err(|_| Rejection::plain(Code::Internal));
    headers.insert(header::ETAG, value(&standing.tag)?);
    headers.insert(header::CACHE_CONTROL, standing.caching);
    headers.insert(header::VARY, VARY);
    if let Some(reached) = standing.reached {
        headers.insert(POSITION, value(&reached.to_string())?);
    }
    Ok(())
}

/// Another coding is another representation: its tag is another one, and compares as the same
/// document (RFC 9110, 8.8.3.3).
fn coded(tag: &str) -> String {
    let inside = tag.trim_end_matches('"');
    format!("{inside};gzip\"")
}

fn not_modified(standing: Standing) -> Result<Response, Rejection> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    marked(&mut response, standing)?;
    Ok(response)
}

/// The answer with a document, or that the client has it already.
pub(super) fn answer(
    call: &Call,
    document: &Document,
    mut standing: Standing,
) -> Result<Response, Rejection> {
    let headers = &call.head.headers;
    if !reads_gzip(headers) && judged(call, &standing.tag) == Outcome::NotModified {
        // Nobody will see the body: it need not be made.
        return not_modified(standing);
    }
    let (body, is_packed) = encoded(headers, document.to_json().into_bytes());
    if is_packed {
        standing.tag = coded(&standing.tag);
    }
    match judged(call, &standing.tag) {
        Outcome::NotModified => not_modified(standing),
        Outcome::PreconditionFailed => {
            let detail = format!("the document is {} now", standing.tag);
            Err(Rejection::new(Code::PreconditionFailed, detail))
        }
        Outcome::Proceed => {
            let mut response = answer::bytes(200, answer::JSON, body);
            marked(&mut response, standing)?;
            if is_packed {
                let gzip = HeaderValue::from_static("gzip");
                response.headers_mut().insert(header::CONTENT_ENCODING, gzip);
            }
            Ok(response)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepting(text: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_ENCODING, text.parse().unwrap());
        headers
    }

    #[test]
    fn gzip_is_for_those_who_read_it() {
        for text in ["gzip", "br, GZIP;q=0.5", "deflate, *", "gzip;q=1.0"] {
            assert!(reads_gzip(&accepting(text)), "{text}");
        }
        for text in ["", "br", "gzip;q=0", "identity", "*;q=0", "gzip;q=0, *"] {
            assert!(!reads_gzip(&accepting(text)), "{text}");
        }
        assert!(!reads_gzip(&HeaderMap::new()));
        let (small, is_packed) = encoded(&accepting("gzip"), vec![b'a'; 100]);
        assert!(!is_packed && small.len() == 100);
        let (packed, is_packed) = encoded(&accepting("gzip"), vec![b'a'; 5_000]);
        assert!(is_packed && packed.starts_with(&[0x1f, 0x8b]) && packed.len() < 200);
    }

    #[test]
    fn a_coding_has_a_tag_of_its_own() {
        assert_eq!(coded("\"a/0/1;d\""), "\"a/0/1;d;gzip\"");
    }
}
