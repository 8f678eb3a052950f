use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::hash::NumberMap;
use crate::lane::Lane;
use crate::place::LaneId;

/// A lane as timers and saves remember it; it stays void once the lane is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LaneRef {
    pub(crate) index: u32,
    serial: u32,
}

/// The lanes of a group, in places that are used again.
#[derive(Debug, Default)]
pub(crate) struct LaneTable {
    places: Vec<(u32, Option<Box<Lane>>)>,
    free: Vec<u32>,
    by_id: NumberMap<u32>,
}

impl LaneTable {
    pub(crate) fn add(&mut self, lane: Lane) -> LaneRef {
        let id = lane.id.get();
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            (self.places.len() - 1) as u32
        });
        let mut serial = 0;
        if let Some(place) = self.places.get_mut(index as usize) {
            place.0 += 1;
            serial = place.0;
            place.1 = Some(Box::new(lane));
        }
        self.by_id.insert(id, index);
        LaneRef { index, serial }
    }

    pub(crate) fn remove(&mut self, id: LaneId) -> Option<Box<Lane>> {
        let index = self.by_id.remove(&id.get())?;
        self.free.push(index);
        self.places.get_mut(index as usize)?.1.take()
    }

    pub(crate) fn find(&self, id: LaneId) -> Option<LaneRef> {
        let index = *self.by_id.get(&id.get())?;
        let serial = self.places.get(index as usize)?.0;
        Some(LaneRef { index, serial })
    }

    pub(crate) fn get(&self, at: LaneRef) -> Option<&Lane> {
        match self.places.get(at.index as usize) {
            Some((serial, lane)) if *serial == at.serial => lane.as_deref(),
            _ => None,
        }
    }

    pub(crate) fn get_mut(&mut self, at: LaneRef) -> Option<&mut Lane> {
        match self.places.get_mut(at.index as usize) {
            Some((serial, lane)) if *serial == at.serial => lane.as_deref_mut(),
            _ => None,
        }
    }

    /// All lanes, in the order of their places.
    pub(crate) fn refs(&self) -> Vec<LaneRef> {
        let all = self.places.iter().enumerate();
        all.filter(|(_, (_, lane))| lane.is_some())
            .map(|(index, (serial, _))| LaneRef { index: index as u32, serial: *serial })
            .collect()
    }
}
