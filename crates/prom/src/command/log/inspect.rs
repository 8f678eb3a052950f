use std::fmt::Write;

use promethean_log::Survey;
use serde::Serialize;

use crate::command::Status;
use crate::output::{Output, bytes, grouped};

#[derive(Serialize)]
struct Segment {
    file: String,
    first_seq: u64,
    next_seq: u64,
    generation: u32,
    frames: u64,
    events: u64,
    bytes: u64,
    index_bytes: u64,
    first_append_ms: Option<u64>,
    last_append_ms: Option<u64>,
    sealed: bool,
}

pub(super) fn run(survey: &Survey, output: &Output) -> anyhow::Result<Status> {
    let segments: Vec<Segment> = survey
        .segments
        .iter()
        .map(|segment| Segment {
            file: segment.file.clone(),
            first_seq: segment.seqs.start,
            next_seq: segment.seqs.end,
            generation: segment.generation,
            frames: segment.frames,
            events: segment.events,
            bytes: segment.bytes,
            index_bytes: segment.index_bytes,
            first_append_ms: segment.append_ms.map(|(first, _)| first),
            last_append_ms: segment.append_ms.map(|(_, last)| last),
            sealed: segment.sealed,
        })
        .collect();
    output.list("segments", &segments, table)?;
    Ok(Status::Done)
}

fn table(segments: &[Segment]) -> String {
    let mut out = format!(
        "{:<29} {:>14} {:>12} {:>10} {:>10} {:>10}  {}\n",
        "SEGMENT", "FIRST SEQ", "EVENTS", "COMMITS", "SIZE", "INDEX", "STATE"
    );
    for segment in segments {
        let state = match (segment.sealed, segment.generation) {
            (false, _) => "active".to_owned(),
            (true, 0) => "sealed".to_owned(),
            (true, times) => format!("cleaned {times}x"),
        };
        let row = writeln!(
            out,
            "{:<29} {:>14} {:>12} {:>10} {:>10} {:>10}  {state}",
            segment.file,
            grouped(segment.first_seq),
            grouped(segment.events),
            grouped(segment.frames),
            bytes(segment.bytes),
            bytes(segment.index_bytes),
        );
        debug_assert!(row.is_ok(), "writing to a string");
    }
    out
}
