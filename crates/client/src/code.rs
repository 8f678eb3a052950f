use std::fmt;

/// What a refusal is about: stable, for programs. All are explained in `PROTOCOL.md`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// Not understood.
    BadRequest,
    /// JSON or an expression beyond the limits.
    TooComplex,
    /// An event that cannot be one.
    InvalidEvent,
    /// An expression that is none.
    InvalidFilter,
    /// No credential, or not a good one.
    Unauthorized,
    /// The credential has ended.
    TokenExpired,
    /// The credential does not allow it.
    Forbidden,
    /// No such thing.
    NotFound,
    /// No such delivery.
    UnknownId,
    /// It is done already, or does not go with what is there.
    Conflict,
    /// A schema that would break something.
    Incompatible,
    /// The id belongs to another event.
    IdConflict,
    /// The lease was lost.
    StaleToken,
    /// The group was moved.
    Fenced,
    /// More than may be kept.
    Quota,
    /// Something has changed since.
    PreconditionFailed,
    /// Too large.
    TooLarge,
    /// The payload does not match the schema of its topic.
    SchemaInvalid,
    /// Too fast.
    RateLimited,
    /// Too many at once.
    Limit,
    /// The server cannot, for now.
    NotReady,
    /// The server takes nothing any more.
    ReadOnly,
    /// The server stops.
    GoingAway,
    /// Nobody knows whether it happened.
    Indeterminate,
    /// The disk is full.
    NoSpace,
    /// A write to the server's disk has failed.
    StorageFailed,
    /// Something is wrong with the server.
    Internal,
    /// Any other.
    Other(Box<str>),
}

/// Codes, as they are spelled, and whether the same request may succeed later.
const KNOWN: &[(&str, Code, bool)] = &[
    ("bad_request", Code::BadRequest, false),
    ("too_complex", Code::TooComplex, false),
    ("invalid_event", Code::InvalidEvent, false),
    ("invalid_filter", Code::InvalidFilter, false),
    ("unauthorized", Code::Unauthorized, false),
    ("token_expired", Code::TokenExpired, false),
    ("forbidden", Code::Forbidden, false),
    ("not_found", Code::NotFound, false),
    ("unknown_id", Code::UnknownId, false),
    ("conflict", Code::Conflict, false),
    ("incompatible", Code::Incompatible, false),
    ("id_conflict", Code::IdConflict, false),
    ("stale_token", Code::StaleToken, false),
    ("fenced", Code::Fenced, false),
    ("quota", Code::Quota, false),
    ("precondition_failed", Code::PreconditionFailed, false),
    ("too_large", Code::TooLarge, false),
    ("schema_invalid", Code::SchemaInvalid, false),
    ("rate_limited", Code::RateLimited, true),
    ("limit", Code::Limit, true),
    ("not_ready", Code::NotReady, true),
    ("read_only", Code::ReadOnly, true),
    ("going_away", Code::GoingAway, true),
    ("indeterminate", Code::Indeterminate, true),
    ("no_space", Code::NoSpace, true),
    ("storage_failed", Code::StorageFailed, true),
    ("internal", Code::Internal, false),
];

impl Code {
    pub(crate) fn of(text: &str) -> Self {
        let known = KNOWN.iter().find(|(spelled, ..)| *spelled == text);
        known.map_or_else(|| Self::Other(text.into()), |(_, code, _)| code.clone())
    }

    /// As it is spelled.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Other(text) => text,
            code => KNOWN.iter().find(|(_, known, _)| known == code).map_or("", |(text, ..)| text),
        }
    }

    /// Whether the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Other(text) => matches!(&**text, "slow_request" | "slow_consumer"),
            code => KNOWN.iter().any(|(_, known, again)| known == code && *again),
        }
    }

    /// Whether another connection with the same credential and address would be refused as well.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Unauthorized | Self::TokenExpired | Self::Forbidden => true,
            Self::Other(text) => {
                matches!(&**text, "origin_refused" | "host_refused" | "token_in_query")
            }
            _ => false,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_what_the_protocol_says() {
        let protocol = include_str!("../../../PROTOCOL.md");
        let (_, table) = protocol.split_once("| code | status").unwrap();
        let mut rows = 0;
        for row in table.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let code = Code::of(cells[1].trim_matches('`'));
            assert_eq!(code.is_retryable(), cells[4] == "yes", "{code}");
            assert_eq!(Code::of(code.as_str()), code);
            rows += 1;
        }
        assert!(rows >= KNOWN.len(), "{rows}");
        for (spelled, ..) in KNOWN {
            assert!(
                table.contains(&format!("| `{spelled}` |")),
                "{spelled} is not in the protocol"
            );
        }
    }
}
