//! Where a lane stands at a time or a seq.
//!
//! Of each segment its end is known, and within one its table of frames leads close to the place.
//! From there the heads of frames are read without the rest of them: none is believed before the
//! record behind it, which has a checksum of its own, says the same of seq and time.

use std::sync::Arc;

use crate::catalog::LaneState;
use crate::engine::{Engine, ReadPlace, Segment, State};
use crate::error::ReadError;
use crate::index::{FrameSample, SegmentIndex};
use crate::segment::{
    FRAME_HEADER_BYTES, FrameHeader, FrameKind, RECORD_HEADER_BYTES, RecordHeader,
};
use crate::topic::Lane;

/// What is looked for: all events from there on.
#[derive(Debug, Clone, Copy)]
enum Since {
    Millis(u64),
    Seq(u64),
}

impl Since {
    /// Whether all of a segment stands before it.
    fn is_behind(self, segment: &Segment) -> bool {
        match self {
            Self::Millis(millis) => segment.append_ms.end < millis,
            Self::Seq(seq) => segment.next_seq <= seq,
        }
    }

    /// Whether a frame begins before it. The last frame that begins at or before a seq is the one
    /// that may hold it.
    const fn is_behind_start(self, first_seq: u64, append_ms: u64) -> bool {
        match self {
            Self::Millis(millis) => append_ms < millis,
            Self::Seq(seq) => first_seq <= seq,
        }
    }

    const fn is_behind_sample(self, sample: &FrameSample) -> bool {
        self.is_behind_start(sample.seq, sample.append_ms)
    }
}

/// What was found. Offsets are as the indexes have them: the lane may start behind them by now.
#[derive(Debug, Clone, Copy)]
struct Found {
    lane: LaneState,
    /// The first event from there on.
    first: Option<u64>,
    /// Where those of the lane that are from there on begin, whether they are there or not; `None` if
    /// nothing is known but the first that is there.
    begins: Option<u64>,
}

impl Engine {
    /// The first offset of a lane that was appended at or after a time; the end if there is none.
    pub(crate) fn offset_at_ms(&self, lane: Lane, millis: u64) -> Result<u64, ReadError> {
        let Found { lane, first, .. } = self.search(lane, Since::Millis(millis))?;
        let (start, next) = (lane.start.get(), lane.next.get());
        // Logs of before may have been trimmed to beyond their end.
        Ok(first.map_or(next, |first| first.max(start).min(next)))
    }

    /// Where to read a lane from to come by all that is not before a seq, or to be told that it is not
    /// there any more: behind the last event before it. What comes first may be before it.
    pub(crate) fn offset_at_seq(&self, lane: Lane, seq: u64) -> Result<u64, ReadError> {
        if seq == 0 {
            return Ok(0);
        }
        let Found { lane, first, begins } = self.search(lane, Since::Seq(seq))?;
        let first = first.unwrap_or(u64::MAX).min(lane.next.get());
        Ok(begins.unwrap_or(first).min(first))
    }

    fn search(&self, lane: Lane, since: Since) -> Result<Found, ReadError> {
        loop {
            if let Some(found) = self.search_once(lane, since)? {
                return Ok(found);
            }
        }
    }

    /// `None` if the segment that was written has been sealed meanwhile: it was not among those that
    /// are sealed, and is not the one that is written.
    fn search_once(&self, lane: Lane, since: Since) -> Result<Option<Found>, ReadError> {
        let (sealed, known, active) = {
            let state = self.read();
            let known = state.catalog.lane(lane).ok_or(ReadError::UnknownLane)?;
            (state.sealed.clone(), known, state.active.name)
        };
        let at = sealed.partition_point(|segment| since.is_behind(segment));
        for (number, segment) in sealed.iter().enumerate().skip(at) {
            // Only in the first of these segments can there be frames that still come before.
            let position = if number == at { self.frame_in(segment, since)? } else { 0 };
            let first = self.ask(segment, |index| index.offset_from_position(lane, position))?;
            if first.is_some() {
                let begins = self.begins(&sealed, at, (lane, since, first))?;
                return Ok(Some(Found { lane: known, first, begins }));
            }
        }
        let (place, start, known) = {
            let state = self.read();
            if state.active.name != active {
                return Ok(None);
            }
            let known = state.catalog.lane(lane).ok_or(ReadError::UnknownLane)?;
            let frames = state.active.index.frames();
            let after = frames.partition_point(|sample| since.is_behind_sample(sample));
            let start = after.checked_sub(1).and_then(|place| frames.get(place)).copied();
            (state.active.place(), start, known)
        };
        let position = frame_at(&place, start, since)?;
        let (first, before) = {
            let state = self.read();
            if state.active.name != active {
                return Ok(None);
            }
            let first = state.active.index.offset_from_position(lane, position);
            // What was appended since may be before a time that is to come.
            let first = first.filter(|&first| first < known.next.get());
            (first, before_in(&state, lane, first))
        };
        let begins = match (sealed.get(at), since) {
            (Some(_), _) => self.begins(&sealed, at, (lane, since, first))?,
            (None, Since::Seq(seq)) if active.base > seq => self.next_before(&sealed, at, lane)?,
            (None, _) => before.map(|before| before + 1),
        };
        Ok(Some(Found { lane: known, first, begins }))
    }

    /// The position of the frame in a sealed segment from which on to look.
    fn frame_in(&self, segment: &Arc<Segment>, since: Since) -> Result<u32, ReadError> {
        let sample =
            self.ask(segment, |index| index.last_sample(|sample| since.is_behind_sample(sample)))?;
        frame_at(&segment.place(), sample, since)
    }

    /// Where a lane's events from a seq on begin, if `first` is the first that is there and the seq is
    /// in the segment at a place of `sealed`, or in one that is missing before it.
    fn begins(
        &self,
        sealed: &[Arc<Segment>],
        at: usize,
        (lane, since, first): (Lane, Since, Option<u64>),
    ) -> Result<Option<u64>, ReadError> {
        let (Since::Seq(seq), Some(segment)) = (since, sealed.get(at)) else {
            return Ok(None);
        };
        if segment.name.base > seq {
            return self.next_before(sealed, at, lane);
        }
        let before = first.unwrap_or(u64::MAX);
        let last = self.ask(segment, |index| index.positions_before(lane, before, 1))?;
        if let Some((offset, _)) = last.first() {
            return Ok(Some(offset + 1));
        }
        self.next_before(sealed, at, lane)
    }

    /// Where a lane stood when the segments before a place in `sealed` ended; earlier, if the last
    /// events before were cleaned away.
    fn next_before(
        &self,
        sealed: &[Arc<Segment>],
        at: usize,
        lane: Lane,
    ) -> Result<Option<u64>, ReadError> {
        for segment in sealed.iter().take(at).rev() {
            let next = self.ask(segment, |index| index.lane_next(lane))?;
            // A side file knows all lanes that had anything before.
            if next.is_some() || matches!(segment.index, SegmentIndex::Side(_)) {
                return Ok(next.or(Some(0)));
            }
        }
        Ok(Some(0))
    }
}

/// The last event before an offset in the segment that is written.
fn before_in(state: &State, lane: Lane, offset: Option<u64>) -> Option<u64> {
    let before = state.active.index.positions_before(lane, offset.unwrap_or(u64::MAX), 1);
    before.first().map(|&(offset, _)| offset)
}

/// The position of the first frame that is not before a time, or of the one that may hold a seq; 0 for
/// the first of all. `start` is the last sample before it.
fn frame_at(place: &ReadPlace, start: Option<FrameSample>, since: Since) -> Result<u32, ReadError> {
    let Some(start) = start.map(|sample| sample.position) else {
        return Ok(0);
    };
    let (mut before, mut position) = (start, u64::from(start));
    while position < place.end {
        let Some(header) = head_at(place, position)? else {
            return damaged(place, position, (start, since));
        };
        if !since.is_behind_start(header.first_seq, header.append_ms) {
            break;
        }
        before = position as u32;
        position += header.frame_bytes();
    }
    match since {
        // The length of a frame at the end has nothing behind it that would tell whether it is right.
        _ if position > place.end => damaged(place, u64::from(before), (start, since)),
        Since::Millis(_) => Ok(position as u32),
        Since::Seq(_) => Ok(before),
    }
}

/// Damage on the way. Who reads from a seq on may begin too early, and comes by the damage himself.
fn damaged(
    place: &ReadPlace,
    position: u64,
    (start, since): (u32, Since),
) -> Result<u32, ReadError> {
    match since {
        Since::Millis(_) => Err(place.damaged(position as u32)),
        Since::Seq(_) => Ok(start),
    }
}

/// The head of the frame at a position, if it can be believed. That of a frame of events is held
/// against its first record, so that nobody has to read megabytes to find out when they were written.
fn head_at(place: &ReadPlace, position: u64) -> Result<Option<FrameHeader>, ReadError> {
    let head = place.bytes(position, FRAME_HEADER_BYTES + RECORD_HEADER_BYTES)?;
    let Some(header) = FrameHeader::peek(&head) else { return Ok(None) };
    if u64::from(header.position) != position {
        return Ok(None);
    }
    if header.kind == FrameKind::Events {
        let record = head.get(FRAME_HEADER_BYTES..).unwrap_or_default();
        let agrees = |record: &RecordHeader| {
            (record.seq, record.append_ms) == (header.first_seq, header.append_ms)
        };
        let record = RecordHeader::decode(place.salt, record).filter(agrees);
        return Ok(record.map(|_| header));
    }
    let frame = place.bytes(position, header.frame_bytes() as usize)?;
    Ok(header.check(place.salt, &frame).map(|_| header))
}
