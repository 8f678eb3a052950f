//! The target that is a store: topics that are not there are defined.

use std::sync::{Arc, Mutex};

use futures_core::future::BoxFuture;
use promethean_event::{EventId, GroupName, Key, NewEvent, Offset, Partition, Timestamp, Topic};

use super::super::target::{Culprit, OutboxTarget, PublishError, Remedy};
use super::*;
use crate::store::{
    Append, AppendError, Appended, Durability, Entry, GroupRecord, GroupSave, Growth, KeyPage,
    KeyQuery, Lane, LaneBounds, Page, Put, Read, ReadError, Receipt, SaveError, Store, Stored,
    TopicDefinition, TopicEntry, TopicId, TopicTable,
};

/// As much of a store as a target needs.
#[derive(Debug, Default)]
struct Topics {
    defined: Mutex<Vec<TopicDefinition>>,
    appended: Mutex<Vec<NewEvent>>,
    refusal: Mutex<Option<SaveError>>,
}

impl Store for Topics {
    fn topics(&self) -> Arc<TopicTable> {
        let defined = self.defined.lock().unwrap();
        let entries = defined.iter().enumerate().map(|(number, definition)| TopicEntry {
            id: TopicId::new(number as u32),
            definition: definition.clone(),
        });
        Arc::new(entries.collect())
    }

    fn define(
        &self,
        definition: TopicDefinition,
    ) -> BoxFuture<'static, Result<TopicId, SaveError>> {
        let refusal = self.refusal.lock().unwrap().take();
        let answer = match refusal {
            Some(refusal) => Err(refusal),
            None => {
                self.defined.lock().unwrap().push(definition);
                Ok(TopicId::new(0))
            }
        };
        Box::pin(async { answer })
    }

    fn append(&self, append: Append) -> BoxFuture<'static, Result<Appended, AppendError>> {
        assert_eq!(append.durability, Durability::Synced);
        let lane = Lane { topic: TopicId::new(0), partition: Partition::new(0) };
        let receipt = Receipt { lane, offset: Offset::new(0), duplicate: false };
        let receipts = smallvec::smallvec![receipt; append.events.len()];
        self.appended.lock().unwrap().extend(append.events);
        let (appended_at, durability) = (Timestamp::default(), append.durability);
        Box::pin(async move { Ok(Appended { receipts, appended_at, durability }) })
    }

    fn remove(&self, _: TopicId) -> BoxFuture<'static, Result<(), SaveError>> {
        unreachable!("a target does not remove topics")
    }
    fn read(&self, _: Read) -> BoxFuture<'static, Result<Page, ReadError>> {
        unreachable!("a target does not read")
    }
    fn bounds(&self, _: Lane) -> BoxFuture<'_, Result<LaneBounds, ReadError>> {
        unreachable!("a target does not read")
    }
    fn offset_at(&self, _: Lane, _: Timestamp) -> BoxFuture<'_, Result<Offset, ReadError>> {
        unreachable!("a target does not read")
    }
    fn find(&self, _: TopicId, _: EventId) -> BoxFuture<'_, Result<Option<Stored>, ReadError>> {
        unreachable!("a target does not read")
    }
    fn latest(
        &self,
        _: TopicId,
        _: Vec<Key>,
    ) -> BoxFuture<'_, Result<Vec<Option<Stored>>, ReadError>> {
        unreachable!("a target does not read")
    }
    fn keys(&self, _: KeyQuery) -> BoxFuture<'_, Result<KeyPage, ReadError>> {
        unreachable!("a target does not read")
    }
    fn history(
        &self,
        _: TopicId,
        _: Key,
        _: usize,
    ) -> BoxFuture<'_, Result<Vec<Stored>, ReadError>> {
        unreachable!("a target does not read")
    }
    fn grown(&self, _: u64) -> BoxFuture<'_, Growth> {
        unreachable!("a target does not read")
    }
    fn groups(&self) -> BoxFuture<'_, Result<Vec<GroupName>, ReadError>> {
        unreachable!("a target has no groups")
    }
    fn group(&self, _: GroupName) -> BoxFuture<'_, Result<Option<GroupRecord>, ReadError>> {
        unreachable!("a target has no groups")
    }
    fn save(&self, _: GroupSave) -> BoxFuture<'static, Result<(), SaveError>> {
        unreachable!("a target has no groups")
    }
    fn remove_group(&self, _: GroupName) -> BoxFuture<'static, Result<(), SaveError>> {
        unreachable!("a target has no groups")
    }
    fn put(&self, _: Vec<Put>) -> BoxFuture<'static, Result<(), SaveError>> {
        unreachable!("a target keeps no entries")
    }
    fn entries(&self, _: &'static str) -> BoxFuture<'_, Result<Vec<Entry>, ReadError>> {
        unreachable!("a target keeps no entries")
    }
    fn clean(&self, _: Vec<(Lane, Offset)>) -> BoxFuture<'_, Result<(), ReadError>> {
        unreachable!("a target does not clean")
    }
    fn failure(&self) -> Option<String> {
        None
    }
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

#[tokio::test(start_paused = true)]
async fn missing_topics_are_defined_once() {
    let topics = Arc::new(Topics::default());
    let store: Arc<dyn Store> = Arc::<Topics>::clone(&topics);
    let mut app = Application::new();
    app.add(&[event(1, "a"), event(2, "b")]);
    let drainer = Drainer::new(&app.outbox, app.path.as_path(), store, quick()).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(drainer.run(async { drop(stopped.await) }));
    until("both are sent", || app.stats().sent == 2).await;
    app.add(&[event(3, "a")]);
    until("the third is sent", || app.stats().sent == 3).await;
    drop(stop);
    task.await.unwrap();
    let expected = TopicDefinition::new("order.placed".parse().unwrap());
    assert_eq!(*topics.defined.lock().unwrap(), [expected]);
    assert_eq!(topics.appended.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn a_topic_that_cannot_be_defined_is_named() {
    let topics = Topics::default();
    *topics.refusal.lock().unwrap() = Some(SaveError::TooManyTopics(7));
    let store: Arc<dyn Store> = Arc::new(topics);
    let error = store.publish(vec![event(1, "")]).await.unwrap_err();
    assert!(matches!(error, PublishError::Define { .. }), "{error}");
    let topic: Topic = "order.placed".parse().unwrap();
    assert_eq!(error.judge(), (Remedy::Again, Culprit::Topic(topic)));
}

/// Somebody else defined it meanwhile, in another way.
#[tokio::test]
async fn a_race_to_define_is_no_failure() {
    let topics = Topics::default();
    let topic = "order.placed".parse().unwrap();
    *topics.refusal.lock().unwrap() = Some(SaveError::PartitionsFixed { topic, has: 8, wanted: 1 });
    let store: Arc<dyn Store> = Arc::new(topics);
    assert_eq!(store.publish(vec![event(1, "")]).await.unwrap().len(), 1);
}
