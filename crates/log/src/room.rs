//! Room for what is written: in the segment that is open, or in the next one.

use std::io;
use std::mem;
use std::sync::Arc;

use crate::batch::Batch;
use crate::engine::{Active, Segment};
use crate::error::{AppendError, WriteError};
use crate::index::{ActiveIndex, SegmentIndex};
use crate::limits::{FREE_LOOK_BYTES, LEFT_EARLY_BYTES_MIN, SYSTEM_RESERVE_BYTES};
use crate::queue::AppendAnswers;
use crate::roll;
use crate::segment::{FRAME_HEADER_BYTES, FrameKind, SegmentName};
use crate::writer::{OpenSegment, Pending, Writer};

impl Writer {
    /// Sees to it that a frame fits, in a new segment if need be. Room for a seal is always left,
    /// and some for the system, so that state can be saved when events no longer can.
    pub(crate) fn make_room(&mut self, bytes: u64, system: bool) -> Result<(), WriteError> {
        let seal = FRAME_HEADER_BYTES as u64;
        let reserve = SYSTEM_RESERVE_BYTES.min(self.segment.capacity / 16);
        let end = self.segment.position + bytes + seal;
        let fits = end + reserve <= self.segment.capacity;
        if !fits || self.leaves_early(bytes) {
            let stays = fits || system && end <= self.segment.capacity;
            match self.roll(bytes) {
                Err(WriteError::NoSpace) if stays => {}
                other => other?,
            }
        }
        if system { Ok(()) } else { self.look_at_free() }
    }

    /// If there is no room for all of a frame, refuses what is not the system's, so that the rest does not
    /// share their fate; gives whether it did. For a frame of both.
    pub(crate) fn refuse_users(&mut self, appends: &mut Vec<(Batch, AppendAnswers)>) -> bool {
        let bytes: usize = appends.iter().map(|(batch, _)| batch.bytes.len()).sum();
        let room = self.make_room(bytes as u64, false).map_err(|error| self.note(error));
        let Err(AppendError::NoSpace) = room else {
            // After any other failure all are refused.
            return false;
        };
        for (_, answers) in appends.extract_if(.., |(batch, _)| !batch.system) {
            answers.give_each(|_| Some(Err(AppendError::NoSpace)));
        }
        true
    }

    /// What is written to a file that was not filled ahead takes room as it goes: events must leave what
    /// is kept for the system.
    fn look_at_free(&mut self) -> Result<(), WriteError> {
        if self.segment.room_taken || self.segment.position < self.free_look_at {
            return Ok(());
        }
        let site = &self.engine.site;
        let free = site.disk.free_bytes().map_err(WriteError::Failed)?;
        if free < site.options.free_bytes_min {
            return Err(WriteError::NoSpace);
        }
        self.free_look_at = self.segment.position + FREE_LOOK_BYTES;
        Ok(())
    }

    /// Whether to go on in another segment because this one was not filled ahead, which makes each
    /// sync dear, and by now there is one that is.
    fn leaves_early(&self, bytes: u64) -> bool {
        let OpenSegment { filled, position, .. } = self.segment;
        !filled
            && position >= LEFT_EARLY_BYTES_MIN
            && roll::is_spare_ready(&self.engine.site, bytes)
    }

    /// Seals the segment and goes on in a new one that has room for `bytes`.
    fn roll(&mut self, bytes: u64) -> Result<(), WriteError> {
        let segment_bytes = {
            let mut state = self.engine.write();
            let first_ms = state.active.first_ms.unwrap_or(self.last_append_ms);
            state.note_segment(self.segment.position, self.last_append_ms - first_ms);
            state.segment_bytes(&self.engine.site.options)
        };
        self.roll_to(bytes, segment_bytes)
    }

    pub(crate) fn roll_to(&mut self, bytes: u64, segment_bytes: u64) -> Result<(), WriteError> {
        let engine = Arc::clone(&self.engine);
        // What is on its way belongs to the segment that is left.
        self.drain();
        if let Some(text) = engine.flights.failure() {
            return Err(WriteError::Failed(io::Error::other(text)));
        }
        let name = SegmentName { base: self.next_seq, generation: 0 };
        if name.base == self.segment.name.base {
            return self.replace_empty(bytes);
        }
        let place = roll::Place { segment_bytes, ..self.place_of(name, bytes) };
        let next = roll::prepare(&engine.site, &place)?;
        self.seal().map_err(|error| roll::give_up(&engine.site, &next, error))?;
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
        self.segment = segment;
        self.note_synced();
        self.free_look_at = 0;
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
        self.segment = segment;
        self.note_synced();
        self.free_look_at = 0;
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
}
