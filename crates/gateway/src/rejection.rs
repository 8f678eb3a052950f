//! Why a request was refused, in one place: a closed list of codes, each with its HTTP status, its
//! WebSocket close code and whether to try again. HTTP answers are problem documents (RFC 9457),
//! `ERR` frames carry the same code and text. Texts name what the client sent or may do, never
//! what is inside the server.

use std::borrow::Cow;

use serde::Serialize;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $status:literal, $close:literal, $title:literal;)*) => {
        /// A stable name for why a request was refused.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// All of them, in the order of their status.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name, as programs read it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The HTTP status.
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// The WebSocket close code, where the refusal ends a connection.
            pub const fn close(self) -> u16 {
                match self { $(Self::$name => $close,)* }
            }

            /// What it means, the same for every occurrence.
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

codes! {
    /// Not JSON, not UTF-8, or not the shape that was expected.
    BadRequest = "bad_request", 400, 1008, "The request is not understood";
    /// JSON beyond the limits of depth or members.
    TooComplex = "too_complex", 400, 1008, "The JSON is too deep or has too many members";
    /// A topic, key, header, id or another part of an event is refused.
    InvalidEvent = "invalid_event", 400, 1008, "The event is not allowed";
    /// A filter that is not an expression, or costs too much.
    InvalidFilter = "invalid_filter", 400, 1008, "The filter is not allowed";
    /// A credential in the address, where logs would keep it.
    TokenInQuery = "token_in_query", 400, 3000, "A token does not belong into the address";
    /// A frame with an op that there is not.
    UnknownOp = "unknown_op", 400, 1008, "There is no such op";
    /// No credential, or one that is not accepted. Says no more.
    Unauthorized = "unauthorized", 401, 3000, "A valid token is needed";
    /// The credential has run out.
    TokenExpired = "token_expired", 401, 3000, "The token has expired";
    /// Known, but not allowed.
    Forbidden = "forbidden", 403, 3003, "The token does not allow this";
    /// A web page of another origin.
    OriginRefused = "origin_refused", 403, 3003, "This origin is not allowed";
    /// Not there, or not for this client to know.
    NotFound = "not_found", 404, 1008, "There is no such thing";
    /// An ack of what is not out.
    UnknownId = "unknown_id", 404, 1008, "No such delivery is out";
    /// The resource does not have that method.
    MethodNotAllowed = "method_not_allowed", 405, 1008, "The resource has no such method";
    /// The client took too long to send its request.
    SlowRequest = "slow_request", 408, 1008, "The request took too long to arrive";
    /// The state of the resource does not allow it.
    Conflict = "conflict", 409, 1008, "The state does not allow this";
    /// A schema that would break readers, writers or what is stored; `plan` says how.
    Incompatible = "incompatible", 409, 1008, "The schema would break something";
    /// The id is taken by another event.
    IdConflict = "id_conflict", 409, 1008, "The id belongs to another event";
    /// An ack with the token of another delivery, or after the lease ended.
    StaleToken = "stale_token", 409, 1008, "The delivery is not yours any more";
    /// The group was moved since.
    Fenced = "fenced", 409, 1008, "The group was moved since";
    /// Too many topics, groups or other things that are kept.
    Quota = "quota", 409, 1008, "The quota is used up";
    /// A condition of the request does not hold.
    PreconditionFailed = "precondition_failed", 412, 1008, "A condition does not hold";
    /// A body, frame or payload beyond its limit.
    TooLarge = "too_large", 413, 1009, "The request is too large";
    /// An address beyond its limit.
    UriTooLong = "uri_too_long", 414, 1009, "The address is too long";
    /// A content type or encoding that is not read here.
    UnsupportedMediaType = "unsupported_media_type", 415, 1003, "The content type is not read here";
    /// A name of this server that is not its own.
    HostRefused = "host_refused", 421, 1008, "This server does not go by that name";
    /// The payload does not fit its schema.
    SchemaInvalid = "schema_invalid", 422, 1008, "The payload does not match its schema";
    /// Too many requests in a while.
    RateLimited = "rate_limited", 429, 1008, "Too many requests";
    /// Too many connections or subscriptions at once.
    Limit = "limit", 429, 1013, "Too many at once";
    /// Request headers beyond their limit.
    HeadersTooLarge = "headers_too_large", 431, 1009, "The request headers are too large";
    /// A fault of ours.
    Internal = "internal", 500, 1011, "The server made a mistake";
    /// Starting, stopping, or too busy.
    NotReady = "not_ready", 503, 1013, "The server is not ready";
    /// A write or a sync has failed: nothing is written any more until the server starts again.
    StorageFailed = "storage_failed", 503, 1013, "A write to the disk has failed";
    /// What is asked for cannot write at the moment.
    ReadOnly = "read_only", 503, 1013, "The store takes no writes";
    /// The connection is closed because the server stops.
    GoingAway = "going_away", 503, 1012, "The server is restarting";
    /// It may or may not have happened: try again with the same id.
    Indeterminate = "indeterminate", 504, 1013, "The outcome is not known";
    /// The disk is full.
    NoSpace = "no_space", 507, 1013, "There is no space left";
    /// The client does not read fast enough. Closes a connection.
    SlowConsumer = "slow_consumer", 503, 1008, "The client reads too slowly";
    /// Nothing was heard for too long. Closes a connection.
    Idle = "idle", 408, 1001, "Nothing was heard for too long";
    /// A breach of the WebSocket protocol. Closes a connection.
    ProtocolError = "protocol_error", 400, 1002, "The WebSocket protocol was broken";
    /// A text frame that is not UTF-8. Closes a connection.
    InvalidUtf8 = "invalid_utf8", 400, 1007, "The text is not UTF-8";
    /// A binary frame where text is spoken. Closes a connection.
    BinaryFrame = "binary_frame", 415, 1003, "Binary frames are not read here";
}

impl Code {
    /// Whether the same request may succeed later.
    pub const fn retryable(self) -> bool {
        matches!(
            self,
            Self::SlowRequest
                | Self::RateLimited
                | Self::Limit
                | Self::NotReady
                | Self::StorageFailed
                | Self::ReadOnly
                | Self::GoingAway
                | Self::Indeterminate
                | Self::NoSpace
                | Self::SlowConsumer
        )
    }
}

/// A refusal on its way to a client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", code.as_str())]
pub struct Rejection {
    /// Why, for programs.
    pub code: Code,
    /// What of this request, for people.
    pub detail: Cow<'static, str>,
    /// When to try again.
    pub retry_ms: Option<u64>,
    /// More of it, for programs: a member of the problem document.
    pub more: Option<Box<(&'static str, serde_json::Value)>>,
}

impl Rejection {
    /// A refusal with its own words.
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { code, detail: detail.into(), retry_ms: None, more: None }
    }

    /// Says more, for programs.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &impl Serialize) -> Self {
        self.more = serde_json::to_value(value).ok().map(|value| Box::new((name, value)));
        self
    }

    /// A refusal that has nothing to add.
    pub const fn plain(code: Code) -> Self {
        Self { code, detail: Cow::Borrowed(code.title()), retry_ms: None, more: None }
    }

    /// The store has not said whether it was done.
    pub const fn indeterminate() -> Self {
        let detail = Cow::Borrowed("publish again with the same ids");
        Self { code: Code::Indeterminate, detail, retry_ms: None, more: None }
    }

    /// Says when to try again.
    #[must_use]
    pub const fn after_ms(mut self, retry_ms: u64) -> Self {
        self.retry_ms = Some(retry_ms);
        self
    }

    /// The problem document of RFC 9457; `request` is the id that the logs know.
    pub fn problem<'a>(&'a self, request: &'a str) -> Problem<'a> {
        Problem {
            kind: ProblemType(self.code),
            title: self.code.title(),
            status: self.code.status(),
            code: self.code.as_str(),
            detail: &self.detail,
            instance: Instance(request),
            retryable: self.code.retryable(),
            retry_ms: self.retry_ms,
            more: self.more.iter().map(|more| (more.0, &more.1)).collect(),
        }
    }

    /// `Retry-After` in whole seconds, rounded up; a second where the time is not known.
    pub fn retry_after_s(&self) -> Option<u64> {
        match self.retry_ms {
            Some(millis) => Some(millis.div_ceil(1000).max(1)),
            None if matches!(self.code.status(), 429 | 503) => Some(1),
            None => None,
        }
    }
}

/// A problem document.
#[derive(Debug, Serialize)]
pub struct Problem<'a> {
    #[serde(rename = "type")]
    kind: ProblemType,
    title: &'a str,
    status: u16,
    code: &'a str,
    detail: &'a str,
    instance: Instance<'a>,
    retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_ms: Option<u64>,
    #[serde(flatten)]
    more: std::collections::BTreeMap<&'static str, &'a serde_json::Value>,
}

#[derive(Debug)]
struct ProblemType(Code);

impl Serialize for ProblemType {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let page = self.0.as_str().replace('_', "-");
        serializer.collect_str(&format_args!("https://promethean.dev/problems/{page}"))
    }
}

#[derive(Debug)]
struct Instance<'a>(&'a str);

impl Serialize for Instance<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("urn:prom:req:{}", self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn codes_are_distinct_and_their_numbers_known() {
        let names: HashSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(names.len(), Code::ALL.len());
        for &code in Code::ALL {
            let name = code.as_str();
            assert!(name.bytes().all(|c| c.is_ascii_lowercase() || matches!(c, b'_' | b'8')));
            assert!(
                matches!(code.status(), 400..=431 | 500 | 503 | 504 | 507),
                "{name} {}",
                code.status()
            );
            assert!(
                matches!(code.close(), 1001..=1003 | 1007..=1009 | 1011..=1013 | 3000 | 3003),
                "{name} {}",
                code.close()
            );
        }
    }

    /// RELIABILITY 4.7, the rows that have one code.
    #[test]
    fn statuses_are_those_of_the_specification() {
        for (code, status, close) in [
            (Code::Unauthorized, 401, 3000),
            (Code::Forbidden, 403, 3003),
            (Code::SlowRequest, 408, 1008),
            (Code::IdConflict, 409, 1008),
            (Code::TooLarge, 413, 1009),
            (Code::UriTooLong, 414, 1009),
            (Code::UnsupportedMediaType, 415, 1003),
            (Code::HostRefused, 421, 1008),
            (Code::SchemaInvalid, 422, 1008),
            (Code::RateLimited, 429, 1008),
            (Code::HeadersTooLarge, 431, 1009),
            (Code::NotReady, 503, 1013),
            (Code::Indeterminate, 504, 1013),
            (Code::NoSpace, 507, 1013),
            (Code::Internal, 500, 1011),
        ] {
            assert_eq!((code.status(), code.close()), (status, close), "{code:?}");
        }
    }

    /// What PROTOCOL.md says about codes is what the code does.
    #[test]
    fn the_protocol_lists_every_code() {
        let text = include_str!("../../../PROTOCOL.md");
        for &code in Code::ALL {
            let (name, status, close) = (code.as_str(), code.status(), code.close());
            let retry = if code.retryable() { "yes" } else { "no" };
            let row = format!("| `{name}` | {status} | {close} | {retry} |");
            assert!(text.contains(&row), "PROTOCOL.md, section 6, lacks: {row}");
        }
        let rows =
            text.lines().filter(|line| line.ends_with("| yes |") || line.ends_with("| no |"));
        assert_eq!(rows.count(), Code::ALL.len());
    }

    #[test]
    fn problem_document() {
        let refusal = Rejection::new(Code::RateLimited, "topic a.b").after_ms(1200);
        assert_eq!(
            serde_json::to_string(&refusal.problem("r1")).unwrap(),
            concat!(
                r#"{"type":"https://promethean.dev/problems/rate-limited","title":"Too many requests","#,
                r#""status":429,"code":"rate_limited","detail":"topic a.b","#,
                r#""instance":"urn:prom:req:r1","retryable":true,"retry_ms":1200}"#
            )
        );
        assert_eq!(refusal.retry_after_s(), Some(2));
        assert_eq!(Rejection::plain(Code::Forbidden).retry_after_s(), None);
        assert_eq!(Rejection::plain(Code::NotReady).retry_after_s(), Some(1));
    }
}
