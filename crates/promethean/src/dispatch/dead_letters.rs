use std::sync::Arc;

use promethean_delivery::DeadLetter;
use promethean_delivery::dead_letter::{DeadLetterRecord, Origin, dead_letter_topic};
use promethean_event::{NewEvent, Offset, Topic};

use super::active::ActiveGroup;
use crate::dead_letter;
use crate::store::{Lane, Stored, TopicDefinition, event_at};

impl ActiveGroup {
    /// The events that stand for what a group gave up. What fails in a topic of dead letters stays
    /// there and gets no copy: there is no `dlq.dlq.`. Each with the lane that it comes from.
    pub(super) async fn write_dead_letters(
        self: &Arc<Self>,
        letters: &[DeadLetter],
    ) -> (Vec<Lane>, Vec<NewEvent>) {
        let mut lanes = Vec::with_capacity(letters.len());
        let mut events = Vec::with_capacity(letters.len());
        for letter in letters {
            let lane = Lane::of(letter.lane);
            let Some(name) = self.topic_of(lane) else {
                tracing::warn!(group = %self.name, ?lane, "dead letter of a topic that is gone");
                continue;
            };
            let topic = match dead_letter_topic(&name) {
                Ok(topic) => topic,
                Err(error) => {
                    let offset = letter.offset;
                    tracing::warn!(group = %self.name, offset, %error, "given up without a copy");
                    continue;
                }
            };
            let origin = Origin {
                group: self.name.clone(),
                topic: name,
                partition: lane.partition,
                offset: Offset::new(letter.offset),
            };
            let original = self.original(lane, letter.offset).await;
            let record = DeadLetterRecord::new(origin, letter, |text| (self.site.redact)(text));
            let now = self.site.clock.now();
            let made =
                dead_letter::DeadEvent { record: &record, reason: letter.reason, topic, now };
            lanes.push(lane);
            events.push(made.with(original.as_ref()));
        }
        self.define_dead_letter_topics(&events).await;
        (lanes, events)
    }

    fn topic_of(&self, lane: Lane) -> Option<Topic> {
        let topics = self.site.store.topics();
        topics.by_id(lane.topic).map(|entry| entry.definition.topic.clone())
    }

    pub(super) async fn define_dead_letter_topics(&self, letters: &[NewEvent]) {
        for letter in letters {
            if self.site.store.topics().get(&letter.topic).is_some() {
                continue;
            }
            let definition = TopicDefinition::new(letter.topic.clone());
            if let Err(error) = self.site.store.define(definition).await {
                // The save that follows fails for the same reason, and is made again.
                tracing::warn!(topic = %letter.topic, %error, "no topic for dead letters");
            }
        }
    }

    /// The event as it was; `None` if it is not there any more.
    async fn original(&self, lane: Lane, offset: u64) -> Option<Stored> {
        event_at(&*self.site.store, lane, Offset::new(offset)).await.unwrap_or_else(|error| {
            tracing::warn!(group = %self.name, offset, %error, "dead letter without its event");
            None
        })
    }
}
