use std::io;

use bytes::Bytes;

use super::buffers::Buffers;
use crate::engine::ReadPlace;
use crate::segment::{FRAME_HEADER_BYTES, FrameHeader, FrameKind, RecordRef};
use crate::topic::Lane;

/// What is read at once: little at first, more for those who go on.
const WINDOW_BYTES_MIN: usize = 64 * 1024;
const WINDOW_BYTES_MAX: usize = 1024 * 1024;

/// Goes through the frames of a sealed segment, checking each as a whole.
#[derive(Debug)]
pub(super) struct FrameWalk {
    place: ReadPlace,
    /// Where the next frame starts.
    position: u64,
    window: Bytes,
    window_start: u64,
    window_bytes: usize,
    window_bytes_max: usize,
    buffers: Buffers,
    /// The current frame, and where its next record starts.
    frame: Bytes,
    next_record: usize,
}

/// What a walk came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Another frame with events.
    Frame,
    /// The end of the segment.
    End,
    /// Bytes that are no good frame.
    Damaged,
}

impl FrameWalk {
    /// A walk that starts with the frame at a position.
    pub(super) fn new(place: ReadPlace, position: u64) -> Self {
        Self {
            place,
            position,
            window: Bytes::new(),
            window_start: 0,
            window_bytes: WINDOW_BYTES_MIN,
            window_bytes_max: WINDOW_BYTES_MAX,
            buffers: Buffers::default(),
            frame: Bytes::new(),
            next_record: 0,
        }
    }

    /// The next record of the current frame that belongs to a lane.
    pub(super) fn next_of(&mut self, lane: Lane) -> Option<RecordRef<'_>> {
        let mut start = self.next_record;
        loop {
            let record = RecordRef::unchecked(&self.frame, start)?;
            start += record.bytes();
            if record.lane() == lane {
                self.next_record = start;
                return Some(record);
            }
        }
    }

    /// Those who want little at once are served from little memory, which stays in the caches.
    pub(super) fn limit_window(&mut self, bytes: usize) {
        self.window_bytes_max = bytes.clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX);
        self.window_bytes = self.window_bytes.min(self.window_bytes_max);
    }

    /// Goes to the next frame that has events.
    pub(super) fn step(&mut self) -> io::Result<Step> {
        loop {
            if self.position >= self.place.end {
                return Ok(Step::End);
            }
            let head = self.bytes(FRAME_HEADER_BYTES)?;
            let Some(header) = FrameHeader::peek(&head) else { return Ok(Step::Damaged) };
            if u64::from(header.position) != self.position
                || self.position + header.frame_bytes() > self.place.end
            {
                return Ok(Step::Damaged);
            }
            let frame = self.bytes(header.frame_bytes() as usize)?;
            if header.check(self.place.salt, &frame).is_none() {
                return Ok(Step::Damaged);
            }
            self.position += header.frame_bytes();
            if header.kind == FrameKind::Events {
                self.window_frames(header.frame_bytes() as usize);
                self.frame = frame;
                self.next_record = FRAME_HEADER_BYTES;
                return Ok(Step::Frame);
            }
        }
    }

    /// Bytes from the current position on.
    fn bytes(&mut self, count: usize) -> io::Result<Bytes> {
        if let Some(bytes) = self.windowed(count) {
            return Ok(bytes);
        }
        // The frame before is done with; only records that were given out hold its memory.
        self.frame = Bytes::new();
        let earlier = std::mem::take(&mut self.window);
        let count_ahead = count.max(self.window_bytes);
        let buffer = self.buffers.next(earlier);
        self.window = self.place.bytes_in(buffer, self.position, count_ahead)?;
        self.window_start = self.position;
        self.window_bytes = (self.window_bytes * 4).min(self.window_bytes_max);
        Ok(self.windowed(count).unwrap_or_default())
    }

    /// Frames that follow each other are mostly of like size: a window that holds a whole number of
    /// them does not end within one, which would have to be read again.
    fn window_frames(&mut self, frame_bytes: usize) {
        let most = self.window_bytes_max;
        if self.window_bytes >= most {
            let frames = (most / frame_bytes.max(1)).max(1);
            self.window_bytes = (frames * frame_bytes * 65 / 64).max(most * 3 / 4);
        }
    }

    fn windowed(&self, count: usize) -> Option<Bytes> {
        let start = usize::try_from(self.position.checked_sub(self.window_start)?).ok()?;
        (start + count <= self.window.len()).then(|| self.window.slice(start..start + count))
    }
}
