//! What a publisher hands to the writer: events, encoded and summed up by the publisher itself.

use promethean_event::{EventId, NewEvent, Offset, Seq, Timestamp};

use crate::catalog::Names;
use crate::error::AppendError;
use crate::index::{id_hash, key_hash};
use crate::segment::{FRAME_HEADER_BYTES, RECORD_HEADER_BYTES, encode_body};
use crate::topic::Lane;
use promethean_event::limits::{BATCH_BYTES_MAX, BATCH_EVENTS_MAX};

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

/// How far events have travelled when their append is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Durability {
    /// They have a place; a crash of this process may lose them.
    None,
    /// They are with the operating system; a crash of this process does not lose them, a power
    /// cut may.
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
    pub receipts: Vec<Receipt>,
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

/// Encoded events. Room for headers is left in place, so that the writer fills them in without
/// moving the bytes.
#[derive(Debug)]
pub(crate) struct Batch {
    /// A frame: its header's room, then records with their headers' room.
    pub(crate) bytes: Vec<u8>,
    pub(crate) entries: Vec<BatchEntry>,
    pub(crate) expect: Vec<Expectation>,
    pub(crate) durability: Durability,
    /// All topics are the system's: may use the space that is kept for it.
    pub(crate) system: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchEntry {
    /// Where the record stands in the batch's bytes.
    pub(crate) start: u32,
    pub(crate) body_bytes: u32,
    pub(crate) body_crc: u32,
    pub(crate) flags: u16,
    pub(crate) lane: Lane,
    pub(crate) id: EventId,
    pub(crate) id_hash: u64,
    pub(crate) key_hash: Option<u64>,
}

impl Batch {
    pub(crate) fn encode(append: &Append, names: &Names) -> Result<Self, AppendError> {
        let events = append.events.len();
        if events == 0 {
            return Err(AppendError::Empty);
        }
        let mut batch = Self {
            bytes: Vec::with_capacity(FRAME_HEADER_BYTES + events * 320),
            entries: Vec::with_capacity(events),
            expect: append.expect.clone(),
            durability: append.durability,
            system: append.events.iter().all(|event| event.topic.is_system()),
        };
        batch.bytes.resize(FRAME_HEADER_BYTES, 0);
        for event in &append.events {
            batch.push(event, names)?;
            if batch.bytes.len() > BATCH_BYTES_MAX || events > BATCH_EVENTS_MAX {
                return Err(AppendError::TooLarge { events, bytes: batch.bytes.len() });
            }
        }
        Ok(batch)
    }

    fn push(&mut self, event: &NewEvent, names: &Names) -> Result<(), AppendError> {
        let unknown = || AppendError::UnknownTopic(event.topic.clone());
        let &(topic, partitions) = names.get(&event.topic).ok_or_else(unknown)?;
        let partition = partitions.partition_of(event.key.as_ref(), &event.id);
        let start = self.bytes.len();
        self.bytes.resize(start + RECORD_HEADER_BYTES, 0);
        let flags = encode_body(event, &mut self.bytes);
        let body = self.bytes.get(start + RECORD_HEADER_BYTES..).unwrap_or_default();
        self.entries.push(BatchEntry {
            start: start as u32,
            body_bytes: body.len() as u32,
            body_crc: crc32c::crc32c(body),
            flags,
            lane: Lane { topic, partition },
            id: event.id,
            id_hash: id_hash(topic, &event.id),
            key_hash: event.key.as_ref().map(|key| key_hash(topic, key.as_str())),
        });
        Ok(())
    }

    /// The body of an entry.
    pub(crate) fn body(&self, entry: &BatchEntry) -> &[u8] {
        let start = entry.start as usize + RECORD_HEADER_BYTES;
        self.bytes.get(start..start + entry.body_bytes as usize).unwrap_or_default()
    }
}
