//! Moving everything that one store keeps to another one: topics with their events, at the same places
//! and times; groups with cursors and attempts; schemas, jobs and all other entries. What can be made
//! of those again, views and the index of causes, is not moved.
//!
//! One at a time works on either store: both are marked first, and whoever opens a marked store leaves
//! it alone ([`standing`]). What was cut off is run again, and goes on where lanes of the target end.
//! At the end both are read, and compared in full; only then is the source marked as moved.
//!
//! Recovery: a source without its last mark is whole, and a target without it is not. [`abandon`] takes
//! the mark of a source back.

mod mark;

mod error;

mod places;

mod events;

mod groups;

mod entries;

mod tally;

mod mover;

pub use error::MigrateError;
pub use mark::{Mark, Role, Stage, abandon, standing};
pub use mover::{Migration, MigrationPlan, MigrationReport, Progress, TopicPlan};
