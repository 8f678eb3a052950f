//! The one writer: takes what is waiting, writes one frame, syncs once, answers everyone.

use std::mem;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use promethean_event::Timestamp;

use crate::batch::{Batch, Durability, Receipt};
use crate::begun::{self, Begun, Unsynced};
use crate::disk::DiskFile;
use crate::engine::Engine;
use crate::error::{AppendError, WriteError};
use crate::flight::{Flight, Frame, Waiting};
use crate::limits::SEGMENT_BYTES_LIMIT;
use crate::placement::{Ahead, Placed, Placement};
use crate::queue::{AppendAnswers, Request};
use crate::segment::{
    FRAME_HEADER_BYTES, FrameHeader, FrameKind, RecordHeader, RecordPlace, SegmentName,
};

/// The writer's own view of the segment that it writes.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) engine: Arc<Engine>,
    pub(crate) segment: OpenSegment,
    pub(crate) next_seq: u64,
    pub(crate) last_append_ms: u64,
    ahead: Ahead,
    /// What is unsynced that nobody wants synced.
    unsynced: Option<Unsynced>,
    /// Where the disk is asked again what it has left, in a segment that grows with what is written.
    pub(crate) free_look_at: u64,
    /// Written and left unsynced, where the caller drives the log.
    begun: Vec<Begun>,
}

/// A segment that can be written.
#[derive(Debug, Clone)]
pub(crate) struct OpenSegment {
    pub(crate) name: SegmentName,
    pub(crate) salt: u32,
    pub(crate) file: Arc<dyn DiskFile>,
    /// The same, opened once more before anything was written: see `flight.rs`.
    pub(crate) second: Arc<dyn DiskFile>,
    /// Written before: see `roll.rs`.
    pub(crate) filled: bool,
    /// Written all over by this process: it takes no more room of the disk.
    pub(crate) room_taken: bool,
    pub(crate) capacity: u64,
    pub(crate) position: u64,
    pub(crate) chain: u32,
}

/// A frame that is ready to be written.
pub(crate) struct Pending {
    pub(crate) bytes: Vec<u8>,
    pub(crate) header: FrameHeader,
}

impl Writer {
    pub(crate) fn new(engine: Arc<Engine>, segment: OpenSegment) -> Self {
        let (next_seq, last_append_ms) = {
            let state = engine.read();
            (state.next_seq, state.last_append_ms)
        };
        engine.flights.set_synced(segment.position);
        let (ahead, begun) = (Ahead::default(), Vec::new());
        let (unsynced, free_look_at) = (None, 0);
        Self { engine, segment, next_seq, last_append_ms, ahead, unsynced, free_look_at, begun }
    }

    /// Serves requests in order; appends that follow each other share a frame. What comes last may
    /// still have to be synced, by whoever gets it.
    pub(crate) fn begin(&mut self, requests: Vec<Request>) -> Option<Begun> {
        let mut appends = Vec::new();
        for request in requests {
            match request {
                Request::Append { batch, answers } if batch.taken_at.is_none() => {
                    appends.push((batch, answers));
                }
                Request::Append { batch, answers } => {
                    self.append(mem::take(&mut appends));
                    self.append(vec![(batch, answers)]);
                }
                other => {
                    self.append(mem::take(&mut appends));
                    self.drain();
                    self.commit_catalog(other);
                    self.ahead.clear();
                    self.engine.waiting.wake_all();
                }
            }
        }
        self.begin_append(appends).or_else(|| self.begin_due())
    }

    /// The same, to the end.
    pub(crate) fn commit(&mut self, requests: Vec<Request>) {
        if let Some(begun) = self.begin(requests) {
            begun.finish(&self.engine, &*self.segment.file);
        }
    }

    /// Writes what was asked for, and leaves it unsynced until [`Self::drain`].
    pub(crate) fn begin_only(&mut self, requests: Vec<Request>) {
        match self.begin(requests) {
            Some(begun) if begun.sync_to.is_some() => self.begun.push(begun),
            Some(begun) => begun.land(&self.engine, Ok(())),
            None => {}
        }
    }

    /// Nothing is on its way when this returns.
    pub(crate) fn drain(&mut self) {
        // The newest first: its sync speaks for those before it.
        for begun in mem::take(&mut self.begun).into_iter().rev() {
            begun.finish(&self.engine, &*self.segment.file);
        }
        self.engine.flights.drain();
    }

    /// The open file by which one of the threads syncs.
    pub(crate) fn file_of(&self, thread: usize) -> Arc<dyn DiskFile> {
        Arc::clone(if thread == 0 { &self.segment.file } else { &self.segment.second })
    }

    fn append(&mut self, appends: Vec<(Batch, AppendAnswers)>) {
        if let Some(begun) = self.begin_append(appends) {
            begun.finish(&self.engine, &*self.segment.file);
        }
    }

    /// Writes a frame of appends.
    fn begin_append(&mut self, mut appends: Vec<(Batch, AppendAnswers)>) -> Option<Begun> {
        if appends.is_empty() {
            return None;
        }
        let mut system = appends.iter().all(|(batch, _)| batch.system);
        if !system && appends.iter().any(|(batch, _)| batch.system) {
            system = self.refuse_users(&mut appends);
        }
        let appended_at = match appends.first().and_then(|(batch, _)| batch.taken_at) {
            Some(taken_at) => self.time_passes(taken_at),
            None => self.append_time(),
        };
        let engine = Arc::clone(&self.engine);
        if engine.flights.is_empty() {
            self.ahead.clear();
        }
        let events = appends.iter().map(|(batch, _)| batch.entries.len()).sum();
        let mut placement = Placement::new(&engine, &self.ahead, self.next_seq, events);
        let mut answering = Vec::with_capacity(appends.len());
        for (batch, answers) in appends {
            if let Some(error) = self.refusal() {
                answers.give_each(|_| Some(Err(error.clone())));
            } else if placement.place(batch, |part, error| answers.give_one(part, Err(error))) {
                answering.push(answers);
            }
        }
        let mut placed = placement.finish();
        let durability = placed.batches.iter().map(|batch| batch.durability).max()?;
        let written = match placed.runs.as_slice() {
            [] => Ok(None),
            _ => self.write_events(&mut placed, system).map(Some),
        };
        let (waiting, receipts) = wait_for(&mut placed.batches, answering);
        let mut flight = Flight { frame: None, waiting, appended_at };
        match written {
            Err(error) => {
                // What is free is looked at before anybody writes again.
                self.free_look_at = 0;
                flight.answer(&Err(self.note(error)));
                return None;
            }
            Ok(None) => {}
            Ok(Some((position, bytes))) => {
                // Not before: a full disk must not take back a place that was given; nor must a
                // frame before this one whose sync fails.
                if engine.flights.is_empty() {
                    flight.answer_unsynced();
                }
                self.ahead.note(&placed);
                let first_seq = mem::replace(&mut self.next_seq, placed.next_seq);
                flight.frame = Some(Arc::new(Frame {
                    segment: self.segment.name,
                    position,
                    bytes,
                    first_seq,
                    append_ms: self.last_append_ms,
                    placed,
                    receipts,
                    ids: OnceLock::new(),
                }));
            }
        }
        let publishers = flight.publishers();
        // A duplicate of an event that is only written so far must not be called synced; nor must
        // such an event supersede one that is.
        let (synced_to, end) = (engine.flights.synced_to(), self.segment.position);
        let sync_to = (self.wants_sync(durability, synced_to) && synced_to < end).then_some(end);
        Some(Begun { number: engine.flights.depart(flight), sync_to, publishers })
    }

    /// A sync that is due, where a turn has written nothing: because all that was in it was refused.
    fn begin_due(&mut self) -> Option<Begun> {
        if !self.is_behind() || self.refusal().is_some() {
            return None;
        }
        let appended_at = self.append_time();
        if !self.wants_sync(Durability::None, self.engine.flights.synced_to()) {
            return None;
        }
        let flight = Flight { frame: None, waiting: Vec::new(), appended_at };
        let number = self.engine.flights.depart(flight);
        Some(Begun { number, sync_to: Some(self.segment.position), publishers: 0 })
    }

    /// Whether to sync: because somebody asks for it, or because something has been unsynced for so long
    /// that it is time, although nobody does.
    fn wants_sync(&mut self, durability: Durability, synced_to: u64) -> bool {
        let (end, append_ms) = (self.segment.position, self.last_append_ms);
        let unsynced = self.unsynced.take().filter(|unsynced| synced_to < unsynced.end);
        let is_due = || unsynced.as_ref().is_some_and(|unsynced| unsynced.is_due(append_ms));
        let wants = durability == Durability::Synced || is_due();
        if synced_to < end && !wants {
            let drive = self.engine.site.options.drive;
            self.unsynced = unsynced.or_else(|| Some(Unsynced::now(end, drive, append_ms)));
        }
        wants
    }

    /// Nothing happens: what nobody has waited for so far is synced, and word is left.
    pub(crate) fn rest(&mut self) {
        self.drain();
        if self.refusal().is_none()
            && let Err(error) = self.sync_all()
        {
            self.note(error);
        }
        self.mark();
    }

    /// Whether something is written and not synced.
    pub(crate) fn is_behind(&self) -> bool {
        self.engine.flights.synced_to() < self.segment.position
    }

    /// What is written is to be durable when this returns. Nothing may be on its way.
    pub(crate) fn sync_all(&mut self) -> Result<(), WriteError> {
        if self.is_behind() {
            self.sync()?;
        }
        Ok(())
    }

    pub(crate) fn refusal(&self) -> Option<AppendError> {
        self.engine.flights.failure().map(AppendError::StorageFailed)
    }

    /// Append times never go back, whatever the clock does.
    pub(crate) fn append_time(&mut self) -> Timestamp {
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
            synced_to: self.engine.flights.synced_to(),
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

    /// Writes a frame at the end of the segment, without a sync.
    pub(crate) fn write(&mut self, pending: Pending) -> Result<Bytes, WriteError> {
        let Pending { mut bytes, header } = pending;
        let crc = header.seal(self.segment.salt, &mut bytes);
        self.segment.file.write_at(&bytes, self.segment.position).map_err(WriteError::of_write)?;
        self.segment.position += bytes.len() as u64;
        self.segment.chain = crc;
        Ok(bytes.into())
    }

    /// Syncs the segment, with nothing on its way.
    pub(crate) fn sync(&mut self) -> Result<(), WriteError> {
        begun::sync(&self.engine.site.options, &*self.segment.file).map_err(WriteError::Failed)?;
        self.note_synced();
        Ok(())
    }

    /// Nothing of the segment is unsynced, and nothing is on its way.
    pub(crate) fn note_synced(&mut self) {
        self.engine.flights.set_synced(self.segment.position);
        self.unsynced = None;
    }

    pub(crate) fn empty_frame(&self, kind: FrameKind) -> FrameHeader {
        FrameHeader {
            kind,
            body_bytes: 0,
            count: 0,
            first_seq: self.next_seq,
            append_ms: self.last_append_ms,
            synced_to: self.engine.flights.synced_to(),
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
        let flights = &self.engine.flights;
        if flights.failure().is_some() || flights.synced_to() < self.segment.position {
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
        self.drain();
        if self.engine.flights.failure().is_some() {
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
    pub(crate) fn note(&mut self, error: WriteError) -> AppendError {
        match error {
            WriteError::NoSpace => AppendError::NoSpace,
            WriteError::Failed(error) => {
                let text = error.to_string();
                self.engine.fail(&text);
                AppendError::StorageFailed(text)
            }
        }
    }
}

/// Those who wait for batches, with their receipts.
fn wait_for(
    batches: &mut [Batch],
    answering: Vec<AppendAnswers>,
) -> (Vec<Waiting>, Vec<Arc<Vec<Receipt>>>) {
    let mut receipts = Vec::with_capacity(batches.len());
    let waiting = batches.iter_mut().zip(answering).map(|(batch, answers)| {
        let of_batch = Arc::new(mem::take(&mut batch.receipts));
        receipts.push(Arc::clone(&of_batch));
        let (parts, durability) = (mem::take(&mut batch.parts), batch.durability);
        Waiting { receipts: of_batch, parts, durability, answers }
    });
    (waiting.collect(), receipts)
}

const _: () = assert!(SEGMENT_BYTES_LIMIT <= u32::MAX as u64);
