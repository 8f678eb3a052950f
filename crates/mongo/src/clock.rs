use std::time::Duration;

use tokio::time::Instant;

/// The moment by which something has to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(crate) fn after(time: Duration) -> Self {
        Self(Instant::now() + time)
    }

    pub(crate) fn has_passed(self) -> bool {
        Instant::now() >= self.0
    }

    /// What a future comes to; `None` if it takes too long.
    pub(crate) async fn hold<T>(self, future: impl IntoFuture<Output = T>) -> Option<T> {
        tokio::time::timeout_at(self.0, future).await.ok()
    }

    /// Waits, but not beyond the deadline.
    pub(crate) async fn pause(self, time: Duration) {
        tokio::time::sleep_until((Instant::now() + time).min(self.0)).await;
    }
}

/// How long ago something began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}
