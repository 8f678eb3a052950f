//! What a publisher hands to the writer: events, encoded and summed up by the publisher itself.

use std::cell::RefCell;
use std::ops::Range;

use promethean_event::limits::{BATCH_BYTES_MAX, BATCH_EVENTS_MAX};
use promethean_event::{EventId, NewEvent, Offset, PartitionCount, Seq, Timestamp, Topic};

use crate::catalog::Names;
use crate::error::AppendError;
use crate::frame_memory::FrameMemory;
use crate::index::{id_hash, key_hash};
use crate::limits::SMALL_BATCH_BYTES_MAX;
use crate::receipts::Receipts;
use crate::segment::{
    FRAME_HEADER_BYTES, RECORD_HEADER_BYTES, RecordHeader, body_bytes, encode_body,
};
use crate::topic::{Lane, TopicId};

/// Events to append together: all or none.
#[derive(Debug, Clone, Default)]
pub struct Append {
    /// The events, of any number of topics.
    pub events: Vec<NewEvent>,
    /// How far they have travelled when the answer comes. Default: synced.
    pub durability: Durability,
    /// Where partitions must end for the append to go through.
    pub expect: Vec<Expectation>,
}

/// One of several appends that came together, and whose events follow each other.
#[derive(Debug, Clone, Default)]
pub struct Part {
    /// How many of the events are its own.
    pub events: usize,
    /// How far they have travelled when its answer comes. Default: synced.
    pub durability: Durability,
    /// Where partitions must end for it to go through.
    pub expect: Vec<Expectation>,
}

/// An append, whoever has its events.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish<'a> {
    pub(crate) events: &'a [NewEvent],
    pub(crate) durability: Durability,
    pub(crate) expect: &'a [Expectation],
}

impl<'a> From<&'a Append> for Wish<'a> {
    fn from(append: &'a Append) -> Self {
        let Append { events, durability, expect } = append;
        Self { events, durability: *durability, expect }
    }
}

/// Who writes what is appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WrittenBy {
    /// A thread of the log's own, which is woken for it.
    #[default]
    Writer,
    /// The thread that appends, if nobody else is writing, it is not much, and syncs are short at the
    /// moment: for one that has other things to do, but can be spared for as long as it would take to
    /// wake another and to be woken by it.
    CallerIfQuick,
}

/// How far events have travelled when their append is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Durability {
    /// They have a place; a crash of this process may lose them.
    None,
    /// They are with the operating system; a crash of this process does not lose them, a power
    /// cut may, if it comes within a second.
    Written,
    /// They are on the disk: a power cut does not lose them.
    #[default]
    Synced,
}

/// A condition of an append: the lane's next offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expectation {
    /// The lane.
    pub lane: Lane,
    /// Its next offset before this append.
    pub next: Offset,
}

/// The answer to an append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// One for each event, in the order given.
    pub receipts: Receipts,
    /// When the log took the batch.
    pub appended_at: Timestamp,
    /// How far it had travelled when this was answered.
    pub durability: Durability,
}

/// Where an event stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Topic and partition.
    pub lane: Lane,
    /// Place in the partition.
    pub offset: Offset,
    /// Place in the log.
    pub seq: Seq,
    /// Whether the event had been there already, so that nothing was added.
    pub duplicate: bool,
}

/// Encoded events. Headers stand in their places and lack only what the writer decides, so that it
/// completes them without moving the bytes.
///
/// A batch has parts, each of which is appended whole or not at all. A publisher's is one part; small
/// ones are put together in the queue, where they share memory and answers.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// A frame: its header's room, then records.
    pub(crate) bytes: Vec<u8>,
    pub(crate) entries: Vec<BatchEntry>,
    /// One for each entry. Made here, so that the writer only fills in the places.
    pub(crate) receipts: Vec<Receipt>,
    /// Where the entries of each part end.
    pub(crate) parts: Vec<usize>,
    /// Of the first part; those with any have no other.
    pub(crate) expect: Vec<Expectation>,
    /// The greatest that any part asks for.
    pub(crate) durability: Durability,
    /// When it was taken, if that was earlier and elsewhere.
    pub(crate) taken_at: Option<Timestamp>,
    /// All topics are the system's: may use the space that is kept for it.
    pub(crate) system: bool,
    /// Others may be added to it while it waits.
    pub(crate) shared: bool,
}

/// How much there is in a batch.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BatchSize {
    pub(crate) bytes: usize,
    pub(crate) events: usize,
    pub(crate) parts: usize,
}

thread_local! {
    /// Small batches are encoded here and copied into the shared one.
    static SMALL: RefCell<Batch> = RefCell::default();
}

/// What the writer and the index need of an event. The writer goes through these and nothing else
/// for every event, so they are kept small.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchEntry {
    pub(crate) id: EventId,
    pub(crate) id_hash: u64,
    key_hash: u64,
    /// Where the record stands in the batch's bytes, and in the frame once that is put together.
    pub(crate) start: u32,
    pub(crate) record_bytes: u32,
    has_key: bool,
    /// Not there yet: it gets a record. Decided by the writer.
    pub(crate) fresh: bool,
}

impl Wish<'_> {
    /// Whether it may share a batch with others: it is small enough to be copied, asks for no
    /// conditions, and is to wait for others.
    pub(crate) fn is_small(&self, size: BatchSize) -> bool {
        self.durability != Durability::None
            && self.expect.is_empty()
            && size.bytes <= SMALL_BATCH_BYTES_MAX
    }
}

impl BatchEntry {
    pub(crate) fn key_hash(&self) -> Option<u64> {
        self.has_key.then_some(self.key_hash)
    }

    /// Where the record stands.
    pub(crate) const fn range(&self) -> Range<usize> {
        self.start as usize..self.start as usize + self.record_bytes as usize
    }
}

impl BatchSize {
    /// Of the events of an append, once they are encoded.
    pub(crate) fn of(wish: Wish<'_>) -> Result<Self, AppendError> {
        let events = wish.events.len();
        if events == 0 {
            return Err(AppendError::Empty);
        }
        let records = wish.events.iter().map(|event| RECORD_HEADER_BYTES + body_bytes(event));
        let bytes = FRAME_HEADER_BYTES + records.sum::<usize>();
        if bytes > BATCH_BYTES_MAX || events > BATCH_EVENTS_MAX {
            return Err(AppendError::TooLarge { events, bytes });
        }
        Ok(Self { bytes, events, parts: 1 })
    }
}

impl Batch {
    fn with_capacity(size: BatchSize) -> Self {
        Self {
            bytes: Vec::with_capacity(size.bytes),
            entries: Vec::with_capacity(size.events),
            receipts: Vec::with_capacity(size.events),
            parts: Vec::with_capacity(size.parts),
            ..Self::default()
        }
    }

    /// One that small batches are added to.
    pub(crate) fn to_share(size: BatchSize) -> Self {
        let (durability, system, shared) = (Durability::Written, true, true);
        let mut batch = Self { durability, system, shared, ..Self::with_capacity(size) };
        batch.bytes.resize(FRAME_HEADER_BYTES, 0);
        batch
    }

    pub(crate) fn encode(
        wish: Wish<'_>,
        size: BatchSize,
        (names, memory): (&Names, &FrameMemory),
    ) -> Result<Self, AppendError> {
        let mut batch = Self {
            bytes: memory.take(size.bytes),
            entries: memory.take_entries(size.events),
            receipts: Vec::with_capacity(size.events),
            ..Self::default()
        };
        batch.begin();
        batch.expect.extend_from_slice(wish.expect);
        batch.fill(wish, names)?;
        Ok(batch)
    }

    /// Lends memory of this thread in which small batches are encoded, to be copied to others.
    pub(crate) fn gather<T>(act: impl FnOnce(&mut Self) -> T) -> T {
        SMALL.with_borrow_mut(|small| {
            small.begin();
            act(small)
        })
    }

    /// Has nothing in it.
    pub(crate) fn begin(&mut self) {
        self.bytes.clear();
        self.bytes.resize(FRAME_HEADER_BYTES, 0);
        self.entries.clear();
        self.receipts.clear();
        self.parts.clear();
        (self.durability, self.system) = (Durability::None, true);
    }

    /// Encodes the events of an append as one more part; nothing of it stays if it is refused.
    pub(crate) fn fill(&mut self, wish: Wish<'_>, names: &Names) -> Result<(), AppendError> {
        // Their counts are single bytes of the record.
        wish.events.iter().try_for_each(NewEvent::check)?;
        let (bytes, entries) = (self.bytes.len(), self.entries.len());
        let mut system = true;
        let mut last: Option<(&Topic, TopicId, PartitionCount)> = None;
        for event in wish.events {
            // Events of a batch are mostly of one topic: a comparison, instead of a look-up.
            let (topic, partitions) = match last {
                Some((name, topic, partitions)) if *name == event.topic => (topic, partitions),
                _ => {
                    let Some(&(topic, partitions)) = names.get(&event.topic) else {
                        self.bytes.truncate(bytes);
                        self.entries.truncate(entries);
                        self.receipts.truncate(entries);
                        return Err(AppendError::UnknownTopic(event.topic.clone()));
                    };
                    system &= event.topic.is_system();
                    last = Some((&event.topic, topic, partitions));
                    (topic, partitions)
                }
            };
            let partition = partitions.partition_of(event.key.as_ref(), &event.id);
            self.push(event, Lane { topic, partition });
        }
        self.parts.push(self.entries.len());
        self.durability = self.durability.max(wish.durability);
        self.system &= system;
        Ok(())
    }

    /// Whether an append is the system's if what is in the batch is. Room is kept for the system, which it
    /// could not use in a batch with others.
    pub(crate) fn is_like(&self, wish: Wish<'_>) -> bool {
        let system = wish.events.first().is_some_and(|event| event.topic.is_system());
        self.parts.is_empty() || self.system == system
    }

    /// Adds the parts of another batch.
    pub(crate) fn add(&mut self, other: &Self) {
        let before = self.entries.len();
        let shift = (self.bytes.len() - FRAME_HEADER_BYTES) as u32;
        let records = other.bytes.get(FRAME_HEADER_BYTES..).unwrap_or_default();
        self.bytes.extend_from_slice(records);
        let moved = |entry: &BatchEntry| BatchEntry { start: entry.start + shift, ..*entry };
        self.entries.extend(other.entries.iter().map(moved));
        self.receipts.extend_from_slice(&other.receipts);
        self.parts.extend(other.parts.iter().map(|end| before + end));
        self.durability = self.durability.max(other.durability);
        self.system &= other.system;
    }

    pub(crate) const fn size(&self) -> BatchSize {
        BatchSize { bytes: self.bytes.len(), events: self.entries.len(), parts: self.parts.len() }
    }

    fn push(&mut self, event: &NewEvent, lane: Lane) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
        let flags = encode_body(event, &mut self.bytes);
        let record = self.bytes.get_mut(start..).unwrap_or_default();
        let record_bytes = record.len() as u32;
        if let Some((head, body)) = record.split_first_chunk_mut::<RECORD_HEADER_BYTES>() {
            RecordHeader::begin(head, lane, flags, body);
        }
        self.entries.push(BatchEntry {
            id: event.id,
            id_hash: id_hash(lane.topic, &event.id),
            key_hash: event.key.as_ref().map_or(0, |key| key_hash(lane.topic, key.as_str())),
            start: start as u32,
            record_bytes,
            has_key: event.key.is_some(),
            fresh: false,
        });
        let (offset, seq) = (Offset::new(0), Seq::new(0));
        self.receipts.push(Receipt { lane, offset, seq, duplicate: false });
    }

    /// The body of an entry.
    pub(crate) fn body(&self, entry: &BatchEntry) -> &[u8] {
        let record = self.bytes.get(entry.range()).unwrap_or_default();
        record.get(RECORD_HEADER_BYTES..).unwrap_or_default()
    }
}
