//! Token buckets: how often somebody may do something. Each bucket is one number (the generic cell
//! rate algorithm): the time at which it will be full again. Time is monotonic and a parameter.
//!
//! Tables of buckets are bounded. A bucket that is full again is the same as one never used, so it
//! can go; when all are in use, new names share one bucket, so that inventing names gains nothing.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use promethean_event::limits::FRAME_EVENTS_MAX;

use crate::limits::{BUCKETS_MAX, DEBT_EVENTS_MAX};

/// How much is allowed: so many in a period in the long run, `burst` at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    count: u32,
    period_ns: u64,
    burst: u32,
}

/// A rate that lets nothing through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a rate of {count} with a burst of {burst} lets nothing through")]
pub struct RateError {
    count: u32,
    burst: u32,
}

impl Rate {
    /// Checks a rate.
    pub const fn new(per_second: u32, burst: u32) -> Result<Self, RateError> {
        Self::over(per_second, burst, 1_000_000_000)
    }

    /// So many in a minute, all of them at once if need be.
    pub const fn per_minute(count: u32) -> Result<Self, RateError> {
        Self::over(count, count, 60_000_000_000)
    }

    const fn over(count: u32, burst: u32, period_ns: u64) -> Result<Self, RateError> {
        if count == 0 || burst == 0 {
            return Err(RateError { count, burst });
        }
        Ok(Self { count, period_ns, burst })
    }

    /// As much at once as in one second.
    pub const fn per_second(per_second: u32) -> Result<Self, RateError> {
        Self::new(per_second, per_second)
    }

    /// So many events in a second, and at once as many as one request may hold, however few that are:
    /// a batch that can never pass would be refused for good.
    pub const fn of_publishing(per_second: u32) -> Result<Self, RateError> {
        const BATCH: u32 = FRAME_EVENTS_MAX as u32;
        Self::new(per_second, if per_second < BATCH { BATCH } else { per_second })
    }

    const fn cost_ns(self, weight: u32) -> u64 {
        // Neither factor exceeds 2^36, so that the product fits with room to spare.
        (weight as u128 * self.period_ns as u128).div_ceil(self.count as u128) as u64
    }
}

/// The answer of a bucket that does not let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Not now; it would pass after this long.
    Wait(Duration),
    /// Never: it is more than the burst.
    Never,
}

/// One bucket. New ones are full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bucket {
    /// When it is full again, in nanoseconds of the caller's monotonic clock.
    full_at_ns: u64,
}

impl Bucket {
    /// Takes `weight` out at `now`, or says when it will be possible. A refusal takes nothing.
    pub fn take(&mut self, rate: Rate, now: Duration, weight: u32) -> Result<(), Refusal> {
        self.full_at_ns = self.after(rate, now, weight)?;
        Ok(())
    }

    /// Takes `weight` out, also if it is not there: what was done cannot be refused. Says how long
    /// nothing more should be done.
    pub fn charge(&mut self, rate: Rate, now: Duration, weight: u32) -> Duration {
        let now = nanos(now);
        self.full_at_ns = self.full_at_ns.max(now).saturating_add(rate.cost_ns(weight));
        let latest = now.saturating_add(rate.cost_ns(rate.burst));
        Duration::from_nanos(self.full_at_ns.saturating_sub(latest))
    }

    /// Forgets what is owed beyond `weight`.
    fn owe_at_most(&mut self, rate: Rate, now: Duration, weight: u32) {
        let latest = nanos(now).saturating_add(rate.cost_ns(rate.burst));
        self.full_at_ns = self.full_at_ns.min(latest.saturating_add(rate.cost_ns(weight)));
    }

    /// Puts back what was taken, since another bucket did not let it through.
    pub fn put_back(&mut self, rate: Rate, weight: u32) {
        self.full_at_ns = self.full_at_ns.saturating_sub(rate.cost_ns(weight));
    }

    /// Whether the bucket is as good as new.
    pub fn is_full(&self, now: Duration) -> bool {
        self.full_at_ns <= nanos(now)
    }

    fn after(self, rate: Rate, now: Duration, weight: u32) -> Result<u64, Refusal> {
        if weight > rate.burst {
            return Err(Refusal::Never);
        }
        let now = nanos(now);
        let full_at = self.full_at_ns.max(now).saturating_add(rate.cost_ns(weight));
        let latest = now.saturating_add(rate.cost_ns(rate.burst));
        if full_at > latest {
            return Err(Refusal::Wait(Duration::from_nanos(full_at - latest)));
        }
        Ok(full_at)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Buckets by name, all with one rate. Cheap to ask; the lock is held for a look-up.
#[derive(Debug)]
pub struct Buckets<K> {
    rate: Rate,
    max: usize,
    kept: Mutex<Kept<K>>,
}

#[derive(Debug)]
struct Kept<K> {
    named: HashMap<K, Bucket>,
    overflow: Bucket,
    /// When clearing out is worth another look.
    clear_at_ns: u64,
}

impl<K: Hash + Eq + Clone> Buckets<K> {
    /// An empty table of at most [`BUCKETS_MAX`] buckets.
    pub fn new(rate: Rate) -> Self {
        Self::with_max(rate, BUCKETS_MAX)
    }

    fn with_max(rate: Rate, max: usize) -> Self {
        let kept = Kept { named: HashMap::new(), overflow: Bucket::default(), clear_at_ns: 0 };
        Self { rate, max, kept: Mutex::new(kept) }
    }

    /// Takes `weight` out of the bucket of `name`, or says when it will be possible.
    pub fn take(&self, name: &K, now: Duration, weight: u32) -> Result<(), Refusal> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.make_room(self.rate, self.max, now);
        let full = kept.named.len() >= self.max;
        if let Some(bucket) = kept.named.get_mut(name) {
            return bucket.take(self.rate, now, weight);
        }
        if full {
            return kept.overflow.take(self.rate, now, weight);
        }
        let mut bucket = Bucket::default();
        bucket.take(self.rate, now, weight)?;
        kept.named.insert(name.clone(), bucket);
        Ok(())
    }

    /// Takes `weight` out of the bucket of `name`, also if it is not there, and says how long nothing
    /// more should be done by whoever did this. Others, who took less, wait for [`DEBT_EVENTS_MAX`] at
    /// most.
    pub fn charge(&self, name: &K, now: Duration, weight: u32) -> Duration {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.make_room(self.rate, self.max, now);
        let full = kept.named.len() >= self.max;
        let Kept { named, overflow, .. } = &mut *kept;
        let bucket = match named.get_mut(name) {
            Some(bucket) => bucket,
            None if full => overflow,
            None => named.entry(name.clone()).or_default(),
        };
        let wait = bucket.charge(self.rate, now, weight);
        bucket.owe_at_most(self.rate, now, DEBT_EVENTS_MAX.max(self.rate.burst));
        wait
    }

    /// Puts back what was taken out of the bucket of `name`.
    pub fn put_back(&self, name: &K, weight: u32) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let Kept { named, overflow, .. } = &mut *kept;
        named.get_mut(name).unwrap_or(overflow).put_back(self.rate, weight);
    }

    /// How many buckets are kept.
    pub fn len(&self) -> usize {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).named.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Hash + Eq> Kept<K> {
    /// Lets full buckets go when the table is full, at most once per time that a bucket takes to
    /// fill: before that, most of what was kept last time is still in use.
    fn make_room(&mut self, rate: Rate, max: usize, now: Duration) {
        if self.named.len() < max || nanos(now) < self.clear_at_ns {
            return;
        }
        self.named.retain(|_, bucket| !bucket.is_full(now));
        self.clear_at_ns = nanos(now).saturating_add(rate.cost_ns(rate.burst));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn burst_then_rate() {
        let rate = Rate::new(10, 3).unwrap();
        let mut bucket = Bucket::default();
        for _ in 0..3 {
            assert_eq!(bucket.take(rate, MS(0), 1), Ok(()));
        }
        assert_eq!(bucket.take(rate, MS(0), 1), Err(Refusal::Wait(MS(100))));
        assert_eq!(bucket.take(rate, MS(99), 1), Err(Refusal::Wait(MS(1))));
        assert_eq!(bucket.take(rate, MS(100), 1), Ok(()));
    }

    /// Pitfall 64: a request larger than the bucket waited forever.
    #[test]
    fn what_can_never_pass_is_told_so() {
        let rate = Rate::new(10, 3).unwrap();
        assert_eq!(Bucket::default().take(rate, MS(0), 4), Err(Refusal::Never));
        assert!(Rate::new(0, 1).is_err());
        assert!(Rate::per_second(0).is_err());
    }

    /// Pitfall 64: every invented name had a bucket of its own.
    #[test]
    fn inventing_names_gains_nothing() {
        let buckets = Buckets::with_max(Rate::new(1, 1).unwrap(), 4);
        let passed = (0..1000).filter(|name| buckets.take(name, MS(0), 1).is_ok()).count();
        assert_eq!(passed, 5);
        assert_eq!(buckets.len(), 4);
        // Once they are full again they make room, and are not remembered.
        assert_eq!(buckets.take(&7777, MS(5000), 1), Ok(()));
        assert_eq!(buckets.len(), 1);
    }

    #[test]
    fn what_was_done_is_waited_for_afterwards() {
        let rate = Rate::new(10, 3).unwrap();
        let mut bucket = Bucket::default();
        assert_eq!(bucket.charge(rate, MS(0), 3), MS(0));
        assert_eq!(bucket.charge(rate, MS(0), 20), MS(2000));
        assert_eq!(bucket.take(rate, MS(2000), 1), Err(Refusal::Wait(MS(100))));
        assert_eq!(bucket.charge(rate, MS(2100), 1), MS(0));
        let buckets = Buckets::with_max(rate, 1);
        assert_eq!(buckets.charge(&"a", MS(0), 4), MS(100));
        assert_eq!(buckets.charge(&"b", MS(0), 4), MS(100), "names beyond the table share one");
        assert_eq!(buckets.charge(&"c", MS(0), 1), MS(200));
    }

    /// Whoever took all of a topic left a debt of hours, for which everybody else had to wait.
    #[test]
    fn what_others_owe_has_a_bound() {
        const SECONDS: fn(u64) -> Duration = Duration::from_secs;
        let buckets = Buckets::new(Rate::new(100, 50).unwrap());
        assert_eq!(buckets.charge(&"a", SECONDS(0), 10_000_050), SECONDS(100_000), "who took it");
        assert_eq!(buckets.charge(&"a", SECONDS(0), 0), SECONDS(10), "others");
        assert_eq!(
            buckets.charge(&"a", SECONDS(10), 1_000),
            SECONDS(10),
            "one page is owed in full"
        );
        // What may be taken at once may be owed.
        let buckets = Buckets::new(Rate::new(1_000, 5_000).unwrap());
        assert_eq!(buckets.charge(&"a", SECONDS(0), 20_000), SECONDS(15));
        assert_eq!(buckets.charge(&"a", SECONDS(0), 0), SECONDS(5));
    }

    #[test]
    fn what_is_put_back_can_be_taken_again() {
        let rate = Rate::new(10, 3).unwrap();
        let mut bucket = Bucket::default();
        assert_eq!(bucket.take(rate, MS(5000), 2), Ok(()));
        let before = bucket;
        assert_eq!(bucket.take(rate, MS(5000), 1), Ok(()));
        bucket.put_back(rate, 1);
        assert_eq!(bucket, before);
        let buckets = Buckets::new(rate);
        assert_eq!(buckets.take(&"a", MS(0), 3), Ok(()));
        buckets.put_back(&"a", 3);
        assert_eq!(buckets.take(&"a", MS(0), 3), Ok(()));
        assert!(buckets.take(&"a", MS(0), 1).is_err());
    }

    #[test]
    fn names_do_not_touch_each_other() {
        let buckets = Buckets::new(Rate::new(1, 1).unwrap());
        assert_eq!(buckets.take(&"a", MS(0), 1), Ok(()));
        assert!(buckets.take(&"a", MS(0), 1).is_err());
        assert_eq!(buckets.take(&"b", MS(0), 1), Ok(()));
        assert!(!buckets.is_empty());
    }

    proptest! {
        /// Over any span of time, no more passes than the burst and the rate allow; and who waits
        /// as long as told gets through.
        #[test]
        fn never_more_than_allowed(
            per_second in 1u32..1000,
            burst in 1u32..100,
            steps in proptest::collection::vec((0u64..200, 1u32..20), 1..200),
        ) {
            let rate = Rate::new(per_second, burst).unwrap();
            let mut bucket = Bucket::default();
            let mut now = 0u64;
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (pause, weight) in steps {
                now += pause * 1_000_000;
                match bucket.take(rate, Duration::from_nanos(now), weight) {
                    Ok(()) => taken.push((now, u64::from(weight))),
                    Err(Refusal::Wait(time)) => {
                        let mut later = bucket;
                        let then = Duration::from_nanos(now) + time;
                        prop_assert_eq!(later.take(rate, then, weight), Ok(()));
                    }
                    Err(Refusal::Never) => prop_assert!(weight > burst),
                }
            }
            for (index, &(start, _)) in taken.iter().enumerate() {
                let mut sum = 0;
                for &(at, weight) in &taken[index..] {
                    sum += weight;
                    let span = (at - start) as f64 / 1e9;
                    let allowed = f64::from(burst) + span * f64::from(per_second) + 1e-6;
                    prop_assert!(sum as f64 <= allowed, "{} in {} s", sum, span);
                }
            }
        }
    }
}
