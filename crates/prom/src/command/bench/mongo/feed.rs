use std::time::Duration;

use promethean::Bus;
use promethean::changefeed::{Definition, Feeds, Phase};
use promethean_event::{Offset, Topic};
use promethean_mongo::changefeed::{Changefeed, FeedOptions};
use promethean_mongo::mongodb::bson::raw::RawDocumentBuf;
use promethean_mongo::mongodb::bson::{Document, doc};
use promethean_mongo::mongodb::options::FullDocumentType;

use super::Place;
use crate::command::bench::events::text;
use crate::command::bench::measure::{Compared, Round, rate, timed_async};

const NAME: &str = "bench";

/// A feed into a bus in memory, and a reader that only reads the same changes, in turn. The changes
/// are there before either begins.
pub(super) async fn measure(url: &str, rounds: usize, events: usize) -> anyhow::Result<Compared> {
    let mut figures = Vec::new();
    for round in 0..=rounds {
        let place = Place::new(url).await?;
        let bus = Bus::memory();
        prepare(&place, &bus).await?;
        let hello = place.database().run_command(doc! { "hello": 1 }).await?;
        let since = hello.get_timestamp("operationTime")?;
        let documents: Vec<_> = (0..events as u64)
            .map(|number| Ok(serde_json::from_str::<Document>(&text(number))?))
            .collect::<anyhow::Result<_>>()?;
        let items = place.database().collection::<Document>("items");
        for batch in documents.chunks(super::append::BATCH) {
            items.insert_many(batch).await?;
        }
        let bare = async {
            let watch = items.watch().start_at_operation_time(since);
            let watch = watch.full_document(FullDocumentType::UpdateLookup);
            let mut changes = watch.await?.with_type::<RawDocumentBuf>();
            let mut read = 0;
            while read < events {
                read += usize::from(changes.next_if_any().await?.is_some());
            }
            anyhow::Ok(())
        };
        let (read, read_time) = timed_async(bare).await;
        read?;
        let (fed, time) = timed_async(Box::pin(feed(&bus, events))).await;
        fed?;
        if round > 0 {
            figures.push(Round {
                events_per_s: rate(events, time),
                reference_events_per_s: rate(events, read_time),
            });
        }
        bus.close().await;
        place.end().await?;
    }
    Ok(Compared::of(figures))
}

/// A feed that stands before the first change.
async fn prepare(place: &Place, bus: &Bus) -> anyhow::Result<()> {
    place.database().create_collection("items").await?;
    let definition = Definition {
        url: place.url.clone(),
        collection: format!("{}.items", place.name),
        topic: "bench.0".to_owned(),
        key: None,
        filter: None,
        map: None,
        snapshot: false,
    };
    let feeds = Feeds::new(bus.store());
    feeds.add(NAME, definition).await?;
    let begun = async {
        loop {
            let status = feeds.status(NAME).await;
            let phase = status.ok().flatten().map(|status| status.value.phase);
            if matches!(phase, Some(Phase::Stream { .. })) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    Changefeed::new(NAME, bus, options()).run(begun).await;
    Ok(())
}

fn options() -> FeedOptions {
    FeedOptions { alone: true, ..FeedOptions::default() }
}

async fn feed(bus: &Bus, events: usize) -> anyhow::Result<()> {
    let topic = Topic::new("bench.0")?;
    let all_there = async {
        loop {
            let entry = bus.topics().get(&topic).cloned();
            let lane = entry.and_then(|entry| entry.lanes().next());
            if let Some(lane) = lane
                && let Ok(bounds) = bus.store().bounds(lane).await
                && bounds.next >= Offset::new(events as u64)
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    Changefeed::new(NAME, bus, options()).run(all_there).await;
    Ok(())
}
