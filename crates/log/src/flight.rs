//! Frames on their way: written, but not yet as durable as somebody asked for.
//!
//! The next frame may be written, and its sync begun, while the one before it is still being synced.
//! What holds:
//!
//! - Frames are shown to readers, and their publishers answered, in the order in which they were
//!   written, and none before a sync that was begun after it was written has ended well.
//! - A sync speaks for all frames that were written before it began. Each of the threads that sync
//!   does so by an open file of its own: the operating system tells of a failed write once for each.
//! - After a failed sync nothing more lands: all that are on their way are refused.
//! - A frame leaves here only after readers can see it, so that whoever looks for an id first here
//!   and then in the index does not miss it.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use promethean_event::{EventId, Timestamp};

use crate::batch::{Appended, Durability, Receipt};
use crate::error::AppendError;
use crate::hash::FastMap;
use crate::placement::Placed;
use crate::queue::AppendAnswers;
use crate::receipts::Receipts;
use crate::segment::{RECORD_HEADER_BYTES, SegmentName};
use crate::topic::TopicId;

/// A frame of events as it was written.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) segment: SegmentName,
    pub(crate) position: u32,
    pub(crate) bytes: Bytes,
    pub(crate) first_seq: u64,
    pub(crate) append_ms: u64,
    pub(crate) placed: Placed,
    /// Of each batch.
    pub(crate) receipts: Vec<Arc<Vec<Receipt>>>,
    /// The new events by the hash of their id, as batch and entry; made when first needed.
    pub(crate) ids: OnceLock<FastMap<u64, (u32, u32)>>,
}

/// An event that is there already, in a frame on its way.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) receipt: Receipt,
    pub(crate) body: Bytes,
}

/// Those who are to be answered: the parts of a batch.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) receipts: Arc<Vec<Receipt>>,
    pub(crate) parts: Vec<usize>,
    pub(crate) durability: Durability,
    pub(crate) answers: AppendAnswers,
}

/// What is done once it is durable.
#[derive(Debug)]
pub(crate) struct Flight {
    /// None if nothing new was written, and those who wait only have to hear that it is durable.
    pub(crate) frame: Option<Arc<Frame>>,
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) appended_at: Timestamp,
}

#[derive(Debug, Default)]
pub(crate) struct Flights {
    inner: Mutex<Inner>,
    landed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    /// In the order in which they were written.
    flights: VecDeque<Slot>,
    /// The number of the first of them.
    first: u64,
    /// Somebody shows what has landed.
    showing: bool,
    /// Everything of the segment before this position is on the disk.
    synced_to: u64,
    failed: Option<String>,
    /// One was refused, and so is everything behind it.
    refusing: bool,
}

#[derive(Debug)]
struct Slot {
    frame: Option<Arc<Frame>>,
    /// Taken by the one who shows it.
    flight: Option<Flight>,
    landed: bool,
}

impl Frame {
    fn find(&self, topic: TopicId, id: &EventId, hash: u64) -> Option<Known> {
        let ids = self.ids.get_or_init(|| {
            let mut ids = FastMap::default();
            for (number, batch) in self.placed.batches.iter().enumerate() {
                for (at, entry) in batch.entries.iter().enumerate().filter(|(_, of)| of.fresh) {
                    ids.insert(entry.id_hash, (number as u32, at as u32));
                }
            }
            ids
        });
        let &(batch, at) = ids.get(&hash)?;
        let (batch, at) = (batch as usize, at as usize);
        let entry = self.placed.batches.get(batch)?.entries.get(at)?;
        let receipt = self.receipts.get(batch)?.get(at)?;
        if entry.id != *id || receipt.lane.topic != topic {
            return None;
        }
        let range = entry.range();
        let body = self.bytes.slice(range.start + RECORD_HEADER_BYTES..range.end);
        Some(Known { receipt: *receipt, body })
    }
}

impl Flights {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().flights.is_empty()
    }

    /// Everything of the segment before this position is on the disk.
    pub(crate) fn synced_to(&self) -> u64 {
        self.lock().synced_to
    }

    /// A segment is begun, or synced by the one who writes it, with nothing on its way.
    pub(crate) fn set_synced(&self, position: u64) {
        self.lock().synced_to = position;
    }

    /// Why nothing lands any more.
    pub(crate) fn failure(&self) -> Option<String> {
        self.lock().failed.clone()
    }

    pub(crate) fn fail(&self, text: String) {
        self.lock().failed.get_or_insert(text);
    }

    /// The event with this id, if it is in a frame on its way.
    pub(crate) fn find(&self, topic: TopicId, id: &EventId, hash: u64) -> Option<Known> {
        let frames: Vec<_> =
            self.lock().flights.iter().filter_map(|slot| slot.frame.clone()).collect();
        frames.iter().find_map(|frame| frame.find(topic, id, hash))
    }

    /// Takes note of what was written; gives its number.
    pub(crate) fn depart(&self, flight: Flight) -> u64 {
        let mut inner = self.lock();
        let frame = flight.frame.clone();
        inner.flights.push_back(Slot { frame, flight: Some(flight), landed: false });
        inner.first + inner.flights.len() as u64 - 1
    }

    /// A flight is as durable as was asked, and all before it, up to a position if it was synced;
    /// or it cannot be. Shows what may be seen now, unless somebody is at it already.
    pub(crate) fn land(
        &self,
        number: u64,
        result: Result<Option<u64>, String>,
        mut show: impl FnMut(&Frame, &mut dyn FnMut()),
        mut done: impl FnMut(Frame),
    ) {
        let mut inner = self.lock();
        match result {
            Ok(synced_to) => {
                inner.synced_to = inner.synced_to.max(synced_to.unwrap_or(0));
                // Gone already, if a later sync spoke for it.
                if let Some(place) = number.checked_sub(inner.first) {
                    let place = place as usize;
                    let covered = if synced_to.is_some() { 0..=place } else { place..=place };
                    let of_sync = inner.flights.range_mut(covered);
                    of_sync.for_each(|slot| slot.landed = true);
                }
            }
            Err(text) => {
                inner.failed.get_or_insert(text);
            }
        }
        if std::mem::replace(&mut inner.showing, true) {
            return;
        }
        loop {
            let failed = inner.failed.clone();
            let next = inner.flights.front_mut().filter(|slot| slot.landed || failed.is_some());
            let Some((flight, landed)) =
                next.and_then(|slot| Some((slot.flight.take()?, slot.landed)))
            else {
                break;
            };
            inner.refusing |= !landed;
            let refused = failed.filter(|_| inner.refusing);
            drop(inner);
            match refused {
                Some(text) => flight.answer(&Err(AppendError::StorageFailed(text))),
                None => flight.show(&mut show),
            }
            inner = self.lock();
            let slot = inner.flights.pop_front();
            inner.first += 1;
            drop(inner);
            slot.and_then(|slot| slot.frame)
                .and_then(Arc::into_inner)
                .into_iter()
                .for_each(&mut done);
            inner = self.lock();
        }
        inner.showing = false;
        if inner.flights.is_empty() {
            self.landed.notify_all();
        }
    }

    /// Waits until nothing is on its way.
    pub(crate) fn drain(&self) {
        let mut inner = self.lock();
        while !inner.flights.is_empty() {
            inner = self.landed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Flight {
    /// How many there are who wait.
    pub(crate) fn publishers(&self) -> usize {
        self.waiting.iter().map(|waiting| waiting.parts.len()).sum()
    }

    fn show(self, show: &mut impl FnMut(&Frame, &mut dyn FnMut())) {
        match self.frame.clone() {
            Some(frame) => {
                let mut flight = Some(self);
                show(&frame, &mut || {
                    if let Some(flight) = flight.take() {
                        flight.answer(&Ok(()));
                    }
                });
            }
            None => self.answer(&Ok(())),
        }
    }

    pub(crate) fn answer(self, result: &Result<(), AppendError>) {
        let at = self.appended_at;
        self.waiting.into_iter().for_each(|waiting| waiting.answer(result, at));
    }

    /// Answers those who asked for nothing more than a place, and leaves the others. Only if nothing
    /// is ahead of it.
    pub(crate) fn answer_unsynced(&mut self) {
        let asks_little = |waiting: &mut Waiting| waiting.durability == Durability::None;
        let placed = self.waiting.extract_if(.., asks_little);
        placed.for_each(|waiting| waiting.answer(&Ok(()), self.appended_at));
    }
}

impl Waiting {
    fn answer(self, result: &Result<(), AppendError>, appended_at: Timestamp) {
        let Self { receipts, parts, durability, answers } = self;
        if let Err(error) = result {
            return answers.give_each(|_| Some(Err(error.clone())));
        }
        let appended = |receipts| Appended { receipts, appended_at, durability };
        if parts.len() == 1 && receipts.len() > 1 {
            return answers.give(Ok(appended(Receipts::whole(receipts))));
        }
        answers.give_each(|part| {
            let start = part.checked_sub(1).map_or(Some(0), |before| parts.get(before).copied());
            let receipts = receipts.get(start?..*parts.get(part)?)?;
            Some(Ok(appended(Receipts::from(receipts))))
        });
    }
}
