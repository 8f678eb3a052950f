//! A hub of a test, and the store that it shares with others.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use promethean::memory::MemoryStore;
use promethean::store::{Lane, Store, SystemClock, TopicDefinition};
use promethean::{Bus, BusOptions, Start};
use promethean_event::{
    EventId, GroupName, Key, NewEvent, PartitionCount, Payload, Timestamp, Topic,
};
use promethean_mongo::{MongoOptions, MongoStore};
use tokio::runtime::Runtime;

use super::history::{History, Seen};
use crate::replica_set::{database, drop_database, url_of};

/// A store that hubs share.
#[derive(Debug)]
pub(crate) enum Place {
    Memory(Arc<MemoryStore>),
    Mongo(String),
}

impl Place {
    pub(crate) fn memory() -> Self {
        Self::Memory(Arc::new(MemoryStore::shared(Arc::new(SystemClock))))
    }

    pub(crate) fn mongodb() -> Self {
        Self::Mongo(database())
    }

    async fn open(&self) -> Arc<dyn Store> {
        match self {
            Self::Memory(store) => Arc::clone(store) as Arc<dyn Store>,
            Self::Mongo(name) => {
                let url = url_of(name);
                Arc::new(MongoStore::open(&url, MongoOptions::default()).await.unwrap())
            }
        }
    }

    pub(crate) async fn end(self) {
        if let Self::Mongo(name) = self {
            drop_database(&name).await;
        }
    }
}

/// A hub: a bus on a runtime of its own.
pub(crate) struct Hub {
    pub(crate) number: usize,
    pub(crate) bus: Bus,
    runtime: Option<Runtime>,
}

impl Hub {
    pub(crate) async fn start(place: &Arc<Place>, number: usize, lease: Duration) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        // One thread, so that stopping it stops the hub.
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let place = Arc::clone(place);
        let starting = runtime.spawn(async move {
            let store = place.open().await;
            Bus::with_store(store, BusOptions::default().hub_lease(lease))
        });
        let bus = starting.await.unwrap();
        Self { number, bus, runtime: Some(runtime) }
    }

    /// Lets it take part in a group, for as long as it lives.
    pub(crate) async fn consume(&self, group: &str, history: &History) {
        let (bus, number, history) = (self.bus.clone(), self.number, history.clone());
        let group = group.to_owned();
        let (joined, has_joined) = tokio::sync::oneshot::channel();
        self.runtime.as_ref().unwrap().spawn(async move {
            let subscribe = bus.subscribe_to(["orders"], &group).from(Start::Earliest);
            let subscribe = subscribe.ack_timeout(Duration::from_secs(5));
            let mut stream = subscribe.stream().await.unwrap();
            joined.send(()).unwrap();
            drop(bus);
            while let Some(Ok(delivered)) = stream.next().await {
                let key = delivered.event().key.as_ref().unwrap().as_str().to_owned();
                let event = delivered.event().payload.decode().unwrap();
                history.note(Seen::Delivered { hub: number, key: key.clone(), number: event });
                let (hub, number) = (number, event);
                match delivered.ack().await {
                    Ok(()) => history.note(Seen::Confirmed { hub, key, number }),
                    Err(_) => history.note(Seen::Refused { hub, key, number }),
                }
            }
        });
        has_joined.await.unwrap();
    }

    /// Dies: nobody is told.
    pub(crate) fn die(mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }

    /// Stops everything in it until the sender is dropped or says so.
    pub(crate) async fn freeze(&self) -> mpsc::SyncSender<()> {
        let (thaw, thawed) = mpsc::sync_channel(1);
        let (frozen, is_frozen) = tokio::sync::oneshot::channel();
        self.runtime.as_ref().unwrap().spawn(async move {
            frozen.send(()).unwrap();
            // Whether it is told or dropped makes no difference.
            let _ = thawed.recv();
        });
        is_frozen.await.unwrap();
        thaw
    }

    /// Goes in good order.
    pub(crate) async fn leave(mut self) {
        let bus = self.bus.clone();
        let runtime = self.runtime.take().unwrap();
        runtime.spawn(async move { bus.close().await }).await.unwrap();
        runtime.shutdown_background();
    }

    /// The numbers of lanes that each hub holds of a group, largest first.
    pub(crate) async fn shares(&self, group: &str) -> Vec<usize> {
        let claims = self.bus.store().claims().unwrap();
        let held = claims.holders(GroupName::new(group).unwrap()).await.unwrap();
        let mut shares = std::collections::BTreeMap::<_, Vec<Lane>>::new();
        for claim in held {
            shares.entry(claim.hub).or_default().push(claim.lane);
        }
        let mut sizes: Vec<usize> = shares.values().map(Vec::len).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        sizes
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

pub(crate) async fn define(hub: &Hub, partitions: u32) {
    let mut definition = TopicDefinition::new(Topic::new("orders").unwrap());
    definition.partitions = PartitionCount::new(partitions).unwrap();
    hub.bus.define(definition).await.unwrap();
}

/// Publishes events of fifty keys; gives what they are known by.
pub(crate) async fn publish(hub: &Hub, numbers: std::ops::Range<u64>) -> Vec<(String, u64)> {
    let known = |number: u64| (format!("key-{}", number % 50), number + 1);
    let published: Vec<(String, u64)> = numbers.map(known).collect();
    let event = |(key, number): &(String, u64)| {
        let topic = Topic::new("orders").unwrap();
        let payload = Payload::of(number).unwrap();
        let event = NewEvent::new(EventId::generate(), Timestamp::from_millis(1), topic, payload);
        event.with_key(Key::new(key.as_str()).unwrap())
    };
    hub.bus.publish_batch(published.iter().map(event).collect()).await.unwrap();
    published
}
