use std::sync::atomic::{AtomicU64, Ordering};

/// Upper bounds in nanoseconds: from a handler that does next to nothing to a group that is
/// minutes behind. One list for all, so that they can be compared.
const BOUNDS_NS: [u64; 19] = [
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
    60_000_000_000,
    300_000_000_000,
];
/// The last one is for what lies beyond all bounds.
const BUCKETS: usize = BOUNDS_NS.len() + 1;
const NANOS: f64 = 1e9;

fn bucket_of(nanos: u64) -> usize {
    BOUNDS_NS.partition_point(|&bound| bound < nanos)
}

/// How times are spread. Written by many at once without a lock.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

/// The same for one writer, to be added up in one go.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    buckets: [u32; BUCKETS],
    sum_ns: u64,
    any: bool,
}

/// A histogram at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Distribution {
    counts: [u64; BUCKETS],
    sum_ns: u64,
}

impl Histogram {
    pub(crate) fn record(&self, nanos: u64) {
        self.record_many(nanos, 1);
    }

    /// So often the same.
    pub(crate) fn record_many(&self, nanos: u64, times: u64) {
        if times == 0 {
            return;
        }
        if let Some(bucket) = self.buckets.get(bucket_of(nanos)) {
            bucket.fetch_add(times, Ordering::Relaxed);
        }
        self.sum_ns.fetch_add(nanos.saturating_mul(times), Ordering::Relaxed);
    }

    /// Takes up what was put together, which begins anew.
    pub(crate) fn add(&self, tally: &mut Tally) {
        if !tally.any {
            return;
        }
        for (bucket, count) in self.buckets.iter().zip(&tally.buckets) {
            if *count > 0 {
                bucket.fetch_add(u64::from(*count), Ordering::Relaxed);
            }
        }
        self.sum_ns.fetch_add(tally.sum_ns, Ordering::Relaxed);
        *tally = Tally::default();
    }

    pub(super) fn read(&self) -> Distribution {
        let mut read = Distribution::default();
        for (count, bucket) in read.counts.iter_mut().zip(&self.buckets) {
            *count = bucket.load(Ordering::Relaxed);
        }
        read.sum_ns = self.sum_ns.load(Ordering::Relaxed);
        read
    }
}

impl Tally {
    /// The same time for several events.
    pub(crate) fn record_times(&mut self, nanos: u64, count: u32) {
        if let Some(bucket) = self.buckets.get_mut(bucket_of(nanos)) {
            *bucket += count;
        }
        self.sum_ns = self.sum_ns.saturating_add(nanos.saturating_mul(u64::from(count)));
        self.any |= count > 0;
    }
}

impl Distribution {
    pub(super) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    pub(super) fn sum_seconds(&self) -> f64 {
        self.sum_ns as f64 / NANOS
    }

    /// Upper bounds in seconds, each with how many lie below it and above the bound before.
    pub(super) fn buckets(&self) -> Vec<(f64, u64)> {
        let bounds = BOUNDS_NS.iter().map(|&bound| bound as f64 / NANOS);
        bounds.chain([f64::INFINITY]).zip(self.counts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_rise_and_belong_to_their_bucket() {
        assert!(BOUNDS_NS.is_sorted());
        for (index, &bound) in BOUNDS_NS.iter().enumerate() {
            assert_eq!((bucket_of(bound), bucket_of(bound + 1)), (index, index + 1));
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_tally_adds_up_to_the_same_as_single_times() {
        let (one, all) = (Histogram::default(), Histogram::default());
        let mut tally = Tally::default();
        for nanos in [0, 5, 99_999, 100_000, 100_001, 7_000_000, 900_000_000_000] {
            one.record(nanos);
            tally.record_times(nanos, 1);
        }
        tally.record_times(5, 0);
        all.add(&mut tally);
        assert_eq!(one.read(), all.read());
        assert_eq!(all.read().count(), 7);
        all.add(&mut tally);
        assert_eq!(one.read(), all.read(), "it begins anew");
        assert!((one.read().sum_seconds() - 900.007_300_005).abs() < 1e-9);
    }
}
