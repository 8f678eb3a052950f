//! What the tests of projections begin with.

use promethean::event::{EventId, Key, NewEvent, PartitionCount, Payload, Timestamp, Topic};
use promethean::projection::{Changelog, Field, Projection, View, Views};
use promethean::store::TopicDefinition;
use promethean::{Bus, Published};
use tempfile::TempDir;

pub(crate) const TOPIC: &str = "process.state";

pub(crate) struct Scenario {
    pub(crate) bus: Bus,
    pub(crate) views: Views,
    pub(crate) folder: TempDir,
}

impl Scenario {
    pub(crate) async fn new() -> Self {
        Self::with_partitions(1).await
    }

    pub(crate) async fn with_partitions(partitions: u32) -> Self {
        let bus = Bus::memory();
        let mut definition = TopicDefinition::new(Topic::new(TOPIC).unwrap());
        definition.partitions = PartitionCount::new(partitions).unwrap();
        bus.define(definition).await.unwrap();
        let folder = TempDir::new().unwrap();
        let views = Views::open(&bus, folder.path().join("state.db")).await.unwrap();
        Self { bus, views, folder }
    }

    /// The views closed and opened again, over the same bus.
    pub(crate) async fn reopened(self) -> Self {
        let Self { bus, views, folder } = self;
        views.stop().await;
        drop(views);
        let views = Views::open(&bus, folder.path().join("state.db")).await.unwrap();
        Self { bus, views, folder }
    }

    pub(crate) async fn publish(&self, key: &str, payload: &str) -> Published {
        self.bus.publish(event(Some(key), payload)).await.unwrap()
    }

    /// Another program that looks at the file.
    pub(crate) fn tool(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.folder.path().join("state.db")).unwrap()
    }

    pub(crate) async fn processes(&self) -> Projection {
        self.views.changelog(processes()).await.unwrap()
    }
}

pub(crate) fn event(key: Option<&str>, payload: &str) -> NewEvent {
    let payload = Payload::parse(payload.to_owned()).unwrap();
    let topic = Topic::new(TOPIC).unwrap();
    let mut event = NewEvent::new(EventId::generate(), Timestamp::from_millis(5), topic, payload);
    event.key = key.map(|key| Key::new(key).unwrap());
    event
}

pub(crate) fn processes() -> Changelog {
    let view = View::new("processes")
        .field(Field::text("host"))
        .field(Field::text("status"))
        .field(Field::integer("pid"))
        .index(["host", "status"]);
    Changelog::new(view, TOPIC)
}

/// All documents of a view, as JSON.
pub(crate) async fn all(projection: &Projection, view: &str) -> Vec<String> {
    let documents = projection.scan(view, None, 100_000).await.unwrap();
    documents.iter().map(|document| document.to_json()).collect()
}
