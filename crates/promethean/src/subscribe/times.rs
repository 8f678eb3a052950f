use crate::clock::Stopwatch;
use crate::metrics::{GroupMeters, Tally};

/// Handlers that are timed together, if they are quick.
const RUN_EVENTS_MAX: u32 = 16;
/// What takes less is quick: a look at the clock would be a good part of it.
const QUICK_NS: u64 = 10_000;

/// How long handlers take. Quick ones are timed in runs and count with the mean of theirs; as soon
/// as a run was not quick, every handler is timed by itself.
#[derive(Debug)]
pub(super) struct HandlerTimes {
    /// When the first handler of the run began; `None` if nothing is timed.
    since: Option<Stopwatch>,
    /// Handlers of the run that have ended.
    ended: u32,
    /// How many are timed together.
    run: u32,
    tally: Tally,
}

impl HandlerTimes {
    pub(super) fn new() -> Self {
        Self { since: None, ended: 0, run: 1, tally: Tally::default() }
    }

    /// A handler begins after a time without one.
    pub(super) const fn begin(&mut self, since: Option<Stopwatch>) {
        self.since = since;
    }

    /// A handler has ended, well or not, and the next one may begin.
    pub(super) fn one_ended(&mut self) {
        self.ended += 1;
        if self.ended >= self.run {
            self.end_run();
        }
    }

    /// Ends the run before something else takes time.
    pub(super) fn end_run(&mut self) {
        if let Some(since) = self.since
            && self.ended > 0
        {
            let now = Stopwatch::start();
            let mean = now.nanos_since(since) / u64::from(self.ended);
            self.tally.record_times(mean, self.ended);
            self.run = if mean < QUICK_NS { RUN_EVENTS_MAX } else { 1 };
            self.since = Some(now);
        }
        self.ended = 0;
    }

    pub(super) fn flush(&mut self, meters: &GroupMeters) {
        self.end_run();
        meters.handler.add(&mut self.tally);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn quick_ones_are_timed_together_and_slow_ones_alone() {
        let (meters, mut times) = (GroupMeters::default(), HandlerTimes::new());
        times.begin(Some(Stopwatch::start()));
        times.one_ended();
        assert_eq!((times.ended, times.run), (0, RUN_EVENTS_MAX));
        for _ in 1..RUN_EVENTS_MAX {
            times.one_ended();
        }
        assert_eq!(times.ended, RUN_EVENTS_MAX - 1, "not looked at yet");
        tokio::time::advance(Duration::from_secs(16)).await;
        times.one_ended();
        assert_eq!((times.ended, times.run), (0, 1), "from now on one by one");
        times.flush(&meters);
        let expected = GroupMeters::default();
        expected.handler.record(0);
        (0..RUN_EVENTS_MAX).for_each(|_| expected.handler.record(1_000_000_000));
        assert_eq!(format!("{:?}", meters.handler), format!("{:?}", expected.handler));
    }
}
