//! Reading in order: one lane by offset, several by seq.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use promethean_event::{Offset, Seq};

use crate::engine::{Engine, ReadPlace, Segment, State};
use crate::error::ReadError;
use crate::index::SegmentIndex;
use crate::segment::Record;
use crate::topic::Lane;

/// Positions taken from an index at once.
const POSITIONS_MAX: usize = 4096;
/// What is read of a segment at once: little at first, more for those who go on.
const CHUNK_BYTES_MIN: usize = 16 * 1024;
const CHUNK_BYTES_MAX: usize = 256 * 1024;

/// How much a page may hold: whichever comes first, but one event at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimit {
    /// Events. Default 1,000.
    pub events: usize,
    /// Bytes in the log. Default 1 MiB.
    pub bytes: usize,
}

impl Default for PageLimit {
    fn default() -> Self {
        Self { events: 1000, bytes: 1024 * 1024 }
    }
}

/// Some events, in order, and what is missing between them.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The events.
    pub records: Vec<Record>,
    /// Offsets that were passed and are not among them: nothing is skipped silently.
    pub gaps: Vec<Gap>,
}

/// Offsets of a lane that are not there any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The lane.
    pub lane: Lane,
    /// The first missing offset.
    pub from: Offset,
    /// The first offset after them that may be there.
    pub to: Offset,
    /// Why.
    pub reason: GapReason,
}

/// Why offsets are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GapReason {
    /// Retention removed them: history starts later.
    Expired,
    /// Newer events of the same keys have taken their place.
    Compacted,
    /// The bytes are damaged.
    Corrupt,
}

/// Reads one lane forward.
#[derive(Debug)]
pub struct LaneReader {
    engine: Arc<Engine>,
    lane: Lane,
    next: u64,
    source: Option<Source>,
    chunk: Bytes,
    chunk_start: u64,
    chunk_bytes: usize,
}

/// Where the next events come from.
#[derive(Debug)]
struct Source {
    place: ReadPlace,
    positions: VecDeque<(u64, u32)>,
    /// Frames in memory that hold the positions, as far as they do.
    cached: VecDeque<Option<Bytes>>,
    damaged: bool,
}

impl LaneReader {
    pub(crate) fn new(engine: Arc<Engine>, lane: Lane, from: Offset) -> Result<Self, ReadError> {
        let state = engine.read().catalog.lane(lane).ok_or(ReadError::UnknownLane)?;
        if from > state.next {
            return Err(ReadError::BeyondEnd { wanted: from, next: state.next });
        }
        Ok(Self {
            engine,
            lane,
            next: from.get(),
            source: None,
            chunk: Bytes::new(),
            chunk_start: 0,
            chunk_bytes: CHUNK_BYTES_MIN,
        })
    }

    /// The offset that comes next.
    pub const fn position(&self) -> Offset {
        Offset::new(self.next)
    }

    /// The next events; empty at the end of the lane.
    pub fn next_page(&mut self, limit: PageLimit) -> Result<Page, ReadError> {
        let mut page = Page::default();
        let mut bytes = 0;
        while page.records.len() < limit.events.max(1) && bytes < limit.bytes {
            if self.source.as_ref().is_none_or(|source| source.positions.is_empty())
                && !self.advance(limit.events.saturating_sub(page.records.len()), &mut page)?
            {
                break;
            }
            let Some((offset, position, cached)) = self.source.as_mut().and_then(Source::pop)
            else {
                continue;
            };
            if offset > self.next {
                page.gaps.push(self.gap(self.next, offset));
            }
            self.next = offset + 1;
            match self.record(position, cached)? {
                Some(record) => {
                    debug_assert_eq!((record.lane(), record.offset().get()), (self.lane, offset));
                    bytes += record.bytes();
                    page.records.push(record);
                }
                None => page.gaps.push(Gap {
                    lane: self.lane,
                    from: Offset::new(offset),
                    to: Offset::new(offset + 1),
                    reason: GapReason::Corrupt,
                }),
            }
        }
        Ok(page)
    }

    /// Finds positions for the next offsets; false at the end of the lane.
    fn advance(&mut self, wanted: usize, page: &mut Page) -> Result<bool, ReadError> {
        let max = wanted.clamp(64, POSITIONS_MAX);
        loop {
            let engine = Arc::clone(&self.engine);
            let state = engine.read();
            let lane = state.catalog.lane(self.lane).ok_or(ReadError::UnknownLane)?;
            if self.next < lane.start.get() {
                page.gaps.push(self.expired(lane.start.get()));
                self.next = lane.start.get();
            }
            if self.next >= lane.next.get() {
                return Ok(false);
            }
            if state.active.index.lane_range(self.lane).is_some_and(|(first, _)| first <= self.next)
            {
                self.source = Some(Source::in_active(&state, self.lane, self.next, max));
                return Ok(true);
            }
            let sealed = state.sealed.clone();
            let active = state.active.index.lane_range(self.lane);
            drop(state);
            if let Some(source) = self.in_sealed(&sealed, max)? {
                self.source = Some(source);
                return Ok(true);
            }
            // Nothing is left of this lane in sealed segments: the rest is in the active one, or
            // compaction has removed it all.
            let to = active.map_or(lane.next.get(), |(first, _)| first);
            page.gaps.push(self.gap(self.next, to));
            self.next = to;
        }
    }

    /// Positions in the first sealed segment that has any from the next offset on.
    fn in_sealed(&self, sealed: &[Arc<Segment>], max: usize) -> Result<Option<Source>, ReadError> {
        let first = self.engine.segment_of_offset(sealed, self.lane, self.next)?;
        for segment in sealed.iter().skip(first) {
            let positions =
                self.engine.ask(segment, |index| index.positions(self.lane, self.next, max))?;
            if !positions.is_empty() {
                return Ok(Some(Source {
                    place: segment.place(),
                    positions: positions.into(),
                    cached: VecDeque::new(),
                    damaged: !segment.holes.is_empty(),
                }));
            }
        }
        Ok(None)
    }

    fn expired(&self, to: u64) -> Gap {
        let (from, to) = (Offset::new(self.next), Offset::new(to));
        Gap { lane: self.lane, from, to, reason: GapReason::Expired }
    }

    /// Offsets that the indexes do not have: compaction took them, or damage did.
    fn gap(&self, from: u64, to: u64) -> Gap {
        let damaged = self.source.as_ref().is_some_and(|source| source.damaged)
            || self.engine.damage_took(self.lane, from, to);
        let reason = if damaged { GapReason::Corrupt } else { GapReason::Compacted };
        Gap { lane: self.lane, from: Offset::new(from), to: Offset::new(to), reason }
    }

    fn record(
        &mut self,
        position: u32,
        cached: Option<Bytes>,
    ) -> Result<Option<Record>, ReadError> {
        let Some(source) = &self.source else {
            return Ok(None);
        };
        let salt = source.place.salt;
        if let Some(bytes) = cached {
            return Ok(Record::decode(salt, &bytes));
        }
        if let Some(record) = self.in_chunk(salt, position) {
            return Ok(Some(record));
        }
        self.engine.count_disk_read();
        self.chunk = source.place.bytes(u64::from(position), self.chunk_bytes)?;
        self.chunk_start = u64::from(position);
        self.chunk_bytes = (self.chunk_bytes * 4).min(CHUNK_BYTES_MAX);
        if let Some(record) = self.in_chunk(salt, position) {
            return Ok(Some(record));
        }
        // Longer than a chunk, or damaged.
        Ok(source.place.record(position)?)
    }

    fn in_chunk(&self, salt: u32, position: u32) -> Option<Record> {
        let start = u64::from(position).checked_sub(self.chunk_start)? as usize;
        if start >= self.chunk.len() {
            return None;
        }
        Record::decode(salt, &self.chunk.slice(start..))
    }
}

impl Source {
    fn in_active(state: &State, lane: Lane, from: u64, max: usize) -> Self {
        let positions = state.active.index.positions(lane, from, max);
        let name = state.active.name;
        let cached =
            positions.iter().map(|&(_, position)| state.tail.get(name, position)).collect();
        let place = state.active.place();
        Self { place, positions: positions.into(), cached, damaged: false }
    }

    fn pop(&mut self) -> Option<(u64, u32, Option<Bytes>)> {
        let (offset, position) = self.positions.pop_front()?;
        Some((offset, position, self.cached.pop_front().flatten()))
    }
}

impl Engine {
    /// The place in `sealed` of the segment that holds an offset of a lane, or of the first one
    /// behind it that may.
    fn segment_of_offset(
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

    /// Whether a damaged segment stands where these offsets of a lane should be.
    fn damage_took(&self, lane: Lane, from: u64, to: u64) -> bool {
        let sealed = self.read().sealed.clone();
        // One that cannot be asked has its side file damaged as well: then it may be so.
        let start_of = |segment: &Arc<Segment>| {
            self.ask(segment, |index| index.lane_start(lane)).map_or(Some(0), |start| start)
        };
        let damaged = sealed.iter().enumerate().filter(|(_, segment)| !segment.holes.is_empty());
        damaged.into_iter().any(|(place, segment)| {
            let start = start_of(segment).unwrap_or(0);
            let end = sealed.iter().skip(place + 1).find_map(start_of).unwrap_or(u64::MAX);
            start < to && from < end
        })
    }

    /// Up to `limit` events of a lane before an offset, newest first.
    pub(crate) fn page_before(
        &self,
        lane: Lane,
        before: u64,
        limit: PageLimit,
    ) -> Result<Page, ReadError> {
        let mut page = Page::default();
        let (sealed, start, place, mut positions) = {
            let state = self.read();
            let known = state.catalog.lane(lane).ok_or(ReadError::UnknownLane)?;
            let positions = state.active.index.positions_before(lane, before, limit.events);
            (state.sealed.clone(), known.start.get(), state.active.place(), positions)
        };
        let mut bytes = 0;
        let mut place = place;
        let mut older = sealed.iter().rev();
        loop {
            for &(offset, position) in &positions {
                if offset < start || page.records.len() >= limit.events || bytes >= limit.bytes {
                    return Ok(page);
                }
                let record = place.record(position)?.ok_or_else(|| place.damaged(position))?;
                bytes += record.bytes();
                page.records.push(record);
            }
            let Some(segment) = older.next() else {
                return Ok(page);
            };
            let wanted = limit.events - page.records.len();
            positions = self.ask(segment, |index| index.positions_before(lane, before, wanted))?;
            place = segment.place();
        }
    }
}

/// Reads several lanes forward, in the order in which their events were appended.
#[derive(Debug)]
pub struct MergedReader {
    lanes: Vec<Buffered>,
}

#[derive(Debug)]
struct Buffered {
    reader: LaneReader,
    records: VecDeque<Record>,
    /// The first seq that was asked for.
    from: u64,
}

impl MergedReader {
    pub(crate) fn new(
        engine: &Arc<Engine>,
        lanes: impl IntoIterator<Item = Lane>,
        from: Seq,
    ) -> Result<Self, ReadError> {
        let next = engine.read().next_seq;
        if from.get() > next {
            return Err(ReadError::SeqBeyondEnd { wanted: from, next: Seq::new(next) });
        }
        let lanes = lanes.into_iter().map(|lane| {
            let start = Offset::new(engine.offset_at_seq(lane, from.get())?);
            let reader = LaneReader::new(Arc::clone(engine), lane, start)?;
            Ok(Buffered { reader, records: VecDeque::new(), from: from.get() })
        });
        Ok(Self { lanes: lanes.collect::<Result<_, ReadError>>()? })
    }

    /// The next events by seq; empty at the end.
    pub fn next_page(&mut self, limit: PageLimit) -> Result<Page, ReadError> {
        let mut page = Page::default();
        let mut bytes = 0;
        let Some(first) = self.lanes.first() else {
            return Ok(page);
        };
        // Lanes are only compared up to where the log stands now: one that seems to have ended
        // may get an event at any time that comes before one of another lane.
        let end = first.reader.engine.read().next_seq;
        let mut heap = BinaryHeap::with_capacity(self.lanes.len());
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            let next = lane.next_seq(limit, &mut page.gaps)?;
            heap.extend(next.filter(|&seq| seq < end).map(|seq| Reverse((seq, number))));
        }
        while page.records.len() < limit.events.max(1) && bytes < limit.bytes {
            let Some(Reverse((_, number))) = heap.pop() else {
                break;
            };
            let Some(lane) = self.lanes.get_mut(number) else {
                break;
            };
            if let Some(record) = lane.records.pop_front() {
                bytes += record.bytes();
                page.records.push(record);
            }
            let next = lane.next_seq(limit, &mut page.gaps)?;
            heap.extend(next.filter(|&seq| seq < end).map(|seq| Reverse((seq, number))));
        }
        Ok(page)
    }
}

impl Buffered {
    /// The seq of the lane's next event, read ahead if need be.
    fn next_seq(
        &mut self,
        limit: PageLimit,
        gaps: &mut Vec<Gap>,
    ) -> Result<Option<u64>, ReadError> {
        if self.records.is_empty() {
            let part = PageLimit { events: limit.events.min(256), bytes: limit.bytes };
            // The first frame may hold events before the seq that was asked for.
            while self.records.is_empty() {
                let page = self.reader.next_page(part)?;
                let at_end = page.records.is_empty();
                gaps.extend(page.gaps);
                if at_end {
                    break;
                }
                let wanted = |record: &Record| record.seq().get() >= self.from;
                self.records.extend(page.records.into_iter().filter(wanted));
            }
        }
        Ok(self.records.front().map(|record| record.seq().get()))
    }
}
