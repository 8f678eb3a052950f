//! Which headers travel with an event: `x-`, `ce-` and `traceparent`. An event is stored for years
//! and read by many, so that nothing which proves who somebody is may get into one.

use http::HeaderMap;
use promethean_event::Headers;

use super::refused;
use crate::rejection::{Code, Rejection};

/// Parts of names that credentials go by.
const SECRETS: &[&str] = &[
    "auth", "token", "secret", "cookie", "password", "api-key", "apikey", "session", "csrf", "xsrf",
];
/// What proxies add about a connection.
const OF_PROXIES: &[&str] = &["x-forwarded-", "x-real-ip", "x-envoy-", "x-amzn-", "x-request-id"];

fn travels(name: &str) -> bool {
    name == "traceparent" || name.starts_with("x-") || name.starts_with("ce-")
}

/// What becomes of `ce-` headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attributes {
    /// They travel like others.
    AreHeaders,
    /// They are the attributes of a CloudEvent, which is read by itself.
    AreRead,
}

/// The headers of a request that go into its events; the others stay behind.
pub fn carried(request: &HeaderMap, attributes: Attributes) -> Result<Headers, Rejection> {
    let mut headers = Headers::new();
    for (name, value) in request {
        let name = name.as_str();
        let read = attributes == Attributes::AreRead && name.starts_with("ce-");
        let ours = travels(name) && !read;
        let withheld = SECRETS.iter().any(|part| name.contains(part))
            || OF_PROXIES.iter().any(|prefix| name.starts_with(prefix));
        if !ours || withheld {
            continue;
        }
        let value = value.to_str().map_err(|_| {
            Rejection::new(Code::BadRequest, format!("header {name} is not visible ASCII"))
        })?;
        headers.insert(name, value).map_err(refused)?;
    }
    Ok(headers)
}

/// Headers that a client gave an event itself: others than those that travel are refused.
pub fn check_headers(headers: &Headers) -> Result<(), Rejection> {
    match headers.iter().find(|(name, _)| !travels(name)) {
        None => Ok(()),
        Some((name, _)) => Err(Rejection::new(
            Code::InvalidEvent,
            format!("header {name:?} does not travel; use x- or ce- names, or traceparent"),
        )),
    }
}
