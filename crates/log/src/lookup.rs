//! Finding single events: by id, newest of a key, all of a key, offset at a time or a seq.

use std::sync::Arc;

use promethean_event::EventId;

use crate::engine::{Engine, ReadPlace, Segment, State};
use crate::error::ReadError;
use crate::index::{id_hash, key_hash};
use crate::segment::{FRAME_HEADER_BYTES, FrameHeader, Record};
use crate::topic::{Lane, TopicId};

impl Engine {
    /// The event with this id in this topic.
    pub(crate) fn find_id(
        &self,
        topic: TopicId,
        id: &EventId,
    ) -> Result<Option<Record>, ReadError> {
        self.find_by_hash(topic, id, id_hash(topic, id))
    }

    pub(crate) fn find_by_hash(
        &self,
        topic: TopicId,
        id: &EventId,
        hash: u64,
    ) -> Result<Option<Record>, ReadError> {
        // An id that retention has let go may be there once more: only what is kept counts.
        let wanted = |record: &Record| {
            record.lane().topic == topic && record.id() == *id && self.is_kept(record)
        };
        let (active, sealed) = {
            let state = self.read();
            (in_active(&state, state.active.index.find_id(id, hash)), state.sealed.clone())
        };
        if let Some(record) = first_record(&active, wanted)? {
            return Ok(Some(record));
        }
        for segment in sealed.iter().rev() {
            if !segment.index.id_range().may_have(id) {
                continue;
            }
            let positions = self.ask(segment, |index| index.find_id(id, hash))?;
            let candidates = candidates(segment, positions);
            if let Some(record) = first_record(&candidates, wanted)? {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// The newest event of a key, tombstones included.
    pub(crate) fn latest(&self, topic: TopicId, key: &str) -> Result<Option<Record>, ReadError> {
        let mut found = self.history_of(topic, key, 1)?;
        Ok(found.pop())
    }

    /// The newest `max` events of a key, newest first.
    pub(crate) fn history_of(
        &self,
        topic: TopicId,
        key: &str,
        max: usize,
    ) -> Result<Vec<Record>, ReadError> {
        let hash = key_hash(topic, key);
        let wanted = |record: &Record| record.lane().topic == topic && record.key() == Some(key);
        let (active, sealed) = {
            let state = self.read();
            (in_active(&state, state.active.index.find_key(hash)), state.sealed.clone())
        };
        let mut found = Vec::new();
        self.collect(&active, wanted, max, &mut found)?;
        for segment in sealed.iter().rev() {
            if found.len() >= max {
                break;
            }
            let wanted_count = max - found.len();
            let positions = self.ask(segment, |index| index.find_key(hash, wanted_count))?;
            self.collect(&candidates(segment, positions), wanted, max, &mut found)?;
        }
        Ok(found)
    }

    fn collect(
        &self,
        candidates: &[Candidate],
        wanted: impl Fn(&Record) -> bool,
        max: usize,
        found: &mut Vec<Record>,
    ) -> Result<(), ReadError> {
        for candidate in candidates {
            if found.len() == max {
                return Ok(());
            }
            let record = candidate.record()?;
            if wanted(&record) && self.is_kept(&record) {
                found.push(record);
            }
        }
        Ok(())
    }

    /// Whether a record is part of the history, and not only not yet swept away.
    pub(crate) fn is_kept(&self, record: &Record) -> bool {
        let lane = self.read().catalog.lane(record.lane());
        lane.is_some_and(|lane| record.offset() >= lane.start)
    }

    /// The first offset of a lane that was appended at or after a time; the end if there is none.
    pub(crate) fn offset_at_ms(&self, lane: Lane, millis: u64) -> Result<u64, ReadError> {
        self.offset_where(
            lane,
            |segment| segment.append_ms.end < millis,
            |header| header.append_ms < millis,
        )
    }

    /// The first offset of a lane whose seq is not before `seq`; the end if there is none.
    pub(crate) fn offset_at_seq(&self, lane: Lane, seq: u64) -> Result<u64, ReadError> {
        self.offset_where(
            lane,
            |segment| segment.next_seq <= seq,
            |header| header.next_seq() <= seq,
        )
    }

    /// The first offset of a lane behind all segments and frames for which `before` holds.
    fn offset_where(
        &self,
        lane: Lane,
        segment_before: impl Fn(&Segment) -> bool,
        frame_before: impl Fn(&FrameHeader) -> bool,
    ) -> Result<u64, ReadError> {
        let (sealed, lane_state) = {
            let state = self.read();
            let lane = state.catalog.lane(lane).ok_or(ReadError::UnknownLane)?;
            (state.sealed.clone(), lane)
        };
        let bounded = |offset: u64| offset.clamp(lane_state.start.get(), lane_state.next.get());
        let first = sealed.partition_point(|segment| segment_before(segment));
        for (number, segment) in sealed.iter().enumerate().skip(first) {
            // Only in the first of these segments can there be frames that still come before.
            let position = if number == first {
                let sample = self.ask(segment, |index| {
                    index.last_sample(|sample| frame_before(&sample.as_frame()))
                })?;
                first_frame(&segment.place(), sample.map_or(0, |at| at.position), &frame_before)?
            } else {
                0
            };
            let found = self.ask(segment, |index| index.offset_from_position(lane, position))?;
            if let Some(offset) = found {
                return Ok(bounded(offset));
            }
        }
        let (place, start) = {
            let state = self.read();
            // A segment that was sealed in between is behind the ones that were asked.
            let frames = state.active.index.frames();
            let after = frames.partition_point(|sample| frame_before(&sample.as_frame()));
            let start = after.checked_sub(1).and_then(|place| frames.get(place));
            (state.active.place(), start.map_or(0, |sample| sample.position))
        };
        let position = first_frame(&place, start, &frame_before)?;
        let found = self.read().active.index.offset_from_position(lane, position);
        Ok(bounded(found.unwrap_or(lane_state.next.get())))
    }
}

/// The position of the first frame from `start` on (0: the first of all) for which `before` does
/// not hold. Frames without events stand in nobody's way.
fn first_frame(
    place: &ReadPlace,
    start: u32,
    before: &impl Fn(&FrameHeader) -> bool,
) -> Result<u32, ReadError> {
    let mut position = u64::from(start);
    if start == 0 {
        return Ok(0);
    }
    while position < place.end {
        let head = place.bytes(position, FRAME_HEADER_BYTES)?;
        let header = FrameHeader::peek(&head).ok_or_else(|| place.damaged(position as u32))?;
        if !before(&header) {
            break;
        }
        position += header.frame_bytes();
    }
    Ok(position as u32)
}

/// A place at which a wanted record may stand.
#[derive(Debug)]
struct Candidate {
    place: ReadPlace,
    position: u32,
    bytes: Option<bytes::Bytes>,
}

impl Candidate {
    fn record(&self) -> Result<Record, ReadError> {
        let record = match &self.bytes {
            Some(bytes) => Record::decode(self.place.salt, bytes),
            None => self.place.record(self.position)?,
        };
        record.ok_or_else(|| self.place.damaged(self.position))
    }
}

fn candidates(segment: &Arc<Segment>, positions: Vec<u32>) -> Vec<Candidate> {
    let place = segment.place();
    let at = |position| Candidate { place: place.clone(), position, bytes: None };
    positions.into_iter().map(at).collect()
}

fn first_record(
    candidates: &[Candidate],
    wanted: impl Fn(&Record) -> bool,
) -> Result<Option<Record>, ReadError> {
    for candidate in candidates {
        let record = candidate.record()?;
        if wanted(&record) {
            return Ok(Some(record));
        }
    }
    Ok(None)
}

/// Candidates in the active segment; those in memory need no disk.
fn in_active(state: &State, positions: Vec<u32>) -> Vec<Candidate> {
    let place = state.active.place();
    let cached = positions.into_iter().map(|position| {
        let bytes = state.tail.get(state.active.name, position);
        Candidate { place: place.clone(), position, bytes }
    });
    cached.collect()
}
