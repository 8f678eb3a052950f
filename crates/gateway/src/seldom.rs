use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Something that is said once in a while at most, however often there is reason to. Time is
/// monotonic and a parameter.
#[derive(Debug)]
pub(crate) struct Seldom {
    period: Duration,
    /// When it may be said again, in milliseconds.
    next_ms: AtomicU64,
    /// How often it was not said since.
    kept_back: AtomicU64,
}

impl Seldom {
    pub(crate) const fn every(period: Duration) -> Self {
        Self { period, next_ms: AtomicU64::new(0), kept_back: AtomicU64::new(0) }
    }

    /// Whether it is to be said now; and if so, how often it was not since the last time.
    pub(crate) fn is_due(&self, now: Duration) -> Option<u64> {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let now = millis(now);
        let next = now.saturating_add(millis(self.period));
        let taken = self
            .next_ms
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |due| (due <= now).then_some(next));
        if taken.is_err() {
            self.kept_back.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.kept_back.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_in_a_period() {
        const MS: fn(u64) -> Duration = Duration::from_millis;
        let seldom = Seldom::every(MS(1_000));
        assert_eq!(seldom.is_due(MS(0)), Some(0));
        for now in [0, 1, 999] {
            assert_eq!(seldom.is_due(MS(now)), None);
        }
        assert_eq!(seldom.is_due(MS(1_000)), Some(3));
        assert_eq!(seldom.is_due(MS(1_001)), None);
        assert_eq!(seldom.is_due(MS(9_000)), Some(1));
    }
}
