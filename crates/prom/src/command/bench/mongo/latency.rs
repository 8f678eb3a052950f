use std::sync::Arc;
use std::time::Duration;

use promethean::{Bus, BusOptions, Start};
use promethean_mongo::mongodb::bson::{Document, doc};
use promethean_mongo::mongodb::options::{Acknowledgment, CollectionOptions, WriteConcern};
use serde::Serialize;
use tokio::sync::mpsc;

use super::Place;
use crate::command::bench::events::{Source, text};
use crate::command::bench::measure::{median, timed_async};

#[derive(Debug, Serialize)]
pub(super) struct Latency {
    /// Median over the rounds.
    pub(super) ratio: f64,
    pub(super) median_us: f64,
    pub(super) p99_us: f64,
    pub(super) majority_write_us: f64,
}

/// One event at a time, published on one hub and handled on another, and one insert at a time that
/// a majority acknowledges, in turn.
pub(super) async fn measure(url: &str, rounds: usize, events: usize) -> anyhow::Result<Latency> {
    let (mut ratios, mut medians, mut tails, mut writes) = (vec![], vec![], vec![], vec![]);
    for round in 0..=rounds {
        let place = Place::new(url).await?;
        let write = median(write(&place, events).await?);
        let mut times = deliver(&place, events).await?;
        place.end().await?;
        if round > 0 {
            let middle = median(times.clone());
            times.sort_by(f64::total_cmp);
            tails.push(times.get(times.len() * 99 / 100).copied().unwrap_or(f64::NAN));
            ratios.push(middle / write);
            medians.push(middle);
            writes.push(write);
        }
    }
    Ok(Latency {
        ratio: median(ratios),
        median_us: median(medians),
        p99_us: median(tails),
        majority_write_us: median(writes),
    })
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Microseconds of each insert.
async fn write(place: &Place, events: usize) -> anyhow::Result<Vec<f64>> {
    let durable = WriteConcern::builder().w(Acknowledgment::Majority).journal(true).build();
    let options = CollectionOptions::builder().write_concern(durable).build();
    let plain = place.database().collection_with_options::<Document>("plain", options);
    let mut times = Vec::with_capacity(events);
    for number in 0..events as u64 {
        let document = doc! { "text": text(number) };
        let (written, time) = timed_async(async { plain.insert_one(document).await }).await;
        written?;
        times.push(micros(time));
    }
    Ok(times)
}

/// Microseconds from each publish on one hub to its handler on another.
async fn deliver(place: &Place, events: usize) -> anyhow::Result<Vec<f64>> {
    let near = Bus::with_store(Arc::new(place.store().await?), BusOptions::default());
    let far = Bus::with_store(Arc::new(place.store().await?), BusOptions::default());
    let mut source = Source::new(1, 20_000)?;
    near.publish(source.event()?).await?;
    let (sender, mut received) = mpsc::channel(16);
    let subscribe = far.subscribe_to(["bench.0"], "latency").from(Start::Earliest);
    let consumer = subscribe
        .handle(move |_| {
            let sender = sender.clone();
            async move { Ok(sender.send(()).await?) }
        })
        .await?;
    // The first one shows that the other hub listens.
    received.recv().await;
    let mut times = Vec::with_capacity(events);
    for _ in 0..events {
        let event = source.event()?;
        let bus = near.clone();
        let mut publishing = None;
        let arrival = async {
            publishing = Some(tokio::spawn(async move { bus.publish(event).await }));
            received.recv().await
        };
        let (_, time) = timed_async(arrival).await;
        if let Some(publishing) = publishing {
            publishing.await??;
        }
        times.push(micros(time));
    }
    consumer.stop().await?;
    far.close().await;
    near.close().await;
    Ok(times)
}
