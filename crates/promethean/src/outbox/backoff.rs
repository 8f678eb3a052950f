use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// How long to wait before an attempt: doubling from `min` to `max`, of which a random half is
/// left out, so that what failed together does not come again together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Backoff {
    pub(super) min: Duration,
    pub(super) max: Duration,
}

impl Backoff {
    /// The wait after so many failures. `who` and `which` stand in for chance: they differ where
    /// waits should.
    pub(super) fn delay(self, failures: u32, who: &str, which: i64) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let full = self.min.saturating_mul(1 << doublings).min(self.max);
        let seed = (which as u64).rotate_left(32) ^ u64::from(failures);
        let chance = xxh3_64_with_seed(who.as_bytes(), seed) >> 32;
        let millis = u64::try_from(full.as_millis()).unwrap_or(u64::MAX);
        let half = millis / 2;
        let part = (u128::from(millis - half) * u128::from(chance)) >> 32;
        Duration::from_millis((half + u64::try_from(part).unwrap_or(0)).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff =
        Backoff { min: Duration::from_millis(100), max: Duration::from_secs(10) };

    #[test]
    fn rises_to_its_end_and_stays() {
        for (failures, full) in [(1, 100), (2, 200), (4, 800), (8, 10_000), (u32::MAX, 10_000)] {
            for row in 0..100 {
                let delay = BACKOFF.delay(failures, "w", row).as_millis();
                assert!((full / 2..=full).contains(&delay), "{failures}: {delay}");
            }
        }
    }

    #[test]
    fn rows_and_workers_that_fail_together_come_again_apart() {
        let distinct = |delays: Vec<Duration>| {
            delays.into_iter().collect::<std::collections::HashSet<_>>().len()
        };
        assert!(distinct((0..50).map(|row| BACKOFF.delay(8, "w", row)).collect()) > 40);
        let workers = (0..50).map(|n| BACKOFF.delay(8, &n.to_string(), 1));
        assert!(distinct(workers.collect()) > 40);
    }
}
