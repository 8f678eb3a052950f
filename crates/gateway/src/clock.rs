use std::time::{Duration, SystemTime, UNIX_EPOCH};

use promethean_event::Timestamp;
use tokio::time::Instant;

/// Epoch milliseconds that never go back, and time since the start. By tokio's clock, so that a
/// test with paused time owns it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    epoch_ms: u64,
    started: Instant,
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that others take")]
    pub(crate) fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { epoch_ms: wall.as_millis() as u64, started: Instant::now() }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.epoch_ms + self.elapsed().as_millis() as u64
    }

    /// The later of that and what the machine's clock shows: by this, credentials end. A machine that
    /// slept, or was moved, has a clock that knows of it; one that was set back is not believed.
    #[expect(clippy::disallowed_methods, reason = "this is the clock that others take")]
    pub(crate) fn latest_ms(&self) -> u64 {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.now_ms().max(wall.as_millis() as u64)
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now_ms())
    }

    /// When it will show a time; now at the earliest.
    pub(crate) fn instant_of(&self, ms: u64) -> Instant {
        self.started + Duration::from_millis(ms.saturating_sub(self.epoch_ms))
    }

    pub(crate) fn instant(&self) -> Instant {
        self.started + self.elapsed()
    }
}
