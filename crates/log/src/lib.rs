//! The event log.
mod clock;
mod disk;
mod options;
mod topic;
pub use clock::{Clock, SystemClock};
pub use disk::{Disk, DiskFile, RealDisk};
pub use options::{Drive, Options};
pub use topic::{Cleaning, Compaction, Lane, TopicDefinition, TopicId};
