//! Real time, for tests of real processes that promise to be done within some of it.

use std::time::{Duration, Instant};

/// Runs from when it is made.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(Instant);

impl Stopwatch {
    /// Begins.
    #[expect(clippy::disallowed_methods, reason = "a process of its own has no simulated clock")]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// How long it has run.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
