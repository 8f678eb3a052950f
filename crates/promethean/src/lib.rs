//! A durable event bus to embed.
//!
//! Modules are listed in the order in which an event meets them.

#[cfg(doctest)]
#[doc = include_str!("../../../docs/schemas.md")]
struct HowToSchemas;

mod bus;

mod options;

mod expression;

mod registry;

mod decode;

mod publish;

mod publish_run;

pub mod store;

pub mod memory;

pub mod embedded;

mod start;

mod faults;

mod settings;

mod dispatch;

pub mod member;

mod subscribe;

mod groups;

mod reading;

mod reader;

mod cut_over;

mod dead_letter;

pub mod outbox;

pub mod changefeed;

pub mod projection;

pub mod snapshot;

mod as_of;

pub mod causality;

pub mod jobs;

pub mod migration;

mod upkeep;

mod metrics;

mod spans;

mod clock;

mod error;

pub mod limits;

pub use as_of::{AS_OF_EVENTS_MAX, AsOf, AsOfError, Moment};
pub use bus::{Bus, TopicChangeError};
pub use cut_over::{CutOver, CutOverError, CutOverReport, Unreadable};
pub use dead_letter::{
    DeadLetter, DeadLetterEntry, DeadLetterError, DeadLetterPage, DeadLetterQuery, DeadLetterState,
    ReplayDeadLetters, ReplayReport, ReplayTo, Unreplayed,
};
pub use decode::{DecodeError, Reads, WhyUnreadable};
pub use dispatch::GroupFailure;
pub use error::{AckError, GroupError, PublishError};
pub use expression::{EVENT_NAMES, EventValues, Formula, FormulaError, REDUCER_NAMES};
pub use faults::Faults;
pub use metrics::{Metering, Metrics, Naming};
pub use options::{BusOptions, UnknownTopics};
pub use promethean_event as event;
pub use promethean_event::{
    Failure, FromEvent, GroupLag, Move, NotOfType, PartitionLag, Replay, SCHEMA_VERSION, Start,
    ToEvent, ToEventError, TypedTopic, topic,
};
pub use promethean_schema as schema;
pub use publish::{Publish, PublishOptions, Published};
pub use publish_run::RunOutcome;
pub use reader::{Decoded, Decoding, Reader};
pub use reading::{Replayed, Replaying};
pub use registry::{
    Compared, DUAL_OF, Evolution, EvolutionError, Hop, Objection, PayloadPolicy, Plan, PolicyError,
    ReaderFate, ReaderPlan, RefusedEvent, RegisterError, Registered, Registration, RegistryPolicy,
    Retained, RetireError, Sample, SchemaCounts, SchemaRefusal, SchemaVersion, Schemas, Stage,
    StartEvolution, TopicPolicy, TrialError, Tried, Unregistered, Unversioned, VersionCount,
    WhyRefused, try_casters,
};
#[cfg(feature = "schemars")]
pub use schemars;
pub use settings::{Filter, GroupSettings, Mode, Ordered, Park, SettingsError};
pub use subscribe::{Consumer, Delivered, DeliveredBatch, Subscribe, Subscription};
