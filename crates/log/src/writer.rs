//! The one writer: takes what is waiting, writes one frame, syncs once, answers everyone.

use std::io;
use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use promethean_event::{EventId, Timestamp};

use crate::batch::{Appended, Batch, Durability, Receipt};
use crate::catalog::{CatalogEntry, LaneState};
use crate::disk::DiskFile;
use crate::engine::{Active, Engine, Segment};
use crate::error::AppendError;
use crate::index::{ActiveIndex, FrameSample, Indexed, SegmentIndex};
use crate::limits::{SEGMENT_BYTES_LIMIT, SYSTEM_RESERVE_BYTES, TOPICS_MAX};
use crate::placement::{Placed, Placement};
use crate::queue::Request;
use crate::roll;
use crate::segment::{
    FRAME_HEADER_BYTES, FrameHeader, FrameKind, RecordHeader, RecordPlace, SegmentName,
};
use crate::ticket::Answer;
use crate::topic::{Lane, TopicDefinition, TopicId};

type AppendAnswer = Answer<Result<Appended, AppendError>>;

/// The writer's own view of the segment that it writes.
#[derive(Debug)]
pub(crate) struct Writer {
    engine: Arc<Engine>,
    pub(crate) segment: OpenSegment,
    next_seq: u64,
    /// Everything of the segment before this position is on the disk.
    synced_to: u64,
    last_append_ms: u64,
    /// How many publishers there were when a frame was answered last: in it, or waiting for the
    /// next one.
    publishers: usize,
    failed: Option<String>,
}

/// A segment that can be written.
#[derive(Debug, Clone)]
pub(crate) struct OpenSegment {
    pub(crate) name: SegmentName,
    pub(crate) salt: u32,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) capacity: u64,
    pub(crate) position: u64,
    pub(crate) chain: u32,
}

/// Why nothing was written.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// No room; the log is as it was.
    NoSpace,
    /// Nobody knows what is on the disk now.
    Failed(io::Error),
}

impl WriteError {
    /// What a failed write means: no room leaves the log as it was, all else does not.
    pub(crate) fn of_write(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace,
            _ => Self::Failed(error),
        }
    }
}

/// A frame that is ready to be written.
struct Pending {
    bytes: Vec<u8>,
    header: FrameHeader,
}

/// A frame that is on its way to the readers.
struct Shown {
    first_seq: u64,
    position: u32,
    bytes: Bytes,
    placed: Placed,
}

impl Writer {
    pub(crate) fn new(engine: Arc<Engine>, segment: OpenSegment) -> Self {
        let (next_seq, last_append_ms) = {
            let state = engine.read();
            (state.next_seq, state.last_append_ms)
        };
        let synced_to = segment.position;
        Self { engine, segment, next_seq, synced_to, last_append_ms, publishers: 0, failed: None }
    }

    /// How many requests are worth waiting for: as many as there are publishers. Fewer, while the
    /// others encode, would come to the same where a sync is quick, and to twice the syncs where
    /// it is slow.
    pub(crate) const fn wanted(&self) -> usize {
        self.publishers
    }

    /// Serves requests in order; appends that follow each other share a frame.
    pub(crate) fn commit(&mut self, requests: Vec<Request>) {
        let mut appends = Vec::new();
        for request in requests {
            match request {
                Request::Append { batch, answer } if batch.taken_at.is_none() => {
                    appends.push((batch, answer));
                }
                Request::Append { batch, answer } => {
                    self.append(mem::take(&mut appends));
                    self.append(vec![(batch, answer)]);
                }
                other => {
                    self.append(mem::take(&mut appends));
                    self.commit_catalog(other);
                }
            }
        }
        self.append(appends);
    }

    fn append(&mut self, appends: Vec<(Batch, AppendAnswer)>) {
        if appends.is_empty() {
            return;
        }
        let system = appends.iter().all(|(batch, _)| batch.system);
        let appended_at = match appends.first().and_then(|(batch, _)| batch.taken_at) {
            Some(taken_at) => self.time_passes(taken_at),
            None => self.append_time(),
        };
        let engine = Arc::clone(&self.engine);
        let events = appends.iter().map(|(batch, _)| batch.entries.len()).sum();
        let mut placement = Placement::new(&engine, self.next_seq, events);
        let mut waiting = Vec::with_capacity(appends.len());
        for (batch, answer) in appends {
            let durability = batch.durability;
            match self.refusal().map_or_else(|| placement.place(batch), Err) {
                Ok(()) => waiting.push(Waiting { receipts: Vec::new(), durability, answer }),
                Err(error) => answer.give(Err(error)),
            }
        }
        let durability = waiting.iter().map(|waiting| waiting.durability).max();
        let durability = durability.unwrap_or(Durability::None);
        let mut placed = placement.finish();
        let result = if placed.runs.is_empty() {
            hand_over(&mut waiting, &mut placed.batches);
            self.sync_for_duplicates(durability)
        } else {
            self.write_events(&mut placed, system).and_then(|(position, bytes)| {
                hand_over(&mut waiting, &mut placed.batches);
                // Not before: a full disk must not take back a place that was given.
                answer_unsynced(&mut waiting, appended_at);
                let first_seq = mem::replace(&mut self.next_seq, placed.next_seq);
                if durability == Durability::Synced {
                    self.sync()?;
                }
                self.publishers = waiting.len() + self.engine.queue.len();
                let shown = Shown { first_seq, position, bytes, placed };
                self.show(shown, || answer_all(mem::take(&mut waiting), &Ok(()), appended_at));
                Ok(())
            })
        };
        let result = result.map_err(|error| self.note(error));
        answer_all(waiting, &result, appended_at);
    }

    /// A duplicate of an event that is only written so far must not be called synced; nor must
    /// such an event supersede one that is.
    fn sync_for_duplicates(&mut self, durability: Durability) -> Result<(), WriteError> {
        if durability == Durability::Synced && self.synced_to < self.segment.position {
            self.sync()?;
        }
        Ok(())
    }

    fn refusal(&self) -> Option<AppendError> {
        self.failed.clone().map(AppendError::StorageFailed)
    }

    /// Append times never go back, whatever the clock does.
    fn append_time(&mut self) -> Timestamp {
        self.time_passes(self.engine.site.options.clock.now())
    }

    fn time_passes(&mut self, to: Timestamp) -> Timestamp {
        self.last_append_ms = self.last_append_ms.max(to.millis());
        Timestamp::from_millis(self.last_append_ms)
    }

    /// Writes the new events as one frame. Gives its place and bytes.
    fn write_events(
        &mut self,
        placed: &mut Placed,
        system: bool,
    ) -> Result<(u32, Bytes), WriteError> {
        let fresh = placed.batches.iter().flat_map(|batch| &batch.entries);
        let fresh = fresh.filter(|entry| entry.fresh);
        let records: usize = fresh.map(|entry| entry.record_bytes as usize).sum();
        self.make_room((FRAME_HEADER_BYTES + records) as u64, system)?;
        let position = self.segment.position;
        let bytes = self.gather(&mut placed.batches, records);
        let header = FrameHeader {
            kind: FrameKind::Events,
            body_bytes: records as u32,
            count: (placed.next_seq - self.next_seq) as u32,
            first_seq: self.next_seq,
            append_ms: self.last_append_ms,
            synced_to: self.synced_to,
            previous_crc: self.segment.chain,
            position: self.segment.position as u32,
        };
        let bytes = self.write(Pending { bytes, header })?;
        Ok((position as u32, bytes))
    }

    /// Brings the new records together and completes their headers. The bytes of a lone batch stay
    /// where they are.
    fn gather(&self, batches: &mut [Batch], records: usize) -> Vec<u8> {
        let frame_bytes = FRAME_HEADER_BYTES + records;
        let (mut bytes, alone) = match batches {
            [batch] if batch.bytes.len() == frame_bytes => (mem::take(&mut batch.bytes), true),
            _ => {
                let mut bytes = Vec::with_capacity(frame_bytes);
                bytes.resize(FRAME_HEADER_BYTES, 0);
                (bytes, false)
            }
        };
        for batch in batches {
            let placed = batch.entries.iter_mut().zip(&batch.receipts);
            for (entry, receipt) in placed.filter(|(entry, _)| entry.fresh) {
                if !alone {
                    let record = batch.bytes.get(entry.range()).unwrap_or_default();
                    entry.start = bytes.len() as u32;
                    bytes.extend_from_slice(record);
                }
                let record = bytes.get_mut(entry.range()).unwrap_or_default();
                if let Some(head) = record.first_chunk_mut() {
                    let (offset, seq) = (receipt.offset.get(), receipt.seq.get());
                    let place = RecordPlace { offset, seq, append_ms: self.last_append_ms };
                    RecordHeader::complete(head, self.segment.salt, &place);
                }
            }
        }
        bytes
    }

    /// Lets readers see a frame. Publishers are answered first, and go on while the index takes it
    /// up; whoever reads now waits until it has, so that nobody misses what he was told is there.
    fn show(&self, shown: Shown, answer: impl FnOnce()) {
        let mut state = self.engine.write();
        answer();
        let state = &mut *state;
        let Shown { first_seq, position, bytes, placed } = shown;
        let append_ms = self.last_append_ms;
        state.next_seq = self.next_seq;
        state.last_append_ms = append_ms;
        state.active.first_ms.get_or_insert(append_ms);
        state.active.end_position = self.segment.position;
        state.active.index.add_frame(FrameSample { seq: first_seq, append_ms, position });
        let entries = placed.batches.iter().flat_map(|batch| &batch.entries);
        let indexed = entries.filter(|entry| entry.fresh).map(|entry| Indexed {
            position: position + entry.start,
            id: entry.id,
            id_hash: entry.id_hash,
            key_hash: entry.key_hash(),
        });
        state.active.index.add(&placed.runs, indexed);
        state.tail.push(self.segment.name, position, bytes);
        state.recent.note(&state.catalog, placed.ends.iter().map(|(end, _)| end.lane));
        for (end, greatest_id) in &placed.ends {
            state.catalog.advance(end.lane, end.next, *greatest_id);
        }
    }

    /// Writes a frame at the end of the segment, without a sync.
    fn write(&mut self, pending: Pending) -> Result<Bytes, WriteError> {
        let Pending { mut bytes, header } = pending;
        let crc = header.seal(self.segment.salt, &mut bytes);
        self.segment.file.write_at(&bytes, self.segment.position).map_err(WriteError::of_write)?;
        self.segment.position += bytes.len() as u64;
        self.segment.chain = crc;
        Ok(bytes.into())
    }

    fn sync(&mut self) -> Result<(), WriteError> {
        // Never tried again: after a failed sync the kernel may call lost pages clean.
        #[cfg(feature = "planted-bugs")]
        if let Some(result) = crate::planted::sync(&self.engine.site.options, &*self.segment.file) {
            self.synced_to = self.segment.position;
            return result.map_err(WriteError::Failed);
        }
        self.segment.file.sync_data().map_err(WriteError::Failed)?;
        self.synced_to = self.segment.position;
        Ok(())
    }

    /// Sees to it that a frame fits, in a new segment if need be. Room for a seal is always left,
    /// and some for the system, so that state can be saved when events no longer can.
    fn make_room(&mut self, bytes: u64, system: bool) -> Result<(), WriteError> {
        let seal = FRAME_HEADER_BYTES as u64;
        let reserve = SYSTEM_RESERVE_BYTES.min(self.segment.capacity / 16);
        let end = self.segment.position + bytes + seal;
        if end + reserve <= self.segment.capacity {
            return Ok(());
        }
        match self.roll(bytes) {
            Err(WriteError::NoSpace) if system && end <= self.segment.capacity => Ok(()),
            other => other,
        }
    }

    /// Seals the segment and goes on in a new one that has room for `bytes`.
    fn roll(&mut self, bytes: u64) -> Result<(), WriteError> {
        let segment_bytes = self.engine.read().segment_bytes(&self.engine.site.options);
        self.roll_to(bytes, segment_bytes)
    }

    fn roll_to(&mut self, bytes: u64, segment_bytes: u64) -> Result<(), WriteError> {
        let engine = Arc::clone(&self.engine);
        let name = SegmentName { base: self.next_seq, generation: 0 };
        if name.base == self.segment.name.base {
            return self.replace_empty(bytes);
        }
        let place = roll::Place { segment_bytes, ..self.place_of(name, bytes) };
        let next = roll::prepare(&engine.site, &place)?;
        self.seal()?;
        let segment = roll::publish(&engine.site, next)?;
        let mut state = engine.write();
        let active = Active {
            name,
            salt: segment.salt,
            file: Arc::clone(&segment.file),
            index: ActiveIndex::default(),
            first_ms: None,
            end_position: segment.position,
        };
        let old = mem::replace(&mut state.active, active);
        let first_ms = old.first_ms.unwrap_or(self.last_append_ms);
        state.note_segment(self.segment.capacity, self.last_append_ms - first_ms);
        state.sealed.push(Arc::new(Segment {
            name: old.name,
            salt: old.salt,
            file: old.file,
            index: SegmentIndex::Memory(old.index),
            next_seq: self.next_seq,
            end_position: self.segment.position,
            append_ms: first_ms..self.last_append_ms,
            holes: Vec::new(),
        }));
        drop(state);
        self.synced_to = segment.position;
        self.segment = segment;
        engine.site.upkeep.ring();
        Ok(())
    }

    /// A segment without a single event that is too small for the next frame: the same name, in a
    /// larger file. Its catalog is carried over, so that replacing it loses nothing.
    fn replace_empty(&mut self, bytes: u64) -> Result<(), WriteError> {
        let engine = Arc::clone(&self.engine);
        let next = roll::prepare(&engine.site, &self.place_of(self.segment.name, bytes))?;
        let segment = roll::publish(&engine.site, next)?;
        let mut state = engine.write();
        state.active.salt = segment.salt;
        state.active.file = Arc::clone(&segment.file);
        state.active.end_position = segment.position;
        drop(state);
        self.synced_to = segment.position;
        self.segment = segment;
        Ok(())
    }

    fn place_of(&self, name: SegmentName, bytes: u64) -> roll::Place {
        let state = self.engine.read();
        roll::Place {
            name,
            frame_bytes: bytes,
            segment_bytes: state.segment_bytes(&self.engine.site.options),
            seq: self.next_seq,
            append_ms: self.last_append_ms,
            catalog: state.catalog.snapshot(),
        }
    }

    fn seal(&mut self) -> Result<(), WriteError> {
        let header = self.empty_frame(FrameKind::Seal);
        self.write(Pending { bytes: vec![0; FRAME_HEADER_BYTES], header })?;
        #[cfg(feature = "planted-bugs")]
        if crate::planted::roll_without_sync(&self.engine.site.options) {
            return Ok(());
        }
        self.sync()
    }

    const fn empty_frame(&self, kind: FrameKind) -> FrameHeader {
        FrameHeader {
            kind,
            body_bytes: 0,
            count: 0,
            first_seq: self.next_seq,
            append_ms: self.last_append_ms,
            synced_to: self.synced_to,
            previous_crc: self.segment.chain,
            position: self.segment.position as u32,
        }
    }

    /// Leaves word behind the last frame that all of it is synced. The next frame is written over
    /// it. Only evidence for recovery: nothing depends on it, so that errors do not matter.
    pub(crate) fn mark(&mut self) {
        self.leave_word(FrameKind::Mark);
    }

    fn leave_word(&self, kind: FrameKind) {
        if self.failed.is_some() || self.synced_to < self.segment.position {
            return;
        }
        let mut bytes = [0; FRAME_HEADER_BYTES];
        self.empty_frame(kind).seal(self.segment.salt, &mut bytes);
        if self.segment.position + bytes.len() as u64 <= self.segment.capacity {
            let written = self.segment.file.write_at(&bytes, self.segment.position);
            drop(written);
        }
    }

    /// Syncs what is written, for a log that closes. A segment with much in it is sealed, so that
    /// whoever opens the log next has little to read.
    pub(crate) fn close(&mut self) {
        if self.failed.is_some() {
            return;
        }
        let small = self.engine.site.options.segment_bytes_min;
        let result = if self.segment.position > small { self.roll_to(0, small) } else { Ok(()) };
        let result = match result {
            // No room for another segment: this one can stay as it is.
            Ok(()) | Err(WriteError::NoSpace) => self.sync(),
            failed => failed,
        };
        let result = result.and_then(|()| {
            self.leave_word(FrameKind::Close);
            self.sync()
        });
        if let Err(error) = result {
            self.note(error);
        }
    }

    /// Turns an error into its answer; after a failure all later requests are refused.
    fn note(&mut self, error: WriteError) -> AppendError {
        match error {
            WriteError::NoSpace => AppendError::NoSpace,
            WriteError::Failed(error) => {
                let text = error.to_string();
                self.failed = Some(text.clone());
                self.engine.note_failure(&text);
                AppendError::StorageFailed(text)
            }
        }
    }

    fn commit_catalog(&mut self, request: Request) {
        if let Some(error) = self.refusal() {
            return request.refuse(&error);
        }
        match request {
            Request::Define { definition, answer } => answer.give(self.define(&definition)),
            Request::Remove { topic, answer } => {
                answer.give(self.change(&[CatalogEntry::Removed { id: topic }], true));
            }
            Request::Sync { answer } => {
                let synced = self.sync_for_duplicates(Durability::Synced);
                answer.give(synced.map_err(|error| self.note(error)));
            }
            Request::Trim { starts, answer } => {
                let entries: Vec<_> = starts
                    .into_iter()
                    .map(|(lane, start)| CatalogEntry::Start { lane, start })
                    .collect();
                answer.give(self.change(&entries, true));
            }
            Request::Place { lanes, answer } => answer.give(self.place(&lanes)),
            Request::Append { .. } => {}
        }
    }

    fn define(&mut self, definition: &TopicDefinition) -> Result<TopicId, AppendError> {
        let (id, greatest_id) = {
            let state = self.engine.read();
            match state.catalog.id(&definition.topic) {
                Some(id) => {
                    let known = state.catalog.live(id);
                    let has = known.map_or(0, |known| known.definition.partitions.get());
                    if known.is_some_and(|known| known.definition == *definition) {
                        return Ok(id);
                    }
                    if has != definition.partitions.get() {
                        return Err(AppendError::PartitionsFixed {
                            topic: definition.topic.clone(),
                            has,
                            wanted: definition.partitions.get(),
                        });
                    }
                    let zero = EventId::from_bytes([0; 16]);
                    (id, known.map_or(zero, |known| known.greatest_id))
                }
                None if state.catalog.topic_count() >= TOPICS_MAX => {
                    return Err(AppendError::TooManyTopics(TOPICS_MAX));
                }
                None => (state.catalog.next_id(), EventId::from_bytes([0; 16])),
            }
        };
        let definition = definition.clone();
        let system = definition.topic.is_system();
        self.change(&[CatalogEntry::Topic { id, definition, greatest_id }], system)?;
        Ok(id)
    }

    /// Lets lanes go on further on. Not synced: what is appended there says as much.
    fn place(&mut self, lanes: &[(Lane, LaneState)]) -> Result<(), AppendError> {
        lanes.iter().try_for_each(|(lane, to)| self.engine.read().catalog.leads_on(*lane, *to))?;
        let placed = lanes.iter().map(|&(lane, state)| CatalogEntry::Lane { lane, state });
        let placed: Vec<_> = placed.collect();
        self.write_catalog(&placed, false).map_err(|error| self.note(error))?;
        self.take_effect(&placed);
        Ok(())
    }

    /// Writes and syncs a change of the catalog, then lets it take effect.
    fn change(&mut self, entries: &[CatalogEntry], system: bool) -> Result<(), AppendError> {
        let written = self.write_catalog(entries, system).and_then(|()| self.sync());
        written.map_err(|error| self.note(error))?;
        self.take_effect(entries);
        Ok(())
    }

    fn take_effect(&self, entries: &[CatalogEntry]) {
        let mut state = self.engine.write();
        self.engine.apply(&mut state, entries);
        state.active.end_position = self.segment.position;
    }

    fn write_catalog(&mut self, entries: &[CatalogEntry], system: bool) -> Result<(), WriteError> {
        let mut bytes = vec![0; FRAME_HEADER_BYTES];
        entries.iter().for_each(|entry| entry.encode(&mut bytes));
        self.make_room(bytes.len() as u64, system)?;
        self.append_time();
        let header = FrameHeader {
            body_bytes: (bytes.len() - FRAME_HEADER_BYTES) as u32,
            count: entries.len() as u32,
            ..self.empty_frame(FrameKind::Catalog)
        };
        self.write(Pending { bytes, header }).map(drop)
    }
}

/// One who is to be answered.
struct Waiting {
    /// Empty until the frame is written.
    receipts: Vec<Receipt>,
    durability: Durability,
    answer: AppendAnswer,
}

/// Gives the receipts of each batch to the one who waits for it.
fn hand_over(waiting: &mut [Waiting], batches: &mut [Batch]) {
    for (waiting, batch) in waiting.iter_mut().zip(batches) {
        waiting.receipts = mem::take(&mut batch.receipts);
    }
}

/// Answers those who asked for nothing more than a place, and leaves the others.
fn answer_unsynced(waiting: &mut Vec<Waiting>, appended_at: Timestamp) {
    let asks_little = |waiting: &mut Waiting| waiting.durability == Durability::None;
    let placed = waiting.extract_if(.., asks_little);
    placed.for_each(|waiting| waiting.answer(&Ok(()), appended_at));
}

fn answer_all(waiting: Vec<Waiting>, result: &Result<(), AppendError>, appended_at: Timestamp) {
    waiting.into_iter().for_each(|waiting| waiting.answer(result, appended_at));
}

impl Waiting {
    fn answer(self, result: &Result<(), AppendError>, appended_at: Timestamp) {
        let Self { receipts, durability, answer } = self;
        answer.give(result.clone().map(|()| Appended { receipts, appended_at, durability }));
    }
}

const _: () = assert!(SEGMENT_BYTES_LIMIT <= u32::MAX as u64);
