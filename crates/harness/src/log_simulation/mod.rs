//! The simulator of the log: a disk that crashes, a model that is too plain to be wrong, and a
//! workload from a seed between them.

#![expect(
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "a harness may stop on its own broken invariants; the seed replays it"
)]

mod random;

mod clock;

mod fault;

mod disk;

mod corruption;

mod draft;

mod violation;

mod model;

mod profile;

mod subject;

mod session;

mod steps;

mod reads;

mod crash;

mod sweep;

mod damage;

mod other_ways;

pub use clock::SimClock;
pub use corruption::{Corruption, CorruptionKind, corrupt};
pub use crash::{CrashOptions, Failure, Report, run, run_seed, trace_seed};
pub use damage::{DamageReport, Detected, Patient};
pub use disk::{CrashStyle, DiskImage, NameFate, SimDisk};
pub use draft::{Destination, Digest, Draft, DraftSource};
pub use fault::{Call, Fault, FaultKind};
pub use model::{
    Batch, LaneKey, Model, ModelTopic, Outcome, Placed, Seen, SeenEvent, SeenGap, SeenLane,
    SeenLog, SeenReason, StoredEvent, Strength,
};
pub use profile::{CleaningStyle, Profile, Steps};
pub use random::{Random, mixed};
pub use session::{Running, Session, Tally};
pub use subject::PlantedBug;
pub use sweep::{SweepPoint, SweepReport, sweep};
pub use violation::{Broken, Violation};
