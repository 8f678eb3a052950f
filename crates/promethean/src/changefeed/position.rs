use std::fmt;

use serde::{Deserialize, Serialize};

/// A time of a MongoDB cluster: seconds since 1970, and a number within the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClusterTime {
    /// Seconds since 1970.
    pub seconds: u32,
    /// Which one within the second.
    pub increment: u32,
}

impl fmt::Display for ClusterTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.seconds, self.increment)
    }
}

impl ClusterTime {
    /// The moment after it.
    pub const fn next(self) -> Self {
        Self { seconds: self.seconds, increment: self.increment.saturating_add(1) }
    }

    /// The moment before it.
    pub const fn before(self) -> Self {
        match self.increment.checked_sub(1) {
            Some(increment) => Self { seconds: self.seconds, increment },
            None => Self { seconds: self.seconds.saturating_sub(1), increment: u32::MAX },
        }
    }

    /// In milliseconds since 1970.
    pub fn millis(self) -> u64 {
        u64::from(self.seconds) * 1000
    }
}
