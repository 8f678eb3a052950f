//! How long it took until things went on.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use promethean_harness::stopwatch::Stopwatch;

/// Something that happens again and again.
#[derive(Debug, Default)]
pub(super) struct Pulse(Mutex<Beats>);

#[derive(Debug, Default)]
struct Beats {
    last: Option<Stopwatch>,
    longest: Duration,
}

impl Pulse {
    pub(super) fn beat(&self) {
        let mut beats = self.0.lock().unwrap();
        let silence = beats.last.map_or(Duration::ZERO, |last| last.elapsed());
        beats.longest = beats.longest.max(silence);
        beats.last = Some(Stopwatch::start());
    }

    /// The longest silence since this was asked for last.
    pub(super) fn longest(&self) -> Duration {
        std::mem::take(&mut self.0.lock().unwrap().longest)
    }
}

/// Silences of publishing and consuming, by what happened.
#[derive(Debug, Default)]
pub(super) struct Silences(BTreeMap<&'static str, Vec<(Duration, Duration)>>);

impl Silences {
    pub(super) fn note(&mut self, what: &'static str, publishing: Duration, consuming: Duration) {
        self.0.entry(what).or_default().push((publishing, consuming));
    }

    /// Says how long they were, and holds them against `PROM_FAULT_RESUME_S`: `scripts/faults` sets
    /// it, a test on a machine that others share does not.
    #[expect(clippy::print_stdout, reason = "what is held against a bound is told")]
    pub(super) fn end(&self) {
        let mut longest = Duration::ZERO;
        for (what, silences) in &self.0 {
            let of = |which: fn(&(Duration, Duration)) -> Duration| {
                let mut all: Vec<Duration> = silences.iter().map(which).collect();
                all.sort_unstable();
                (all[all.len() / 2], all[all.len() - 1])
            };
            let ((publish, publish_max), (consume, consume_max)) = (of(|s| s.0), of(|s| s.1));
            println!(
                "{what} ({} times): publishing rests {publish:.1?} (at most {publish_max:.1?}), \
                 consuming {consume:.1?} (at most {consume_max:.1?})",
                silences.len()
            );
            longest = longest.max(publish_max).max(consume_max);
        }
        let bound = std::env::var("PROM_FAULT_RESUME_S").ok().and_then(|text| text.parse().ok());
        if let Some(bound) = bound.map(Duration::from_secs) {
            assert!(longest <= bound, "it took {longest:.1?} to go on; {bound:?} are allowed");
        }
    }
}
