use std::fmt;

use serde::Serialize;

/// Which promise was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Broken {
    /// An acknowledged or served event is gone.
    Lost,
    /// An event that was never submitted, or was refused, or had been lost.
    Phantom,
    /// A part of a batch.
    Torn,
    /// An offset is missing and nothing says so, or it comes twice or out of order.
    Hole,
    /// An event with other bytes, another place in the log or another time than before.
    Changed,
    /// The cleaner removed what it had to keep.
    Removed,
    /// A look-up, a receipt or a refusal differs from the model's.
    Answer,
    /// A call failed that had no reason to.
    Failed,
    /// A call succeeded that had to fail.
    Accepted,
    /// A file was deleted or overwritten that had to be kept.
    Destroyed,
    /// Damage that nothing reports.
    Undetected,
}

/// A broken promise, with what is needed to see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Which promise.
    pub broken: Broken,
    /// What was seen.
    pub detail: String,
}

impl Violation {
    /// A violation as an error.
    pub fn err<T>(broken: Broken, detail: impl Into<String>) -> Result<T, Self> {
        Err(Self { broken, detail: detail.into() })
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.broken, self.detail)
    }
}

impl std::error::Error for Violation {}
