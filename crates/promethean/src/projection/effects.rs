//! What a projection appends to the log: emitted events and dead letters, before the commit that
//! goes with them. Their ids are made of where their causes stand, so that a second run adds
//! nothing.

use std::collections::{HashMap, HashSet};

use promethean_delivery::Reason;
use promethean_delivery::dead_letter::{
    DeadLetterRecord, Origin, bounded_error, dead_letter_topic, fingerprint,
};
use promethean_event::{EventId, GroupName, NewEvent, Offset};

use super::digest::{Emitted, GivenUp};
use super::error::ProjectionError;
use super::limits::APPEND_EVENTS;
use crate::bus::Bus;
use crate::dead_letter::DeadEvent;
use crate::error::PublishError;
use crate::store::{Append, AppendError, Lane, TopicDefinition};

/// Appends for a projection.
#[derive(Debug)]
pub(crate) struct Effects {
    bus: Bus,
    group: GroupName,
    voice: Voice,
}

/// What is appended for a batch.
#[derive(Debug, Default)]
pub(crate) struct Voiced {
    emitted: Vec<NewEvent>,
    given_up: Vec<GivenUp>,
}

impl Voiced {
    pub(crate) const fn is_empty(&self) -> bool {
        self.emitted.is_empty() && self.given_up.is_empty()
    }
}

/// For which events anything is appended.
#[derive(Debug, Clone)]
pub(crate) enum Voice {
    /// From these offsets on; for those before it has been done.
    From(HashMap<Lane, Offset>),
    /// For none.
    Silent,
}

impl Voice {
    fn speaks(&self, lane: Lane, offset: Offset) -> bool {
        match self {
            Self::From(offsets) => offsets.get(&lane).is_none_or(|&from| offset >= from),
            Self::Silent => false,
        }
    }
}

impl Effects {
    pub(crate) const fn new(bus: Bus, group: GroupName, voice: Voice) -> Self {
        Self { bus, group, voice }
    }

    pub(crate) const fn is_silent(&self) -> bool {
        matches!(self.voice, Voice::Silent)
    }

    /// What has to be appended.
    pub(crate) fn voiced(&self, emitted: Vec<Emitted>, given_up: Vec<GivenUp>) -> Voiced {
        let (voice, mut voiced) = (&self.voice, Voiced::default());
        let emitted = emitted.into_iter().filter(|cause| voice.speaks(cause.lane, cause.offset));
        voiced.emitted = emitted.map(|emitted| emitted.event).collect();
        voiced.given_up = given_up;
        voiced.given_up.retain(|given| voice.speaks(given.lane, given.stored.event.offset));
        voiced
    }

    pub(crate) async fn append(&self, voiced: &Voiced) -> Result<(), ProjectionError> {
        let mut letters = Vec::new();
        for given_up in &voiced.given_up {
            letters.extend(self.letter(given_up).await?);
        }
        for events in voiced.emitted.chunks(APPEND_EVENTS) {
            self.publish(events.to_vec()).await?;
        }
        for events in letters.chunks(APPEND_EVENTS) {
            self.keep(events.to_vec()).await?;
        }
        Ok(())
    }

    async fn publish(&self, mut events: Vec<NewEvent>) -> Result<(), ProjectionError> {
        let mut known = HashSet::new();
        while !events.is_empty() {
            match self.bus.publish_batch(events.clone()).await {
                Ok(_) => return Ok(()),
                Err(PublishError::Append(AppendError::IdConflict { id, .. }))
                    if known.insert(id) =>
                {
                    self.note_conflict(id);
                    events.retain(|event| event.id != id);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// What was appended cannot be taken back: the first run has spoken.
    fn note_conflict(&self, id: EventId) {
        tracing::warn!(
            projection = %self.group, %id,
            "emitted otherwise when it was done before; the first one stands"
        );
    }

    async fn keep(&self, mut letters: Vec<NewEvent>) -> Result<(), ProjectionError> {
        while !letters.is_empty() {
            let append = Append { events: letters.clone(), ..Append::default() };
            match self.bus.store().append(append).await {
                Ok(_) => return Ok(()),
                // Only the time differs.
                Err(AppendError::IdConflict { id, .. }) => letters.retain(|event| event.id != id),
                Err(error) => return Err(PublishError::Append(error).into()),
            }
        }
        Ok(())
    }

    async fn letter(&self, given_up: &GivenUp) -> Result<Option<NewEvent>, ProjectionError> {
        let event = &given_up.stored.event;
        let topic = match dead_letter_topic(&event.topic) {
            Ok(topic) => topic,
            Err(error) => {
                let offset = event.offset.get();
                tracing::warn!(projection = %self.group, offset, %error, "given up without a copy");
                return Ok(None);
            }
        };
        if self.bus.topics().get(&topic).is_none() {
            let defined = self.bus.store().define(TopicDefinition::new(topic.clone())).await;
            defined.map_err(|source| PublishError::Define { topic: topic.clone(), source })?;
        }
        let origin = Origin {
            group: self.group.clone(),
            topic: event.topic.clone(),
            partition: event.partition,
            offset: event.offset,
        };
        let redact = self.bus.inner.options.redactor();
        let error = bounded_error(&redact(bounded_error(&given_up.error)));
        let record = DeadLetterRecord {
            id: origin.id_of(0, 0, 0),
            origin,
            attempts: 1,
            times: Vec::new(),
            fingerprint: fingerprint(&error),
            error,
            round: 0,
        };
        let now = self.bus.inner.groups.site().clock.now();
        let letter = DeadEvent { record: &record, reason: Reason::Permanent, topic, now };
        Ok(Some(letter.with(Some(&given_up.stored))))
    }
}
