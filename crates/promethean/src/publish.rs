//! The way in: check, find or make the topic, hand over to the store.

use std::future::IntoFuture;

use futures_core::future::BoxFuture;
use promethean_event::{
    EventId, NewEvent, Offset, Partition, SCHEMA_VERSION, SessionId, Tag, Timestamp, ToEvent, Topic,
};

use tracing::Instrument;

use crate::bus::Bus;
use crate::clock::Stopwatch;
use crate::dead_letter::{REPLAY_FOR, REPLAY_ROUND};
use crate::error::PublishError;
use crate::options::UnknownTopics;
use crate::registry::{Checked, DUAL_OF, KnownStamps};
use crate::snapshot::{self, SOURCE_OFFSET};
use crate::store::{
    Append, AppendError, Appended, Durability, Expectation, Receipt, SaveError, TopicDefinition,
};

/// Headers by which the system knows its own events again: who gets them, how often they went round,
/// which state they are.
const MARKS: [&str; 3] = [REPLAY_FOR, REPLAY_ROUND, SOURCE_OFFSET];

/// What becomes of marks that events have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marks {
    /// They come off. A publisher could otherwise hide events from all groups but one; and one who
    /// hands headers on, from what was replayed for him, would do it without knowing.
    TakenOff,
    /// They are the system's own.
    Kept,
}

/// Where a published event stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Published {
    /// Its id.
    pub id: EventId,
    /// Its topic.
    pub topic: Topic,
    /// The partition that its key, or its id, led to.
    pub partition: Partition,
    /// The place there.
    pub offset: Offset,
    /// Whether it had been there already, so that nothing was added.
    pub duplicate: bool,
    /// When the store took it.
    pub appended_at: Timestamp,
    /// How far it had travelled when this was answered.
    pub durability: Durability,
}

/// How events are published, besides what they are.
#[derive(Debug, Clone, Default)]
pub struct PublishOptions {
    /// How far they must have travelled. Default: synced.
    pub durability: Durability,
    /// Where partitions must end for them to be taken.
    pub expect: Vec<Expectation>,
}

/// A publish on its way: more may be said about the event before it is awaited.
#[must_use = "nothing is published unless this is awaited"]
#[derive(Debug)]
pub struct Publish {
    bus: Bus,
    event: Result<NewEvent, PublishError>,
    options: PublishOptions,
    begun: Stopwatch,
}

impl Publish {
    fn change(mut self, change: impl FnOnce(&mut NewEvent)) -> Self {
        if let Ok(event) = &mut self.event {
            change(event);
        }
        self
    }

    /// With an id of the caller's, so that trying again is safe.
    pub fn id(self, id: EventId) -> Self {
        self.change(|event| event.id = id)
    }

    /// With a label.
    pub fn tag(mut self, tag: &str) -> Self {
        match (Tag::new(tag), &mut self.event) {
            (Ok(tag), Ok(event)) => event.tags.push(tag),
            (Err(error), Ok(_)) => self.event = Err(error.into()),
            (_, Err(_)) => {}
        }
        self
    }

    /// Because of another event.
    pub fn caused_by(self, cause: EventId) -> Self {
        self.change(|event| event.caused_by.push(cause))
    }

    /// From a session.
    pub fn session(self, sid: SessionId) -> Self {
        self.change(|event| event.sid = Some(sid))
    }

    /// At another event time than now.
    pub fn at(self, ts: Timestamp) -> Self {
        self.change(|event| event.ts = ts)
    }

    /// With less durability than synced.
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.options.durability = durability;
        self
    }
}

impl IntoFuture for Publish {
    type Output = Result<Published, PublishError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let refused = |error: &PublishError| {
                let meters = &self.bus.inner.groups.site().meters;
                if meters.is_on() {
                    meters.publish.failed(error);
                }
            };
            let event = self.event.inspect_err(refused)?;
            let name = (event.id, event.topic.clone());
            let placed =
                self.bus.place_since(self.begun, vec![event], self.options, Marks::TakenOff);
            let appended = placed.await?;
            let receipt = appended.receipts.first();
            let receipt = receipt.ok_or(PublishError::Append(AppendError::Empty))?;
            Ok(published(name, *receipt, &appended))
        })
    }
}

impl Bus {
    /// Publishes one event. Answered when it is durable.
    pub fn publish(&self, event: impl ToEvent) -> Publish {
        let begun = Stopwatch::start();
        let now = self.inner.groups.site().clock.ms_at(begun);
        let event = event.to_event(Timestamp::from_millis(now)).map_err(PublishError::from);
        Publish { bus: self.clone(), event, options: PublishOptions::default(), begun }
    }

    /// Publishes events of any number of topics: all of them or none.
    pub async fn publish_batch(
        &self,
        events: Vec<NewEvent>,
    ) -> Result<Vec<Published>, PublishError> {
        self.publish_with(events, PublishOptions::default()).await
    }

    /// The same, with options.
    pub async fn publish_with(
        &self,
        events: Vec<NewEvent>,
        options: PublishOptions,
    ) -> Result<Vec<Published>, PublishError> {
        self.publish_all(events, options, Marks::TakenOff).await
    }

    /// Publishes events of the system's, which keep their marks.
    pub(crate) async fn publish_marked(
        &self,
        events: Vec<NewEvent>,
    ) -> Result<Vec<Published>, PublishError> {
        self.publish_all(events, PublishOptions::default(), Marks::Kept).await
    }

    async fn publish_all(
        &self,
        events: Vec<NewEvent>,
        options: PublishOptions,
        marks: Marks,
    ) -> Result<Vec<Published>, PublishError> {
        let names = names_of(&events);
        let appended = self.place_since(Stopwatch::start(), events, options, marks).await?;
        Ok(all_published(names, &appended))
    }

    /// Places events, and says how long it took since somebody looked at the clock.
    pub(crate) async fn place_since(
        &self,
        begun: Stopwatch,
        events: Vec<NewEvent>,
        options: PublishOptions,
        marks: Marks,
    ) -> Result<Appended, PublishError> {
        let site = self.inner.groups.site();
        let span = crate::spans::publish(&events);
        let result = self.place(events, options, marks).instrument(span).await;
        if site.meters.is_on() {
            site.meters.publish.ended(&result, begun.nanos());
        }
        result
    }

    /// Checks events against the schemas of their topics and appends them, with the copies that
    /// dual writes make. The first receipts are those of the events given.
    pub(crate) async fn place(
        &self,
        mut events: Vec<NewEvent>,
        options: PublishOptions,
        marks: Marks,
    ) -> Result<Appended, PublishError> {
        admit(&mut events, marks)?;
        // Every publisher passes here: what most need not do is kept out of their way.
        if events.iter().any(|event| snapshot::is_snapshot_name(&event.topic)) {
            Box::pin(self.keep_out_of_snapshots(&events)).await?;
        }
        if self.inner.groups.site().schemas.is_idle() {
            return self.append(events, options).await;
        }
        Box::pin(self.place_checked(events, options)).await
    }

    /// Whoever follows a topic takes what its snapshot says for the states of its keys.
    async fn keep_out_of_snapshots(&self, events: &[NewEvent]) -> Result<(), PublishError> {
        for topic in events.iter().map(|event| &event.topic) {
            if snapshot::is_kept(self, topic).await.map_err(PublishError::Snapshots)? {
                return Err(PublishError::System(topic.clone()));
            }
        }
        Ok(())
    }

    async fn place_checked(
        &self,
        events: Vec<NewEvent>,
        options: PublishOptions,
    ) -> Result<Appended, PublishError> {
        let stopped = match self.checked(&events, &KnownStamps::new()).await {
            Ok(None) => return self.append(events, options).await,
            Ok(Some(checked)) if !checked.has_stamps() => {
                return self.append(checked.apply(events), options).await;
            }
            Ok(Some(checked)) => {
                match self.append(checked.apply(events.clone()), options.clone()).await {
                    Err(error @ PublishError::Append(AppendError::IdConflict { .. })) => error,
                    done => return done,
                }
            }
            Err(error @ PublishError::Refused(_)) => error,
            Err(error) => return Err(error),
        };
        // An event without a version may have been stored before, by a version that is not the
        // latest any more: then it still is what it was.
        let known = self.known_stamps(&events).await?;
        if known.is_empty() {
            return Err(self.counted(stopped));
        }
        match self.checked(&events, &known).await.map_err(|error| self.counted(error))? {
            Some(checked) => self.append(checked.apply(events), options).await,
            None => self.append(events, options).await,
        }
    }

    async fn checked(
        &self,
        events: &[NewEvent],
        known: &KnownStamps,
    ) -> Result<Option<Checked>, PublishError> {
        let schemas = &self.inner.groups.site().schemas;
        let checked = schemas.check(events, known).await.map_err(PublishError::Schemas)?;
        match checked.as_ref().and_then(Checked::refusal) {
            Some(refusal) => Err(PublishError::Refused(Box::new(refusal))),
            None => Ok(checked),
        }
    }

    fn counted(&self, error: PublishError) -> PublishError {
        if let PublishError::Refused(refusal) = &error {
            self.inner.groups.site().schemas.count_refused(refusal);
        }
        error
    }

    /// Appends events that were checked.
    async fn append(
        &self,
        events: Vec<NewEvent>,
        options: PublishOptions,
    ) -> Result<Appended, PublishError> {
        let topics = self.inner.store.topics();
        if events.iter().any(|event| topics.get(&event.topic).is_none()) {
            Box::pin(self.make_topics(&events)).await?;
        }
        drop(topics);
        let PublishOptions { durability, expect } = options;
        let appended = self.inner.store.append(Append { events, durability, expect }).await?;
        self.count(std::iter::once(&appended));
        Ok(appended)
    }

    /// The versions of events that are stored already, and do not say one here.
    async fn known_stamps(&self, events: &[NewEvent]) -> Result<KnownStamps, PublishError> {
        let topics = self.topics();
        let mut known = KnownStamps::new();
        for event in events.iter().filter(|event| event.headers.get(SCHEMA_VERSION).is_none()) {
            let Some(entry) = topics.get(&event.topic) else { continue };
            let stored = self.inner.store.find(entry.id, event.id).await;
            let stored = stored.map_err(PublishError::Schemas)?;
            let same = stored.filter(|stored| stored.event.payload == event.payload);
            let version = same.and_then(|stored| {
                stored.event.headers.get(SCHEMA_VERSION).and_then(crate::decode::parse_version)
            });
            if let Some(version) = version {
                known.insert((event.topic.clone(), event.id), version);
            }
        }
        Ok(known)
    }

    /// Makes the topics that are not there, as the options say. A topic of copies is like the one
    /// that they are copied from, so that keys stay in their partitions.
    async fn make_topics(&self, events: &[NewEvent]) -> Result<(), PublishError> {
        let topics = self.inner.store.topics();
        // All of them first: a batch that is refused makes no topic.
        for event in events {
            if topics.get(&event.topic).is_some() {
                continue;
            }
            if event.headers.get(DUAL_OF).is_some() && self.make_copy_topic(&event.topic).await? {
                continue;
            }
            let UnknownTopics::Make(partitions) = self.inner.options.unknown_topics else {
                return Err(PublishError::UnknownTopic(event.topic.clone()));
            };
            let topic = event.topic.clone();
            let definition = TopicDefinition { partitions, ..TopicDefinition::new(topic.clone()) };
            let known = self.inner.store.topics();
            if known.get(&topic).is_none() {
                let max = self.inner.options.topics_max;
                if known.users().count() >= max {
                    let source = SaveError::TooManyTopics(max);
                    return Err(PublishError::Define { topic, source });
                }
                let defined = self.inner.store.define(definition).await;
                defined.map_err(|source| PublishError::Define { topic, source })?;
            }
        }
        Ok(())
    }

    async fn make_copy_topic(&self, topic: &Topic) -> Result<bool, PublishError> {
        let Some((of, version)) = crate::registry::versioned(topic) else {
            return Ok(false);
        };
        // Only what the topic's policy asks for: a header is soon written.
        let catalog = self.inner.groups.site().schemas.seen();
        let found = catalog.and_then(|catalog| catalog.find(topic).ok().flatten());
        if !found.is_some_and(|found| found.subject.policy.dual_write.contains(&version)) {
            return Ok(false);
        }
        let table = self.inner.store.topics();
        let Some(like) = table.get(&of) else {
            return Ok(false);
        };
        let definition = TopicDefinition { topic: topic.clone(), ..like.definition.clone() };
        let defined = self.inner.store.define(definition).await;
        defined.map_err(|source| PublishError::Define { topic: topic.clone(), source })?;
        Ok(true)
    }
}

/// What every event has to pass, wherever it goes.
pub(crate) fn admit(events: &mut [NewEvent], marks: Marks) -> Result<(), PublishError> {
    for event in events {
        event.check()?;
        if event.topic.is_system() {
            return Err(PublishError::System(event.topic.clone()));
        }
        if marks == Marks::TakenOff && !event.headers.is_empty() {
            MARKS.iter().for_each(|mark| event.headers.remove(mark));
        }
    }
    Ok(())
}

/// What is asked for of events once they are in the hands of the store.
type Names = Vec<(EventId, Topic)>;

fn names_of(events: &[NewEvent]) -> Names {
    events.iter().map(|event| (event.id, event.topic.clone())).collect()
}

/// The events of a batch that was stored.
fn all_published(names: Names, appended: &Appended) -> Vec<Published> {
    let placed = names.into_iter().zip(&appended.receipts);
    placed.map(|(name, receipt)| published(name, *receipt, appended)).collect()
}

fn published((id, topic): (EventId, Topic), receipt: Receipt, appended: &Appended) -> Published {
    Published {
        id,
        topic,
        partition: receipt.lane.partition,
        offset: receipt.offset,
        duplicate: receipt.duplicate,
        appended_at: appended.appended_at,
        durability: appended.durability,
    }
}
