//! The newest frames, in memory, and those who wait for newer ones.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::task::Waker;

use bytes::Bytes;

use crate::segment::SegmentName;

/// The newest frames, up to a number of bytes.
#[derive(Debug)]
pub(crate) struct Tail {
    frames: VecDeque<TailFrame>,
    bytes: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct TailFrame {
    segment: SegmentName,
    position: u32,
    bytes: Bytes,
}

impl Tail {
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self { frames: VecDeque::new(), bytes: 0, bytes_max }
    }

    pub(crate) fn push(&mut self, segment: SegmentName, position: u32, bytes: Bytes) {
        self.bytes += bytes.len();
        self.frames.push_back(TailFrame { segment, position, bytes });
        while self.bytes > self.bytes_max {
            let Some(oldest) = self.frames.pop_front() else {
                break;
            };
            self.bytes -= oldest.bytes.len();
        }
    }

    /// The bytes from `position` of a segment to the end of the frame that it is in.
    pub(crate) fn get(&self, segment: SegmentName, position: u32) -> Option<Bytes> {
        let after = self
            .frames
            .partition_point(|frame| (frame.segment, frame.position) <= (segment, position));
        let frame = self.frames.get(after.checked_sub(1)?)?;
        if frame.segment != segment {
            return None;
        }
        let start = (position - frame.position) as usize;
        (start < frame.bytes.len()).then(|| frame.bytes.slice(start..))
    }
}

/// Wakers of those who wait for the log to grow.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Mutex<Vec<Waker>>);

impl Waiting {
    pub(crate) fn add(&self, waker: &Waker) {
        let mut wakers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }

    pub(crate) fn wake_all(&self) {
        let wakers = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        wakers.into_iter().for_each(Waker::wake);
    }
}
