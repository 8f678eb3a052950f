//! What runs in the process that is killed.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use promethean::event::{EventId, GroupName, Key, NewEvent, Offset, Partition, Payload, Topic};
use promethean::store::PageLimit;
use promethean::{Bus, Delivered, Start};
use serde::{Deserialize, Serialize};

use super::history::{Line, Writer};

const TOPIC: &str = "killed.work";
const GROUP: &str = "workers";
const PUBLISHERS: u32 = 4;
const CONSUMERS: usize = 2;
const KEYS: u64 = 6;

/// Whatever goes wrong here ends the process, and is a failure of the run.
type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[derive(Debug, Serialize, Deserialize)]
struct Work {
    publisher: u32,
    number: u64,
    key: u32,
}

/// Publishes and consumes until it is killed; or, to finish, consumes what is left and reads all.
pub fn run(folder: &Path, history: &Path, finish: bool) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let writer = Arc::new(Writer::open(history)?);
    runtime.block_on(async {
        let bus = Bus::open(folder.join("bus")).await?;
        let mut consumers = Vec::new();
        for _ in 0..CONSUMERS {
            let subscription = bus
                .subscribe_to([TOPIC], GROUP)
                .from(Start::Earliest)
                .ack_timeout(Duration::from_secs(60))
                .backoff(Duration::from_millis(1), Duration::from_millis(5))
                .max_attempts(1_000)
                .max_in_flight(16)
                .stream()
                .await?;
            if consumers.is_empty() {
                writer.write(&Line::Begun { cursor: cursor(&bus).await? })?;
            }
            consumers.push(tokio::spawn(consume(subscription, Arc::clone(&writer))));
        }
        if finish {
            return end(&bus, &writer).await;
        }
        let numbers = numbers(&bus).await?;
        for publisher in 0..PUBLISHERS {
            let first = numbers.get(publisher as usize).copied().unwrap_or(0);
            tokio::spawn(publish(bus.clone(), Arc::clone(&writer), publisher, first));
        }
        let mut out = io::stdout();
        writeln!(out, "ready")?;
        out.flush()?;
        for consumer in consumers {
            consumer.await??;
        }
        Ok(())
    })
}

async fn cursor(bus: &Bus) -> Outcome<u64> {
    let cursors = bus.cursors(&GroupName::new(GROUP)?).await?;
    Ok(cursors.first().map_or(0, |cursor| cursor.next.get()))
}

/// Where each publisher goes on: after the last number that may have been used.
async fn numbers(bus: &Bus) -> Outcome<Vec<u64>> {
    let mut numbers = vec![0; PUBLISHERS as usize];
    for work in stored(bus).await? {
        if let Some(number) = numbers.get_mut(work.0.publisher as usize) {
            *number = (*number).max(work.0.number + 1);
        }
    }
    Ok(numbers)
}

async fn stored(bus: &Bus) -> Outcome<Vec<(Work, u64)>> {
    let topic = Topic::new(TOPIC)?;
    let mut found = Vec::new();
    if bus.topics().get(&topic).is_none() {
        return Ok(found);
    }
    let mut from = Offset::new(0);
    loop {
        let page = bus.read(&topic, Partition::new(0), from, PageLimit::default()).await?;
        if page.events.is_empty() {
            return Ok(found);
        }
        from = page.next;
        for stored in page.events {
            found.push((stored.event.payload.decode()?, stored.event.offset.get()));
        }
    }
}

async fn publish(bus: Bus, writer: Arc<Writer>, publisher: u32, first: u64) -> Outcome {
    for number in first.. {
        let key = (number % KEYS) as u32;
        let work = Work { publisher, number, key };
        writer.write(&Line::Publishing { publisher, number, key })?;
        let payload = Payload::of(&work)?;
        let id = EventId::generate();
        let now = promethean::event::Timestamp::from_millis(number);
        let event = NewEvent::new(id, now, Topic::new(TOPIC)?, payload)
            .with_key(Key::new(format!("key-{key}"))?);
        let published = bus.publish(event).await?;
        writer.write(&Line::Published { publisher, number, offset: published.offset.get() })?;
    }
    Ok(())
}

async fn consume(mut events: promethean::Subscription, writer: Arc<Writer>) -> Outcome {
    while let Some(delivered) = events.next().await {
        let delivered = delivered?;
        note(&delivered, &writer)?;
        // Some take a while, so that others overtake them.
        if delivered.event().offset.get().is_multiple_of(7) {
            tokio::task::yield_now().await;
        }
        let offset = delivered.event().offset.get();
        writer.write(&Line::Done { offset })?;
        let answer = delivered.acked();
        let writer = Arc::clone(&writer);
        tokio::spawn(async move {
            if answer.all().await.is_ok() {
                // The history is on its way out if it cannot be written: the run fails elsewhere.
                drop(writer.write(&Line::Acked { offset }));
            }
        });
    }
    Ok(())
}

fn note(delivered: &Delivered, writer: &Writer) -> Outcome {
    let work: Work = delivered.event().payload.decode()?;
    let Work { publisher, number, key } = work;
    let (offset, attempt) = (delivered.event().offset.get(), delivered.attempt());
    Ok(writer.write(&Line::Delivered { publisher, number, key, offset, attempt })?)
}

/// Lets the group finish, and writes down all that is stored.
async fn end(bus: &Bus, writer: &Writer) -> Outcome {
    bus.caught_up(&GroupName::new(GROUP)?).await?;
    let stored = stored(bus).await?;
    writer.write(&Line::CaughtUp { end: stored.len() as u64 })?;
    for (work, offset) in stored {
        let Work { publisher, number, key } = work;
        writer.write(&Line::Stored { publisher, number, key, offset })?;
    }
    bus.close().await;
    Ok(())
}
