use std::collections::BTreeMap;
use std::sync::Arc;

use super::catalogue::{self, Description, OTHER};
use super::exposition::{Family, Sample, Value};
use super::gathering::{FeedFigures, Figures, GroupFigures, PairFigures};
use super::histogram::Histogram;
use super::meters::GroupMeters;
use super::publishing::Counted;
use crate::bus::BusInner;
use crate::limits::METRIC_TOPICS_MAX;

/// All metrics with all their series, in the order of the catalogue.
pub(super) fn of(bus: &BusInner, figures: &Figures) -> Vec<Family> {
    let mut families = of_publishing(bus);
    let pair = |metric, value: fn(&PairFigures) -> Value| {
        let samples = figures.pairs.iter().map(|((topic, group), figures)| Sample {
            labels: vec![topic.clone(), group.clone()],
            value: value(figures),
        });
        Family { metric, samples: samples.collect() }
    };
    let group = |metric, value: fn(&GroupFigures) -> u64| {
        let samples = figures.groups.iter().map(|(group, figures)| Sample {
            labels: vec![group.clone()],
            value: Value::Level(value(figures)),
        });
        Family { metric, samples: samples.collect() }
    };
    let feed = |metric, value: fn(&FeedFigures) -> Option<Value>| {
        let samples = figures.feeds.iter().filter_map(|(feed, figures)| {
            Some(Sample { labels: vec![feed.clone()], value: value(figures)? })
        });
        Family { metric, samples: samples.collect() }
    };
    let meters = &bus.groups.site().meters;
    let times = meters.all_groups();
    families.extend([
        times_of(&catalogue::POLL_DURATION, &times, |meters| &meters.poll),
        pair(&catalogue::DELIVERED, |f| Value::Count(f.counters.delivered)),
        times_of(&catalogue::LATENCY, &times, |meters| &meters.latency),
        times_of(&catalogue::HANDLER_DURATION, &times, |meters| &meters.handler),
        pair(&catalogue::INFLIGHT, |f| Value::Level(f.inflight)),
        pair(&catalogue::ACKED, |f| Value::Count(f.counters.acked)),
        pair(&catalogue::NACKED, |f| Value::Count(f.counters.nacked)),
        pair(&catalogue::REDELIVERIES, |f| Value::Count(f.counters.redelivered)),
        pair(&catalogue::LEASES_EXPIRED, |f| Value::Count(f.counters.expired)),
        pair(&catalogue::DEAD_LETTERS, |f| Value::Count(f.counters.dead_lettered)),
        by_word(&catalogue::DLQ_ADDED, meters.by_reason()),
        pair(&catalogue::LAG_EVENTS, |f| Value::Level(f.lag_events)),
        pair(&catalogue::LAG_SECONDS, |f| Value::Seconds(seconds(f.lag_ms))),
        pair(&catalogue::OLDEST_AGE, |f| Value::Seconds(seconds(f.oldest_age_ms))),
        pair(&catalogue::ACK_HOLES, |f| Value::Level(f.holes)),
        group(&catalogue::MEMBERS, |f| f.members),
        group(&catalogue::GROUP_FAILED, |f| u64::from(f.failed)),
        feed(&catalogue::OPLOG_HEADROOM, |f| f.headroom_seconds.map(|s| Value::Seconds(s as f64))),
        feed(&catalogue::FEED_STOPPED, |f| Some(Value::Level(u64::from(f.stopped)))),
        single(&catalogue::STORE_FAILED, Value::Level(u64::from(bus.store.failure().is_some()))),
        single(&catalogue::SCRAPE_ERRORS, Value::Count(meters.scrape_errors())),
    ]);
    families
}

fn of_publishing(bus: &BusInner) -> Vec<Family> {
    let publish = &bus.groups.site().meters.publish;
    let (topics, other) = publish.by_topic(|| bus.store.topics());
    let mut topics: Vec<(String, Counted)> =
        topics.into_iter().map(|(topic, counted)| (topic.as_str().to_owned(), counted)).collect();
    if other.published + other.duplicates > 0 {
        topics.push((OTHER.to_owned(), other));
    }
    let topic = |metric, value: fn(&Counted) -> u64| {
        let samples = topics.iter().map(|(topic, counted)| Sample {
            labels: vec![topic.clone()],
            value: Value::Count(value(counted)),
        });
        Family { metric, samples: samples.collect() }
    };
    vec![
        topic(&catalogue::PUBLISHED, |counted| counted.published),
        topic(&catalogue::DUPLICATES, |counted| counted.duplicates),
        by_word(&catalogue::PUBLISH_ERRORS, publish.by_error()),
        single(&catalogue::PUBLISH_DURATION, Value::Times(Box::new(publish.duration.read()))),
        of_schemas(bus),
    ]
}

/// Topics with schemas are as many as somebody has registered; beyond the limit they are one.
fn of_schemas(bus: &BusInner) -> Family {
    let mut shown: BTreeMap<(String, &'static str), u64> = BTreeMap::new();
    for (number, (topic, counts)) in bus.groups.site().schemas.all_counts().iter().enumerate() {
        let topic = if number < METRIC_TOPICS_MAX { topic.as_str() } else { OTHER };
        for (outcome, count) in counts.named() {
            *shown.entry((topic.to_owned(), outcome)).or_default() += count;
        }
    }
    let samples = shown.into_iter().map(|((topic, outcome), count)| Sample {
        labels: vec![topic, outcome.to_owned()],
        value: Value::Count(count),
    });
    Family { metric: &catalogue::SCHEMA_EVENTS, samples: samples.collect() }
}

fn times_of(
    metric: &'static Description,
    groups: &[Arc<GroupMeters>],
    of: fn(&GroupMeters) -> &Histogram,
) -> Family {
    let spread = groups.iter().map(|group| (group, of(group).read()));
    // Most groups have a handler or a stream, not both; empty ones would only cost lines.
    let samples = spread.filter(|(_, times)| times.count() > 0).map(|(group, times)| Sample {
        labels: vec![group.label().to_owned()],
        value: Value::Times(Box::new(times)),
    });
    Family { metric, samples: samples.collect() }
}

fn by_word(
    metric: &'static Description,
    counts: impl Iterator<Item = (&'static str, u64)>,
) -> Family {
    let samples = counts
        .map(|(word, count)| Sample { labels: vec![word.to_owned()], value: Value::Count(count) });
    Family { metric, samples: samples.collect() }
}

fn single(metric: &'static Description, value: Value) -> Family {
    Family { metric, samples: vec![Sample { labels: Vec::new(), value }] }
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1e3
}
