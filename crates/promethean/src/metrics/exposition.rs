use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::Naming;
use super::catalogue::{Description, Kind};
use super::histogram::Distribution;

/// One metric with all its series.
#[derive(Debug, Clone)]
pub(super) struct Family {
    pub(super) metric: &'static Description,
    pub(super) samples: Vec<Sample>,
}

/// One series: the values of its labels, in the metric's order, and what it shows.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub(super) labels: Vec<String>,
    pub(super) value: Value,
}

#[derive(Debug, Clone)]
pub(super) enum Value {
    Count(u64),
    Level(u64),
    Seconds(f64),
    Times(Box<Distribution>),
}

/// The names that a text is written under.
#[derive(Debug)]
struct Named {
    families: Vec<Family>,
    older: bool,
}

/// OpenMetrics text, without the mark of the end.
pub(super) fn encode(families: Vec<Family>, naming: Naming) -> String {
    let mut registry = Registry::default();
    if naming == Naming::WithOlder {
        let families = families.clone();
        registry.register_collector(Box::new(Named { families, older: true }));
    }
    let prefixed = registry.sub_registry_with_prefix("promethean");
    prefixed.register_collector(Box::new(Named { families, older: false }));
    let mut text = String::new();
    let written = prometheus_client::encoding::text::encode_registry(&mut text, &registry);
    debug_assert!(written.is_ok(), "a string takes everything");
    text
}

impl Collector for Named {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in &self.families {
            let metric = family.metric;
            let name = if self.older { metric.older } else { Some(metric.name) };
            let Some(name) = name else {
                continue;
            };
            let unit = metric.unit.map(|unit| Unit::Other(unit.to_owned()));
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut series = encoder.encode_descriptor(name, metric.help, unit.as_ref(), kind)?;
            for sample in &family.samples {
                let named = metric.labels.iter().zip(&sample.labels);
                let labels: Vec<(&str, &str)> =
                    named.map(|(name, value)| (*name, value.as_str())).collect();
                if labels.is_empty() {
                    sample.value.encode(&mut series)?;
                } else {
                    sample.value.encode(&mut series.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}

impl Value {
    fn encode(&self, series: &mut MetricEncoder<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => series.encode_counter::<NoLabelSet, u64, u64>(count, None),
            Self::Level(level) => series.encode_gauge(level),
            Self::Seconds(seconds) => series.encode_gauge(seconds),
            Self::Times(times) => series.encode_histogram::<NoLabelSet>(
                times.sum_seconds(),
                times.count(),
                &times.buckets(),
                None,
            ),
        }
    }
}
