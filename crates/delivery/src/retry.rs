use crate::hash::mix2;
use crate::options::GroupOptions;
use crate::place::LaneId;

/// One delivery that failed, as far as its delay depends on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failed {
    pub(crate) lane: LaneId,
    pub(crate) offset: u64,
    pub(crate) attempt: u16,
}

/// Milliseconds until the delivery after `failed`: doubling, capped, and spread over the upper
/// half of the span so that events that failed together do not come back together. The spread is
/// a function of the seed and the event: a run can be repeated.
pub(crate) fn backoff_ms(options: &GroupOptions, seed: u64, failed: Failed) -> u64 {
    let doublings = u32::from(failed.attempt.saturating_sub(1)).min(31);
    let whole = (u64::from(options.backoff_ms) << doublings).min(u64::from(options.backoff_ms_max));
    let event = mix2(failed.lane.get(), failed.offset);
    let spread = mix2(seed ^ event, u64::from(failed.attempt)) % (whole / 2 + 1);
    whole - spread
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delay(seed: u64, offset: u64, attempt: u16) -> u64 {
        let failed = Failed { lane: LaneId::new(3), offset, attempt };
        backoff_ms(&GroupOptions::default(), seed, failed)
    }

    /// Pitfall 4: the notes came back at once, 370 times in 300 ms.
    #[test]
    fn delays_double_are_capped_and_never_zero() {
        for attempt in 1..=ATTEMPTS_MAX {
            let whole = (200u64 << u32::from(attempt - 1).min(31)).min(60_000);
            let delay = delay(1, 7, attempt);
            assert!((whole / 2..=whole).contains(&delay), "{attempt}: {delay}");
        }
    }

    #[test]
    fn delays_are_spread_but_repeatable() {
        let all: alloc::collections::BTreeSet<_> = (0..100).map(|o| delay(1, o, 6)).collect();
        assert!(all.len() > 90);
        assert_eq!(delay(1, 5, 2), delay(1, 5, 2));
        assert_ne!(delay(1, 5, 6), delay(2, 5, 6));
    }

    use crate::limits::ATTEMPTS_MAX;
}
