use std::time::{Duration, SystemTime, UNIX_EPOCH};

use promethean_event::Timestamp;
use tokio::time::Instant;

/// Epoch milliseconds that never go back: the wall clock once, a monotonic one from then on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    epoch_ms: u64,
    started: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { epoch_ms: wall_ms(), started: Instant::now() }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.epoch_ms + self.started.elapsed().as_millis() as u64
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now_ms())
    }

    /// When the clock will show a time; now at the earliest.
    pub(crate) fn instant_of(&self, ms: u64) -> Instant {
        // Rounded up, so that the time has come when somebody was woken for it.
        self.started + Duration::from_millis(ms.saturating_sub(self.epoch_ms).saturating_add(1))
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place where the client reads the clock")]
fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
