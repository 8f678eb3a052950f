//! How long a sync takes at the moment.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A mean of what syncs took, in which the newest count most. Only a hint: who loses a race loses one
/// sync of many.
#[derive(Debug)]
pub(crate) struct SyncTimes {
    mean_nanos: AtomicU64,
}

/// Nothing was synced so far.
const UNKNOWN: u64 = u64::MAX;
/// How much a sync counts.
const SHARE: u64 = 8;

impl Default for SyncTimes {
    fn default() -> Self {
        Self { mean_nanos: AtomicU64::new(UNKNOWN) }
    }
}

impl SyncTimes {
    pub(crate) fn note(&self, took: Duration) {
        // Above a second all are the same: too slow.
        let took = u64::try_from(took.as_nanos()).unwrap_or(UNKNOWN).min(1_000_000_000);
        let mean = match self.mean_nanos.load(Ordering::Relaxed) {
            UNKNOWN => took,
            mean => (mean * (SHARE - 1) + took) / SHARE,
        };
        self.mean_nanos.store(mean, Ordering::Relaxed);
    }

    /// Whether the next one is likely to be done within a time.
    pub(crate) fn are_within(&self, time: Duration) -> bool {
        u128::from(self.mean_nanos.load(Ordering::Relaxed)) <= time.as_nanos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_micros(300);

    #[test]
    fn one_slow_sync_is_remembered_for_a_few_quick_ones() {
        let times = SyncTimes::default();
        assert!(!times.are_within(QUICK), "nothing is known");
        times.note(Duration::from_micros(80));
        assert!(times.are_within(QUICK));
        times.note(Duration::from_millis(20));
        assert!(!times.are_within(QUICK), "a disk that is busy is busy for a while");
        let quick = (1..=100).find(|_| {
            times.note(Duration::from_micros(80));
            times.are_within(QUICK)
        });
        assert!(quick.is_some_and(|after| (5..50).contains(&after)), "{quick:?}");
    }
}
