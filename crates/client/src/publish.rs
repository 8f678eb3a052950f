//! The way out: check, give a turn, send until it is answered.

use std::future::IntoFuture;

use futures_core::future::BoxFuture;
use promethean_event::{
    EventId, NewEvent, Offset, Partition, SessionId, Tag, Timestamp, ToEvent, Topic,
};
use serde::Deserialize;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::bus::Bus;
use crate::error::{ConnectError, PublishError};
use crate::limits::{BATCH_EVENTS_MAX, PUBLISHES_KIB_MAX};
use crate::link::Command;
use crate::machine::{Place, PublishWish, events_of};

/// How far an event has travelled when its publish is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Deserialize)]
#[serde(from = "String")]
pub enum Durability {
    /// It has a place; a crash of the server may lose it. What a newer server calls otherwise
    /// counts as this.
    None,
    /// It is with the operating system; a crash of the server does not lose it, a power cut may.
    Written,
    /// It is on a disk: a power cut does not lose it. What every topic has that asks for nothing
    /// else.
    #[default]
    Synced,
}

impl From<String> for Durability {
    fn from(said: String) -> Self {
        match said.as_str() {
            "synced" => Self::Synced,
            "written" => Self::Written,
            _ => Self::None,
        }
    }
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
    /// Whether it had been there already, so that nothing was added. After a lost answer that was
    /// asked for again, this is the event itself.
    pub duplicate: bool,
    /// How far it had travelled, which is less than a disk only where its topic asks for less.
    pub durability: Durability,
}

/// A publish on its way: more may be said about the event before it is awaited.
#[must_use = "nothing is published unless this is awaited"]
#[derive(Debug)]
pub struct Publish {
    bus: Bus,
    event: Result<NewEvent, PublishError>,
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
}

impl IntoFuture for Publish {
    type Output = Result<Published, PublishError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let published = self.bus.publish_batch(vec![self.event?]).await?;
            published.into_iter().next().ok_or(PublishError::Count(0))
        })
    }
}

impl Bus {
    /// Publishes one event. Answered when it is durable.
    pub fn publish(&self, event: impl ToEvent) -> Publish {
        let event = event.to_event(self.inner.clock.now()).map_err(PublishError::from);
        Publish { bus: self.clone(), event }
    }

    /// Publishes events of any number of topics: all of them or none.
    pub async fn publish_batch(
        &self,
        events: Vec<NewEvent>,
    ) -> Result<Vec<Published>, PublishError> {
        let Some(first) = events.first().filter(|_| events.len() <= BATCH_EVENTS_MAX) else {
            return Err(PublishError::Count(events.len()));
        };
        let id = first.id;
        for event in &events {
            event.check()?;
        }
        let text = events_of(&events);
        let topics: Vec<Topic> = events.into_iter().map(|event| event.topic).collect();
        let places = self.hand_over(id, text).await?;
        Ok(receipts(topics, places))
    }

    async fn hand_over(&self, id: EventId, events: String) -> Result<Vec<Place>, PublishError> {
        let inner = &self.inner;
        // What is too large for all of them is too large for a frame, which is found out later.
        let kib = (events.len() / 1024 + 1).min(PUBLISHES_KIB_MAX) as u32;
        let turn = async {
            let one = inner.publishes.acquire().await;
            let many = inner.publish_kib.acquire_many(kib).await;
            (one, many)
        };
        // Kept until the answer: what waits here is bounded.
        let turn = timeout(inner.publish_timeout, turn).await;
        let _turn = turn.map_err(|_| PublishError::NotSent)?;
        let deadline_ms = inner.clock.now_ms() + inner.publish_timeout.as_millis() as u64;
        let (answer, answered) = oneshot::channel();
        inner.link.say(Command::Publish(PublishWish { events, id, deadline_ms }, answer));
        answered.await.unwrap_or(Err(ConnectError::Closed.into()))
    }
}

fn receipts(topics: Vec<Topic>, places: Vec<Place>) -> Vec<Published> {
    let placed = topics.into_iter().zip(places);
    placed
        .map(|(topic, place)| Published {
            id: place.id,
            topic,
            partition: place.partition,
            offset: place.offset,
            duplicate: place.duplicate,
            durability: place.durability,
        })
        .collect()
}
