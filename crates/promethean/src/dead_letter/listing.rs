use std::collections::HashMap;

use promethean_event::{DeadLetter, DeadLetterQuery, DeadLetterState, EventId, Key, Topic};
use serde::{Deserialize, Serialize};

use super::letter::DeadLetterEntry;
use crate::bus::Bus;
use crate::error::{GroupError, PublishError};
use crate::limits::LIST_EVENTS_MAX;
use crate::store::{PageLimit, Put, Read, ReadError, SaveError, TopicEntry};

/// Where it is kept what became of dead letters.
const SPACE: &str = "dead-letters";

/// Whether a query is about a dead letter.
fn wants(query: &DeadLetterQuery, entry: &DeadLetterEntry) -> bool {
    let letter = &entry.letter;
    query.topics.as_ref().is_none_or(|topics| topics.matches(&letter.topic))
        && query.group.as_ref().is_none_or(|group| *group == letter.group)
        && query.fingerprint.as_ref().is_none_or(|kind| letter.fingerprint.starts_with(kind))
        && (query.ids.is_empty() || query.ids.contains(&entry.id))
        && query.state.is_none_or(|state| state == entry.state)
}

/// Why dead letters were not listed, replayed or discarded.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum DeadLetterError {
    /// No such dead letter.
    #[error("there is no dead letter {0}")]
    Unknown(EventId),
    /// It has been dealt with.
    #[error("dead letter {id} was {state:?} already")]
    NotWaiting {
        /// The dead letter.
        id: EventId,
        /// What became of it.
        state: DeadLetterState,
    },
    /// The group could not take it.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// It could not be published again.
    #[error(transparent)]
    Publish(#[from] PublishError),
    /// The store could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// What became of it could not be kept.
    #[error(transparent)]
    Save(#[from] SaveError),
}

/// What is kept about a dead letter that does not wait any more.
#[derive(Serialize, Deserialize)]
struct Fate {
    state: DeadLetterState,
}

/// Some dead letters.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeadLetterPage {
    /// The dead letters.
    pub letters: Vec<DeadLetterEntry>,
    /// Whether there may be more after the last of them.
    pub more: bool,
}

impl Bus {
    /// Dead letters, oldest first by topic.
    pub async fn dead_letters(
        &self,
        query: &DeadLetterQuery,
    ) -> Result<Vec<DeadLetterEntry>, DeadLetterError> {
        Ok(self.dead_letter_page(query, usize::MAX).await?.letters)
    }

    /// The same, and no more than about so many bytes of them; one at least.
    pub async fn dead_letter_page(
        &self,
        query: &DeadLetterQuery,
        bytes_max: usize,
    ) -> Result<DeadLetterPage, DeadLetterError> {
        let max = if query.max == 0 { LIST_EVENTS_MAX } else { query.max.min(LIST_EVENTS_MAX) };
        let fates = self.fates().await?;
        let topics = self.topics();
        let (mut letters, mut bytes) = (Vec::new(), 0);
        let mut more = false;
        let mut ahead = query.after;
        let dead = topics.users().filter(|entry| is_dead(&entry.definition.topic));
        for entry in dead {
            self.letters_of(entry, &fates, &mut |letter, size| {
                if ahead.is_some() {
                    ahead.take_if(|last| *last == letter.id);
                } else if wants(query, &letter) {
                    letters.push(letter);
                    bytes += size;
                }
                more = letters.len() >= max || bytes >= bytes_max;
                !more
            })
            .await?;
            if more {
                break;
            }
        }
        Ok(DeadLetterPage { letters, more })
    }

    async fn fates(&self) -> Result<HashMap<String, DeadLetterState>, ReadError> {
        let entries = self.inner.store.entries(SPACE).await?;
        let known = entries.into_iter().filter_map(|entry| {
            let fate: Fate = entry.value.decode().ok()?;
            Some((entry.key.as_str().to_owned(), fate.state))
        });
        Ok(known.collect())
    }

    /// Shows the letters of one topic, each with its bytes, until `show` has seen enough.
    async fn letters_of(
        &self,
        topic: &TopicEntry,
        fates: &HashMap<String, DeadLetterState>,
        show: &mut (impl FnMut(DeadLetterEntry, usize) -> bool + Send),
    ) -> Result<(), ReadError> {
        for lane in topic.lanes() {
            let end = self.inner.store.bounds(lane).await?.next;
            let mut from = self.inner.store.bounds(lane).await?.start;
            while from < end {
                let read = Read::From { lane, from, limit: PageLimit::default() };
                let page = self.inner.store.read(read).await?;
                for stored in page.events {
                    let letter = DeadLetter::of(&stored.event).filter(|it| is_of(it, topic));
                    let Some(letter) = letter else {
                        let id = stored.event.id;
                        tracing::warn!(%id, topic = %topic.definition.topic, "not a dead letter");
                        continue;
                    };
                    let id = stored.event.id;
                    let fate = fates.get(&id.to_string()).copied();
                    let state = fate.unwrap_or(DeadLetterState::Waiting);
                    let bytes = stored.event.payload.as_bytes().len();
                    let offset = stored.event.offset;
                    if !show(DeadLetterEntry { id, offset, letter, state }, bytes) {
                        return Ok(());
                    }
                }
                if page.next == from {
                    break;
                }
                from = page.next;
            }
        }
        Ok(())
    }

    /// Keeps what became of a dead letter.
    pub(super) async fn settle_letter(
        &self,
        id: EventId,
        state: DeadLetterState,
    ) -> Result<(), SaveError> {
        let (Ok(key), Ok(value)) =
            (Key::new(id.to_string()), promethean_event::Payload::of(&Fate { state }))
        else {
            // An id is always good as a key, and plain fields have a JSON form.
            return Ok(());
        };
        let put = Put { space: SPACE, key, value: Some(value), expect: None };
        self.inner.store.put(vec![put]).await
    }

    pub(super) async fn waiting_letter(
        &self,
        id: EventId,
    ) -> Result<DeadLetterEntry, DeadLetterError> {
        let query = DeadLetterQuery::default().id(id);
        let entry = self.dead_letters(&query).await?.into_iter().next();
        let entry = entry.ok_or(DeadLetterError::Unknown(id))?;
        match entry.state {
            DeadLetterState::Waiting => Ok(entry),
            state => Err(DeadLetterError::NotWaiting { id, state }),
        }
    }
}

/// Whether a letter belongs where it is. One that somebody has published elsewhere would be replayed
/// into a topic that he may not write.
fn is_of(letter: &DeadLetter, topic: &TopicEntry) -> bool {
    let own = promethean_delivery::dead_letter::dead_letter_topic(&letter.topic);
    own.is_ok_and(|own| own == topic.definition.topic)
        && letter.original.as_ref().is_none_or(|event| event.topic == letter.topic)
}

fn is_dead(topic: &Topic) -> bool {
    promethean_delivery::dead_letter::is_dead_letter_topic(topic)
}
