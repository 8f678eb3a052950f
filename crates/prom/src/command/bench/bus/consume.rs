use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use promethean::{Bus, Ordered, Start};
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

#[derive(Debug, Serialize)]
pub(super) struct Consuming {
    pub(super) default: Compared,
    pub(super) unordered: Compared,
}

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
    let (mut default, mut unordered) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        for (ordered, figures) in [(Ordered::Key, &mut default), (Ordered::None, &mut unordered)] {
            let (read, read_time) = timed(|| read_all(opened.store.log()));
            anyhow::ensure!(read? == stored, "the log has all events");
            let name = format!("{ordered:?}-{round}");
            let work = consume(&opened.bus, &name, ordered, stored);
            let (consumed, time) = timed(|| runtime.block_on(work));
            consumed?;
            if round > 0 {
                figures.push(Round {
                    events_per_s: rate(stored, time),
                    reference_events_per_s: rate(stored, read_time),
                });
            }
        }
    }
    close(&runtime, &opened, &path)?;
    Ok(Consuming { default: Compared::of(default), unordered: Compared::of(unordered) })
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

/// A new group takes everything and acks it; done when the acks are durable.
async fn consume(bus: &Bus, name: &str, ordered: Ordered, stored: usize) -> anyhow::Result<()> {
    let count = Arc::new(AtomicU64::new(0));
    let counting = Arc::clone(&count);
    let consumer = bus
        .subscribe_to(["bench.0"], name)
        .from(Start::Earliest)
        .ordered(ordered)
        .handle(move |delivered| {
            std::hint::black_box(delivered.json());
            counting.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Ok(()))
        })
        .await?;
    let group = GroupName::new(name)?;
    bus.caught_up(&group).await?;
    consumer.stop().await?;
    bus.remove_group(&group).await?;
    anyhow::ensure!(count.load(Ordering::Relaxed) == stored as u64, "each event came once");
    Ok(())
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
