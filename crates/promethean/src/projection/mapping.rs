//! What an event means for a view. Two ways to say it: declared, as data ([`Declared`]), and in
//! Rust ([`Coded`]).
//!
//! [`Declared`]: super::Declared
//! [`Coded`]: super::Coded

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use promethean_event::{Event, Payload};

/// What an event changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The document of a key is this one now; nothing of an older one stays.
    Put {
        /// The key.
        key: String,
        /// The document.
        document: Payload,
        /// Its version, if the view has versions.
        version: Option<i64>,
    },
    /// A key has no document any more.
    Delete {
        /// The key.
        key: String,
        /// The version of the deletion, if it has one.
        version: Option<i64>,
    },
    /// Nothing.
    Nothing,
}

/// Why an event means nothing. It is counted, and kept as a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unmapped {
    /// The event has no key.
    #[error("the event has no key; a view has one document for each key")]
    NoKey,
    /// The view has versions, the event has none.
    #[error("the event has no version, which this view needs")]
    NoVersion,
    /// The mapping failed.
    #[error("the event does not fit the view: {0}")]
    Unfit(String),
}

/// What events mean for a view.
pub trait Mapping: fmt::Debug + Send + Sync + 'static {
    /// What an event changes.
    fn change(&self, event: &Event) -> Result<Change, Unmapped>;

    /// Whether the key of a document is always the key of its event.
    fn keeps_key(&self) -> bool;

    /// Whether documents have versions.
    fn has_versions(&self) -> bool;

    /// The version of their schema that events are brought to first. Default: none.
    fn reads(&self) -> Option<u32> {
        None
    }

    /// A text that is another one when the same event would mean something else.
    fn fingerprint(&self) -> String;
}

/// What an event changes; a mapping that panics does not fit. The same for what is and what was.
pub(crate) fn change_of(mapping: &dyn Mapping, event: &Event) -> Result<Change, Unmapped> {
    let change = catch_unwind(AssertUnwindSafe(|| mapping.change(event)));
    change.unwrap_or_else(|_| Err(Unmapped::Unfit("the mapping panicked".into())))
}
