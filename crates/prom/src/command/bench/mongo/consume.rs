use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use promethean::{Bus, BusOptions, Start};
use promethean_event::GroupName;
use promethean_mongo::mongodb::bson::doc;
use promethean_mongo::mongodb::bson::raw::RawDocumentBuf;

use super::Place;
use crate::command::bench::events::Source;
use crate::command::bench::measure::{Compared, Round, rate, timed_async};

/// So many times the events of the other parts: that a group is made and removed again takes as long as
/// ten thousand events.
const TIMES: usize = 5;

/// New groups that read everything, with acks, and a cursor over the same documents by the same
/// index, in turn.
pub(super) async fn measure(url: &str, rounds: usize, events: usize) -> anyhow::Result<Compared> {
    let (place, events) = (Place::new(url).await?, events * TIMES);
    let bus = Bus::with_store(Arc::new(place.store().await?), BusOptions::default());
    let mut source = Source::new(1, 20_000)?;
    for _ in 0..events / super::append::BATCH {
        let batch = (0..super::append::BATCH).map(|_| source.event());
        bus.publish_batch(batch.collect::<anyhow::Result<_>>()?).await?;
    }
    let mut figures = Vec::new();
    for round in 0..=rounds {
        let (read, read_time) = timed_async(read_all(&place)).await;
        anyhow::ensure!(read? == events, "the cursor sees all events");
        let (consumed, time) = timed_async(consume(&bus, &format!("group-{round}"))).await;
        anyhow::ensure!(consumed? == events, "each event came once");
        if round > 0 {
            figures.push(Round {
                events_per_s: rate(events, time),
                reference_events_per_s: rate(events, read_time),
            });
        }
    }
    bus.close().await;
    place.end().await?;
    Ok(Compared::of(figures))
}

async fn read_all(place: &Place) -> anyhow::Result<usize> {
    let all = place.database().collection::<RawDocumentBuf>("events");
    let order = doc! { "topic": 1, "topic_id": 1, "partition": 1, "offset": 1 };
    let mut cursor = all.find(doc! { "topic": "bench.0" }).sort(order).await?;
    let mut read = 0;
    while cursor.advance().await? {
        std::hint::black_box(cursor.current().as_bytes().len());
        read += 1;
    }
    Ok(read)
}

async fn consume(bus: &Bus, name: &str) -> anyhow::Result<usize> {
    let count = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&count);
    let subscribe = bus.subscribe_to(["bench.0"], name).from(Start::Earliest);
    let consumer = subscribe
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
    Ok(count.load(Ordering::Relaxed))
}
