//! Projections keep views: what has happened becomes state that can be read.
//!
//! A projection reads its topics from cursors of its own. Documents and cursors change in one
//! transaction of one database, so that every event is in the views exactly once, whatever crashes
//! when. Where that is, is behind a seam (`view_store.rs`): a SQLite file, or MongoDB. Events that a projection emits are appended before that transaction, with ids
//! made of their causes' positions: a second run adds nothing.
//!
//! Modules are listed in the order in which an event meets them. Limits: `limits.rs`. Tables:
//! `database/layout.rs`. Recovery: a projection goes on from its cursors; there is no other.

mod position {
    //! Where an event stands is a noun of events.
    pub use promethean_event::{Position, PositionError};
}

mod view;

mod definition;

mod mapping;

mod declared;

mod coded;

mod expressed;

mod upcast;

mod changelog;

mod transaction;

mod delegated;

mod feed;

mod stamp;

mod digest;

mod effects;

pub mod view_store;

mod database;

mod document;

mod caution;

mod driver;

mod progress;

mod tenure;

mod supervise;

mod views;

mod rebuild;

mod verify;

mod past;

mod past_scan;

mod folded;

mod patch;

pub mod query;

mod error;

pub mod guide;

pub mod limits;

#[cfg(test)]
mod faults_tests;

pub use changelog::Changelog;
pub use coded::Coded;
pub use database::DatabaseError;
pub use declared::{Declared, Equals, Source};
pub use definition::{DefinitionError, Unkeyed};
pub use delegated::{Carried, Carry, Delegated, DelegatedProjection};
pub use document::Document;
pub use error::{ProjectionError, ViewError};
pub use expressed::{Expressed, Expressions};
pub use folded::{FOLD_EVENTS_MAX, Folded};
pub use mapping::{Change, Mapping, Unmapped};
pub use past::{Past, PastError, PastStep, StepEffect};
pub use past_scan::PastScan;
pub use patch::{Operation, PatchKind, blame, patch};
pub use position::{Position, PositionError};
pub(crate) use progress::Holds;
pub use progress::{Progress, ProjectionState};
pub use rebuild::Rebuilding;
pub use transaction::{Transaction, TransactionError, Transactional, TransactionalProjection};
pub use verify::{Difference, Verification};
pub use view::{Field, FieldKind, View, ViewDefinitionError};
pub use view_store::Counts;
pub use views::{Projection, ProjectionStatus, Views};
