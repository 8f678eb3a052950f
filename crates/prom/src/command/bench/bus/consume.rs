use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use promethean::{Bus, Ordered, Start, Subscribe};
use promethean_event::{GroupName, Offset, Partition};
use promethean_log::{Lane, Log, PageLimit};
use serde::Serialize;

use super::{Opened, open, runtime};
use crate::command::bench::events::{Source, topic};
use crate::command::bench::measure::{Compared, Round, rate, timed};

/// Events that are stored at once, to be consumed later.
const STORED_BATCH: usize = 1_000;
/// Events published in one round of the live measurement.
const LIVE_EVENTS: usize = 40_000;
/// Events that are on their way at once there: what groups have not had yet stays in memory.
const LIVE_BATCH: usize = 2_000;

/// By batches, which are acked as one, and by a handler of single events.
#[derive(Debug, Serialize)]
pub(super) struct Consuming {
    pub(super) default: Compared,
    pub(super) unordered: Compared,
    pub(super) handler: Compared,
    pub(super) handler_unordered: Compared,
}

/// How events are taken.
#[derive(Debug, Clone, Copy)]
enum Taken {
    ByBatch,
    ByHandler,
}

const WAYS: [(Taken, Ordered); 4] = [
    (Taken::ByBatch, Ordered::Key),
    (Taken::ByBatch, Ordered::None),
    (Taken::ByHandler, Ordered::Key),
    (Taken::ByHandler, Ordered::None),
];

#[derive(Debug, Serialize)]
pub(super) struct Groups {
    #[serde(flatten)]
    pub(super) deliveries: Compared,
    pub(super) disk_reads: u64,
}

/// Fresh groups that read everything that is stored, with acks, against the log's own reader.
pub(super) fn measure(scratch: &Path, rounds: usize, stored: usize) -> anyhow::Result<Consuming> {
    let runtime = runtime()?;
    let path = scratch.join("consume");
    let opened = runtime.block_on(open(&path))?;
    let mut source = Source::new(1, 20_000)?;
    for _ in 0..stored / STORED_BATCH {
        let events = (0..STORED_BATCH).map(|_| source.event()).collect::<anyhow::Result<_>>()?;
        runtime.block_on(opened.bus.publish_batch(events))?;
    }
    opened.store.log().settle()?;
    let mut figures = WAYS.map(|_| Vec::new());
    for round in 0..=rounds {
        for ((taken, ordered), figures) in WAYS.into_iter().zip(&mut figures) {
            let (read, read_time) = timed(|| read_all(opened.store.log()));
            anyhow::ensure!(read? == stored, "the log has all events");
            let group = GroupName::new(&format!("{taken:?}-{ordered:?}-{round}"))?;
            let work = consume(&opened.bus, &group, (taken, ordered), stored);
            let (consumed, time) = timed(|| runtime.block_on(work));
            anyhow::ensure!(consumed? == stored, "each event came once");
            runtime.block_on(opened.bus.remove_group(&group))?;
            if round > 0 {
                figures.push(Round {
                    events_per_s: rate(stored, time),
                    reference_events_per_s: rate(stored, read_time),
                });
            }
        }
    }
    close(&runtime, &opened, &path)?;
    let [default, unordered, handler, handler_unordered] = figures.map(Compared::of);
    Ok(Consuming { default, unordered, handler, handler_unordered })
}

fn close(runtime: &tokio::runtime::Runtime, opened: &Opened, path: &Path) -> anyhow::Result<()> {
    runtime.block_on(opened.bus.close());
    Ok(std::fs::remove_dir_all(path)?)
}

fn read_all(log: &Log) -> anyhow::Result<usize> {
    let topic = log.topic_id(&topic(0)?).context("the topic is there")?;
    let mut reader = log.read(Lane { topic, partition: Partition::new(0) }, Offset::ZERO)?;
    let mut events = 0;
    loop {
        let visited = reader.visit(PageLimit::default(), |record| {
            std::hint::black_box(record.offset());
        })?;
        if visited.events == 0 {
            return Ok(events);
        }
        events += visited.events;
    }
}

/// A new group takes everything that is stored and acks it; done when the acks are durable.
async fn consume(
    bus: &Bus,
    group: &GroupName,
    (taken, ordered): (Taken, Ordered),
    stored: usize,
) -> anyhow::Result<usize> {
    let subscribe = bus.subscribe_to(["bench.0"], group.as_str());
    let subscribe = subscribe.from(Start::Earliest).ordered(ordered);
    match taken {
        Taken::ByBatch => by_batch(bus, subscribe, group, stored).await,
        Taken::ByHandler => by_handler(bus, subscribe, group).await,
    }
}

async fn by_batch(
    bus: &Bus,
    subscribe: Subscribe,
    group: &GroupName,
    stored: usize,
) -> anyhow::Result<usize> {
    let mut subscription = subscribe.stream().await?;
    // On a task of its own, as in a program; here is where one waits for the end.
    let taking = tokio::spawn(async move {
        let mut events = 0;
        while let Some(batch) = subscription.next_batch().await {
            let batch = batch?;
            for delivered in &batch {
                std::hint::black_box(delivered.json());
            }
            events += batch.len();
            drop(batch.acked());
            if events >= stored {
                break;
            }
        }
        anyhow::Ok((events, subscription))
    });
    let (events, subscription) = taking.await??;
    bus.caught_up(group).await?;
    drop(subscription);
    Ok(events)
}

async fn by_handler(bus: &Bus, subscribe: Subscribe, group: &GroupName) -> anyhow::Result<usize> {
    let count = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&count);
    let consumer = subscribe
        .handle(move |delivered| {
            std::hint::black_box(delivered.json());
            counting.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Ok(()))
        })
        .await?;
    bus.caught_up(group).await?;
    consumer.stop().await?;
    Ok(count.load(Ordering::Relaxed))
}

/// Deliveries of a live topic to ten groups against one.
pub(super) fn measure_groups(scratch: &Path, rounds: usize) -> anyhow::Result<Groups> {
    let runtime = runtime()?;
    let mut figures = Vec::new();
    let mut disk_reads = 0;
    let mut source = Source::new(1, 20_000)?;
    for round in 0..=rounds {
        let mut rates = Vec::new();
        for groups in [1, 10] {
            let path = scratch.join("groups");
            let opened = runtime.block_on(open(&path))?;
            let before = opened.store.log().disk_reads();
            let work = live(&opened.bus, groups, &mut source);
            let (done, time) = timed(|| runtime.block_on(work));
            done?;
            disk_reads += opened.store.log().disk_reads() - before;
            rates.push(rate(LIVE_EVENTS * groups, time));
            close(&runtime, &opened, &path)?;
        }
        if let ([one, ten], true) = (rates.as_slice(), round > 0) {
            figures.push(Round { events_per_s: *ten, reference_events_per_s: *one });
        }
    }
    Ok(Groups { deliveries: Compared::of(figures), disk_reads })
}

async fn live(bus: &Bus, groups: usize, source: &mut Source) -> anyhow::Result<()> {
    let mut consumers = Vec::new();
    let mut names = Vec::new();
    for number in 0..groups {
        let name = format!("group-{number}");
        let subscribe = bus.subscribe_to(["bench.0"], &name).from(Start::Earliest);
        consumers.push(subscribe.handle(|_| std::future::ready(Ok(()))).await?);
        names.push(GroupName::new(&name)?);
    }
    for _ in 0..LIVE_EVENTS / LIVE_BATCH {
        for _ in 0..LIVE_BATCH / 100 {
            let events = (0..100).map(|_| source.event()).collect::<anyhow::Result<_>>()?;
            bus.publish_batch(events).await?;
        }
        for name in &names {
            bus.caught_up(name).await?;
        }
    }
    for consumer in consumers {
        consumer.stop().await?;
    }
    Ok(())
}
