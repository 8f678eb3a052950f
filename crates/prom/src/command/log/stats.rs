use std::fmt::Write;

use promethean_log::Survey;
use serde::Serialize;

use crate::command::Status;
use crate::output::{Output, bytes, count, grouped};

#[derive(Serialize)]
struct Stats {
    segments: usize,
    events: u64,
    bytes: u64,
    index_bytes: u64,
    topics: Vec<Topic>,
}

#[derive(Serialize)]
struct Topic {
    topic: String,
    partitions: u32,
    events: u64,
    bytes: u64,
    lanes: Vec<Lane>,
}

#[derive(Serialize)]
struct Lane {
    start: u64,
    next: u64,
}

pub(super) fn run(survey: &Survey, output: &Output) -> anyhow::Result<Status> {
    let topics = survey.topics.iter().map(|topic| Topic {
        topic: topic.definition.topic.to_string(),
        partitions: topic.definition.partitions.get(),
        events: topic.events,
        bytes: topic.bytes,
        lanes: topic
            .lanes
            .iter()
            .map(|(start, next)| Lane { start: start.get(), next: next.get() })
            .collect(),
    });
    let stats = Stats {
        segments: survey.segments.len(),
        events: survey.segments.iter().map(|segment| segment.events).sum(),
        bytes: survey.segments.iter().map(|segment| segment.bytes).sum(),
        index_bytes: survey.segments.iter().map(|segment| segment.index_bytes).sum(),
        topics: topics.collect(),
    };
    output.record(&stats, table)?;
    Ok(Status::Done)
}

fn table(stats: &Stats) -> String {
    let mut out = format!(
        "{} events in {}, {} and {} of indexes\n\n{:<40} {:>10} {:>14} {:>10}\n",
        grouped(stats.events),
        count(stats.segments, "segment", "segments"),
        bytes(stats.bytes),
        bytes(stats.index_bytes),
        "TOPIC",
        "PARTITIONS",
        "EVENTS",
        "SIZE"
    );
    for topic in &stats.topics {
        let row = writeln!(
            out,
            "{:<40} {:>10} {:>14} {:>10}",
            topic.topic,
            topic.partitions,
            grouped(topic.events),
            bytes(topic.bytes)
        );
        debug_assert!(row.is_ok(), "writing to a string");
    }
    out
}
