//! What schemas cost on the way in and out: `cargo bench -p promethean --bench schemas`. Each case
//! in turn with the same without schemas, over the memory store, in time that this thread was on a
//! processor. The memory store costs little itself: over the embedded log the ratios are smaller.
#![expect(clippy::print_stdout, reason = "printing the figures is what it is for")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot start has nothing to say")]

use std::time::{Duration, Instant};

use promethean::event::{Event, EventId, NewEvent, Pattern, Payload, Timestamp, Topic};
use promethean::{Bus, Hop, Reads, Registration, Replay, SCHEMA_VERSION};
use serde_json::{Value, json};

const BATCHES: usize = 100;
const BATCH_EVENTS: usize = 500;
const ROUNDS: usize = 5;

fn first() -> Value {
    json!({
        "type": "object",
        "required": ["host", "pid", "service", "cpu_pct", "mem_mb", "state"],
        "properties": {
            "host": {"type": "string", "minLength": 1, "maxLength": 253},
            "pid": {"type": "integer", "minimum": 1},
            "service": {"type": "string", "pattern": "^[a-z][a-z0-9-]*$"},
            "cpu_pct": {"type": "number", "minimum": 0, "maximum": 100},
            "mem_mb": {"type": "number", "minimum": 0},
            "state": {"enum": ["up", "degraded", "down"]},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}}
        }
    })
}

fn second() -> String {
    first().to_string().replace("mem_mb", "mem_mib")
}

fn events(topic: &Topic) -> Vec<NewEvent> {
    let payload = Payload::of(&json!({
        "host": "node-17.eu-central.example.com", "pid": 41273, "service": "speech-to-text",
        "cpu_pct": 73.25, "mem_mb": 1843.5, "state": "up",
        "labels": {"region": "eu-central", "zone": "b", "release": "2026-11-16", "tier": "gold"}
    }));
    let payload = payload.unwrap();
    let event = |_| {
        let now = Timestamp::from_millis(0);
        let mut event = NewEvent::new(EventId::generate(), now, topic.clone(), payload.clone());
        event.headers.set(SCHEMA_VERSION, "1").unwrap();
        event
    };
    (0..BATCH_EVENTS).map(event).collect()
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (mut plain, mut checked, mut written, mut cast) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let without = Bus::memory();
            plain.push(publish(&without).await);
            let with = Bus::memory();
            let topic = Topic::new("heartbeat.received").unwrap();
            let schemas = with.schemas();
            schemas.register(&topic, Registration::new(first().to_string())).await.unwrap();
            let rename = json!([{"op": "rename", "pointer": "/mem_mb", "to": "mem_mib"}]);
            let up = Hop::operations(serde_json::from_value(rename).unwrap());
            schemas.register(&topic, Registration::new(second()).up(up)).await.unwrap();
            checked.push(publish(&with).await);
            written.push(read(&with, Reads::Written).await);
            cast.push(read(&with, Reads::Latest).await);
        }
        let (plain, checked) = (median(plain), median(checked));
        let (written, cast) = (median(written), median(cast));
        println!(
            "publish: {plain:?} per event without a schema, {checked:?} with: {:?} more, ratio {:.2}",
            checked.saturating_sub(plain),
            plain.as_secs_f64() / checked.as_secs_f64()
        );
        println!(
            "replay: {written:?} per event as written, {cast:?} upcast and checked: {:?} more",
            cast.saturating_sub(written)
        );
    });
}

async fn publish(bus: &Bus) -> Duration {
    let topic = Topic::new("heartbeat.received").unwrap();
    let mut sum = Duration::ZERO;
    for _ in 0..BATCHES {
        let batch = events(&topic);
        let clock = Stopwatch::start();
        bus.publish_batch(batch).await.unwrap();
        sum += clock.stop();
    }
    sum / (BATCHES * BATCH_EVENTS) as u32
}

async fn read(bus: &Bus, reads: Reads) -> Duration {
    let reader = bus.reader(reads).await.unwrap();
    let pattern = Pattern::new("heartbeat.*").unwrap();
    let clock = Stopwatch::start();
    let mut replay = reader.replay(Replay::of(pattern)).await.unwrap();
    let mut events = 0_u32;
    while let Some(step) = replay.next().await.unwrap() {
        let event: Option<Event> = step.event().unwrap();
        events += u32::from(event.is_some());
    }
    clock.stop() / events
}

struct Stopwatch {
    begin: Instant,
    on_processor: Option<Duration>,
}

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "measures real time")]
    fn start() -> Self {
        Self { begin: Instant::now(), on_processor: processor_time() }
    }

    fn stop(self) -> Duration {
        match (self.on_processor, processor_time()) {
            (Some(before), Some(after)) => after.saturating_sub(before),
            _ => self.begin.elapsed(),
        }
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
