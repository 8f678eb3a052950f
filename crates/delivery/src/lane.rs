//! One (topic, partition) of a group: a window of slots from the floor to the fetch position.
//!
//! # Attempts without a sync on the way
//!
//! Attempts must not be counted short even if every delivery kills the whole process, yet a first
//! delivery must not wait for a disk. Hence the *delivery horizon*: first deliveries happen only
//! below a durable offset H, which is moved ahead of the fetch position in large steps by saves
//! that nobody waits for. After a crash every unfinished offset that existed and lies below H,
//! and of which no exact count is known, counts as delivered once: right for those that were
//! out, one too many, once, for those that were not. From then on, and for every attempt after
//! the first, the count is exact: it is saved, and durable, before the event goes out.
//! With `max_attempts = 1` one too many would be a dead letter that nobody ever saw, so there
//! the first attempt is counted exactly, too, and the horizon is not used.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::hash::NumberMap;
use crate::key_order::KeyLine;
use crate::options::{GroupOptions, Ordered};
use crate::place::LaneId;
use crate::rebalance::Owner;
use crate::slot::{Slot, Standing};
use crate::state::{AttemptRecord, Change, LaneState};
use crate::unsaved::Unsaved;
use crate::watermark::{Span, SpanSet};

/// How far first deliveries may go.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Horizon {
    pub(crate) durable: u64,
    pub(crate) requested: u64,
}

/// What the lane needs from the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chore {
    /// The event has no attempt left.
    GiveUp { offset: u64 },
    /// Wake the event at its time.
    Wake { offset: u64, at: u64 },
}

/// Whether the lane is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    Idle,
    Asked { fetch: u64 },
    Resting,
    Broken,
}

#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) id: LaneId,
    pub(crate) epoch: u32,
    pub(crate) floor: u64,
    /// Everything below it has been considered for a first delivery.
    pub(crate) walk: u64,
    pub(crate) tail: u64,
    pub(crate) slots: VecDeque<Slot>,
    /// Dead letters given back to the group; they lie below the floor, or are done in the window.
    pub(crate) released: BTreeMap<u64, Slot>,
    pub(crate) keys: NumberMap<KeyLine>,
    pub(crate) ready: VecDeque<u64>,
    pub(crate) fresh: u32,
    pub(crate) records: BTreeMap<u64, AttemptRecord>,
    pub(crate) parked: BTreeMap<u64, u64>,
    /// Existing events below it may have been delivered before the last crash.
    pub(crate) implied_below: u64,
    pub(crate) horizon: Horizon,
    /// Finished offsets that are not fetched yet.
    pub(crate) finished_ahead: SpanSet,
    pub(crate) reading: Reading,
    /// Leases.
    pub(crate) out: u32,
    /// Slots whose attempt is being saved, or is saved and not out yet.
    pub(crate) recording: u32,
    pub(crate) chores: Vec<Chore>,
    pub(crate) unsaved: Unsaved,
    pub(crate) owner: Owner,
    /// In the group's list of lanes with something to deliver.
    pub(crate) active: bool,
    /// In the group's list of lanes with something to read.
    pub(crate) hungry: bool,
    /// What the group's backlog counts for this lane.
    pub(crate) counted: u32,
    pub(crate) ordered_by_key: bool,
    /// First attempts are recorded as well.
    pub(crate) exact: bool,
    pub(crate) max_attempts: u16,
}

impl Lane {
    pub(crate) fn new(id: LaneId, tail: u64, options: &GroupOptions) -> Self {
        Self {
            id,
            epoch: 0,
            floor: 0,
            walk: 0,
            tail,
            slots: VecDeque::new(),
            released: BTreeMap::new(),
            keys: NumberMap::default(),
            ready: VecDeque::new(),
            fresh: 0,
            records: BTreeMap::new(),
            parked: BTreeMap::new(),
            implied_below: 0,
            horizon: Horizon::default(),
            finished_ahead: SpanSet::new(),
            reading: Reading::Idle,
            out: 0,
            recording: 0,
            chores: Vec::new(),
            unsaved: Unsaved::default(),
            owner: Owner::default(),
            active: false,
            hungry: false,
            counted: 0,
            ordered_by_key: options.ordered == Ordered::Key,
            exact: options.max_attempts == 1,
            max_attempts: options.max_attempts,
        }
    }

    /// Takes up where `state` left off.
    pub(crate) fn recover(&mut self, state: LaneState) {
        self.epoch = state.epoch;
        self.owner.generation = state.generation;
        self.floor = state.floor;
        self.walk = state.floor;
        self.horizon = Horizon {
            durable: state.horizon,
            requested: state.horizon,
        };
        // An event that did not exist cannot have been delivered.
        self.implied_below = state.horizon.min(self.tail);
        self.finished_ahead = state.acked;
        self.unsaved.begin(state.version, state.floor);
        self.records = state
            .attempts
            .into_iter()
            .map(|record| (record.offset, record))
            .collect();
        for parked in state.parked {
            self.parked.insert(parked.key, parked.offset);
            self.key_parks(parked.key);
        }
        for event in state.released {
            let mut slot = Slot::new(Standing::Waiting).with_key(event.key);
            slot.round = event.round;
            slot.attempt = self.records.get(&event.offset).map_or(0, |r| r.count);
            self.add_released(event.offset, slot);
        }
        self.raise_floor();
    }

    /// The fetch position: the first offset that has no slot.
    pub(crate) fn next(&self) -> u64 {
        self.floor + self.slots.len() as u64
    }

    pub(crate) fn slot(&self, offset: u64) -> Option<&Slot> {
        if !self.released.is_empty()
            && let Some(slot) = self.released.get(&offset)
        {
            return Some(slot);
        }
        let index = usize::try_from(offset.checked_sub(self.floor)?).ok()?;
        self.slots.get(index)
    }

    pub(crate) fn slot_mut(&mut self, offset: u64) -> Option<&mut Slot> {
        if !self.released.is_empty()
            && let Some(slot) = self.released.get_mut(&offset)
        {
            return Some(slot);
        }
        let index = usize::try_from(offset.checked_sub(self.floor)?).ok()?;
        self.slots.get_mut(index)
    }

    /// Events that could go out if somebody took them.
    pub(crate) fn backlog(&self) -> u32 {
        self.fresh + self.ready.len() as u32
    }

    /// An offset without an event to deliver.
    pub(crate) fn push_done(&mut self) {
        if self.slots.is_empty() {
            self.floor += 1;
            self.walk = self.walk.max(self.floor);
        } else {
            self.slots.push_back(Slot::new(Standing::Done));
        }
    }

    /// The next event of the window.
    pub(crate) fn push_event(&mut self, key: Option<u64>, bytes: u32) {
        let offset = self.next();
        let mut slot = Slot::new(Standing::Waiting).with_key(key);
        slot.bytes = bytes;
        slot.attempt = match self.records.get(&offset) {
            Some(record) => record.count,
            None => u16::from(offset < self.implied_below),
        };
        let key = key.filter(|_| self.ordered_by_key);
        if slot.attempt == 0 && !self.exact {
            let at_once = key.is_none_or(|key| self.key_arrives(key, offset));
            if at_once {
                slot.standing = Standing::Fresh;
                self.fresh += 1;
            }
            self.slots.push_back(slot);
            return;
        }
        self.slots.push_back(slot);
        if key.is_none_or(|key| self.key_arrives(key, offset)) {
            self.activate(offset);
        }
    }

    /// An event that waited for its key gets its turn: to go out, to wait for its time, or to be
    /// given up if the crashes of the past have used all its attempts.
    pub(crate) fn activate(&mut self, offset: u64) {
        let (max, exact, walk) = (self.max_attempts, self.exact, self.walk);
        let not_before = match self.records.is_empty() {
            true => 0,
            false => self.records.get(&offset).map_or(0, |r| r.not_before),
        };
        let Some(slot) = self.slot_mut(offset) else {
            return;
        };
        if slot.attempt >= max {
            slot.standing = Standing::Backoff;
            self.chores.push(Chore::GiveUp { offset });
        } else if slot.attempt == 0 && slot.round == 0 && !exact && offset >= walk {
            slot.standing = Standing::Fresh;
            self.fresh += 1;
        } else if not_before > 0 {
            slot.standing = Standing::Backoff;
            slot.deadline = not_before;
            let at = not_before;
            self.chores.push(Chore::Wake { offset, at });
        } else {
            slot.standing = Standing::Ready;
            self.ready.push_back(offset);
        }
    }

    /// Puts a released dead letter into play, or in line for its key.
    pub(crate) fn add_released(&mut self, offset: u64, slot: Slot) {
        let key = slot.key().filter(|_| self.ordered_by_key);
        self.released.insert(offset, slot);
        if key.is_none_or(|key| self.key_released(key, offset)) {
            self.activate(offset);
        }
    }

    /// The event is done, whatever it was: its key goes on, the floor rises if it can.
    pub(crate) fn finish(&mut self, offset: u64) {
        let Some(slot) = self.mark_done(offset) else {
            return;
        };
        if let Some(key) = slot.key().filter(|_| self.ordered_by_key) {
            if slot.standing == Standing::Waiting {
                if slot.round == 0 {
                    self.key_unlinks(key, offset);
                }
            } else {
                self.key_advances(key);
            }
        }
        self.raise_floor();
        self.note_done(offset, slot);
    }

    /// The event is a dead letter, and its key waits behind it.
    pub(crate) fn finish_parked(&mut self, offset: u64, key: u64) {
        let Some(slot) = self.mark_done(offset) else {
            return;
        };
        self.parked.insert(key, offset);
        self.key_parks(key);
        self.unsaved
            .push(Change::Parked(crate::state::ParkedKey { key, offset }));
        self.raise_floor();
        self.note_done(offset, slot);
    }

    fn mark_done(&mut self, offset: u64) -> Option<Slot> {
        let slot = self.slot_mut(offset)?;
        let was = *slot;
        slot.standing = Standing::Done;
        match was.standing {
            Standing::Done => return None,
            Standing::Fresh => self.fresh -= 1,
            Standing::Recording => self.recording -= 1,
            Standing::Ready if was.recorded => self.recording -= 1,
            Standing::Out => self.out -= 1,
            _ => {}
        }
        if !self.records.is_empty() {
            self.records.remove(&offset);
        }
        Some(was)
    }

    fn note_done(&mut self, offset: u64, slot: Slot) {
        self.unsaved.pressing = true;
        if !self.released.is_empty() && self.released.remove(&offset).is_some() {
            debug_assert!(slot.round > 0, "only released events lie beside the window");
            self.unsaved.push(Change::Finished { offset });
        } else if offset >= self.floor {
            self.unsaved.acked.insert(Span {
                from: offset,
                to: offset + 1,
            });
        }
    }

    /// Moves the floor over everything that is done, and over nothing else.
    pub(crate) fn raise_floor(&mut self) {
        while let Some(front) = self.slots.front()
            && front.standing == Standing::Done
        {
            self.slots.pop_front();
            self.floor += 1;
        }
        if self.slots.is_empty() {
            if !self.finished_ahead.is_empty() {
                self.floor = self.finished_ahead.floor_after(self.floor);
            }
            if self.slots.capacity() > 8_192 {
                // A burst is over: idle lanes are small.
                self.slots = VecDeque::new();
            }
        }
        self.walk = self.walk.max(self.floor);
    }

    /// The record of an event, begun if there is none.
    pub(crate) fn record(&mut self, offset: u64) -> &mut AttemptRecord {
        self.unsaved.records.push(offset);
        self.records.entry(offset).or_insert_with(|| AttemptRecord {
            offset,
            ..AttemptRecord::default()
        })
    }
}
