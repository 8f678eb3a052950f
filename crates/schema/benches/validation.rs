//! What a check costs, against reading the JSON: `cargo bench -p promethean-schema`. Both in turn,
//! in time that this thread was on a processor.
#![expect(clippy::print_stdout, reason = "printing the figures is what it is for")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot start has nothing to say")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use promethean_schema::{CompareOptions, Document, compare};
use serde_json::{Map, Value, json};

const EVENTS: u32 = 200_000;
const ROUNDS: usize = 5;

fn main() {
    validation();
    comparison();
}

#[expect(clippy::disallowed_methods, reason = "measures real time")]
fn time(work: impl FnOnce()) -> Duration {
    let (begin, on_processor) = (Instant::now(), processor_time());
    work();
    match (on_processor, processor_time()) {
        (Some(before), Some(after)) => after.saturating_sub(before),
        _ => begin.elapsed(),
    }
}

fn processor_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// An event of about 250 bytes, and a schema that says something of each part.
fn validation() {
    let schema = json!({
        "type": "object",
        "required": ["host", "pid", "service", "cpu_pct", "mem_mib", "state"],
        "properties": {
            "host": {"type": "string", "minLength": 1, "maxLength": 253},
            "pid": {"type": "integer", "minimum": 1},
            "service": {"type": "string", "pattern": "^[a-z][a-z0-9-]*$"},
            "cpu_pct": {"type": "number", "minimum": 0, "maximum": 100},
            "mem_mib": {"type": "number", "minimum": 0},
            "state": {"enum": ["up", "degraded", "down"]},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "ports": {"type": "array", "items": {"type": "integer", "maximum": 65535}}
        },
        "additionalProperties": false
    });
    let event = json!({
        "host": "node-17.eu-central.example.com", "pid": 41273, "service": "speech-to-text",
        "cpu_pct": 73.25, "mem_mib": 1843.5, "state": "up",
        "labels": {"region": "eu-central", "zone": "b", "release": "2026-11-16"},
        "ports": [7766, 8080, 9090, 50051], "labels2": ""
    });
    let mut event = event;
    event.as_object_mut().unwrap().remove("labels2");
    let bytes = event.to_string().into_bytes();
    let document = Document::from_value(&schema, None).unwrap();
    let (mut parse, mut check) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        parse.push(time(|| {
            for _ in 0..EVENTS {
                black_box(serde_json::from_slice::<Value>(black_box(&bytes)).unwrap());
            }
        }));
        check.push(time(|| {
            for _ in 0..EVENTS {
                assert!(document.validator().is_valid(black_box(&event)));
            }
        }));
    }
    let (parse, check) = (median(parse) / EVENTS, median(check) / EVENTS);
    println!(
        "{} bytes: parse {parse:?}, check {check:?}: {:.2} of a parse (goal: below 2)",
        bytes.len(),
        check.as_secs_f64() / parse.as_secs_f64()
    );
}

/// Two schemas of more than a thousand lines that differ in one place.
fn comparison() {
    let mut properties = Map::new();
    for number in 0..140 {
        let part = json!({
            "type": "object",
            "required": ["id"],
            "properties": {"id": {"type": "string", "maxLength": 40}, "n": {"type": "integer", "minimum": 0}}
        });
        properties.insert(format!("part_{number}"), part);
    }
    let old = json!({"type": "object", "properties": properties});
    let mut new = old.clone();
    *new.pointer_mut("/properties/part_77/properties/n/minimum").unwrap() = json!(1);
    let (old, new) =
        (Document::from_value(&old, None).unwrap(), Document::from_value(&new, None).unwrap());
    let lines = old.text().lines().count();
    for (name, reader, writer) in [("wider", &old, &new), ("narrower", &new, &old)] {
        #[expect(clippy::disallowed_methods, reason = "the work is done on another thread")]
        let times = (0..ROUNDS).map(|_| {
            let begin = Instant::now();
            black_box(compare(reader, writer, &CompareOptions::default()).unwrap());
            begin.elapsed()
        });
        let took = median(times.collect());
        println!("compare two schemas of {lines} lines, {name}: {took:?} (goal: 100 ms)");
    }
}
