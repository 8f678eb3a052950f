//! Finding single events: by id, newest of a key, all of a key.

use std::sync::Arc;

use promethean_event::EventId;

use crate::engine::{Engine, ReadPlace, Segment, State};
use crate::error::ReadError;
use crate::index::{id_hash, key_hash};
use crate::segment::Record;
use crate::topic::TopicId;

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
