//! One durable, searchable, append-only log for all topics.
//!
//! A [`Log`] takes batches of events ([`Append`]) and gives back where they stand ([`Appended`]),
//! once they are as durable as was asked for. It is read by lane (one partition of one topic) and
//! offset ([`LaneReader`]), over several lanes in the order of appending ([`MergedReader`]), and
//! searched by id, key, and time. The cleaner removes what a topic's rules let go.
//!
//! Synchronous: one writer thread commits what is waiting in one frame with one sync, and answers
//! [`Ticket`]s, which can be waited for or awaited. The bytes are described in `FORMAT.md`.
//!
//! Modules are listed in the order in which an event meets them.

mod topic;

mod catalog;

mod batch;

mod ticket;

mod receipts;

mod queue;

mod placement;

mod writer;

mod catalog_writer;

mod begun;

mod sync_times;

mod flight;

mod frame_memory;

mod room;

mod roll;

mod segment;

mod index;

mod engine;

mod tail;

mod recent;

mod upkeep;

mod read;

mod lookup;

mod offset_search;

mod keys;

mod cleaner;

mod recovery;

mod survey;

mod scrub;

mod log;

mod options;

mod clock;

mod disk;

mod lock;

mod codec;

mod hash;

mod error;

mod limits;

#[cfg(feature = "planted-bugs")]
mod planted;

pub use batch::{Append, Appended, Durability, Expectation, Part, Receipt, WrittenBy};
pub use catalog::LaneState;
pub use cleaner::{CleanError, Holds};
pub use clock::{Clock, SystemClock};
pub use disk::{Disk, DiskFile, Glimpse, RealDisk};
pub use error::{AppendError, OpenError, ReadError};
pub use keys::KeyReader;
pub use log::{Grown, Log};
pub use options::{Drive, Options};
#[cfg(feature = "planted-bugs")]
pub use planted::PlantedBug;
pub use read::{Gap, GapReason, LaneReader, MergedReader, Page, PageLimit, RecordPage, Visited};
pub use receipts::Receipts;
pub use recent::Growth;
pub use recovery::{Damage, OpenReport};
pub use scrub::Scrubbed;
pub use segment::{Record, RecordRef};
pub use survey::{SegmentSurvey, Survey, TopicSurvey, survey};
pub use ticket::{RunTicket, Ticket};
pub use topic::{Cleaning, Compaction, Lane, TopicDefinition, TopicId};
