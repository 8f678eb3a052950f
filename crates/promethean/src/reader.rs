//! Looking at events in the form of a version: replay, look-ups, keys, dead letters.

use promethean_event::{Event, EventId, Key, Offset, Partition, Replay, Topic};

use crate::bus::Bus;
use crate::dead_letter::{DeadLetterEntry, DeadLetterError, DeadLetterQuery};
use crate::decode::{DecodeError, Reads, Want};
use crate::error::GroupError;
use crate::reading::{Replayed, Replaying};
use crate::store::{Gap, PageLimit, ReadError, Stored};

/// Looks at events in the form of a version. A cheap handle.
///
/// Events come one by one as what they are or why they cannot be brought to it: one bad event does
/// not hide the others.
#[derive(Debug, Clone)]
pub struct Reader {
    bus: Bus,
    reads: Reads,
}

/// An event in the form that was asked for, or as it is stored with why it cannot be brought to it.
#[derive(Debug, Clone, PartialEq)]
pub enum Decoded {
    /// The event.
    Event(Box<Stored>),
    /// What cannot be read, as it is stored, and why.
    Unreadable(Box<Stored>, DecodeError),
    /// What is not there any more.
    Missing {
        /// The topic.
        topic: Topic,
        /// The offsets, and why.
        gap: Gap,
    },
}

impl Decoded {
    /// The event, if it could be read.
    pub fn event(self) -> Result<Option<Event>, DecodeError> {
        match self {
            Self::Event(stored) => Ok(Some(stored.event)),
            Self::Unreadable(_, error) => Err(error),
            Self::Missing { .. } => Ok(None),
        }
    }
}

/// A replay in the form of a version.
#[derive(Debug)]
pub struct Decoding {
    reader: Reader,
    replaying: Replaying,
}

impl Bus {
    /// Looks at events in the form of a version.
    pub async fn reader(&self, reads: Reads) -> Result<Reader, ReadError> {
        self.inner.groups.site().schemas.catalog().await?;
        Ok(Reader { bus: self.clone(), reads })
    }
}

impl Reader {
    fn want(&self, topic: &Topic) -> Want {
        self.reads.of(topic, None)
    }

    /// An event in this reader's form; the one given is not changed.
    pub fn decode(&self, event: &Event) -> Result<Event, DecodeError> {
        let want = self.want(&event.topic);
        self.bus.inner.groups.site().schemas.decode(event.clone(), want)
    }

    fn decoded(&self, stored: Stored) -> Decoded {
        match self.decode(&stored.event) {
            Ok(event) => Decoded::Event(Box::new(Stored { event, ..stored })),
            Err(error) => Decoded::Unreadable(Box::new(stored), error),
        }
    }

    /// Reads what has been, over any number of topics, without any group.
    pub async fn replay(&self, replay: Replay) -> Result<Decoding, GroupError> {
        Ok(Decoding { reader: self.clone(), replaying: self.bus.replay(replay).await? })
    }

    /// Events of a partition from an offset on, and where to go on.
    pub async fn read(
        &self,
        topic: &Topic,
        partition: Partition,
        from: Offset,
        limit: PageLimit,
    ) -> Result<(Vec<Decoded>, Offset), ReadError> {
        let page = self.bus.read(topic, partition, from, limit).await?;
        let missing = page
            .gaps
            .into_iter()
            .map(|gap| (gap.from, Decoded::Missing { topic: topic.clone(), gap }));
        let events =
            page.events.into_iter().map(|stored| (stored.event.offset, self.decoded(stored)));
        let mut all: Vec<(Offset, Decoded)> = missing.chain(events).collect();
        all.sort_by_key(|(offset, _)| *offset);
        Ok((all.into_iter().map(|(_, decoded)| decoded).collect(), page.next))
    }

    /// The event with an id.
    pub async fn find(&self, topic: &Topic, id: EventId) -> Result<Option<Decoded>, ReadError> {
        Ok(self.bus.find(topic, id).await?.map(|stored| self.decoded(stored)))
    }

    /// The newest event of each key, in the order given; `None` for a key that is gone or never
    /// was.
    pub async fn latest_by_key(
        &self,
        topic: &Topic,
        keys: Vec<Key>,
    ) -> Result<Vec<Option<Result<Event, DecodeError>>>, ReadError> {
        let found = self.bus.latest_by_key(topic, keys).await?;
        Ok(found.into_iter().map(|event| event.map(|event| self.decode(&event))).collect())
    }

    /// The newest events of a key, newest first.
    pub async fn history(
        &self,
        topic: &Topic,
        key: Key,
        max: usize,
    ) -> Result<Vec<Decoded>, ReadError> {
        let found = self.bus.history(topic, key, max).await?;
        Ok(found.into_iter().map(|stored| self.decoded(stored)).collect())
    }

    /// Dead letters, with their originals in this reader's form. One whose original cannot be
    /// brought to it, which may be why it is one, keeps it as it was written, with the reason.
    pub async fn dead_letters(
        &self,
        query: &DeadLetterQuery,
    ) -> Result<Vec<(DeadLetterEntry, Option<DecodeError>)>, DeadLetterError> {
        let letters = self.bus.dead_letters(query).await?;
        Ok(letters.into_iter().map(|entry| self.dead_letter(entry)).collect())
    }

    /// A dead letter in the same way.
    pub fn dead_letter(
        &self,
        mut entry: DeadLetterEntry,
    ) -> (DeadLetterEntry, Option<DecodeError>) {
        let read = entry.letter.original.as_ref().map(|original| self.decode(original));
        let error = match read {
            Some(Ok(original)) => {
                entry.letter.original = Some(original);
                None
            }
            Some(Err(error)) => Some(error),
            None => None,
        };
        (entry, error)
    }
}

impl Decoding {
    /// The next step; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Decoded>, ReadError> {
        Ok(self.replaying.next().await?.map(|step| match step {
            Replayed::Event(stored) => self.reader.decoded(*stored),
            Replayed::Missing { topic, gap } => Decoded::Missing { topic, gap },
        }))
    }
}
