//! Moving everything that one store keeps to another one: topics with their events, at the same places
//! and times; groups with cursors and attempts; schemas, jobs and all other entries. What can be made
//! of those again, views and the index of causes, is not moved.
//!
//! The source may be in use for most of it: the target is marked ([`Migration::begin_copy`]), and gets
//! what there is, again and again ([`Migration::catch_up`]); what was copied is compared at once. For
//! the rest ([`Migration::run`]) one works alone on both: the source is marked too, and whoever opens a
//! marked store leaves it alone ([`standing`]). What was cut off is run again, and goes on where lanes of
//! the target end. When all of both has been compared, the source is marked as moved.
//!
//! Recovery: a source without its last mark is whole, and a target without it is not. [`abandon`] takes
//! the mark of a source back. Nothing else of a source is ever changed.

mod mark;

mod error;

mod places;

mod alignment;

mod proof;

mod events;

mod groups;

mod entries;

mod tally;

mod mover;

pub use error::MigrateError;
pub use mark::{Mark, Role, Stage, abandon, standing};
pub use mover::{Migration, MigrationPlan, MigrationReport, Progress, TopicPlan};
pub use proof::Proof;
