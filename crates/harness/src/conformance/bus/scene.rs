//! What all cases need: a bus, events, and ways to wait that never hang.

use std::future::Future;
use std::time::Duration;

use promethean::event::{
    Cursor, Event, EventId, GroupName, Key, NewEvent, Offset, Partition, PartitionCount, Pattern,
    Payload, Timestamp, Topic,
};
use promethean::member::{Batch, Leased, Member, Told};
use promethean::store::{Lane, PageLimit, TopicDefinition};
use promethean::{
    Bus, BusOptions, DeadLetterEntry, DeadLetterQuery, Delivered, GroupSettings, Published, Start,
    Subscription,
};

use super::factory::{BusFactory, Pace};

/// The topic of cases that need one.
pub(super) const ORDERS: &str = "orders.placed";
/// The group of cases that need one.
pub(super) const BILLING: &str = "billing";

/// A bus under test.
pub(super) struct Scene<'a> {
    factory: &'a dyn BusFactory,
    pub(super) bus: Bus,
    pub(super) pace: Pace,
}

pub(super) fn topic(name: &str) -> Topic {
    Topic::new(name).expect("the topic is good")
}

pub(super) fn group(name: &str) -> GroupName {
    GroupName::new(name).expect("the group name is good")
}

pub(super) fn pattern(text: &str) -> Pattern {
    Pattern::new(text).expect("the pattern is good")
}

pub(super) fn key(text: &str) -> Key {
    Key::new(text).expect("the key is good")
}

/// An event that says a number; an empty key is none.
pub(super) fn event(topic_name: &str, key_text: &str, number: u64) -> NewEvent {
    let payload = Payload::of(&number).expect("a number has a JSON form");
    let mut event =
        NewEvent::new(EventId::generate(), Timestamp::from_millis(1), topic(topic_name), payload);
    event.key = (!key_text.is_empty()).then(|| key(key_text));
    event
}

/// The number that an event says.
pub(super) fn number(event: &Event) -> u64 {
    event.payload.decode().expect("the payload is a number")
}

/// The number that an event on lease says.
pub(super) fn leased_number(leased: &Leased) -> u64 {
    number(&leased.event().expect("what is on lease can be read"))
}

/// Settings of a group, as a member without a builder gives them.
pub(super) fn settings(topics: &[&str]) -> GroupSettings {
    let mut settings = GroupSettings::default();
    settings.topics = topics.iter().map(|text| pattern(text)).collect();
    settings
}

pub(super) fn millis(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).expect("times of cases are short")
}

impl<'a> Scene<'a> {
    pub(super) async fn open(factory: &'a dyn BusFactory) -> Self {
        Self::with(factory, BusOptions::default()).await
    }

    pub(super) async fn with(factory: &'a dyn BusFactory, options: BusOptions) -> Self {
        Self { factory, bus: factory.open(options).await, pace: factory.pace() }
    }

    /// The process goes down, and another one opens what is left.
    pub(super) async fn crash(mut self) -> Self {
        self.go_down().await;
        self
    }

    pub(super) async fn go_down(&mut self) {
        // Another one stands in, so that nobody holds the old one meanwhile.
        let gone = std::mem::replace(&mut self.bus, Bus::memory());
        self.bus = self.factory.reopen(gone).await;
    }

    pub(super) fn ticks(&self, count: u32) -> Duration {
        self.pace.tick * count
    }

    /// What must come, within the patience of the scene.
    pub(super) async fn within<T>(&self, what: &str, future: impl Future<Output = T>) -> T {
        match tokio::time::timeout(self.pace.patience, future).await {
            Ok(value) => value,
            Err(_) => panic!("waited in vain: {what}"),
        }
    }

    /// Looks until something holds.
    pub(super) async fn eventually(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let look = async {
            while !holds().await {
                tokio::time::sleep(self.pace.tick / 20).await;
            }
        };
        self.within(what, look).await;
    }

    /// The next delivery, which must come.
    pub(super) async fn next(&self, subscription: &mut Subscription) -> Delivered {
        let next = self.within("a delivery", subscription.next()).await;
        next.expect("the bus is open").expect("the group goes on")
    }

    /// The numbers of the next deliveries, which are acked.
    pub(super) async fn take(&self, subscription: &mut Subscription, count: usize) -> Vec<u64> {
        let mut numbers = Vec::new();
        for _ in 0..count {
            let delivered = self.next(subscription).await;
            numbers.push(number(delivered.event()));
            delivered.ack().await.expect("a fresh delivery can be acked");
        }
        numbers
    }

    /// Deliveries that are kept.
    pub(super) async fn hold(
        &self,
        subscription: &mut Subscription,
        count: usize,
    ) -> Vec<Delivered> {
        let mut held = Vec::new();
        for _ in 0..count {
            held.push(self.next(subscription).await);
        }
        held
    }

    /// Nothing comes for a while.
    pub(super) async fn silent(&self, subscription: &mut Subscription) {
        if let Ok(next) = tokio::time::timeout(self.pace.quiet, subscription.next()).await {
            let event = next.map(|next| next.map(|delivered| delivered.event().clone()));
            panic!("nothing should have come, but {event:?}");
        }
    }

    /// The next batch of a member, and the changes of owner that came before it.
    pub(super) async fn batch(&self, member: &mut Member) -> Batch {
        loop {
            match self.within("a batch", member.next()).await.expect("the member is one") {
                Told::Events(batch) => return batch,
                _ => continue,
            }
        }
    }

    pub(super) async fn publish(&self, topic: &str, key: &str, number: u64) -> Published {
        self.bus.publish(event(topic, key, number)).await.expect("the publish goes through")
    }

    /// Publishes numbers with one key to the usual topic.
    pub(super) async fn publish_all(&self, key: &str, numbers: std::ops::Range<u64>) {
        let events = numbers.map(|number| event(ORDERS, key, number)).collect();
        self.bus.publish_batch(events).await.expect("the publish goes through");
    }

    pub(super) async fn define(&self, name: &str, partitions: u32) {
        let partitions = PartitionCount::new(partitions).expect("a small count");
        let definition = TopicDefinition { partitions, ..TopicDefinition::new(topic(name)) };
        self.bus.define(definition).await.expect("the topic can be defined");
    }

    /// A member of the usual group, reading the usual topic from the beginning.
    pub(super) async fn subscribe(&self) -> Subscription {
        let builder = self.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
        builder.stream().await.expect("one can subscribe")
    }

    pub(super) async fn cursors(&self) -> Vec<Cursor> {
        self.bus.cursors(&group(BILLING)).await.expect("the group is there")
    }

    /// The cursor of the usual group in the one partition of the usual topic.
    pub(super) async fn cursor(&self) -> u64 {
        let cursors = self.bus.get_cursor(&topic(ORDERS), &group(BILLING)).await;
        let cursors = cursors.expect("the group reads the topic");
        assert_eq!(cursors.len(), 1, "one partition");
        cursors[0].next.get()
    }

    pub(super) async fn cursor_comes_to(&self, offset: u64) {
        let what = format!("the cursor at {offset}");
        self.eventually(&what, async || self.cursor().await == offset).await;
    }

    /// How many events a topic has had, over all its partitions; 0 if there is no such topic.
    pub(super) async fn stored(&self, name: &str) -> u64 {
        let topics = self.bus.topics();
        let Some(entry) = topics.get(&topic(name)) else {
            return 0;
        };
        let mut count = 0;
        for lane in entry.lanes() {
            count += self.bus.store().bounds(lane).await.expect("the lane is there").next.get();
        }
        count
    }

    pub(super) fn lane(&self, name: &str, partition: u32) -> Lane {
        let topics = self.bus.topics();
        let entry = topics.get(&topic(name)).expect("the topic is there");
        Lane { topic: entry.id, partition: Partition::new(partition) }
    }

    /// The numbers of all events of one partition.
    pub(super) async fn numbers(&self, name: &str) -> Vec<u64> {
        let limit = PageLimit { events: 10_000, bytes: 1 << 24 };
        let (mut numbers, mut from) = (Vec::new(), Offset::ZERO);
        let lane = self.lane(name, 0);
        let end = self.bus.store().bounds(lane).await.expect("the lane is there").next;
        // A page may end before its limit does.
        while from < end {
            let page = self.bus.read(&topic(name), Partition::ZERO, from, limit).await;
            let page = page.expect("the topic can be read");
            assert!(page.next > from, "a page that goes nowhere");
            numbers.extend(page.events.iter().map(|stored| number(&stored.event)));
            from = page.next;
        }
        numbers
    }

    /// Dead letters that wait.
    pub(super) async fn letters(&self) -> Vec<DeadLetterEntry> {
        self.bus.dead_letters(&DeadLetterQuery::waiting()).await.expect("they can be listed")
    }

    pub(super) async fn letters_come_to(&self, count: usize) -> Vec<DeadLetterEntry> {
        let what = format!("{count} dead letters");
        self.eventually(&what, async || self.letters().await.len() == count).await;
        self.letters().await
    }
}
