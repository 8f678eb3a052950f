//! Decides where the events of a frame go, before anything is written: offsets, seqs, duplicates,
//! conditions. Nothing is changed here; what was decided takes effect when the frame is on disk.

use std::ops::Range;

use promethean_event::{EventId, Offset, Seq};

use crate::batch::{Batch, BatchEntry, Receipt};
use crate::engine::Engine;
use crate::error::{AppendError, ReadError};
use crate::hash::FastMap;
use crate::index::LaneRun;
use crate::segment::same_content;
use crate::topic::{Lane, TopicId};

/// The places given out for one frame so far.
#[derive(Debug)]
pub(crate) struct Placement<'a> {
    engine: &'a Engine,
    ahead: &'a Ahead,
    next_seq: u64,
    lanes: Vec<LaneEnd>,
    lane_places: FastMap<Lane, usize>,
    topics: Vec<TopicEnd>,
    topic_places: FastMap<TopicId, usize>,
    /// The place in `lanes` of the last event's lane: mostly that of the next one too.
    last: usize,
    accepted: Vec<Batch>,
    runs: Vec<LaneRun>,
    by_id: FrameIds,
    events_max: usize,
}

/// Where things stand with the frames that are on their way, which the catalog does not know of yet.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    lanes: FastMap<Lane, u64>,
    greatest: FastMap<TopicId, EventId>,
}

impl Ahead {
    /// A frame is on its way.
    pub(crate) fn note(&mut self, placed: &Placed) {
        for (end, greatest) in &placed.ends {
            self.lanes.insert(end.lane, end.next);
            self.greatest.insert(end.lane.topic, *greatest);
        }
    }

    /// The catalog knows of everything.
    pub(crate) fn clear(&mut self) {
        self.lanes.clear();
        self.greatest.clear();
    }
}

/// Where a lane ends, with what this frame adds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaneEnd {
    pub(crate) lane: Lane,
    pub(crate) next: u64,
    /// The place of its topic among the topics.
    topic: usize,
}

/// The greatest id of a topic.
#[derive(Debug, Clone, Copy)]
struct TopicEnd {
    /// With what this frame adds.
    greatest: EventId,
}

/// The new events of a frame by the hash of their id, as batch and entry; made when first needed.
#[derive(Debug, Default)]
struct FrameIds {
    places: FastMap<u64, (u32, u32)>,
    /// The first entry that is not in it yet.
    next: (usize, usize),
}

/// What was decided.
#[derive(Debug)]
pub(crate) struct Placed {
    /// The accepted batches, with their receipts.
    pub(crate) batches: Vec<Batch>,
    /// The new events, in order.
    pub(crate) runs: Vec<LaneRun>,
    /// Where lanes end then, and the greatest id of their topics.
    pub(crate) ends: Vec<(LaneEnd, EventId)>,
    /// The seq after the last.
    pub(crate) next_seq: u64,
}

/// Where things stood before a batch.
#[derive(Debug, Clone, Copy)]
struct Before {
    next_seq: u64,
    runs: usize,
    last_run: Option<LaneRun>,
}

impl<'a> Placement<'a> {
    /// For a frame of at most so many events.
    pub(crate) fn new(
        engine: &'a Engine,
        ahead: &'a Ahead,
        next_seq: u64,
        events_max: usize,
    ) -> Self {
        Self {
            engine,
            ahead,
            next_seq,
            lanes: Vec::new(),
            lane_places: FastMap::default(),
            topics: Vec::new(),
            topic_places: FastMap::default(),
            last: 0,
            accepted: Vec::new(),
            runs: Vec::new(),
            by_id: FrameIds::default(),
            events_max,
        }
    }

    /// Gives the events of a batch their places. Each part is taken or refused whole; `refuse` is
    /// told of the others. False if there are only others.
    pub(crate) fn place(
        &mut self,
        mut batch: Batch,
        mut refuse: impl FnMut(usize, AppendError),
    ) -> bool {
        let mut refused = 0;
        let mut start = 0;
        for part in 0..batch.parts.len() {
            let end = batch.parts.get(part).copied().unwrap_or(start);
            if let Err(error) = self.place_part(&mut batch, start..end) {
                refuse(part, error);
                refused += 1;
            }
            start = end;
        }
        let taken = refused < batch.parts.len();
        if taken {
            self.accepted.push(batch);
        }
        taken
    }

    fn place_part(&mut self, batch: &mut Batch, part: Range<usize>) -> Result<(), AppendError> {
        for expectation in &batch.expect {
            let actual = self.end_of(expectation.lane)?.next;
            if actual != expectation.next.get() {
                return Err(AppendError::OffsetMismatch {
                    lane: expectation.lane,
                    expected: expectation.next,
                    actual: Offset::new(actual),
                });
            }
        }
        let before = Before {
            next_seq: self.next_seq,
            runs: self.runs.len(),
            last_run: self.runs.last().copied(),
        };
        for at in part.clone() {
            if let Err(error) = self.place_entry(batch, at) {
                self.undo(before, batch, part.start..at);
                return Err(error);
            }
        }
        Ok(())
    }

    fn place_entry(&mut self, batch: &mut Batch, at: usize) -> Result<(), AppendError> {
        let (Some(entry), Some(receipt)) = (batch.entries.get(at), batch.receipts.get(at)) else {
            return Ok(());
        };
        let LaneEnd { lane, next, topic } = self.end_of(receipt.lane)?;
        let known = match self.topics.get_mut(topic) {
            Some(topic) if entry.id > topic.greatest => {
                topic.greatest = entry.id;
                None
            }
            Some(_) => self.duplicate(batch, (at, entry))?,
            None => None,
        };
        let (entry, receipt) = (batch.entries.get_mut(at), batch.receipts.get_mut(at));
        let (Some(entry), Some(receipt)) = (entry, receipt) else {
            return Ok(());
        };
        if let Some(known) = known {
            *receipt = known;
            return Ok(());
        }
        entry.fresh = true;
        (receipt.offset, receipt.seq) = (Offset::new(next), Seq::new(self.next_seq));
        self.next_seq += 1;
        self.set_end(lane, next + 1);
        LaneRun::add(&mut self.runs, lane, next);
        Ok(())
    }

    /// The end of a lane, with what this frame adds.
    fn end_of(&mut self, lane: Lane) -> Result<LaneEnd, AppendError> {
        match self.lanes.get(self.last) {
            Some(end) if end.lane == lane => return Ok(*end),
            _ => {}
        }
        let known =
            self.lane_places.get(&lane).and_then(|&place| Some((place, self.lanes.get(place)?)));
        if let Some((place, end)) = known {
            self.last = place;
            return Ok(*end);
        }
        let state = self.engine.read();
        let next = state.catalog.lane(lane).map(|lane| lane.next.get());
        let next = next.ok_or_else(|| unknown_topic(&state.catalog, lane.topic))?;
        let next = self.ahead.lanes.get(&lane).copied().unwrap_or(next);
        let topics = &mut self.topics;
        let topic = *self.topic_places.entry(lane.topic).or_insert_with(|| {
            let known = state.catalog.live(lane.topic).map(|topic| topic.greatest_id);
            let known = self.ahead.greatest.get(&lane.topic).copied().or(known);
            topics.push(TopicEnd { greatest: known.unwrap_or(EventId::from_bytes([0; 16])) });
            topics.len() - 1
        });
        drop(state);
        let end = LaneEnd { lane, next, topic };
        self.last = self.lanes.len();
        self.lane_places.insert(lane, self.last);
        self.lanes.push(end);
        Ok(end)
    }

    /// For a lane of which the end is known.
    fn set_end(&mut self, lane: Lane, next: u64) {
        if self.lanes.get(self.last).is_none_or(|end| end.lane != lane) {
            self.last = self.lane_places.get(&lane).copied().unwrap_or(self.last);
        }
        if let Some(end) = self.lanes.get_mut(self.last) {
            end.next = next;
        }
    }

    /// The receipt of the event that is there already, if there is one with this id: in this frame,
    /// in one on its way, or in the log, in this order, which is the one in which it gets there.
    fn duplicate(
        &mut self,
        batch: &Batch,
        (at, entry): (usize, &BatchEntry),
    ) -> Result<Option<Receipt>, AppendError> {
        let Some(topic) = batch.receipts.get(at).map(|receipt| receipt.lane.topic) else {
            return Ok(None);
        };
        if self.by_id.places.is_empty() {
            self.by_id.places.reserve(self.events_max);
        }
        if let Some(first) = self.by_id.find(&self.accepted, (batch, at), (topic, entry)) {
            return self.same_or_conflict(batch, (topic, entry), first).map(Some);
        }
        if let Some(known) = self.engine.flights.find(topic, &entry.id, entry.id_hash) {
            let same = same_content(&known.body, batch.body(entry));
            let receipt = Receipt { duplicate: true, ..known.receipt };
            return if same { Ok(Some(receipt)) } else { Err(self.conflict(topic, entry)) };
        }
        let state = self.engine.read();
        // An id beyond all that are there need not be looked for.
        if state.catalog.live(topic).is_some_and(|topic| entry.id > topic.greatest_id) {
            return Ok(None);
        }
        drop(state);
        let found = self.engine.find_by_hash(topic, &entry.id, entry.id_hash);
        let failed = |error: ReadError| AppendError::LookupFailed {
            id: entry.id,
            reason: error.to_string(),
        };
        let Some(record) = found.map_err(failed)? else {
            return Ok(None);
        };
        if !same_content(record.body(), batch.body(entry)) {
            return Err(self.conflict(topic, entry));
        }
        Ok(Some(Receipt {
            lane: record.lane(),
            offset: record.offset(),
            seq: record.seq(),
            duplicate: true,
        }))
    }

    fn same_or_conflict(
        &self,
        batch: &Batch,
        (topic, entry): (TopicId, &BatchEntry),
        (first, at): (usize, usize),
    ) -> Result<Receipt, AppendError> {
        // A batch that is still being placed is not among the accepted ones.
        let first = self.accepted.get(first).unwrap_or(batch);
        let same = first.entries.get(at).zip(first.receipts.get(at));
        let same = same.filter(|(known, _)| same_content(first.body(known), batch.body(entry)));
        match same {
            Some((_, receipt)) => Ok(Receipt { duplicate: true, ..*receipt }),
            None => Err(self.conflict(topic, entry)),
        }
    }

    fn conflict(&self, topic: TopicId, entry: &BatchEntry) -> AppendError {
        let state = self.engine.read();
        match state.catalog.topic(topic) {
            Some(topic) => {
                AppendError::IdConflict { topic: topic.definition.topic.clone(), id: entry.id }
            }
            None => unknown_topic(&state.catalog, topic),
        }
    }

    /// Takes back what a refused part was given. The greatest ids may stay too great: that only
    /// means to look for ids that are not there.
    fn undo(&mut self, before: Before, batch: &mut Batch, refused: Range<usize>) {
        self.next_seq = before.next_seq;
        self.runs.truncate(before.runs);
        if let (Some(run), Some(last)) = (self.runs.last_mut(), before.last_run) {
            *run = last;
        }
        let entries = batch.entries.get_mut(refused.clone()).unwrap_or_default();
        let receipts = batch.receipts.get(refused).unwrap_or_default();
        for (entry, receipt) in entries.iter_mut().zip(receipts).rev() {
            // The batch may be written for its other parts.
            if std::mem::take(&mut entry.fresh) {
                self.set_end(receipt.lane, receipt.offset.get());
            }
        }
        self.by_id = FrameIds::default();
    }

    pub(crate) fn finish(self) -> Placed {
        let greatest = |end: &LaneEnd| self.topics.get(end.topic).map(|topic| topic.greatest);
        let ends = self.lanes.iter().filter_map(|end| Some((*end, greatest(end)?))).collect();
        Placed { batches: self.accepted, runs: self.runs, ends, next_seq: self.next_seq }
    }
}

impl FrameIds {
    /// The new event with a topic and id among the accepted batches and the first entries of the
    /// one that is being placed.
    fn find(
        &mut self,
        accepted: &[Batch],
        (batch, count): (&Batch, usize),
        (topic, entry): (TopicId, &BatchEntry),
    ) -> Option<(usize, usize)> {
        while let Some(missing) = accepted.get(self.next.0) {
            self.add(missing.entries.get(self.next.1..).unwrap_or_default());
            self.next = (self.next.0 + 1, 0);
        }
        self.add(batch.entries.get(self.next.1..count).unwrap_or_default());
        self.next.1 = count;
        let &(first, at) = self.places.get(&entry.id_hash)?;
        let (first, at) = (first as usize, at as usize);
        let known = accepted.get(first).unwrap_or(batch);
        let same = known.entries.get(at)?.id == entry.id;
        (same && known.receipts.get(at)?.lane.topic == topic).then_some((first, at))
    }

    fn add(&mut self, entries: &[BatchEntry]) {
        let (batch, start) = self.next;
        for (at, entry) in (start..).zip(entries).filter(|(_, entry)| entry.fresh) {
            self.places.insert(entry.id_hash, (batch as u32, at as u32));
        }
    }
}

fn unknown_topic(catalog: &crate::catalog::Catalog, id: TopicId) -> AppendError {
    match catalog.topic(id) {
        Some(topic) => AppendError::UnknownTopic(topic.definition.topic.clone()),
        None => AppendError::StorageFailed(format!("topic number {} is unknown", id.get())),
    }
}
