use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use promethean_event::Offset;

use super::buffers::Buffers;
use super::frames::{FrameWalk, Step};
use super::page::{Gap, GapReason, Page, PageLimit, Visited};
use crate::engine::{Engine, ReadPlace, Segment, State};
use crate::error::ReadError;
use crate::segment::{Record, RecordRef};
use crate::topic::Lane;

/// Positions taken from an index at once.
const POSITIONS_MAX: usize = 4096;
/// What is read of a segment at once: little at first, more for those who go on.
const CHUNK_BYTES_MIN: usize = 16 * 1024;
const CHUNK_BYTES_MAX: usize = 256 * 1024;
/// Those who want fewer events at once are not served whole frames.
const FRAME_WALK_EVENTS_MIN: usize = 64;

/// Reads one lane forward.
#[derive(Debug)]
pub struct LaneReader {
    engine: Arc<Engine>,
    lane: Lane,
    next: u64,
    source: Source,
}

/// Where the next events come from.
#[derive(Debug)]
enum Source {
    /// Not known yet.
    Unknown,
    /// Frames of a sealed segment, most of which is of this lane.
    Frames(FrameWalk),
    /// Single records, by their positions.
    Records(Records),
}

#[derive(Debug)]
struct Records {
    place: ReadPlace,
    positions: VecDeque<(u64, u32)>,
    /// Frames in memory that hold the positions, as far as they do, and where they start.
    frames: VecDeque<(u32, Bytes)>,
    chunk: Bytes,
    chunk_start: u64,
    chunk_bytes: usize,
    buffers: Buffers,
    /// One that is longer than a chunk.
    long: Option<Record>,
}

/// Where the bytes of a record are.
#[derive(Debug, Clone, Copy)]
enum Found {
    Frame,
    Chunk,
    Long,
    Nowhere,
}

impl LaneReader {
    pub(crate) fn new(engine: Arc<Engine>, lane: Lane, from: Offset) -> Result<Self, ReadError> {
        let state = engine.read().catalog.lane(lane).ok_or(ReadError::UnknownLane)?;
        if from > state.next {
            return Err(ReadError::BeyondEnd { wanted: from, next: state.next });
        }
        Ok(Self { engine, lane, next: from.get(), source: Source::Unknown })
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The offset that comes next.
    pub const fn position(&self) -> Offset {
        Offset::new(self.next)
    }

    /// The next events; empty at the end of the lane.
    pub fn next_page(&mut self, limit: PageLimit) -> Result<Page, ReadError> {
        let mut records = Vec::new();
        let visited = self.visit(limit, |record| {
            if records.is_empty() {
                records.reserve(limit.events.min(POSITIONS_MAX));
            }
            records.push(record.to_record());
        })?;
        Ok(Page { records, gaps: visited.gaps })
    }

    /// Shows the next events, none at the end of the lane. Cheaper than a page for those who do
    /// not keep them.
    pub fn visit(
        &mut self,
        limit: PageLimit,
        mut show: impl FnMut(RecordRef<'_>),
    ) -> Result<Visited, ReadError> {
        let mut visit = Visit { visited: Visited::default(), limit };
        while !visit.is_done() {
            match &mut self.source {
                Source::Unknown => {
                    if !self.advance(&mut visit)? {
                        break;
                    }
                }
                Source::Frames(_) => self.visit_frames(&mut visit, &mut show)?,
                Source::Records(_) => self.visit_records(&mut visit, &mut show)?,
            }
        }
        Ok(visit.visited)
    }

    fn visit_frames(
        &mut self,
        visit: &mut Visit,
        show: &mut impl FnMut(RecordRef<'_>),
    ) -> Result<(), ReadError> {
        let Source::Frames(walk) = &mut self.source else { return Ok(()) };
        walk.limit_window(visit.limit.bytes);
        while !visit.is_done() {
            let Some(record) = walk.next_of(self.lane) else {
                match walk.step()? {
                    Step::Frame => continue,
                    Step::End => self.source = Source::Unknown,
                    // Record by record, so that what is good is still served.
                    Step::Damaged => self.source = self.records_from_here()?,
                }
                return Ok(());
            };
            let offset = record.offset().get();
            if offset < self.next {
                continue;
            }
            if offset > self.next {
                let gap = self.engine.missing(self.lane, self.next, offset);
                visit.visited.gaps.push(gap);
            }
            self.next = offset + 1;
            visit.count(record.bytes());
            show(record);
        }
        Ok(())
    }

    fn visit_records(
        &mut self,
        visit: &mut Visit,
        show: &mut impl FnMut(RecordRef<'_>),
    ) -> Result<(), ReadError> {
        let Source::Records(records) = &mut self.source else { return Ok(()) };
        while !visit.is_done() {
            let Some((offset, record)) = records.next(&self.engine)? else {
                self.source = Source::Unknown;
                return Ok(());
            };
            if offset > self.next {
                let gap = self.engine.missing(self.lane, self.next, offset);
                visit.visited.gaps.push(gap);
            }
            self.next = offset + 1;
            // A block that stands where it does not belong brings good records to wrong places.
            let belongs = |record: &RecordRef<'_>| {
                record.lane() == self.lane && record.offset().get() == offset
            };
            match record.filter(belongs) {
                Some(record) => {
                    visit.count(record.bytes());
                    show(record);
                }
                None => visit.visited.gaps.push(Gap {
                    lane: self.lane,
                    from: Offset::new(offset),
                    to: Offset::new(offset + 1),
                    reason: GapReason::Corrupt,
                }),
            }
        }
        Ok(())
    }

    /// Finds out where the next events are; false at the end of the lane.
    fn advance(&mut self, visit: &mut Visit) -> Result<bool, ReadError> {
        let max = visit.wanted().clamp(64, POSITIONS_MAX);
        loop {
            let engine = Arc::clone(&self.engine);
            let state = engine.read();
            let lane = state.catalog.lane(self.lane).ok_or(ReadError::UnknownLane)?;
            if self.next < lane.start.get() {
                let (from, to) = (Offset::new(self.next), lane.start);
                let reason = GapReason::Expired;
                visit.visited.gaps.push(Gap { lane: self.lane, from, to, reason });
                self.next = lane.start.get();
            }
            if self.next >= lane.next.get() {
                return Ok(false);
            }
            let active = state.active.index.lane_range(self.lane);
            if active.is_some_and(|(first, last)| (first..=last).contains(&self.next)) {
                self.source =
                    Source::Records(Records::in_active(&state, self.lane, self.next, max));
                return Ok(true);
            }
            let sealed = state.sealed.clone();
            drop(state);
            if let Some(source) = self.in_sealed(&sealed, max)? {
                self.source = source;
                return Ok(true);
            }
            // Nothing is left of this lane in sealed segments: the rest is in the active one, or
            // compaction has removed it all, or the lane goes on further on.
            let ahead = active.filter(|(first, _)| *first > self.next);
            let to = ahead.map_or(lane.next.get(), |(first, _)| first);
            visit.visited.gaps.push(engine.missing(self.lane, self.next, to));
            self.next = to;
        }
    }

    /// The first sealed segment that has events from the next offset on.
    fn in_sealed(&self, sealed: &[Arc<Segment>], max: usize) -> Result<Option<Source>, ReadError> {
        let first = self.engine.segment_of_offset(sealed, self.lane, self.next)?;
        for segment in sealed.iter().skip(first) {
            let positions =
                self.engine.ask(segment, |index| index.positions(self.lane, self.next, max))?;
            let Some(&(_, position)) = positions.first() else { continue };
            // A segment that was sealed a moment ago is still in memory.
            let records = Records::in_tail(&self.engine, segment, &positions);
            if let Some(records) = records {
                return Ok(Some(Source::Records(records)));
            }
            if max > FRAME_WALK_EVENTS_MIN
                && let Some(start) = self.walk_start(segment, position)?
            {
                return Ok(Some(Source::Frames(FrameWalk::new(segment.place(), start))));
            }
            return Ok(Some(Source::Records(Records::new(segment.place(), positions))));
        }
        Ok(None)
    }

    /// Where to start walking through frames to come to a position, if that is worth it.
    fn walk_start(&self, segment: &Arc<Segment>, position: u32) -> Result<Option<u64>, ReadError> {
        let bytes = self.engine.ask(segment, |index| index.lane_bytes(self.lane))?;
        if bytes * 2 < segment.end_position || !segment.holes.is_empty() {
            return Ok(None);
        }
        let sample = self
            .engine
            .ask(segment, |index| index.last_sample(|sample| sample.position <= position))?;
        Ok(sample.map(|sample| u64::from(sample.position)))
    }

    fn records_from_here(&self) -> Result<Source, ReadError> {
        let sealed = self.engine.read().sealed.clone();
        let source = self.in_sealed(&sealed, FRAME_WALK_EVENTS_MIN)?;
        Ok(source.unwrap_or(Source::Unknown))
    }
}

/// A visit under way.
struct Visit {
    visited: Visited,
    limit: PageLimit,
}

impl Visit {
    fn is_done(&self) -> bool {
        self.visited.events > 0
            && (self.visited.events >= self.limit.events || self.visited.bytes >= self.limit.bytes)
    }

    fn wanted(&self) -> usize {
        self.limit.events.saturating_sub(self.visited.events)
    }

    fn count(&mut self, bytes: usize) {
        self.visited.events += 1;
        self.visited.bytes += bytes;
    }
}

impl Records {
    fn new(place: ReadPlace, positions: Vec<(u64, u32)>) -> Self {
        Self {
            place,
            positions: positions.into(),
            frames: VecDeque::new(),
            chunk: Bytes::new(),
            chunk_start: 0,
            chunk_bytes: CHUNK_BYTES_MIN,
            buffers: Buffers::default(),
            long: None,
        }
    }

    fn in_active(state: &State, lane: Lane, from: u64, max: usize) -> Self {
        let positions = state.active.index.positions(lane, from, max);
        let frames = state.tail.frames(state.active.name, &positions);
        Self { frames, ..Self::new(state.active.place(), positions) }
    }

    /// Records of a sealed segment, if the first of them is in memory.
    fn in_tail(engine: &Engine, segment: &Segment, positions: &[(u64, u32)]) -> Option<Self> {
        let state = engine.read();
        state.tail.get(segment.name, positions.first()?.1)?;
        let frames = state.tail.frames(segment.name, positions);
        Some(Self { frames, ..Self::new(segment.place(), positions.to_vec()) })
    }

    /// The next offset and its record; no record if its bytes are damaged.
    fn next(&mut self, engine: &Engine) -> Result<Option<(u64, Option<RecordRef<'_>>)>, ReadError> {
        let Some((offset, position)) = self.positions.pop_front() else { return Ok(None) };
        let record = match self.find(engine, position)? {
            Found::Frame => {
                self.frames.front().and_then(|(start, frame)| in_memory(frame, *start, position))
            }
            Found::Chunk => in_memory(&self.chunk, self.chunk_start as u32, position),
            Found::Long => self.long.as_ref().map(Record::as_ref),
            Found::Nowhere => None,
        };
        Ok(Some((offset, record)))
    }

    fn find(&mut self, engine: &Engine, position: u32) -> Result<Found, ReadError> {
        let is_over =
            |(start, frame): &mut (u32, Bytes)| *start as usize + frame.len() <= position as usize;
        while self.frames.pop_front_if(is_over).is_some() {}
        if self.frames.front().is_some_and(|(start, _)| *start <= position) {
            return Ok(Found::Frame);
        }
        if self.is_in_chunk(position) {
            return Ok(Found::Chunk);
        }
        engine.count_disk_read();
        let earlier = std::mem::take(&mut self.chunk);
        let buffer = self.buffers.next(earlier);
        self.chunk = self.place.bytes_in(buffer, u64::from(position), self.chunk_bytes)?;
        self.chunk_start = u64::from(position);
        self.chunk_bytes = (self.chunk_bytes * 4).min(CHUNK_BYTES_MAX);
        if self.is_in_chunk(position) {
            return Ok(Found::Chunk);
        }
        // Longer than a chunk, or damaged.
        self.long = self.place.record(position)?;
        Ok(if self.long.is_some() { Found::Long } else { Found::Nowhere })
    }

    /// Whether there is a good record at a position of the chunk, all of it.
    fn is_in_chunk(&self, position: u32) -> bool {
        let start = u64::from(position).checked_sub(self.chunk_start);
        let is_good = |start| RecordRef::is_good(self.place.salt, &self.chunk, start as usize);
        start.is_some_and(is_good)
    }
}

/// The record at a position of memory whose sums were good, or that never left memory.
fn in_memory(memory: &Bytes, start: u32, position: u32) -> Option<RecordRef<'_>> {
    RecordRef::unchecked(memory, position.checked_sub(start)? as usize)
}
