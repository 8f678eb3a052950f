//! The nouns of Promethean, and nothing else: no I/O, no clock, no async.
//!
//! An [`Event`] is what happened: it has an [`EventId`], a [`Topic`], an optional [`Key`],
//! [`Headers`], and a JSON [`Payload`] that keeps its spelling. Where it stands is said by
//! its [`Partition`] and [`Offset`], which the store assigns, and by the store-wide [`Seq`].
//! A [`Cursor`] is how far a group has come in one partition, [`Start`] where one begins. What a
//! handler could not handle is a [`Failure`]; a [`TypedTopic`] is a topic as a type. What can be asked of
//! any bus is here, too: [`Replay`], [`GroupLag`], [`DeadLetterQuery`]. [`frame`] is how all of it crosses a
//! socket. [`limits`] names every bound.
//!
//! Modules are listed in the order in which an event meets them.

mod id;

mod timestamp;

mod topic;

mod pattern;

mod key;

mod headers;

mod json;

mod payload;

mod event;

mod typed;

mod partition;

mod offset;

mod position;

mod start;

mod cursor;

mod failure;

mod definition;

mod dead_letter;

mod lag;

mod replay;

pub mod frame;

pub mod limits;

pub use cursor::{Cursor, GroupName, GroupNameError};
pub use dead_letter::{DeadLetter, DeadLetterQuery, DeadLetterState, ReplayTo};
pub use definition::{Cleaning, Compaction, TopicDefinition};
pub use event::{Event, EventError, NewEvent, SessionId, Tag};
pub use failure::{Failure, FailureVerdict};
pub use headers::{HeaderError, Headers};
pub use id::{EventId, IdError};
pub use json::JsonError;
pub use key::{Key, KeyError};
pub use lag::{GroupLag, Move, PartitionLag};
pub use offset::{Offset, Seq};
pub use partition::{Partition, PartitionCount, PartitionCountError};
pub use pattern::{Pattern, PatternError};
pub use payload::Payload;
pub use position::{Position, PositionError};
pub use replay::Replay;
pub use start::Start;
pub use timestamp::Timestamp;
pub use topic::{Topic, TopicError};
pub use typed::{FromEvent, NotOfType, SCHEMA_VERSION, ToEvent, ToEventError, TypedTopic};
