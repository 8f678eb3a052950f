use std::time::{Duration, SystemTime, UNIX_EPOCH};

use promethean_event::Timestamp;
use tokio::time::Instant;

/// Epoch milliseconds that never go back: the wall clock once, a monotonic one from then on. By
/// tokio's clock, so that a test with paused time owns it.
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

    pub(crate) fn instant(&self) -> Instant {
        // Asked of the clock, so that there is one place to look for time.
        self.started + self.started.elapsed()
    }

    /// When the clock will show a time; now at the earliest.
    pub(crate) fn instant_of(&self, ms: u64) -> Instant {
        self.started + Duration::from_millis(ms.saturating_sub(self.epoch_ms))
    }

    /// What the clock showed when a measurement was begun.
    pub(crate) fn ms_at(&self, watch: Stopwatch) -> u64 {
        self.epoch_ms + watch.begun.saturating_duration_since(self.started).as_millis() as u64
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now_ms())
    }
}

impl promethean_log::Clock for Clock {
    fn now(&self) -> Timestamp {
        Self::now(self)
    }
}

/// How long something takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopwatch {
    begun: Instant,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self { begun: Instant::now() }
    }

    pub(crate) fn nanos(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Between the beginnings of two measurements.
    pub(crate) fn nanos_since(&self, earlier: Self) -> u64 {
        let between = self.begun.saturating_duration_since(earlier.begun);
        u64::try_from(between.as_nanos()).unwrap_or(u64::MAX)
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place where the bus reads the wall clock")]
fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
