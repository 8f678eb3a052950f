//! A durable event bus to embed.
//!
//! Modules are listed in the order in which an event meets them.

mod bus;

mod options;

mod typed;

mod publish;

pub mod store;

pub mod memory;

pub mod embedded;

mod start;

mod settings;

mod dispatch;

pub mod member;

mod subscribe;

mod groups;

mod reading;

mod dead_letter;

pub mod outbox;

pub mod projection;

pub mod snapshot;

mod as_of;

mod upkeep;

mod metrics;

mod spans;

mod clock;

mod error;

pub mod limits;

pub use as_of::{AS_OF_EVENTS_MAX, AsOf, AsOfError, Moment};
pub use bus::{Bus, TopicChangeError};
pub use dead_letter::{
    DeadLetter, DeadLetterEntry, DeadLetterError, DeadLetterQuery, DeadLetterState,
    ReplayDeadLetters, ReplayReport, ReplayTo, Unreplayed,
};
pub use dispatch::GroupFailure;
pub use error::{AckError, GroupError, PublishError};
pub use groups::{GroupLag, Move, PartitionLag};
pub use metrics::{Metering, Metrics, Naming};
pub use options::{BusOptions, UnknownTopics};
pub use promethean_event as event;
pub use publish::{Publish, PublishOptions, Published, ToEvent};
pub use reading::{Replay, Replayed, Replaying};
pub use settings::{Filter, GroupSettings, Mode, Ordered, Park, SettingsError};
pub use start::Start;
pub use subscribe::{Consumer, Delivered, Failure, Subscribe, Subscription};
pub use typed::{DecodeError, FromEvent, SCHEMA_VERSION, TypedTopic};
