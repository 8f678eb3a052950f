//! Long work that goes on in the background, and on after a restart: bulk replay.
//!
//! A replay reads topics up to where they ended when it began, and publishes what is wanted of
//! them to another topic, or once more for one group. What it publishes has ids made of its
//! sources, so that doing a piece again, or all of it, adds nothing; so the cursors are kept after
//! the events, and a crash between the two does no harm.

mod spec;

mod record;

mod runner;

mod attendance;

mod plan;

pub use attendance::JOB_LEASE;
pub use plan::{PlannedEvent, ReplayPlan};
pub use record::{JobRecord, JobState, Refused, ReplayCursor};
pub use runner::{JobError, Jobs};
pub use spec::{CompileFilter, EventFilter, ReplaySpec, ReplayTarget, SpecError};
