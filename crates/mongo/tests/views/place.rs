//! A database for views, and hubs that keep them.

use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use mongodb::bson::{Document, doc};
use mongodb::{Client, Collection};
use promethean::projection::view_store::ViewStore;
use promethean::projection::{Changelog, Field, Projection, ProjectionState, View, Views};
use promethean::store::{Attend, Claims, HubId};
use promethean::{Bus, BusOptions};
use promethean_event::{EventId, Key, NewEvent, PartitionCount, Payload, Timestamp, Topic};
use promethean_harness::conformance::Check;
use promethean_harness::conformance::views::ViewPlace;
use promethean_mongo::views::MongoViews;
use promethean_mongo::{MongoOptions, MongoStore};
use tokio::runtime::Runtime;

use crate::replica_set::{database, drop_database, url_of};

pub(super) const TOPIC: &str = "process.state";

/// A database of its own, gone with it.
#[derive(Debug)]
pub(super) struct MongoPlace {
    pub(super) name: String,
    /// The connection string of its replica set, if it is not that of all tests.
    set: Option<String>,
}

impl MongoPlace {
    pub(super) fn new() -> Self {
        Self { name: database(), set: None }
    }

    /// In a replica set of its own.
    pub(super) fn at(set: &str) -> Self {
        Self { name: database(), set: Some(set.to_owned()) }
    }

    fn url(&self) -> String {
        match &self.set {
            Some(set) => set.replacen("/?", &format!("/{}?", self.name), 1),
            None => url_of(&self.name),
        }
    }

    async fn store(&self) -> Check<MongoStore> {
        Ok(MongoStore::open(&self.url(), MongoOptions::default()).await?)
    }

    /// What a user of the database sees.
    pub(super) async fn collection(&self, name: &str) -> Collection<Document> {
        let client = Client::with_uri_str(self.url()).await.unwrap();
        client.database(&self.name).collection(name)
    }
}

impl Drop for MongoPlace {
    fn drop(&mut self) {
        if self.set.is_some() {
            return;
        }
        let name = self.name.clone();
        let dropping = move || crate::conformance::wait_for(drop_database(&name));
        std::thread::spawn(dropping).join().unwrap();
    }
}

impl ViewPlace for MongoPlace {
    fn open(&self) -> BoxFuture<'_, Check<Arc<dyn ViewStore>>> {
        Box::pin(async {
            let views = MongoViews::of(&self.store().await?).await?;
            Ok(Arc::new(views) as Arc<dyn ViewStore>)
        })
    }

    fn attend(&self, hub: HubId, is_there: bool) -> BoxFuture<'_, Check> {
        Box::pin(async move {
            let store = self.store().await?;
            let lease = Duration::from_secs(600);
            match is_there {
                true => drop(
                    store.attend(Attend { hub, arrives: true, groups: Vec::new(), lease }).await?,
                ),
                false => store.depart(hub).await?,
            }
            Ok(())
        })
    }
}

/// A hub with views: a bus on a runtime of its own, which can be ended without a word, or stopped
/// for a while.
pub(super) struct Hub {
    pub(super) bus: Bus,
    pub(super) views: Views,
    pub(super) store: MongoViews,
    _scratch: tempfile::TempDir,
    runtime: Option<Runtime>,
}

impl Hub {
    pub(super) async fn start(place: &MongoPlace, lease: Duration) -> Self {
        Self::start_with(place, lease, MongoOptions::default()).await
    }

    pub(super) async fn start_with(
        place: &MongoPlace,
        lease: Duration,
        options: MongoOptions,
    ) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        // One thread, so that stopping it stops the hub.
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let (url, scratch) = (place.url(), tempfile::tempdir().unwrap());
        let folder = scratch.path().join("views");
        let starting = runtime.spawn(async move {
            let store = MongoStore::open(&url, options).await.unwrap();
            let views = MongoViews::of(&store).await.unwrap();
            let bus = Bus::with_store(Arc::new(store), BusOptions::default().hub_lease(lease));
            (Views::over(&bus, Arc::new(views.clone()), folder), views, bus)
        });
        let (views, store, bus) = starting.await.unwrap();
        Self { bus, views, store, _scratch: scratch, runtime: Some(runtime) }
    }

    /// Does something on the hub's own runtime.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> T {
        self.runtime.as_ref().unwrap().spawn(work).await.unwrap()
    }

    pub(super) async fn changelog(&self) -> Projection {
        let views = self.views.clone();
        self.run(async move { views.changelog(processes()).await.unwrap() }).await
    }

    /// Dies: nobody is told.
    pub(super) fn die(mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }

    /// Stops everything in it until the sender is dropped.
    pub(super) async fn freeze(&self) -> std::sync::mpsc::SyncSender<()> {
        let (thaw, thawed) = std::sync::mpsc::sync_channel(1);
        let (frozen, is_frozen) = tokio::sync::oneshot::channel();
        self.runtime.as_ref().unwrap().spawn(async move {
            frozen.send(()).unwrap();
            // Whether it is told or dropped makes no difference.
            let _ = thawed.recv();
        });
        is_frozen.await.unwrap();
        thaw
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

pub(super) fn processes() -> Changelog {
    let view = View::new("processes")
        .field(Field::text("host"))
        .field(Field::integer("n"))
        .index(["host"]);
    // Small batches, so that much is under way when a hub dies.
    Changelog::new(view, TOPIC).batch(20)
}

pub(super) async fn define(bus: &Bus, partitions: u32) {
    let mut definition = promethean::store::TopicDefinition::new(Topic::new(TOPIC).unwrap());
    definition.partitions = PartitionCount::new(partitions).unwrap();
    bus.define(definition).await.unwrap();
}

/// Publishes events of forty keys and five hosts; every eleventh deletes.
pub(super) async fn publish(bus: &Bus, numbers: std::ops::Range<u64>) {
    let event = |n: u64| {
        let payload = match n % 11 {
            10 => "null".to_owned(),
            _ => format!(r#"{{"host":"h{}","n":{n},"cpu":1.50}}"#, n % 5),
        };
        let topic = Topic::new(TOPIC).unwrap();
        let payload = Payload::parse(payload).unwrap();
        let event = NewEvent::new(EventId::generate(), Timestamp::from_millis(n), topic, payload);
        event.with_key(Key::new(format!("p{}", n % 40)).unwrap())
    };
    let numbers: Vec<u64> = numbers.collect();
    for part in numbers.chunks(50) {
        bus.publish_batch(part.iter().copied().map(event).collect()).await.unwrap();
    }
}

pub(super) fn is_keeper(projection: &Projection) -> bool {
    projection.progress().state == ProjectionState::Running
}

pub(super) async fn collect(
    collection: &Collection<Document>,
) -> std::collections::BTreeMap<String, Document> {
    let mut cursor = collection.find(doc! {}).await.unwrap();
    let mut found = std::collections::BTreeMap::new();
    while cursor.advance().await.unwrap() {
        let document = cursor.deserialize_current().unwrap();
        let key = document.get_str("_id").unwrap_or_default().to_owned();
        found.insert(key, document);
    }
    found
}
