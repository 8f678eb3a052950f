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

    /// Adds a frame; those that have to go for it are given to `gone`.
    pub(crate) fn push(
        &mut self,
        segment: SegmentName,
        position: u32,
        bytes: Bytes,
        mut gone: impl FnMut(Bytes),
    ) {
        self.bytes += bytes.len();
        self.frames.push_back(TailFrame { segment, position, bytes });
        while self.bytes > self.bytes_max {
            let Some(oldest) = self.frames.pop_front() else {
                break;
            };
            self.bytes -= oldest.bytes.len();
            gone(oldest.bytes);
        }
    }

    /// The frames that hold positions of a segment, as far as they are here, and where they start.
    /// The positions rise.
    pub(crate) fn frames(
        &self,
        segment: SegmentName,
        positions: &[(u64, u32)],
    ) -> VecDeque<(u32, Bytes)> {
        let first = self.frames.partition_point(|frame| frame.segment < segment);
        let of_segment = self.frames.range(first..).take_while(|frame| frame.segment == segment);
        let mut positions = positions.iter().map(|&(_, position)| position).peekable();
        let mut found = VecDeque::new();
        for frame in of_segment {
            let end = frame.position + frame.bytes.len() as u32;
            while positions.next_if(|position| *position < frame.position).is_some() {}
            if positions.peek().is_some_and(|position| *position < end) {
                found.push_back((frame.position, frame.bytes.clone()));
            }
            while positions.next_if(|position| *position < end).is_some() {}
            if positions.peek().is_none() {
                break;
            }
        }
        found
    }

    /// The bytes from `position` of a segment to the end of the frame that it is in.
    pub(crate) fn get(&self, segment: SegmentName, position: u32) -> Option<Bytes> {
        let frame = self.find(segment, position)?;
        Some(frame.bytes.slice((position - frame.position) as usize..))
    }

    fn find(&self, segment: SegmentName, position: u32) -> Option<&TailFrame> {
        let after = self
            .frames
            .partition_point(|frame| (frame.segment, frame.position) <= (segment, position));
        let frame = self.frames.get(after.checked_sub(1)?)?;
        let end = frame.position as usize + frame.bytes.len();
        (frame.segment == segment && (position as usize) < end).then_some(frame)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn name(base: u64) -> SegmentName {
        SegmentName { base, generation: 0 }
    }

    /// Frames at 100 and 200 of one segment, and at 0 of the next.
    fn tail() -> Tail {
        let mut tail = Tail::new(1_000);
        tail.push(name(1), 100, Bytes::from_static(&[1; 50]), drop);
        tail.push(name(1), 200, Bytes::from_static(&[2; 50]), drop);
        tail.push(name(9), 0, Bytes::from_static(&[3; 50]), drop);
        tail
    }

    #[test]
    fn bytes_are_found_in_the_frame_of_their_segment_only() {
        let tail = tail();
        let length = |base, position| tail.get(name(base), position).map(|bytes| bytes.len());
        assert_eq!(length(1, 100), Some(50));
        assert_eq!(length(1, 249), Some(1));
        assert_eq!(length(9, 10), Some(40));
        // Before the first frame, between two, behind one, and of a segment whose frames are gone
        // or not there yet: before the end of another segment's frame, too.
        let nowhere = [(1, 0), (1, 150), (1, 250), (9, 50), (5, 10), (9, 300), (10, 20)];
        assert!(nowhere.iter().all(|&(base, position)| length(base, position).is_none()));
    }

    #[test]
    fn frames_are_found_once_for_all_their_positions() {
        let tail = tail();
        let starts = |base, positions: &[u32]| {
            let positions: Vec<(u64, u32)> = positions.iter().map(|&at| (0, at)).collect();
            let frames = tail.frames(name(base), &positions);
            frames.iter().map(|(start, _)| *start).collect::<Vec<u32>>()
        };
        assert_eq!(starts(1, &[10, 99, 100, 120, 160, 210, 240, 260]), [100, 200]);
        assert_eq!(starts(1, &[10, 170, 220]), [200]);
        assert_eq!(starts(9, &[0, 49, 50]), [0]);
        assert!(starts(1, &[]).is_empty() && starts(5, &[0]).is_empty());
    }
}
