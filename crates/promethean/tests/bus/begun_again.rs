//! A bus over a store that holds events from before.

use std::sync::Arc;
use std::time::Duration;

use promethean::memory::MemoryStore;
use promethean::{Bus, BusOptions, Start};
use tokio::sync::mpsc;
use tokio::time::timeout;

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Beat(u32);

promethean::topic! { Beat => "heartbeat.received" }

/// What wakes groups begins while the bus is still being made, and found nobody to wake: now and
/// then a group never heard of new events. Which comes first is up to threads, hence many rounds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_hear_of_what_comes_however_the_bus_begins() {
    let store = Arc::new(MemoryStore::new());
    for round in 0..200 {
        let bus = Bus::with_store(Arc::clone(&store) as _, BusOptions::default());
        let (sender, mut received) = mpsc::channel(1);
        let consumer = bus
            .subscribe::<Beat>(&format!("ops-{round}"))
            .from(Start::Latest)
            .handle(move |delivered| {
                let sender = sender.clone();
                async move {
                    sender.send(delivered.payload()?.0).await?;
                    Ok(())
                }
            })
            .await
            .unwrap();
        bus.publish(&Beat(round)).await.unwrap();
        let heard = timeout(Duration::from_secs(10), received.recv()).await;
        assert_eq!(heard.expect("the event comes"), Some(round));
        consumer.stop().await.unwrap();
    }
}
