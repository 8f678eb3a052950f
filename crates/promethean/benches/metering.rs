//! What metrics cost: `cargo bench -p promethean --bench metering`. Publishes and handles the same
//! events on a bus that measures and on one that does not, in turns, and prints the ratio of their
//! fastest rounds, and what a scrape takes.
#![expect(clippy::print_stdout, reason = "printing the figures is what it is for")]
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a benchmark that cannot start has nothing to say"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use promethean::event::{EventId, NewEvent, Payload, Timestamp, Topic};
use promethean::memory::MemoryStore;
use promethean::store::TopicDefinition;
use promethean::{Bus, BusOptions, Metering, Start};

const ROUNDS: usize = 21;
const SINGLE: usize = 20_000;
const BATCHES: usize = 200;
const BATCH: usize = 500;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut best = [[Duration::MAX; 3]; 2];
        for round in 0..ROUNDS {
            let mut both = [(0, Metering::On), (1, Metering::Off)];
            // Who goes second finds other caches and another heap.
            if round % 2 == 1 {
                both.reverse();
            }
            for (place, metering) in both {
                let took = run(metering).await;
                let best = &mut best[place];
                // The first round warms up.
                if round > 0 {
                    best.iter_mut().zip(took).for_each(|(best, took)| *best = (*best).min(took));
                }
            }
        }
        let [on, off] = best;
        let events = [SINGLE, BATCHES * BATCH, SINGLE + BATCHES * BATCH];
        let names = ["publish, one at a time", "publish, in batches", "deliver, handle, ack"];
        for (((name, events), on), off) in names.into_iter().zip(events).zip(on).zip(off) {
            let each = |took: Duration| took.as_nanos() as f64 / events as f64;
            let ratio = each(on) / each(off);
            let (on, off) = (each(on), each(off));
            println!("{name}: with/without {ratio:.3} ({on:.0} ns and {off:.0} ns per event)");
        }
        scrape().await;
    });
}

fn events(count: usize) -> Vec<NewEvent> {
    let topic = Topic::new("orders").unwrap();
    let payload = Payload::of(&"x".repeat(100)).unwrap();
    let event = || {
        let (id, ts) = (EventId::generate(), Timestamp::from_millis(1));
        NewEvent::new(id, ts, topic.clone(), payload.clone())
    };
    (0..count).map(|_| event()).collect()
}

async fn run(metering: Metering) -> [Duration; 3] {
    let options = BusOptions::default().metering(metering);
    let bus = Bus::with_store(Arc::new(MemoryStore::new()), options);
    bus.define(TopicDefinition::new(Topic::new("orders").unwrap())).await.unwrap();
    let single = events(SINGLE);
    let begin = now();
    for event in single {
        bus.publish(event).await.unwrap();
    }
    let one_at_a_time = begin.elapsed();
    let batches: Vec<_> = (0..BATCHES).map(|_| events(BATCH)).collect();
    let begin = now();
    for batch in batches {
        bus.publish_batch(batch).await.unwrap();
    }
    let in_batches = begin.elapsed();
    let begin = now();
    let subscribe = bus.subscribe_to(["orders"], "billing").from(Start::Earliest);
    let consumer = subscribe.handle(async |_| Ok(())).await.unwrap();
    bus.caught_up(consumer.group()).await.unwrap();
    [one_at_a_time, in_batches, begin.elapsed()]
}

/// A group over many topics, behind in all of them.
async fn scrape() {
    const TOPICS: usize = 500;
    let bus = Bus::memory();
    for number in 0..TOPICS {
        let mut event = events(1).pop().unwrap();
        event.topic = Topic::new(&format!("t{number}")).unwrap();
        bus.publish(event).await.unwrap();
    }
    let stream = bus.subscribe_to(["**"], "billing").from(Start::Earliest).stream().await.unwrap();
    let begin = now();
    let text = bus.metrics().encode().await;
    let (took, lines) = (begin.elapsed(), text.lines().count());
    println!("a scrape of {TOPICS} pairs: {:.1} ms, {lines} lines", took.as_secs_f64() * 1e3);
    drop(stream);
}

/// How long this thread has been running: other work on the machine is none of our business. Where
/// the system does not say, how long it was.
struct Begun {
    at: Instant,
    on_cpu: Option<Duration>,
}

impl Begun {
    fn elapsed(&self) -> Duration {
        let on_cpu = self.on_cpu.zip(cpu_time());
        on_cpu.map_or_else(|| self.at.elapsed(), |(before, after)| after.saturating_sub(before))
    }
}

#[expect(clippy::disallowed_methods, reason = "measures real time")]
fn now() -> Begun {
    Begun { at: Instant::now(), on_cpu: cpu_time() }
}

fn cpu_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}
