use promethean_event::{Offset, Partition, Topic};

use crate::store::{AppendError, ReadError, SaveError};

/// Why something was not moved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MigrateError {
    /// The store cannot take up events of another one.
    #[error("this kind of store cannot take up what another one has kept")]
    CannotRestore,
    /// The target is in use.
    #[error("the target is not empty: it has {0}; name one that is, or drop what is there")]
    NotEmpty(String),
    /// One of the two is part of another move.
    #[error("the {role} is part of another move, with {other}; end or abandon that one first")]
    Another {
        /// Which of the two.
        role: &'static str,
        /// What the other move is with.
        other: String,
    },
    /// Both are not the same after all.
    #[error("the target is not the same as the source: {}", .0.join("; "))]
    Differs(Vec<String>),
    /// The topic is there with another number of partitions, or the like.
    #[error("topic {topic} could not be made: {reason}")]
    Topic {
        /// The topic.
        topic: Topic,
        /// Why.
        reason: SaveError,
    },
    /// Events that cannot be read any more.
    #[error(
        "{topic} is damaged in partition {partition}, from offset {from} to {to}: what is moved would look \
         cleaned there; restore it from a copy, or remove the topic"
    )]
    Damaged {
        /// The topic.
        topic: Topic,
        /// The partition.
        partition: Partition,
        /// The first offset that cannot be read.
        from: Offset,
        /// The first one behind.
        to: Offset,
    },
    /// Something that is kept is not as it is written.
    #[error("{0} cannot be read: {1}")]
    Malformed(String, String),
    /// A store could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The target could not take events.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// A store could not keep something.
    #[error(transparent)]
    Save(#[from] SaveError),
}
