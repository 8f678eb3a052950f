//! Decides where the events of a frame go, before anything is written: offsets, seqs, duplicates,
//! conditions. Nothing is changed here; what was decided takes effect when the frame is on disk.

use promethean_event::{EventId, Offset, Seq};

use crate::batch::{Batch, BatchEntry, Receipt};
use crate::engine::Engine;
use crate::error::{AppendError, ReadError};
use crate::hash::FastMap;
use crate::segment::same_content;
use crate::topic::{Lane, TopicId};

/// The places given out for one frame so far.
#[derive(Debug)]
pub(crate) struct Placement<'a> {
    engine: &'a Engine,
    next_seq: u64,
    lanes: FastMap<Lane, u64>,
    greatest_ids: FastMap<TopicId, EventId>,
    /// The lane of the last event: mostly that of the next one too.
    last: Option<(Lane, u64)>,
    accepted: Vec<Batch>,
    fresh: Vec<Fresh>,
    /// `fresh` by hash of the id, up to a number; made when first needed.
    by_id: FastMap<u64, usize>,
    by_id_count: usize,
}

/// A new event and its place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fresh {
    /// Which of the accepted batches it is in.
    pub(crate) batch: u32,
    /// Where it stands in the segment, once that is known.
    pub(crate) position: u32,
    pub(crate) entry: BatchEntry,
    pub(crate) offset: u64,
    pub(crate) seq: u64,
}

impl<'a> Placement<'a> {
    pub(crate) fn new(engine: &'a Engine, next_seq: u64) -> Self {
        Self {
            engine,
            next_seq,
            lanes: FastMap::default(),
            greatest_ids: FastMap::default(),
            last: None,
            accepted: Vec::new(),
            fresh: Vec::new(),
            by_id: FastMap::default(),
            by_id_count: 0,
        }
    }

    /// Gives the events of a batch their places, or refuses the batch whole.
    pub(crate) fn place(&mut self, batch: Batch) -> Result<Vec<Receipt>, AppendError> {
        for expectation in &batch.expect {
            let actual = self.lane_next(expectation.lane)?;
            if actual != expectation.next.get() {
                return Err(AppendError::OffsetMismatch {
                    lane: expectation.lane,
                    expected: expectation.next,
                    actual: Offset::new(actual),
                });
            }
        }
        let before = (self.fresh.len(), self.next_seq);
        let mut receipts = Vec::with_capacity(batch.entries.len());
        self.fresh.reserve(batch.entries.len());
        for entry in &batch.entries {
            match self.place_entry(&batch, entry) {
                Ok(receipt) => receipts.push(receipt),
                Err(error) => {
                    self.undo(before);
                    return Err(error);
                }
            }
        }
        self.accepted.push(batch);
        Ok(receipts)
    }

    fn place_entry(&mut self, batch: &Batch, entry: &BatchEntry) -> Result<Receipt, AppendError> {
        let offset = self.lane_next(entry.lane)?;
        if let Some(receipt) = self.duplicate(batch, entry)? {
            return Ok(receipt);
        }
        let seq = self.next_seq;
        self.next_seq += 1;
        self.last = Some((entry.lane, offset + 1));
        let batch = self.accepted.len() as u32;
        self.fresh.push(Fresh { batch, position: 0, entry: *entry, offset, seq });
        let (offset, seq) = (Offset::new(offset), Seq::new(seq));
        Ok(Receipt { lane: entry.lane, offset, seq, duplicate: false })
    }

    /// The next offset of a lane, with what this frame adds.
    fn lane_next(&mut self, lane: Lane) -> Result<u64, AppendError> {
        if let Some((last, next)) = self.last {
            if last == lane {
                return Ok(next);
            }
            self.lanes.insert(last, next);
        }
        let next = match self.lanes.get(&lane) {
            Some(&next) => next,
            None => {
                let state = self.engine.read();
                let known = state.catalog.lane(lane).map(|lane| lane.next.get());
                known.ok_or_else(|| unknown_topic(&state.catalog, lane.topic))?
            }
        };
        self.last = Some((lane, next));
        Ok(next)
    }

    /// The receipt of the event that is there already, if there is one with this id.
    fn duplicate(
        &mut self,
        batch: &Batch,
        entry: &BatchEntry,
    ) -> Result<Option<Receipt>, AppendError> {
        let topic = entry.lane.topic;
        let engine = self.engine;
        let greatest = self.greatest_ids.entry(topic).or_insert_with(|| {
            let state = engine.read();
            let known = state.catalog.live(topic).map(|topic| topic.greatest_id);
            known.unwrap_or(EventId::from_bytes([0; 16]))
        });
        if entry.id > *greatest {
            *greatest = entry.id;
            return Ok(None);
        }
        if let Some(place) = self.fresh_with(entry) {
            return self.same_or_conflict(batch, entry, place).map(Some);
        }
        let found = self.engine.find_by_hash(topic, &entry.id, entry.id_hash);
        let failed = |error: ReadError| AppendError::LookupFailed {
            id: entry.id,
            reason: error.to_string(),
        };
        let Some(record) = found.map_err(failed)? else {
            return Ok(None);
        };
        if !same_content(record.body(), batch.body(entry)) {
            return Err(self.conflict(entry));
        }
        Ok(Some(Receipt {
            lane: record.lane(),
            offset: record.offset(),
            seq: record.seq(),
            duplicate: true,
        }))
    }

    /// The place in `fresh` of an event with the same topic and id.
    fn fresh_with(&mut self, entry: &BatchEntry) -> Option<usize> {
        let missing = self.fresh.get(self.by_id_count..).unwrap_or_default();
        for (place, fresh) in (self.by_id_count..).zip(missing) {
            self.by_id.insert(fresh.entry.id_hash, place);
        }
        self.by_id_count = self.fresh.len();
        let place = *self.by_id.get(&entry.id_hash)?;
        let fresh = self.fresh.get(place)?;
        (fresh.entry.id == entry.id && fresh.entry.lane.topic == entry.lane.topic).then_some(place)
    }

    fn same_or_conflict(
        &self,
        batch: &Batch,
        entry: &BatchEntry,
        place: usize,
    ) -> Result<Receipt, AppendError> {
        let Some(fresh) = self.fresh.get(place) else {
            return Err(self.conflict(entry));
        };
        // A batch that is still being placed is not among the accepted ones.
        let first = self.accepted.get(fresh.batch as usize).unwrap_or(batch).body(&fresh.entry);
        if !same_content(first, batch.body(entry)) {
            return Err(self.conflict(entry));
        }
        let (offset, seq) = (Offset::new(fresh.offset), Seq::new(fresh.seq));
        Ok(Receipt { lane: fresh.entry.lane, offset, seq, duplicate: true })
    }

    fn conflict(&self, entry: &BatchEntry) -> AppendError {
        let state = self.engine.read();
        match state.catalog.topic(entry.lane.topic) {
            Some(topic) => {
                AppendError::IdConflict { topic: topic.definition.topic.clone(), id: entry.id }
            }
            None => unknown_topic(&state.catalog, entry.lane.topic),
        }
    }

    /// Takes back what a refused batch was given.
    fn undo(&mut self, (fresh, next_seq): (usize, u64)) {
        self.next_seq = next_seq;
        // What an earlier batch of the frame was given may stand here only.
        if let Some((lane, next)) = self.last.take() {
            self.lanes.insert(lane, next);
        }
        for fresh in self.fresh.drain(fresh..).rev() {
            self.lanes.insert(fresh.entry.lane, fresh.offset);
            if self.by_id.remove(&fresh.entry.id_hash).is_some() {
                // A later one may have hidden an earlier one with the same hash.
                self.by_id_count = 0;
            }
        }
        self.by_id_count = self.by_id_count.min(self.fresh.len());
    }

    /// The accepted batches, their new events in order, and the seq after the last.
    pub(crate) fn finish(self) -> (Vec<Batch>, Vec<Fresh>, u64) {
        (self.accepted, self.fresh, self.next_seq)
    }
}

fn unknown_topic(catalog: &crate::catalog::Catalog, id: TopicId) -> AppendError {
    match catalog.topic(id) {
        Some(topic) => AppendError::UnknownTopic(topic.definition.topic.clone()),
        None => AppendError::StorageFailed(format!("topic number {} is unknown", id.get())),
    }
}
