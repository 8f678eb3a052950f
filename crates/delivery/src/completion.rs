//! An event is done: its key goes on, and the floor rises as far as everything below is done.

use alloc::collections::VecDeque;

use crate::hash::NumberMap;
use crate::lane::Lane;
use crate::slot::{Slot, Standing};
use crate::state::{Change, ParkedKey};
use crate::watermark::Span;

impl Lane {
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
        self.parked.insert((key, offset));
        // Released dead letters from before this one may still go on.
        self.key_advances(key);
        self.unsaved.push(Change::Parked(ParkedKey { key, offset }));
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
            self.unsaved.acked.insert(Span { from: offset, to: offset + 1 });
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
            self.shrink();
        }
        self.walk = self.walk.max(self.floor);
    }

    /// A burst is over: idle lanes are small.
    fn shrink(&mut self) {
        const SLOTS_KEPT: usize = 8_192;
        if self.slots.capacity() > SLOTS_KEPT {
            self.slots = VecDeque::new();
        }
        if self.keys.is_empty() && self.keys.capacity() > SLOTS_KEPT {
            self.keys = NumberMap::default();
        }
        if self.ready.is_empty() && self.ready.capacity() > SLOTS_KEPT {
            self.ready = VecDeque::new();
        }
    }
}
