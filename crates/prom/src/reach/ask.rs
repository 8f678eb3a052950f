use bytes::Bytes;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;

use promethean_gateway::rejection::Code;

use super::remote::Connection;
use crate::command::Status;
use crate::failure::{Failure, Problem};

/// A question: a request without a place.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(super) method: http::Method,
    path: String,
    query: String,
    pub(super) headers: Vec<(http::HeaderName, String)>,
    pub(super) body: Bytes,
}

impl Ask {
    fn new(method: http::Method, path: impl Into<String>) -> Self {
        let (path, query, headers) = (path.into(), String::new(), Vec::new());
        Self { method, path, query, headers, body: Bytes::new() }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(http::Method::GET, path)
    }

    pub(crate) fn post(path: impl Into<String>) -> Self {
        Self::new(http::Method::POST, path)
    }

    pub(crate) fn put(path: impl Into<String>) -> Self {
        Self::new(http::Method::PUT, path)
    }

    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self::new(http::Method::DELETE, path)
    }

    /// With a parameter, if there is one.
    #[must_use]
    pub(crate) fn query(mut self, name: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            let start = self.query.len();
            let mut pairs = form_urlencoded::Serializer::for_suffix(self.query, start);
            if start > 0 {
                let text = pairs.finish();
                pairs = form_urlencoded::Serializer::for_suffix(text, 0);
            }
            self.query = pairs.append_pair(name, &value.to_string()).finish();
        }
        self
    }

    #[must_use]
    pub(crate) fn header(mut self, name: http::HeaderName, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// With a body of JSON.
    #[must_use]
    pub(crate) fn json(self, value: &serde_json::Value) -> Self {
        self.body("application/json", value.to_string())
    }

    #[must_use]
    pub(crate) fn body(self, kind: &str, bytes: impl Into<Bytes>) -> Self {
        let mut ask = self.header(http::header::CONTENT_TYPE, kind);
        ask.body = bytes.into();
        ask
    }

    /// Whether it is administration that is asked.
    pub(super) fn is_administration(&self) -> bool {
        promethean_gateway::is_administration(&self.method, &self.path)
    }

    /// Path and query, as the request line has them.
    pub(super) fn target(&self) -> String {
        if self.query.is_empty() {
            self.path.clone()
        } else {
            format!("{}?{}", self.path, self.query)
        }
    }
}

/// A name as a part of an address.
pub(crate) fn segment(name: &str) -> String {
    let mut out = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte));
            }
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

pub(super) type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(super) body: Body,
    /// Can be used again once the body has been read.
    pub(super) connection: Option<Connection>,
}

impl Answer {
    /// The whole body.
    pub(super) async fn whole(self) -> anyhow::Result<(Bytes, Option<Connection>)> {
        let read = self.body.collect().await;
        let read = read.map_err(|error| {
            Failure::new(Status::Unreachable, format!("the answer broke off: {error}"))
        })?;
        Ok((read.to_bytes(), self.connection))
    }

    /// The next piece of the body; none at its end.
    pub(super) async fn piece(&mut self) -> std::io::Result<Option<Bytes>> {
        while let Some(frame) = self.body.frame().await {
            if let Ok(piece) = frame?.into_data() {
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }
}

/// What a server says of an address that it does not have, and of nothing else.
const NO_SUCH_ADDRESS: &str = Code::NotFound.title();

/// The same, with what to do where the question was for the other one of two addresses.
pub(super) fn refusal_of(ask: Asked, status: u16, body: &[u8]) -> Failure {
    let refused = refusal(status, body);
    if status != 404 || refused.detail != NO_SUCH_ADDRESS {
        return refused;
    }
    match (ask.administration, ask.apart) {
        (true, false) => refused.hint(
            "where administration has an address of its own (--admin-listen), name it with \
             --admin-url; commands that only administrate take it as --url, too",
        ),
        (true, true) => refused.hint("is --admin-url the address of administration?"),
        (false, _) => refused.hint(
            "is --url an address for administration only? Name that one with --admin-url, and \
             with --url the one for clients",
        ),
    }
}

/// Of what kind a question was, and whether the two kinds have an address each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) administration: bool,
    pub(super) apart: bool,
}

/// A refusal as it came, or what can be said about one that is not ours.
pub(super) fn refusal(status: u16, body: &[u8]) -> Failure {
    if let Ok(problem) = serde_json::from_slice::<Problem>(body) {
        return Failure::of(problem);
    }
    let text = String::from_utf8_lossy(body);
    let text: String = text.chars().take(200).collect();
    let detail = format!("the server answered {status} {}", text.trim());
    let status = if status == 429 { Status::Limited } else { Status::Unreachable };
    Failure::new(status, detail).hint("is it Promethean that listens there?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_escaped() {
        let ask =
            Ask::get("/replay").query("topic", Some("a.**")).query("filter", Some("k == \"a&b\""));
        let ask = ask.query("until", None::<u64>).query("limit", Some(5));
        assert_eq!(ask.target(), "/replay?topic=a.**&filter=k+%3D%3D+%22a%26b%22&limit=5");
        assert_eq!(segment("a/b c:d"), "a%2Fb%20c%3Ad");
    }

    #[test]
    fn the_other_address_is_hinted_at() {
        let body =
            br#"{"title":"t","status":404,"code":"not_found","detail":"There is no such thing"}"#;
        let hint = |administration, apart| {
            let asked = Asked { administration, apart };
            refusal_of(asked, 404, body).hint.unwrap()
        };
        assert!(hint(true, false).contains("name it with --admin-url"));
        assert!(hint(true, true).contains("is --admin-url"));
        assert!(hint(false, false).contains("is --url an address for administration only?"));
        // What is not there says what it is.
        let gone = br#"{"title":"t","status":404,"code":"not_found","detail":"no topic a"}"#;
        let asked = Asked { administration: true, apart: false };
        assert_eq!(refusal_of(asked, 404, gone).hint, None);
    }

    #[test]
    fn refusals_of_others_are_told_apart() {
        let ours = br#"{"title":"t","status":404,"code":"not_found","detail":"gone"}"#;
        assert_eq!(refusal(404, ours).status, Status::NotFound);
        assert_eq!(refusal(502, b"<html>").status, Status::Unreachable);
    }
}
