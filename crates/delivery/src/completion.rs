//! An event is done: its key goes on, and the floor rises as far as everything below is done.

use alloc::collections::VecDeque;
use core::ops::Range;

use crate::hash::NumberMap;
use crate::lane::Lane;
use crate::output::Refusal;
use crate::slot::{Slot, Standing};
use crate::state::{Change, ParkedKey};
use crate::watermark::Span;

/// What became of leases that were to end as done.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    /// Leases that ended.
    pub(crate) count: u32,
    /// The bytes of their events.
    pub(crate) bytes: u64,
    /// The first event that had no such lease, and why.
    pub(crate) refused: Option<(u64, Refusal)>,
}

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

    /// Ends the leases in a part of the window that `check` lets pass, as done. There are no
    /// released events. As [`Lane::finish`] for each of them, but what has to be done once for
    /// all of them is.
    pub(crate) fn finish_leases(
        &mut self,
        window: Range<u64>,
        check: impl Fn(&Slot) -> Result<(), Refusal>,
    ) -> Finished {
        debug_assert!(self.released.is_empty(), "they are not in the window");
        let mut finished = Finished::default();
        let mut run = Span { from: window.start, to: window.start };
        for offset in window {
            let Some(slot) = self.slots.get_mut((offset - self.floor) as usize) else {
                break;
            };
            if let Err(why) = check(slot) {
                finished.refused = finished.refused.or(Some((offset, why)));
                continue;
            }
            debug_assert_eq!(slot.standing, Standing::Out, "nothing else is on lease");
            slot.standing = Standing::Done;
            finished.count += 1;
            finished.bytes += u64::from(slot.bytes);
            let key = slot.key();
            if !self.records.is_empty() {
                self.records.remove(&offset);
            }
            if let Some(key) = key.filter(|_| self.ordered_by_key) {
                self.key_advances(key);
            }
            if run.to < offset {
                self.unsaved.acked.insert(run);
                run.from = offset;
            }
            run.to = offset + 1;
        }
        if finished.count > 0 {
            self.out -= finished.count;
            self.counters.acked += u64::from(finished.count);
            self.unsaved.pressing = true;
            self.raise_floor();
            run.from = run.from.max(self.floor);
            self.unsaved.acked.insert(run);
        }
        finished
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
        let done = self.slots.iter().take_while(|slot| slot.standing == Standing::Done).count();
        self.slots.drain(..done);
        self.floor += done as u64;
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
