use std::time::Duration;

use promethean_event::{
    EventError, EventId, GroupNameError, JsonError, KeyError, PatternError, ToEventError,
    TopicError,
};

use crate::code::Code;

/// What a server said no to, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code})")]
#[non_exhaustive]
pub struct Refusal {
    /// For programs.
    pub code: Code,
    /// For people.
    pub message: String,
    /// When it may be tried again.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    pub(crate) fn new(code: &str, message: impl Into<String>, retry_ms: Option<u64>) -> Self {
        let retry_after = retry_ms.map(Duration::from_millis);
        Self { code: Code::of(code), message: message.into(), retry_after }
    }
}

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address is not one.
    #[error("{url:?} is not the address of a server: {why}; write it like ws://127.0.0.1:7766")]
    Address {
        /// What was given.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// A token would travel in plain text.
    #[error("a token would be sent to {0} in plain text; use wss")]
    PlainText(String),
    /// Nobody is there, or not in time.
    #[error("nothing answers at {url}: {why}; start a server with `prom dev`, or name another one")]
    Unreachable {
        /// The address.
        url: String,
        /// What happened.
        why: String,
    },
    /// The server does not want this client.
    #[error("the server refused the connection: {0}")]
    Refused(Refusal),
    /// No credential could be had.
    #[error("no token could be had: {0}")]
    Token(String),
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
    /// The bus was closed here.
    #[error("the bus was closed")]
    Closed,
}

/// Why nothing was published. Nothing of it is stored, unless it says that nobody knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The event itself is not good.
    #[error(transparent)]
    Event(#[from] EventError),
    /// The topic's name is not good.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// The key is not good.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The payload is not good.
    #[error(transparent)]
    Payload(#[from] JsonError),
    /// Nothing to publish, or too many events for one publish.
    #[error("{0} events; publish 1 to {max} at a time", max = crate::limits::BATCH_EVENTS_MAX)]
    Count(usize),
    /// Too large for a frame.
    #[error("{bytes} bytes; a publish has {max} at most: publish fewer events at a time")]
    TooLarge {
        /// How large it is.
        bytes: usize,
        /// How large it may be.
        max: usize,
    },
    /// The server refused it.
    #[error(transparent)]
    Refused(Refusal),
    /// It was sent, and no answer came in time.
    #[error("no answer in time; it may be stored: publish it again with the id {id}")]
    Indeterminate {
        /// The id of the first event.
        id: EventId,
    },
    /// It was never sent: there was no connection.
    #[error("there was no connection in time, and nothing was sent")]
    NotSent,
    /// There will be no connection any more.
    #[error(transparent)]
    Connection(#[from] ConnectError),
}

impl From<ToEventError> for PublishError {
    fn from(error: ToEventError) -> Self {
        match error {
            ToEventError::Topic(error) => error.into(),
            ToEventError::Key(error) => error.into(),
            ToEventError::Payload(error) => error.into(),
            ToEventError::Event(error) => error.into(),
        }
    }
}

/// Why something about a group, or about stored events, did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The name is not good.
    #[error(transparent)]
    Name(#[from] GroupNameError),
    /// A pattern is not good.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// A setting is not good.
    #[error("{0}")]
    Settings(String),
    /// The server refused it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The server's answer is not understood; it is of another version?
    #[error("the server's answer is not understood: {0}")]
    NotUnderstood(String),
    /// There is no connection.
    #[error(transparent)]
    Connection(#[from] ConnectError),
}

/// Why a subscription has ended by itself.
pub type GroupFailure = GroupError;
/// Why stored events could not be read.
pub type ReadError = GroupError;
/// Why dead letters were not listed, replayed or discarded.
pub type DeadLetterError = GroupError;

/// Why an ack, or another answer to a delivery, changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AckError {
    /// The event was finished before.
    #[error("the event is done already")]
    AlreadyDone,
    /// The lease ran out, or its connection ended: the event went to another, or will.
    #[error("the lease was lost: the event is, or will be, delivered again")]
    LeaseLost,
    /// The group was moved since.
    #[error("the group was moved since the event was delivered")]
    Fenced,
    /// There is no such delivery.
    #[error("there is no such delivery")]
    Unknown,
    /// The lease has its greatest length already.
    #[error("the lease has its greatest length already")]
    LeaseAtMaximum,
    /// The connection ended before the answer came: it may have happened, or the event comes again.
    #[error("the connection ended before the answer: the event may be delivered again")]
    Indeterminate,
    /// The server refused it for another reason.
    #[error(transparent)]
    Refused(Refusal),
}

impl AckError {
    /// What a refusal of an answer means. `extends`: it was about the length of a lease.
    pub(crate) fn of(refusal: Refusal, extends: bool) -> Self {
        match refusal.code {
            Code::Conflict if extends => Self::LeaseAtMaximum,
            Code::Conflict => Self::AlreadyDone,
            Code::StaleToken => Self::LeaseLost,
            Code::Fenced => Self::Fenced,
            Code::UnknownId => Self::Unknown,
            _ => Self::Refused(refusal),
        }
    }
}
