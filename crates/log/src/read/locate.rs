//! Where offsets of a lane stand, and what has become of those that are not there.

use std::sync::Arc;

use promethean_event::Offset;

use super::page::{Gap, GapReason};
use crate::engine::{Engine, Segment};
use crate::error::ReadError;
use crate::index::SegmentIndex;
use crate::topic::Lane;

impl Engine {
    /// The place in `sealed` of the segment that holds an offset of a lane, or of the first one
    /// behind it that may.
    pub(super) fn segment_of_offset(
        &self,
        sealed: &[Arc<Segment>],
        lane: Lane,
        offset: u64,
    ) -> Result<usize, ReadError> {
        // Segments whose side file is not built yet know only the lanes that they have. They are
        // the newest ones, and few.
        let unbuilt = sealed
            .iter()
            .rposition(|segment| matches!(segment.index, SegmentIndex::Side(_)))
            .map_or(0, |place| place + 1);
        for (place, segment) in sealed.iter().enumerate().skip(unbuilt).rev() {
            let start = self.ask(segment, |index| index.lane_start(lane))?;
            if start.is_some_and(|start| start <= offset) {
                return Ok(place);
            }
        }
        let (mut low, mut high) = (0, unbuilt);
        while low < high {
            let middle = low + (high - low) / 2;
            let Some(segment) = sealed.get(middle) else {
                break;
            };
            let start = self.ask(segment, |index| index.lane_start(lane))?.unwrap_or(0);
            if start <= offset {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low.saturating_sub(1))
    }

    /// Offsets that the indexes do not have: compaction took them, or damage did.
    pub(super) fn missing(&self, lane: Lane, from: u64, to: u64) -> Gap {
        let damaged = self.damage_took(lane, from, to);
        let reason = if damaged { GapReason::Corrupt } else { GapReason::Compacted };
        Gap { lane, from: Offset::new(from), to: Offset::new(to), reason }
    }

    /// Whether a damaged segment stands where these offsets of a lane should be, or none at all.
    fn damage_took(&self, lane: Lane, from: u64, to: u64) -> bool {
        let (sealed, active) = {
            let state = self.read();
            (state.sealed.clone(), (state.active.name.base, state.active.index.lane_range(lane)))
        };
        // One that cannot be asked has its side file damaged as well: then it may be so.
        let start_of = |segment: &Arc<Segment>| {
            self.ask(segment, |index| index.lane_start(lane)).map_or(Some(0), |start| start)
        };
        let damaged = sealed.iter().enumerate().filter(|(_, segment)| !segment.holes.is_empty());
        let damaged = damaged.into_iter().map(|(place, segment)| {
            let start = start_of(segment).unwrap_or(0);
            let end = sealed.iter().skip(place + 1).find_map(start_of).unwrap_or(u64::MAX);
            start..end
        });
        let next_of = |segment: &Arc<Segment>| {
            self.ask(segment, |index| index.lane_next(lane)).map_or(Some(0), |next| next)
        };
        let missing = self.missing_before(&sealed, active.0).into_iter().map(|place| {
            let (before, behind) = sealed.split_at(place);
            let in_active = || active.1.map(|(first, _)| first);
            let start = before.iter().rev().find_map(next_of).unwrap_or(0);
            let end = behind.iter().find_map(start_of).or_else(in_active).unwrap_or(u64::MAX);
            start..end
        });
        damaged.chain(missing).any(|lost| lost.start < to && from < lost.end)
    }

    /// The places in `sealed` before which a segment is missing.
    fn missing_before(&self, sealed: &[Arc<Segment>], active: u64) -> Vec<usize> {
        let bases = sealed.iter().map(|segment| segment.name.base).chain([active]);
        let first = bases.clone().next().filter(|_| !self.site.whole).unwrap_or(0);
        let expected = [first].into_iter().chain(sealed.iter().map(|segment| segment.next_seq));
        let follows = bases.zip(expected).map(|(base, expected)| base <= expected);
        follows.enumerate().filter(|(_, follows)| !follows).map(|(place, _)| place).collect()
    }
}
