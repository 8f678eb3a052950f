//! Clocks and medians.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::output::grouped;

/// Runs `work` and says how long it took.
#[expect(clippy::disallowed_methods, reason = "measuring time is what a benchmark is for")]
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let value = work();
    (value, start.elapsed())
}

/// Awaits `work` and says how long it took.
#[expect(clippy::disallowed_methods, reason = "measuring time is what a benchmark is for")]
pub(crate) async fn timed_async<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let start = Instant::now();
    let value = work.await;
    (value, start.elapsed())
}

/// The middle one of some figures.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Events per second.
pub(crate) fn rate(events: usize, elapsed: Duration) -> f64 {
    events as f64 / elapsed.as_secs_f64()
}

/// Ours against a reference: medians over rounds that were run in turn.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Compared {
    /// Median over the rounds of ours divided by the reference of the same round.
    pub(crate) ratio: f64,
    pub(crate) events_per_s: f64,
    pub(crate) reference_events_per_s: f64,
    pub(crate) rounds: Vec<Round>,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Round {
    pub(crate) events_per_s: f64,
    pub(crate) reference_events_per_s: f64,
}

impl Compared {
    pub(crate) fn of(rounds: Vec<Round>) -> Self {
        let each = |figure: fn(&Round) -> f64| median(rounds.iter().map(figure).collect());
        Self {
            ratio: each(|round| round.events_per_s / round.reference_events_per_s),
            events_per_s: each(|round| round.events_per_s),
            reference_events_per_s: each(|round| round.reference_events_per_s),
            rounds,
        }
    }

    /// A line for people.
    pub(crate) fn line(&self, name: &str) -> String {
        format!(
            "{name:<34} {:>12}/s   reference {:>12}/s   ratio {:.2}\n",
            grouped(self.events_per_s as u64),
            grouped(self.reference_events_per_s as u64),
            self.ratio
        )
    }
}
