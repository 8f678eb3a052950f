//! What went wrong with the database, told by what may be done about it.

use mongodb::bson::error::ErrorKind as BsonErrorKind;
use mongodb::error::{Error, ErrorKind, WriteFailure};
use promethean::store::{AppendError, ReadError, SaveError};

/// Why something did not work out.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Fault {
    /// Another transaction was in the way, or an election: nothing was written, try again.
    #[error("{0}")]
    Transient(String),
    /// A key that is there already.
    #[error("{0}")]
    Duplicate(String),
    /// Something is not as it was when it was read: read it again.
    #[error("another hub has changed it meanwhile")]
    Stale,
    /// Nothing was written, and trying again would not help, or there was no time left for it.
    #[error("{0}")]
    Refused(String),
    /// Nothing was written, because of what was to be: a rule, a type or an index is against it, whoever
    /// tries.
    #[error("{0}")]
    Rejected(String),
    /// Nobody knows whether it was written.
    #[error("{0}")]
    Unknown(String),
}

/// Codes of servers for keys that are there already.
const DUPLICATE: [i32; 3] = [11000, 11001, 12582];
/// Codes for what goes by itself, where no label says so: elections, shutdowns, cuts.
const TRANSIENT: [i32; 14] =
    [6, 7, 89, 91, 112, 189, 251, 262, 9001, 10107, 11600, 11602, 13435, 13436];

/// Codes by which a write fails that is as it should be: nobody may write, or not so, or not now.
const NOT_OF_THE_WRITE: [i32; 12] = [8, 13, 18, 24, 50, 112, 146, 202, 11601, 14031, 24000, 290];
/// Codes by which a whole command fails because of a value or a document in it.
const OF_THE_WRITE: [i32; 25] = [
    2, 9, 14, 15, 16, 22, 28, 40, 52, 53, 54, 55, 56, 57, 66, 121, 171, 10334, 11000, 11001, 12582,
    17280, 17419, 17420, 16836,
];

/// Whether a write is refused for what is written, when the server says so by this code.
pub(crate) fn is_of_the_write(code: i32) -> bool {
    !NOT_OF_THE_WRITE.contains(&code) && !TRANSIENT.contains(&code)
}

/// Whether something failed for what was to be written or asked, and would for whoever tries: not for who
/// tries, or when.
pub(crate) fn is_of_what_was_asked(error: &Error) -> bool {
    match &*error.kind {
        ErrorKind::Write(WriteFailure::WriteError(error)) => is_of_the_write(error.code),
        ErrorKind::InsertMany(error) => {
            let mut errors = error.write_errors.iter().flatten();
            errors.any(|error| is_of_the_write(error.code))
        }
        ErrorKind::BulkWrite(error) => {
            error.write_errors.values().any(|error| is_of_the_write(error.code))
        }
        ErrorKind::Command(error) => OF_THE_WRITE.contains(&error.code),
        // Most of these are of whoever calls: a collection of another client, say, with every event.
        ErrorKind::InvalidArgument { message, .. } => is_too_large(message),
        ErrorKind::BsonSerialization(_) => true,
        // What was read, and is not what was expected, says nothing of what was to be written.
        ErrorKind::Bson(error) => is_of_writing(&error.kind),
        _ => false,
    }
}

/// Whether the driver says so of a document, which it does not even send: it has no kind of its own for
/// that.
fn is_too_large(message: &str) -> bool {
    let said = ["document must be within", "over maximum", "exceeds the maximum size"];
    said.iter().any(|part| message.contains(part))
}

/// Whether BSON could not be made of a value: of a name with a zero in it, for example.
const fn is_of_writing(kind: &BsonErrorKind) -> bool {
    matches!(
        kind,
        BsonErrorKind::Serialization { .. }
            | BsonErrorKind::TooLargeUnsignedInteger { .. }
            | BsonErrorKind::MalformedBytes { .. }
    )
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let text = describe(&error);
        let code = code_of(&error);
        if code.is_some_and(|code| DUPLICATE.contains(&code)) {
            return Self::Duplicate(text);
        }
        let labelled = ["TransientTransactionError", "RetryableWriteError"];
        let transient = labelled.iter().any(|label| error.contains_label(label))
            || code.is_some_and(|code| TRANSIENT.contains(&code))
            || is_cut_off(&error);
        if transient { Self::Transient(text) } else { Self::Refused(text) }
    }
}

/// Whether the server could not be reached, or stopped to answer.
fn is_cut_off(error: &Error) -> bool {
    matches!(
        *error.kind,
        ErrorKind::Io(_)
            | ErrorKind::ConnectionPoolCleared { .. }
            | ErrorKind::ServerSelection { .. }
    )
}

/// The code that the server gave.
pub(crate) fn code_of(error: &Error) -> Option<i32> {
    match &*error.kind {
        ErrorKind::Command(error) => Some(error.code),
        ErrorKind::Write(WriteFailure::WriteError(error)) => Some(error.code),
        ErrorKind::Write(WriteFailure::WriteConcernError(error)) => Some(error.code),
        ErrorKind::InsertMany(error) => {
            let first = error.write_errors.as_ref().and_then(|errors| errors.first());
            first.map(|error| error.code)
        }
        _ => None,
    }
}

/// The error in words, without the parts of it that only the driver's authors need.
pub(crate) fn describe(error: &Error) -> String {
    match &*error.kind {
        ErrorKind::Command(error) => format!("MongoDB says: {}", error.message),
        ErrorKind::ServerSelection { message, .. } => {
            format!("MongoDB cannot be reached: {message}")
        }
        ErrorKind::Io(error) => format!("the connection to MongoDB broke: {error}"),
        _ => format!("MongoDB: {error}"),
    }
}

/// A read that took too long.
pub(crate) fn too_late() -> Fault {
    Fault::Refused("MongoDB did not answer in time".to_owned())
}

impl From<Fault> for ReadError {
    fn from(fault: Fault) -> Self {
        Self::Failed(fault.to_string())
    }
}

impl From<Fault> for AppendError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Unknown(text) => Self::Indeterminate(text),
            other => Self::Unavailable(other.to_string()),
        }
    }
}

impl From<Fault> for SaveError {
    fn from(fault: Fault) -> Self {
        Self::Append(fault.into())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use mongodb::bson::doc;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Counted {
        #[serde(rename = "n")]
        _n: u32,
    }

    /// Whatever the driver called an invalid argument was the event's fault, such as a collection of
    /// another client: a whole topic became dead letters.
    #[test]
    fn only_what_is_written_is_the_fault_of_what_is_written() {
        assert!(!is_too_large(
            "the session provided cannot be used with a collection of another client"
        ));
        assert!(is_too_large(
            "insert document must be within 16777216 bytes, but document provided is 16777300 bytes"
        ));
        assert!(is_too_large("Message length 48000001 over maximum 48000000"));
        let read = mongodb::bson::deserialize_from_document::<Counted>(doc! { "n": "many" });
        assert!(!is_of_what_was_asked(&Error::from(read.unwrap_err())));
        for written in [
            mongodb::bson::serialize_to_raw_document_buf(&BTreeMap::from([("n", u64::MAX)])),
            mongodb::bson::serialize_to_raw_document_buf(&BTreeMap::from([("n\0", 1_u64)])),
            mongodb::bson::serialize_to_raw_document_buf(&doc! { "n\0": 1 }),
        ] {
            assert!(is_of_what_was_asked(&Error::from(written.unwrap_err())));
        }
    }
}
