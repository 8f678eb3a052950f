//! At most one event of a key is in play; the others of the window stand in line behind it, as a
//! list threaded through their slots. Two keys with the same hash share a line, which delays
//! but never reorders.

use hashbrown::hash_map::Entry;

use crate::lane::Lane;
use crate::slot::{Slot, Standing};

const NONE: u64 = u64::MAX;

/// The events of one key in one lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyLine {
    /// The one in play; none while the key is parked.
    active: u64,
    /// The first and the last that wait.
    first: u64,
    last: u64,
}

impl KeyLine {
    const fn led_by(active: u64) -> Self {
        Self { active, first: NONE, last: NONE }
    }
}

impl Lane {
    /// A fetched event of `key` arrives at the end of the line. Whether it is in play at once.
    pub(crate) fn key_arrives(&mut self, key: u64, offset: u64) -> bool {
        let line = match self.keys.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(KeyLine::led_by(offset));
                return true;
            }
            Entry::Occupied(entry) => entry.into_mut(),
        };
        let before = line.last;
        line.last = offset;
        if line.first == NONE {
            line.first = offset;
        } else if let Some(slot) = ring_slot(&mut self.slots, self.floor, before) {
            slot.next = (offset - before) as u32;
        }
        false
    }

    /// The event in play of `key` is finished: the next one gets its turn.
    pub(crate) fn key_advances(&mut self, key: u64) {
        if let Some(offset) = self.next_in_line(key) {
            self.activate(offset);
        }
    }

    fn next_in_line(&mut self, key: u64) -> Option<u64> {
        let waiting = self.released_in_line(key);
        let parked = self.is_parked_before(key, NONE);
        let Entry::Occupied(mut entry) = self.keys.entry(key) else {
            return None;
        };
        let line = entry.get_mut();
        if let Some(offset) = waiting {
            line.active = offset;
            return Some(offset);
        }
        if parked {
            line.active = NONE;
            return None;
        }
        if line.first == NONE {
            entry.remove();
            return None;
        }
        let offset = line.first;
        line.active = offset;
        let distance = match ring_slot(&mut self.slots, self.floor, offset) {
            Some(slot) => core::mem::take(&mut slot.next),
            None => 0,
        };
        if distance == 0 {
            line.first = NONE;
            line.last = NONE;
        } else {
            line.first = offset + u64::from(distance);
        }
        Some(offset)
    }

    /// The earliest released dead letter of `key` that waits, if it waits for its turn only.
    /// There are few released events.
    fn released_in_line(&self, key: u64) -> Option<u64> {
        self.released
            .iter()
            .find(|(_, slot)| slot.standing == Standing::Waiting && slot.key() == Some(key))
            .map(|(offset, _)| *offset)
            .filter(|offset| !self.is_parked_before(key, *offset))
    }

    /// Whether `key` waits for a dead letter from before `offset`.
    fn is_parked_before(&self, key: u64, offset: u64) -> bool {
        !self.parked.is_empty() && self.parked.range((key, 0)..(key, offset)).next().is_some()
    }

    /// Nothing of `key` moves until [`Lane::key_resolves`].
    pub(crate) fn key_parks(&mut self, key: u64) {
        self.keys.entry(key).or_insert(KeyLine::led_by(NONE)).active = NONE;
    }

    /// A released dead letter of `key` comes: in play if nothing else is, else next in line.
    pub(crate) fn key_released(&mut self, key: u64, offset: u64) -> bool {
        let parked = self.is_parked_before(key, offset);
        let line = self.keys.entry(key).or_insert(KeyLine::led_by(NONE));
        if line.active == NONE && !parked {
            line.active = offset;
            true
        } else {
            false
        }
    }

    /// A dead letter that `key` waited for is out of the way.
    pub(crate) fn key_resolves(&mut self, key: u64) {
        if self.keys.get(&key).is_some_and(|line| line.active == NONE) {
            self.key_advances(key);
        }
    }

    /// Takes an event that waits out of the middle of its line.
    pub(crate) fn key_unlinks(&mut self, key: u64, offset: u64) {
        let Some(line) = self.keys.get_mut(&key) else {
            return;
        };
        let (mut at, mut before) = (line.first, NONE);
        while at != NONE {
            let Some(slot) = ring_slot(&mut self.slots, self.floor, at) else {
                return;
            };
            let following = match slot.next {
                0 => NONE,
                distance => at + u64::from(distance),
            };
            if at != offset {
                before = at;
                at = following;
                continue;
            }
            slot.next = 0;
            if line.last == offset {
                line.last = before;
            }
            match ring_slot(&mut self.slots, self.floor, before) {
                Some(slot) if following == NONE => slot.next = 0,
                Some(slot) => slot.next = (following - before) as u32,
                None => line.first = following,
            }
            return;
        }
    }
}

fn ring_slot(
    slots: &mut alloc::collections::VecDeque<Slot>,
    floor: u64,
    offset: u64,
) -> Option<&mut Slot> {
    if offset == NONE {
        return None;
    }
    slots.get_mut(usize::try_from(offset.checked_sub(floor)?).ok()?)
}
