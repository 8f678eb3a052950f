use std::sync::Arc;

use anyhow::Context;
use futures_util::TryStreamExt;
use promethean::store::{Append, Store, TopicDefinition};
use promethean_event::{NewEvent, PartitionCount, Topic};
use promethean_mongo::MongoStore;
use promethean_mongo::mongodb::bson::raw::RawDocumentBuf;
use promethean_mongo::mongodb::bson::{Document, doc};
use promethean_mongo::mongodb::options::{Acknowledgment, CollectionOptions, WriteConcern};
use promethean_mongo::mongodb::{Collection, IndexModel};
use serde::Serialize;

use super::Place;
use crate::command::bench::events::Source;
use crate::command::bench::measure::{Compared, Round, rate, timed_async};

/// Events of one request.
pub(super) const BATCH: usize = 1_000;
const HUBS: usize = 4;

#[derive(Debug, Serialize)]
pub(super) struct Appending {
    pub(super) one_hub: Compared,
    pub(super) four_hubs_one_partition: Compared,
    pub(super) one_hub_16_partitions: Compared,
    /// Each request to all of them: no two can be written at once.
    pub(super) four_hubs_16_partitions: Compared,
    /// Each request to one partition, as producers that hold a batch for each partition write.
    pub(super) four_hubs_16_partitions_one_each: Compared,
}

/// Whose events are in one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Scattered,
    OfOnePartition,
}

/// Hubs that append, and `insertMany` of what one of them has stored, with its indexes and write
/// concern, in turn.
pub(super) async fn measure(url: &str, rounds: usize, events: usize) -> anyhow::Result<Appending> {
    let (mut one, mut shared) = (Vec::new(), Vec::new());
    let (mut one_spread, mut spread, mut one_each) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=rounds {
        let place = Place::new(url).await?;
        let mut hubs = Vec::new();
        for _ in 0..HUBS {
            hubs.push(Arc::new(place.store().await?));
        }
        let first = hubs.first().cloned().into_iter().collect::<Vec<_>>();
        let one_rate = append(&first, "one", 1, events, Request::Scattered).await?;
        let reference = insert_many(&place, "one").await?;
        let shared_rate = append(&hubs, "shared", 1, events, Request::Scattered).await?;
        let one_spread_rate = append(&first, "one_spread", 16, events, Request::Scattered).await?;
        let spread_reference = insert_many(&place, "one_spread").await?;
        let spread_rate = append(&hubs, "spread", 16, events, Request::Scattered).await?;
        let one_each_rate = append(&hubs, "one_each", 16, events, Request::OfOnePartition).await?;
        if round > 0 {
            let figure = |events_per_s, reference_events_per_s| Round {
                events_per_s,
                reference_events_per_s,
            };
            one.push(figure(one_rate, reference));
            shared.push(figure(shared_rate, reference));
            one_spread.push(figure(one_spread_rate, spread_reference));
            spread.push(figure(spread_rate, spread_reference));
            one_each.push(figure(one_each_rate, spread_reference));
        }
        for hub in &hubs {
            hub.close().await;
        }
        place.end().await?;
    }
    Ok(Appending {
        one_hub: Compared::of(one),
        four_hubs_one_partition: Compared::of(shared),
        one_hub_16_partitions: Compared::of(one_spread),
        four_hubs_16_partitions: Compared::of(spread),
        four_hubs_16_partitions_one_each: Compared::of(one_each),
    })
}

/// Events per second of all hubs together, each with its share, one request after the other.
async fn append(
    hubs: &[Arc<MongoStore>],
    topic: &str,
    partitions: u32,
    events: usize,
    request: Request,
) -> anyhow::Result<f64> {
    let topic = Topic::new(topic)?;
    let partitions = PartitionCount::new(partitions)?;
    let mut work = Vec::new();
    for (number, hub) in hubs.iter().enumerate() {
        let definition = TopicDefinition { partitions, ..TopicDefinition::new(topic.clone()) };
        hub.define(definition).await?;
        let share = events / hubs.len();
        let batches = match request {
            Request::Scattered => batches(&topic, share)?,
            // Each begins elsewhere; after that they meet as it comes.
            Request::OfOnePartition => {
                let first = number * partitions.get() as usize / hubs.len();
                by_partition(&topic, share, partitions, first)?
            }
        };
        work.push((Arc::clone(hub), batches));
    }
    let total: usize = work.iter().flat_map(|(_, batches)| batches).map(Vec::len).sum();
    let running = async {
        let tasks: Vec<_> = work
            .into_iter()
            .map(|(hub, batches)| {
                tokio::spawn(async move {
                    for events in batches {
                        hub.append(Append { events, ..Append::default() }).await?;
                    }
                    anyhow::Ok(())
                })
            })
            .collect();
        for task in tasks {
            task.await??;
        }
        anyhow::Ok(())
    };
    let (done, time) = timed_async(running).await;
    done?;
    Ok(rate(total, time))
}

fn batches(topic: &Topic, events: usize) -> anyhow::Result<Vec<Vec<NewEvent>>> {
    let mut source = Source::new(1, 20_000)?;
    let batch = |size: usize, source: &mut Source| {
        (0..size)
            .map(|_| Ok(NewEvent { topic: topic.clone(), ..source.event()? }))
            .collect::<anyhow::Result<Vec<_>>>()
    };
    (0..events.div_ceil(BATCH))
        .map(|at| batch(BATCH.min(events - at * BATCH), &mut source))
        .collect()
}

/// Requests that each go to one partition, in turn from one of them on.
fn by_partition(
    topic: &Topic,
    events: usize,
    partitions: PartitionCount,
    first: usize,
) -> anyhow::Result<Vec<Vec<NewEvent>>> {
    let mut source = Source::new(1, 20_000)?;
    let mut waiting = vec![Vec::new(); partitions.get() as usize];
    let mut batches = Vec::new();
    let mut sizes = (0..events.div_ceil(BATCH)).map(|at| BATCH.min(events - at * BATCH));
    let mut size = sizes.next();
    while let Some(wanted) = size {
        let at = (first + batches.len()) % waiting.len();
        let here = waiting.get_mut(at).context("a partition")?;
        if here.len() >= wanted {
            batches.push(here.drain(..wanted).collect());
            size = sizes.next();
            continue;
        }
        let event = NewEvent { topic: topic.clone(), ..source.event()? };
        let partition = partitions.partition_of(event.key.as_ref(), &event.id);
        waiting.get_mut(partition.get() as usize).context("a partition")?.push(event);
    }
    Ok(batches)
}

/// Events per second of the driver alone: the documents of a topic, into a collection with the same
/// indexes.
async fn insert_many(place: &Place, topic: &str) -> anyhow::Result<f64> {
    let events: Collection<Document> = place.database().collection("events");
    let found = events.find(doc! { "topic": topic }).projection(doc! { "_id": 0 }).await?;
    // As bytes, so that it does not have to encode them.
    let documents: Vec<RawDocumentBuf> = found.with_type().try_collect().await?;
    let durable = WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build();
    let options = CollectionOptions::builder().write_concern(durable).build();
    let reference: Collection<RawDocumentBuf> =
        place.database().collection_with_options("reference", options);
    let indexes: Vec<IndexModel> = events.list_indexes().await?.try_collect().await?;
    // That of `_id` is there by itself.
    let own = indexes.into_iter().filter(|index| !index.keys.contains_key("_id"));
    reference.create_indexes(own).await?;
    let total = documents.len();
    let running = async {
        for batch in documents.chunks(BATCH) {
            reference.insert_many(batch).await?;
        }
        anyhow::Ok(())
    };
    let (done, time) = timed_async(running).await;
    done?;
    reference.drop().await?;
    Ok(rate(total, time))
}
