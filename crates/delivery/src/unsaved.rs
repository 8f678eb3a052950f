use alloc::vec::Vec;

use crate::lane::Lane;
use crate::limits::QUIET_FLOOR_EVENTS;
use crate::state::{Change, LaneDelta};
use crate::watermark::SpanSet;

/// What a lane has to save.
#[derive(Debug, Default)]
pub(crate) struct Unsaved {
    /// In the group's list of lanes that have something to save.
    pub(crate) listed: bool,
    /// Finished offsets beyond the floor.
    pub(crate) acked: SpanSet,
    /// Offsets whose record changed.
    pub(crate) records: Vec<u64>,
    /// Something was finished by somebody, who waits for an answer.
    pub(crate) pressing: bool,
    changes: Vec<Change>,
    horizon: bool,
    version: u64,
    floor: u64,
}

impl Unsaved {
    pub(crate) fn begin(&mut self, version: u64, floor: u64) {
        self.version = version;
        self.floor = floor;
    }

    pub(crate) fn push(&mut self, change: Change) {
        self.changes.push(change);
    }

    pub(crate) fn want_horizon(&mut self) {
        self.horizon = true;
    }
}

impl Lane {
    /// Whether anything must be saved without waiting for company. A floor that rises over
    /// skipped events alone is worth a save only from time to time: they would be skipped again.
    pub(crate) fn must_save(&self) -> bool {
        let unsaved = &self.unsaved;
        unsaved.pressing
            || unsaved.horizon
            || !unsaved.changes.is_empty()
            || !unsaved.records.is_empty()
            || self.floor - unsaved.floor.min(self.floor) >= QUIET_FLOOR_EVENTS
    }

    /// Writes what changed into the list of changes; a seek must come after it.
    pub(crate) fn settle_changes(&mut self) {
        let unsaved = &mut self.unsaved;
        if self.floor > unsaved.floor {
            unsaved.floor = self.floor;
            unsaved.changes.push(Change::Floor(self.floor));
        }
        unsaved.acked.cut_below(self.floor);
        let acked = unsaved.acked.take();
        unsaved.changes.extend(acked.into_iter().map(Change::Acked));
        if core::mem::take(&mut unsaved.horizon) {
            unsaved.changes.push(Change::Horizon(self.horizon.requested));
        }
        let mut offsets = core::mem::take(&mut unsaved.records);
        offsets.sort_unstable();
        offsets.dedup();
        let records = offsets.iter().filter_map(|offset| self.records.get(offset));
        unsaved.changes.extend(records.cloned().map(Change::Attempted));
    }

    /// Records the new place of the floor as saved, for a seek that carries it.
    pub(crate) fn saved_floor(&mut self, floor: u64) {
        self.unsaved.floor = floor;
    }

    /// The next delta; `None` if nothing changed.
    pub(crate) fn take_delta(&mut self) -> Option<LaneDelta> {
        self.settle_changes();
        self.unsaved.listed = false;
        self.unsaved.pressing = false;
        if self.unsaved.changes.is_empty() {
            return None;
        }
        self.unsaved.version += 1;
        Some(LaneDelta {
            version: self.unsaved.version,
            changes: core::mem::take(&mut self.unsaved.changes),
        })
    }
}
