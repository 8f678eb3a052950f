//! A key as it was: the fold of its own history up to a moment. Other keys are not looked at.

use promethean_event::{Event, Key, Offset, Partition, Payload, Timestamp, Topic};

use crate::bus::Bus;
use crate::snapshot::{Before, Kept, kept_before};
use crate::store::{KeyQuery, Lane, ReadError, Stored, TopicDefinition, TopicEntry};

/// Events of one key that are folded at most. More is an error, never a cut.
pub const AS_OF_EVENTS_MAX: usize = 100_000;
/// Events of a key that are read first; if they do not reach back far enough, more are.
const HISTORY_FIRST: usize = 16;

/// An earlier moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// What the store had taken by then: what was known. Later events change nothing of it.
    Appended(Timestamp),
    /// What had happened by then, by event time, as it is known today: a late event changes it.
    /// Events of the same time count in the order of their offsets.
    Happened(Timestamp),
    /// Up to this offset of the key's partition, and with it.
    Offset(Offset),
}

/// A key at a moment.
#[derive(Debug, Clone, PartialEq)]
pub enum AsOf<T> {
    /// It had this state.
    State {
        /// The state.
        value: T,
        /// The last event that made it so.
        event: Box<Stored>,
        /// False if events between this one and the moment may have been compacted away.
        is_complete: bool,
    },
    /// It had been deleted.
    Deleted {
        /// By this event.
        event: Box<Stored>,
        /// As above.
        is_complete: bool,
    },
    /// It had never been there.
    NeverExisted,
    /// Nothing from before the moment is kept: what there was has expired or was compacted.
    BeforeHistory {
        /// The first event of the key that is kept, if there is one.
        first: Option<Box<Stored>>,
        /// The first offset of its partition that is kept.
        starts_at: Offset,
        /// That partition.
        partition: Partition,
    },
}

/// Why there is no answer.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum AsOfError {
    /// The store could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The key has more events than are folded.
    #[error(
        "the key has more than {AS_OF_EVENTS_MAX} events up to there; read its history instead"
    )]
    TooManyEvents,
    /// The reducer failed.
    #[error("event {offset} of the key could not be folded: {error}")]
    Reducer {
        /// Where it stands.
        offset: Offset,
        /// What the reducer said.
        error: String,
    },
}

/// What of a key's history counts.
pub(crate) struct History {
    /// Newest first.
    pub(crate) events: Vec<Stored>,
    /// Whether that is all there is of the key.
    pub(crate) is_whole: bool,
}

/// A key of a topic, and what is known about its partition.
pub(crate) struct Subject {
    pub(crate) entry: TopicEntry,
    pub(crate) lane: Lane,
    pub(crate) key: Key,
    start: Offset,
    /// The offset after the last one that counts.
    pub(crate) end: Offset,
    /// The same, for what the topic's snapshot has.
    before: Before,
    /// Everything that was appended after this may not have been compacted yet.
    compacted_until: Option<Timestamp>,
}

impl Subject {
    /// Whether some of the key's events may not be there any more.
    pub(crate) fn may_be_gone(&self) -> bool {
        self.start > Offset::ZERO || self.compacted_until.is_some()
    }
}

impl Bus {
    /// A key as it was, in a topic whose events are whole states. What the topic has lost is taken
    /// from its snapshot, if it has one: `event` is then that of the snapshot.
    pub async fn as_of(
        &self,
        topic: &Topic,
        key: &Key,
        moment: Moment,
    ) -> Result<AsOf<Payload>, AsOfError> {
        let subject = self.subject(topic, key, moment).await?;
        if let Moment::Happened(time) = moment {
            let mut events = self.whole_history(&subject).await?.events;
            events.retain(|stored| stored.event.ts <= time);
            events.sort_by_key(|stored| (stored.event.ts, stored.event.offset));
            let newest = events.pop();
            return self.answer(&subject, newest, |stored| stored.event.payload.clone()).await;
        }
        let mut max = HISTORY_FIRST;
        loop {
            let history = self.history_of(&subject, max).await?;
            let found = history.events.into_iter().find(|s| s.event.offset < subject.end);
            if found.is_none()
                && history.is_whole
                && let Some(Kept { stored, is_complete, .. }) = self.kept(&subject).await?
            {
                let value = stored.event.payload.clone();
                return Ok(state_of(stored, value, is_complete));
            }
            if found.is_some() || history.is_whole {
                return self.answer(&subject, found, |stored| stored.event.payload.clone()).await;
            }
            if max == AS_OF_EVENTS_MAX {
                return Err(AsOfError::TooManyEvents);
            }
            max = max.saturating_mul(8).min(AS_OF_EVENTS_MAX);
        }
    }

    /// A key as it was, in a topic whose events are folded: from nothing, oldest first. The state
    /// is `None` where the key is deleted.
    pub async fn as_of_with<T: Clone>(
        &self,
        topic: &Topic,
        key: &Key,
        moment: Moment,
        reduce: impl Fn(Option<T>, &Event) -> Result<Option<T>, String>,
    ) -> Result<AsOf<T>, AsOfError> {
        Ok(self.as_of_folded(topic, key, moment, reduce).await?.0)
    }

    /// The same, with the events that it was folded from, in their order.
    pub async fn as_of_folded<T: Clone>(
        &self,
        topic: &Topic,
        key: &Key,
        moment: Moment,
        reduce: impl Fn(Option<T>, &Event) -> Result<Option<T>, String>,
    ) -> Result<(AsOf<T>, Vec<Stored>), AsOfError> {
        let subject = self.subject(topic, key, moment).await?;
        let mut events = self.whole_history(&subject).await?.events;
        match moment {
            Moment::Happened(time) => {
                events.retain(|stored| stored.event.ts <= time);
                events.sort_by_key(|stored| (stored.event.ts, stored.event.offset));
            }
            _ => {
                events.retain(|stored| stored.event.offset < subject.end);
                events.reverse();
            }
        }
        let mut state = None;
        for stored in &events {
            state = reduce(state, &stored.event)
                .map_err(|error| AsOfError::Reducer { offset: stored.event.offset, error })?;
        }
        // A fold is whole only if nothing can have been taken from it.
        let is_complete = subject.compacted_until.is_none() && subject.start == Offset::ZERO;
        let last = events.last().cloned().map(Box::new);
        let folded = match (state, last) {
            (Some(value), Some(event)) => AsOf::State { value, event, is_complete },
            (None, Some(event)) => AsOf::Deleted { event, is_complete },
            (_, None) => self.nothing(&subject).await?,
        };
        Ok((folded, events))
    }

    /// The nearest state of a key before the end that its topic's snapshot has, where the topic
    /// itself may have lost it.
    pub(crate) async fn kept(&self, subject: &Subject) -> Result<Option<Kept>, ReadError> {
        if !subject.may_be_gone() {
            return Ok(None);
        }
        let is_compacted = subject.compacted_until.is_some();
        let needed = if is_compacted { subject.end } else { subject.end.min(subject.start) };
        kept_before(self, &subject.entry, &subject.key, (subject.before, needed)).await
    }

    /// All keys of a topic as they were, by key, after a key; no more than so many. Keys that had
    /// never been there are left out. The answer says after which key to go on.
    pub async fn as_of_all(
        &self,
        topic: &Topic,
        moment: Moment,
        after: Option<Key>,
        max: usize,
    ) -> Result<(Vec<(Key, AsOf<Payload>)>, Option<Key>), AsOfError> {
        let topics = self.topics();
        let entry = topics.get(topic).ok_or(ReadError::UnknownLane)?;
        let query = KeyQuery { topic: entry.id, prefix: String::new(), after, max: max.max(1) };
        let page = self.inner.store.keys(query).await?;
        let last = page.events.last().and_then(|stored| stored.event.key.clone());
        let mut found = Vec::with_capacity(page.events.len());
        let mut ends = EndCache::default();
        for newest in page.events {
            let Some(key) = newest.event.key.clone() else { continue };
            let lane = Lane { topic: entry.id, partition: newest.event.partition };
            let end = ends.end(self, lane, moment).await?;
            // Most keys have not changed since: then the newest event is the answer.
            let answer = match end {
                Some(end) if newest.event.offset < end => {
                    let value = newest.event.payload.clone();
                    state_of(newest, value, true)
                }
                _ => self.as_of(topic, &key, moment).await?,
            };
            if answer != AsOf::NeverExisted {
                found.push((key, answer));
            }
        }
        Ok((found, last.filter(|_| page.more)))
    }

    pub(crate) async fn subject(
        &self,
        topic: &Topic,
        key: &Key,
        moment: Moment,
    ) -> Result<Subject, AsOfError> {
        let topics = self.topics();
        let entry = topics.get(topic).ok_or(ReadError::UnknownLane)?.clone();
        let any = promethean_event::EventId::from_bytes([0; 16]);
        let partition: Partition = entry.definition.partitions.partition_of(Some(key), &any);
        let lane = Lane { topic: entry.id, partition };
        let bounds = self.inner.store.bounds(lane).await?;
        let end = self.end_at(lane, moment).await?.unwrap_or(bounds.next);
        if end > bounds.next {
            return Err(ReadError::BeyondEnd { wanted: end, next: bounds.next }.into());
        }
        let compacted_until = self.compacted_until(&entry.definition);
        let key = key.clone();
        let before = Before::new(moment, end, bounds.start);
        Ok(Subject { entry, lane, key, start: bounds.start, end, before, compacted_until })
    }

    /// Everything that was appended after this has not been compacted yet; `None` if nothing is.
    pub(crate) fn compacted_until(&self, definition: &TopicDefinition) -> Option<Timestamp> {
        let now = self.inner.groups.site().clock.now();
        let before = |age_ms| Timestamp::from_millis(now.millis().saturating_sub(age_ms));
        definition.cleaning.compaction.map(|compaction| before(compaction.age_ms_min))
    }

    /// A time becomes a place once, and only places are compared: two events of one millisecond
    /// are never counted twice or half.
    pub(crate) async fn end_at(
        &self,
        lane: Lane,
        moment: Moment,
    ) -> Result<Option<Offset>, ReadError> {
        Ok(match moment {
            Moment::Appended(time) => {
                Some(self.inner.store.offset_at(lane, time.plus_millis(1)).await?)
            }
            Moment::Offset(offset) => Some(offset.next()),
            Moment::Happened(_) => None,
        })
    }

    pub(crate) async fn history_of(
        &self,
        subject: &Subject,
        max: usize,
    ) -> Result<History, ReadError> {
        let key = subject.key.clone();
        let events = self.inner.store.history(subject.entry.id, key, max).await?;
        Ok(History { is_whole: events.len() < max, events })
    }

    pub(crate) async fn whole_history(&self, subject: &Subject) -> Result<History, AsOfError> {
        let history = self.history_of(subject, AS_OF_EVENTS_MAX + 1).await?;
        if history.is_whole { Ok(history) } else { Err(AsOfError::TooManyEvents) }
    }

    async fn answer(
        &self,
        subject: &Subject,
        found: Option<Stored>,
        value: impl Fn(&Stored) -> Payload,
    ) -> Result<AsOf<Payload>, AsOfError> {
        let Some(stored) = found else {
            return self.nothing(subject).await;
        };
        let is_complete = self.is_complete(subject, &stored).await?;
        let value = value(&stored);
        Ok(state_of(stored, value, is_complete))
    }

    /// Whether nothing that came after an event and before the moment can have been compacted.
    pub(crate) async fn is_complete(
        &self,
        subject: &Subject,
        stored: &Stored,
    ) -> Result<bool, ReadError> {
        Ok(match subject.compacted_until {
            None => true,
            // Too young, and so is what came after it.
            Some(until) if stored.appended_at > until => true,
            // Nothing came after it that could have been compacted.
            Some(_) => {
                let newest = self.history_of(subject, 1).await?.events;
                newest.first().is_some_and(|newest| newest.event.offset == stored.event.offset)
            }
        })
    }

    /// Nothing of the key from before the moment is there: because it was not, or not any more?
    pub(crate) async fn nothing<T>(&self, subject: &Subject) -> Result<AsOf<T>, AsOfError> {
        if subject.end == Offset::ZERO || !subject.may_be_gone() {
            return Ok(AsOf::NeverExisted);
        }
        let history = self.whole_history(subject).await?;
        let first = history.events.into_iter().next_back().map(Box::new);
        let partition = subject.lane.partition;
        Ok(AsOf::BeforeHistory { first, starts_at: subject.start, partition })
    }
}

fn state_of(stored: Stored, value: Payload, is_complete: bool) -> AsOf<Payload> {
    let is_deletion = stored.event.payload.is_tombstone();
    let event = Box::new(stored);
    match is_deletion {
        true => AsOf::Deleted { event, is_complete },
        false => AsOf::State { value, event, is_complete },
    }
}

/// Where partitions ended at a moment, looked up once each.
#[derive(Default)]
pub(crate) struct EndCache(std::collections::HashMap<Lane, Option<Offset>>);

impl EndCache {
    pub(crate) async fn end(
        &mut self,
        bus: &Bus,
        lane: Lane,
        moment: Moment,
    ) -> Result<Option<Offset>, ReadError> {
        if let Some(&end) = self.0.get(&lane) {
            return Ok(end);
        }
        let end = bus.end_at(lane, moment).await?;
        self.0.insert(lane, end);
        Ok(end)
    }
}
