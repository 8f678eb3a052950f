use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use promethean_event::Timestamp;
use promethean_log::Clock;

/// A wall clock that moves only when the simulation says so, also backwards.
#[derive(Debug, Clone)]
pub struct SimClock(Arc<AtomicU64>);

impl SimClock {
    /// A clock that stands at `millis`.
    pub fn at(millis: u64) -> Self {
        Self(Arc::new(AtomicU64::new(millis)))
    }

    /// What it shows, in ms since the epoch.
    pub fn millis(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Puts it to `millis`.
    pub fn set(&self, millis: u64) {
        self.0.store(millis, Ordering::Relaxed);
    }

    /// Lets `millis` pass.
    pub fn advance(&self, millis: u64) {
        self.0.fetch_add(millis, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.millis())
    }
}
