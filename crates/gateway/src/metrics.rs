//! Counters of the edge in Prometheus text. Labels are bounded: beyond so many topics and groups
//! the rest is counted together, since a client chooses the names.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use promethean::GroupLag;

use crate::limits::METRIC_SERIES_MAX;
use crate::undecided::Undecided;

/// A counter per pair of labels.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    series: RwLock<BTreeMap<Labels, Arc<AtomicU64>>>,
}

type Labels = (Box<str>, Box<str>);

impl Counters {
    /// The counter of a pair. Keep it: looking it up takes a lock.
    pub(crate) fn of(&self, first: &str, second: &str) -> Arc<AtomicU64> {
        let key = (first.into(), second.into());
        let series = self.series.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(counter) = series.get(&key) {
            return Arc::clone(counter);
        }
        let full = series.len() >= METRIC_SERIES_MAX;
        drop(series);
        let key = if full { ("other".into(), "other".into()) } else { key };
        let mut series = self.series.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(series.entry(key).or_default())
    }

    pub(crate) fn add(&self, first: &str, second: &str, count: u64) {
        self.of(first, second).fetch_add(count, Ordering::Relaxed);
    }

    fn write(&self, out: &mut String, name: &str, help: &str, labels: [&str; 2]) {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter");
        let series = self.series.read().unwrap_or_else(PoisonError::into_inner);
        for ((first, second), counter) in series.iter() {
            let value = counter.load(Ordering::Relaxed);
            let [one, two] = labels;
            // Names of topics and groups, and codes, have no character that needs an escape.
            let _ = match two {
                "" => writeln!(out, "{name}{{{one}=\"{first}\"}} {value}"),
                _ => writeln!(out, "{name}{{{one}=\"{first}\",{two}=\"{second}\"}} {value}"),
            };
        }
    }
}

/// What the edge counts.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) published: Counters,
    pub(crate) delivered: Counters,
    pub(crate) redelivered: Counters,
    pub(crate) acked: Counters,
    pub(crate) nacked: Counters,
    pub(crate) refused: Counters,
    pub(crate) undecided: Arc<Undecided>,
    pub(crate) connections: AtomicI64,
    pub(crate) sessions: AtomicI64,
    pub(crate) publishing: Histogram,
}

impl Metrics {
    /// All of it as text, with how far the groups are behind.
    pub(crate) fn text(&self, lags: &[GroupLag]) -> String {
        let mut out = String::with_capacity(4096);
        let group = ["topic", "group"];
        self.published.write(&mut out, "events_published_total", "Events stored.", ["topic", ""]);
        self.delivered.write(&mut out, "events_delivered_total", "Events sent.", group);
        self.redelivered.write(&mut out, "events_redelivered_total", "Sent again.", group);
        self.acked.write(&mut out, "events_acked_total", "Events acked.", group);
        self.nacked.write(&mut out, "events_nacked_total", "Events nacked.", group);
        self.refused.write(&mut out, "refusals_total", "Requests refused.", ["code", ""]);
        let undecided = "Times that a filter could not decide about an event.";
        self.undecided.counters.write(&mut out, "filter_undecided_total", undecided, group);
        gauge(&mut out, "connections", "Open connections.", &self.connections);
        gauge(&mut out, "ws_connections", "Open WebSockets.", &self.sessions);
        self.publishing.write(&mut out, "publish_duration_seconds", "From frame to durable.");
        write_lags(&mut out, lags);
        let version = env!("CARGO_PKG_VERSION");
        let _ = writeln!(out, "# TYPE build_info gauge\nbuild_info{{version=\"{version}\"}} 1");
        out
    }
}

fn gauge(out: &mut String, name: &str, help: &str, value: &AtomicI64) {
    let value = value.load(Ordering::Relaxed);
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
}

fn write_lags(out: &mut String, lags: &[GroupLag]) {
    let mut family = |name: &str, help: &str, value: fn(&promethean::PartitionLag) -> f64| {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
        let mut sums: BTreeMap<(&str, &str), f64> = BTreeMap::new();
        for lag in lags {
            for part in &lag.partitions {
                let sum = sums.entry((part.topic.as_str(), lag.group.as_str())).or_default();
                // Ages of partitions do not add up; counts do.
                *sum = if name.ends_with("seconds") {
                    sum.max(value(part))
                } else {
                    *sum + value(part)
                };
            }
        }
        for ((topic, group), sum) in sums.into_iter().take(METRIC_SERIES_MAX) {
            let _ = writeln!(out, "{name}{{topic=\"{topic}\",group=\"{group}\"}} {sum}");
        }
    };
    family("events_inflight", "Events on lease.", |lag| lag.out as f64);
    family("group_lag_events", "Events not finished.", |lag| lag.events as f64);
    family("group_holes_events", "Events finished ahead of the cursor.", |lag| lag.holes as f64);
    family("group_oldest_unacked_seconds", "Age of the oldest event not finished.", |lag| {
        lag.age_ms as f64 / 1000.0
    });
}

/// Seconds, in buckets that double from 50 µs.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; Self::BUCKETS],
    sum_us: AtomicU64,
}

impl Histogram {
    const BUCKETS: usize = 18;
    const FIRST_US: u64 = 50;

    pub(crate) fn record(&self, time: std::time::Duration) {
        self.record_many(time, 1);
    }

    /// So often the same.
    pub(crate) fn record_many(&self, time: std::time::Duration, times: u64) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let steps = micros.div_ceil(Self::FIRST_US).max(1).next_power_of_two().trailing_zeros();
        let index = (steps as usize).min(Self::BUCKETS - 1);
        if let Some(bucket) = self.buckets.get(index) {
            bucket.fetch_add(times, Ordering::Relaxed);
        }
        self.sum_us.fetch_add(micros.saturating_mul(times), Ordering::Relaxed);
    }

    fn write(&self, out: &mut String, name: &str, help: &str) {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} histogram");
        let mut total = 0;
        for (index, bucket) in self.buckets.iter().enumerate() {
            total += bucket.load(Ordering::Relaxed);
            let limit = (Self::FIRST_US << index) as f64 / 1e6;
            let limit =
                if index + 1 == Self::BUCKETS { "+Inf".to_owned() } else { limit.to_string() };
            let _ = writeln!(out, "{name}_bucket{{le=\"{limit}\"}} {total}");
        }
        let sum = self.sum_us.load(Ordering::Relaxed) as f64 / 1e6;
        let _ = writeln!(out, "{name}_sum {sum}\n{name}_count {total}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn labels_are_bounded() {
        let counters = Counters::default();
        for n in 0..METRIC_SERIES_MAX + 50 {
            counters.add(&format!("t{n}"), "", 1);
        }
        assert_eq!(counters.of("new", "").load(Ordering::Relaxed), 50);
        let mut out = String::new();
        counters.write(&mut out, "n_total", "N.", ["topic", ""]);
        assert!(out.lines().count() <= METRIC_SERIES_MAX + 3);
        assert!(out.contains("n_total{topic=\"t0\"} 1"));
    }

    /// Pitfall 45: seconds, and no reserved suffix in a name.
    #[test]
    fn histograms_add_up() {
        let histogram = Histogram::default();
        for micros in [1, 50, 51, 1_000, 999_999_999] {
            histogram.record(Duration::from_micros(micros));
        }
        let mut out = String::new();
        histogram.write(&mut out, "t_seconds", "T.");
        assert!(out.contains("t_seconds_bucket{le=\"0.00005\"} 2"), "{out}");
        assert!(out.contains("t_seconds_bucket{le=\"0.0001\"} 3"), "{out}");
        assert!(
            out.contains("t_seconds_bucket{le=\"+Inf\"} 5") && out.contains("t_seconds_count 5")
        );
    }
}
