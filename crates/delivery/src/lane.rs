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

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::group::Counters;
use crate::hash::NumberMap;
use crate::key_order::KeyLine;
use crate::limits::{HORIZON_DOUBLINGS_MAX, OFFSET_MAX};
use crate::options::{GroupOptions, Ordered};
use crate::place::LaneId;
use crate::rebalance::Owner;
use crate::slot::{Slot, Standing};
use crate::state::{AttemptRecord, LaneState};
use crate::unsaved::Unsaved;
use crate::watermark::SpanSet;

/// How far first deliveries may go.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Horizon {
    pub(crate) durable: u64,
    pub(crate) requested: u64,
    /// Events waited for nothing else since it was last requested.
    pub(crate) is_short: bool,
    /// How often the distance to it was doubled for those who are fast.
    pub(crate) doublings: u32,
}

impl Horizon {
    pub(crate) fn at(offset: u64) -> Self {
        Self { durable: offset, requested: offset, ..Self::default() }
    }
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
    /// Ready, and their attempt is durable: they go out before any other, or they would be
    /// counted for nothing.
    pub(crate) recorded: VecDeque<u64>,
    pub(crate) fresh: u32,
    pub(crate) records: BTreeMap<u64, AttemptRecord>,
    /// Keys and the dead letters they wait for.
    pub(crate) parked: BTreeSet<(u64, u64)>,
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
    /// Nothing new goes out any more.
    pub(crate) closing: bool,
    pub(crate) ordered_by_key: bool,
    /// First attempts are recorded as well.
    pub(crate) exact: bool,
    pub(crate) max_attempts: u16,
    pub(crate) counters: Counters,
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
            recorded: VecDeque::new(),
            fresh: 0,
            records: BTreeMap::new(),
            parked: BTreeSet::new(),
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
            closing: false,
            ordered_by_key: options.ordered == Ordered::Key,
            exact: options.max_attempts == 1,
            max_attempts: options.max_attempts,
            counters: Counters::default(),
        }
    }

    /// Takes up where `state` left off.
    pub(crate) fn recover(&mut self, state: LaneState) {
        self.epoch = state.epoch;
        self.owner.generation = state.generation;
        self.floor = state.floor.min(OFFSET_MAX);
        self.walk = self.floor;
        self.horizon = Horizon::at(state.horizon);
        // An event that did not exist cannot have been delivered.
        self.implied_below = state.horizon.min(self.tail);
        self.finished_ahead = state.acked;
        self.finished_ahead.cut_above(OFFSET_MAX);
        self.unsaved.begin(state.version, state.floor);
        self.records = state.attempts.into_iter().map(|record| (record.offset, record)).collect();
        for parked in state.parked {
            self.parked.insert((parked.key, parked.offset));
            self.key_parks(parked.key);
        }
        // An event that is not done cannot have been released; it comes by itself.
        let done = |offset| offset < self.floor || self.finished_ahead.contains(offset);
        let released: Vec<_> = state.released.into_iter().filter(|e| done(e.offset)).collect();
        for event in released {
            let mut slot = Slot::new(Standing::Waiting).with_key(event.key);
            slot.round = event.round.max(1);
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

    /// Moves the horizon ahead of the fetch position if it is time to, by twice as much as the last
    /// time if events had to wait for it meanwhile. Whether it does: the next save carries it.
    pub(crate) fn push_horizon(&mut self, least: u64, anybody_takes: bool) -> bool {
        let (next, horizon) = (self.next(), &mut self.horizon);
        horizon.is_short |= anybody_takes && self.fresh > 0 && self.walk >= horizon.durable;
        if next >= self.tail {
            horizon.doublings = 0;
        }
        if horizon.requested >= next.saturating_add((least << horizon.doublings) / 2) {
            return false;
        }
        if core::mem::take(&mut horizon.is_short) && next < self.tail {
            horizon.doublings = (horizon.doublings + 1).min(HORIZON_DOUBLINGS_MAX);
        }
        horizon.requested = next.saturating_add(least << horizon.doublings);
        true
    }

    /// Events that could go out if somebody took them.
    pub(crate) fn backlog(&self) -> u32 {
        self.fresh + (self.ready.len() + self.recorded.len()) as u32
    }

    /// Slots of the window that are not done.
    pub(crate) fn open_slots(&self) -> u32 {
        let open = |slot: &&Slot| slot.standing != Standing::Done;
        self.slots.iter().filter(open).count() as u32
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

    /// The record of an event, begun if there is none.
    pub(crate) fn record(&mut self, offset: u64) -> &mut AttemptRecord {
        self.unsaved.records.push(offset);
        self.records
            .entry(offset)
            .or_insert_with(|| AttemptRecord { offset, ..AttemptRecord::default() })
    }
}
