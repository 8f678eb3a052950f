//! What checks begin with: topics, events, groups.

use std::sync::Arc;

use promethean::store::{
    Append, Appended, Cleaning, GroupSave, Lane, LaneDelta, PageLimit, Read, Store, Stored,
    TopicDefinition, TopicId,
};
use promethean_delivery::Change;
use promethean_event::{
    EventId, GroupName, Key, NewEvent, Offset, Partition, PartitionCount, Payload, Timestamp, Topic,
};

use super::check::Check;
use super::factory::StoreFactory;

/// A store with one topic.
pub(super) struct Scene {
    pub(super) store: Arc<dyn Store>,
    pub(super) topic: Topic,
    pub(super) id: TopicId,
}

impl Scene {
    pub(super) async fn new(factory: &dyn StoreFactory) -> Check<Self> {
        Self::with(factory, 1, Cleaning::default()).await
    }

    pub(super) async fn with(
        factory: &dyn StoreFactory,
        partitions: u32,
        cleaning: Cleaning,
    ) -> Check<Self> {
        let store = factory.open().await?;
        let topic = Topic::new("orders.placed")?;
        let partitions = PartitionCount::new(partitions)?;
        let definition = TopicDefinition { topic: topic.clone(), partitions, cleaning };
        let id = store.define(definition).await?;
        Ok(Self { store, topic, id })
    }

    /// The first partition.
    pub(super) const fn lane(&self) -> Lane {
        Lane { topic: self.id, partition: Partition::ZERO }
    }

    pub(super) fn event(&self, number: u64) -> Check<NewEvent> {
        event(&self.topic, None, number)
    }

    pub(super) fn keyed(&self, key: &str, number: u64) -> Check<NewEvent> {
        event(&self.topic, Some(key), number)
    }

    /// Appends events with the numbers of a range, one by one.
    pub(super) async fn publish(&self, numbers: std::ops::Range<u64>) -> Check {
        for number in numbers {
            self.store.append(self.event(number)?.into()).await?;
        }
        Ok(())
    }

    pub(super) async fn publish_all(&self, events: Vec<NewEvent>) -> Check<Appended> {
        Ok(self.store.append(Append { events, ..Append::default() }).await?)
    }

    /// All events of the first partition.
    pub(super) async fn all(&self) -> Check<Vec<Stored>> {
        read_lane(&*self.store, self.lane()).await
    }
}

pub(super) fn event(topic: &Topic, key: Option<&str>, number: u64) -> Check<NewEvent> {
    let payload = Payload::of(&number)?;
    let ts = Timestamp::from_millis(number);
    let mut event = NewEvent::new(EventId::generate(), ts, topic.clone(), payload);
    event.key = key.map(Key::new).transpose()?;
    Ok(event)
}

/// All events of a lane; gaps and order are checked on the way.
pub(super) async fn read_lane(store: &dyn Store, lane: Lane) -> Check<Vec<Stored>> {
    let bounds = store.bounds(lane).await?;
    let mut next = Offset::ZERO;
    let mut events = Vec::new();
    while next < bounds.next {
        let limit = PageLimit { events: 7, bytes: 100_000 };
        let page = store.read(Read::From { lane, from: next, limit }).await?;
        let mut passed: Vec<(u64, u64)> =
            page.gaps.iter().map(|gap| (gap.from.get(), gap.to.get())).collect();
        let offsets = page.events.iter().map(|stored| stored.event.offset.get());
        passed.extend(offsets.map(|offset| (offset, offset + 1)));
        passed.sort_unstable();
        let mut at = next.get();
        for (from, to) in passed {
            ensure_same!(from, at, "a page leaves something out in silence");
            at = to;
        }
        ensure_same!(at, page.next.get(), "a page does not end where it says");
        ensure!(page.next > next, "a page before the end passes nothing");
        next = page.next;
        events.extend(page.events);
    }
    Ok(events)
}

pub(super) fn numbers(events: &[Stored]) -> Check<Vec<u64>> {
    let number = |stored: &Stored| Ok(stored.event.payload.decode()?);
    events.iter().map(number).collect()
}

pub(super) fn group(name: &str) -> Check<GroupName> {
    Ok(GroupName::new(name)?)
}

/// A save that moves the floor of a lane.
pub(super) fn advance(group: &GroupName, lane: Lane, version: u64, floor: u64) -> GroupSave {
    let delta = LaneDelta { version, changes: vec![Change::Floor(floor)] };
    GroupSave {
        group: group.clone(),
        settings: None,
        lanes: vec![(lane, delta)],
        dead_letters: Vec::new(),
        claims: Vec::new(),
    }
}

/// A save that begins a group.
pub(super) fn beginning(group: &GroupName) -> Check<GroupSave> {
    Ok(GroupSave {
        group: group.clone(),
        settings: Some(Payload::of(&serde_json::json!({"mode": "shared"}))?),
        lanes: Vec::new(),
        dead_letters: Vec::new(),
        claims: Vec::new(),
    })
}

/// Where a group stands in a lane; `None` if there is no such group.
pub(super) async fn floor(store: &dyn Store, name: &GroupName, at: Lane) -> Check<Option<u64>> {
    let Some(record) = store.group(name.clone()).await? else { return Ok(None) };
    let state = record.lanes.iter().find(|(lane, _)| *lane == at);
    Ok(Some(state.map_or(0, |(_, state)| state.floor)))
}
