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

    /// How long they were, a line for each.
    pub(super) fn told(&self) -> String {
        let line = |(what, silences): (&&str, &Vec<(Duration, Duration)>)| {
            let longest = |which: fn(&(Duration, Duration)) -> Duration| {
                silences.iter().map(which).max().unwrap_or_default()
            };
            let (publishing, consuming) = (longest(|both| both.0), longest(|both| both.1));
            let times = silences.len();
            format!(
                "{what} ({times} times): publishing rests {publishing:.1?} at most, consuming \
                 {consuming:.1?}"
            )
        };
        self.0.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// Holds them against `PROM_FAULT_RESUME_S`: `scripts/faults` sets it, a test on a machine that
    /// others share does not.
    pub(super) fn hold(&self) {
        let all = self.0.values().flatten();
        let longest = all.map(|both| both.0.max(both.1)).max().unwrap_or_default();
        let bound = std::env::var("PROM_FAULT_RESUME_S").ok().and_then(|text| text.parse().ok());
        if let Some(bound) = bound.map(Duration::from_secs) {
            assert!(longest <= bound, "it took {longest:.1?} to go on; {bound:?} are allowed");
        }
    }
}
