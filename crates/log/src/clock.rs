use std::fmt;
use std::time::{Duration, Instant};

use promethean_event::Timestamp;

/// Where append times come from. A parameter, so that a simulator can own time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The wall clock; may jump. The log never lets append times go back.
    fn now(&self) -> Timestamp;
}

/// The clock of the operating system.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
    fn now(&self) -> Timestamp {
        let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let millis = since_epoch.map_or(0, |elapsed| elapsed.as_millis());
        Timestamp::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
    }
}

/// How long something takes. For threads that stand back behind others; nothing that is stored
/// depends on it.
#[derive(Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(
        clippy::disallowed_methods,
        reason = "real work takes real time, also in a simulation"
    )]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
