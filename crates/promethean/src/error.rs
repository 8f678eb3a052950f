use promethean_delivery::Refusal;
use promethean_event::{
    EventError, EventId, GroupName, GroupNameError, JsonError, KeyError, Offset, PatternError,
    ToEventError, Topic, TopicError,
};

use crate::dispatch::GroupFailure;
use crate::registry::SchemaRefusal;
use crate::settings::SettingsError;
use crate::store::{AppendError, ReadError, SaveError};

/// Why nothing was published. Nothing of it is stored, unless it says that nobody knows.
#[derive(Debug, Clone, thiserror::Error)]
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
    /// The system's topics are not for users.
    #[error("{0} is a topic of the system; publish to another one")]
    System(Topic),
    /// The bus takes only topics that were defined.
    #[error("there is no topic {0}; define it, or let the bus make topics as they are used")]
    UnknownTopic(Topic),
    /// A topic could not be made.
    #[error("topic {topic} could not be made")]
    Define {
        /// The topic.
        topic: Topic,
        /// Why.
        source: SaveError,
    },
    /// Events do not match the schemas of their topics.
    #[error(transparent)]
    Refused(Box<SchemaRefusal>),
    /// The schemas could not be read, and nothing is let through unchecked.
    #[error("the schemas could not be read")]
    Schemas(#[source] ReadError),
    /// Whether the topic is a snapshot could not be read, and nobody else writes into one.
    #[error("the state of snapshots could not be read")]
    Snapshots(#[source] ReadError),
    /// The store refused it.
    #[error(transparent)]
    Append(#[from] AppendError),
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

/// Why something about a group did not happen.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The name is not good.
    #[error(transparent)]
    Name(#[from] GroupNameError),
    /// A pattern is not good.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// The settings are not good.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// No such group.
    #[error("there is no group {0}; it is made by its first subscriber")]
    Unknown(GroupName),
    /// The group does not read the topic.
    #[error("group {group} does not read {topic}")]
    NotRead {
        /// The group.
        group: GroupName,
        /// The topic.
        topic: Topic,
    },
    /// No such topic.
    #[error("there is no topic {0}")]
    UnknownTopic(Topic),
    /// No such event.
    #[error("event {0} is not in any topic, or not any more")]
    UnknownEvent(EventId),
    /// There are as many groups as there may be.
    #[error("there are {0} groups, and may be no more; remove those that nobody needs")]
    TooMany(usize),
    /// The group has members that want it otherwise.
    #[error(
        "group {group} is in use with other settings: {differences}; \
         use the same ones, or change them when its members have left"
    )]
    OtherSettings {
        /// The group.
        group: GroupName,
        /// What is other.
        differences: String,
    },
    /// The group has members.
    #[error("group {group} has {members} members; stop them first")]
    InUse {
        /// The group.
        group: GroupName,
        /// How many.
        members: usize,
    },
    /// Other hubs have members of the group.
    #[error("group {group} has members at {hubs} other hubs; stop them first")]
    InUseElsewhere {
        /// The group.
        group: GroupName,
        /// How many hubs.
        hubs: usize,
    },
    /// A version that is not registered cannot be read.
    #[error("group {group} reads version {version} of {topic}, which is not registered")]
    UnknownVersion {
        /// The group.
        group: GroupName,
        /// The topic.
        topic: Topic,
        /// The version.
        version: u32,
    },
    /// A position that is not there yet.
    #[error("offset {wanted} lies beyond the end; the next one will be {next}")]
    BeyondEnd {
        /// What was asked for.
        wanted: Offset,
        /// Where the partition ends.
        next: Offset,
    },
    /// What was asked for did not happen.
    #[error("refused: {0:?}")]
    Refused(Refusal),
    /// The stored settings cannot be read; written by a newer version?
    #[error("the settings of group {group} cannot be read: {reason}")]
    Unreadable {
        /// The group.
        group: GroupName,
        /// Why.
        reason: String,
    },
    /// The group has stopped.
    #[error(transparent)]
    Failed(#[from] GroupFailure),
    /// The store could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The store could not be written.
    #[error(transparent)]
    Save(#[from] SaveError),
}

/// Why an ack, or another answer to a delivery, changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AckError {
    /// The event was finished before.
    #[error("the event is done already")]
    AlreadyDone,
    /// The lease ran out, and the event went to another, or will.
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
    /// The group has stopped.
    #[error(transparent)]
    Failed(#[from] GroupFailure),
}

impl From<Refusal> for AckError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::AlreadyDone => Self::AlreadyDone,
            Refusal::StaleToken | Refusal::LeaseLost => Self::LeaseLost,
            Refusal::Fenced => Self::Fenced,
            Refusal::LeaseAtMaximum => Self::LeaseAtMaximum,
            _ => Self::Unknown,
        }
    }
}
