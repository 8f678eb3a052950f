//! What went wrong with the database, told by what may be done about it.

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
        ErrorKind::InvalidArgument { .. }
        | ErrorKind::BsonDeserialization(_)
        | ErrorKind::BsonSerialization(_)
        | ErrorKind::Bson(_) => true,
        _ => false,
    }
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
