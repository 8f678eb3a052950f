use std::collections::HashSet;

use promethean_event::EventId;

use super::active::ActiveIndex;
use super::key_scan::KeyEntry;
use super::side_file::{LaneEntry, SideFile, SideFileError};
use super::{FrameSample, IdRange};
use crate::topic::{Lane, TopicId};

/// The index of a sealed segment: its side file, or, until that is built, what was in memory while
/// the segment was written.
#[derive(Debug)]
pub(crate) enum SegmentIndex {
    Memory(ActiveIndex),
    Side(SideFile),
}

impl SegmentIndex {
    /// The offset at which a lane stood when the segment began, or when it first had an event.
    pub(crate) fn lane_start(&self, lane: Lane) -> Result<Option<u64>, SideFileError> {
        match self {
            Self::Memory(index) => Ok(index.lane_range(lane).map(|(first, _)| first)),
            Self::Side(file) => Ok(file.lane(lane)?.map(|entry| entry.start)),
        }
    }

    /// The offset behind the lane's last event in the segment, if it has any.
    pub(crate) fn lane_next(&self, lane: Lane) -> Result<Option<u64>, SideFileError> {
        match self {
            Self::Memory(index) => Ok(index.lane_range(lane).map(|(_, last)| last + 1)),
            Self::Side(file) => {
                let entry = file.lane(lane)?;
                Ok(entry.map(|entry| if entry.count > 0 { entry.last + 1 } else { entry.start }))
            }
        }
    }

    /// Bytes of the lane's events in the segment; 0 while nobody has counted them.
    pub(crate) fn lane_bytes(&self, lane: Lane) -> Result<u64, SideFileError> {
        match self {
            Self::Memory(_) => Ok(0),
            Self::Side(file) => Ok(file.lane(lane)?.map_or(0, |entry| entry.bytes)),
        }
    }

    pub(crate) fn positions(
        &self,
        lane: Lane,
        from: u64,
        max: usize,
    ) -> Result<Vec<(u64, u32)>, SideFileError> {
        match self {
            Self::Memory(index) => Ok(index.positions(lane, from, max)),
            Self::Side(file) => file.positions(lane, from, max),
        }
    }

    pub(crate) fn positions_before(
        &self,
        lane: Lane,
        before: u64,
        max: usize,
    ) -> Result<Vec<(u64, u32)>, SideFileError> {
        match self {
            Self::Memory(index) => Ok(index.positions_before(lane, before, max)),
            Self::Side(file) => file.positions_before(lane, before, max),
        }
    }

    pub(crate) fn offset_from_position(
        &self,
        lane: Lane,
        position: u32,
    ) -> Result<Option<u64>, SideFileError> {
        match self {
            Self::Memory(index) => Ok(index.offset_from_position(lane, position)),
            Self::Side(file) => file.offset_from_position(lane, position),
        }
    }

    pub(crate) fn find_id(&self, id: &EventId, hash: u64) -> Result<Vec<u32>, SideFileError> {
        match self {
            Self::Memory(index) => Ok(index.find_id(id, hash)),
            Self::Side(file) => file.find_id(id, hash),
        }
    }

    /// Positions at which a key with this hash may stand, newest first, up to `max` of each key.
    pub(crate) fn find_key(&self, hash: u64, max: usize) -> Result<Vec<u32>, SideFileError> {
        match self {
            Self::Memory(index) => Ok(index.find_key(hash)),
            Self::Side(file) => {
                let mut all = file.find_key(hash, max)?.concat();
                all.sort_unstable_by(|a, b| b.cmp(a));
                Ok(all)
            }
        }
    }

    /// The last sample of a frame for which `before` holds; it holds for a front part of them.
    pub(crate) fn last_sample(
        &self,
        before: impl Fn(&FrameSample) -> bool,
    ) -> Result<Option<FrameSample>, SideFileError> {
        match self {
            Self::Memory(index) => {
                let after = index.frames().partition_point(before);
                Ok(after.checked_sub(1).and_then(|place| index.frames().get(place)).copied())
            }
            Self::Side(file) => file.last_sample(before),
        }
    }

    pub(crate) fn id_range(&self) -> IdRange {
        match self {
            Self::Memory(index) => index.id_range(),
            Self::Side(file) => file.footer().id_range,
        }
    }

    /// All lanes that the side file knows; none while there is no side file.
    pub(crate) fn lane_entries(&self) -> Result<Vec<LaneEntry>, SideFileError> {
        match self {
            Self::Memory(_) => Ok(Vec::new()),
            Self::Side(side) => (0..side.lane_count()).map(|at| side.lane_at(at)).collect(),
        }
    }

    /// The keys of some topics, with their positions; none while there is no side file.
    pub(crate) fn key_entries(
        &self,
        topics: &HashSet<TopicId>,
    ) -> Result<Vec<KeyEntry>, SideFileError> {
        let Self::Side(side) = self else {
            return Ok(Vec::new());
        };
        let mut entries = Vec::new();
        for topic in topics {
            let prefix = topic.get().to_be_bytes();
            let mut scan = side.keys_from(&prefix)?;
            while let Some(entry) = scan.next()? {
                if !entry.composite.starts_with(&prefix) {
                    break;
                }
                entries.push(entry);
            }
        }
        Ok(entries)
    }
}
