use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::batch::{Batch, BatchEntry};
use crate::limits::{FRAME_MEMORY_BYTES_MAX, FRAME_MEMORY_BYTES_MIN};

/// Memory of large frames that are done with, for the next ones: to touch fresh memory for the first
/// time costs more than to encode events into it. Given back when the log's threads have nothing to do;
/// where only callers write (`Log::append_here`) those are not woken for it, and it stays.
#[derive(Debug, Default)]
pub(crate) struct FrameMemory(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// Those who read a frame may still hold it.
    frames: VecDeque<Bytes>,
    bytes: usize,
    entries: Vec<Vec<BatchEntry>>,
}

/// Lists that are kept: of one frame that is encoded, one that is written, one that is synced.
const LISTS_MAX: usize = 3;

impl FrameMemory {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory for so many bytes.
    pub(crate) fn take(&self, bytes: usize) -> Vec<u8> {
        let fits = |kept: &Bytes| kept.len() >= bytes && kept.len() / 2 <= bytes;
        self.find(|kept| fits(kept) && kept.is_unique())
            .and_then(|found| found.try_into_mut().ok())
            .map_or_else(
                || Vec::with_capacity(bytes),
                |found| {
                    let mut buffer = Vec::from(found);
                    buffer.clear();
                    buffer
                },
            )
    }

    fn find(&self, fits: impl Fn(&Bytes) -> bool) -> Option<Bytes> {
        let mut kept = self.lock();
        let place = kept.frames.iter().position(fits)?;
        let found = kept.frames.remove(place)?;
        kept.bytes -= found.len();
        Some(found)
    }

    /// A list of so many entries.
    pub(crate) fn take_entries(&self, count: usize) -> Vec<BatchEntry> {
        let mut kept = self.lock();
        match kept.entries.iter().position(|list| list.capacity() >= count) {
            Some(place) => kept.entries.swap_remove(place),
            None => Vec::with_capacity(count),
        }
    }

    /// A frame that is read from the disk from now on.
    pub(crate) fn give(&self, frame: Bytes) {
        if frame.len() < FRAME_MEMORY_BYTES_MIN {
            return;
        }
        let mut kept = self.lock();
        kept.bytes += frame.len();
        kept.frames.push_back(frame);
        while kept.bytes > FRAME_MEMORY_BYTES_MAX {
            let oldest = kept.frames.pop_front().map_or(0, |oldest| oldest.len());
            kept.bytes -= oldest;
        }
    }

    /// The lists of batches that are in the index.
    pub(crate) fn give_lists(&self, batches: Vec<Batch>) {
        batches.into_iter().for_each(|batch| self.give_entries(batch.entries));
    }

    fn give_entries(&self, mut entries: Vec<BatchEntry>) {
        if entries.capacity() * size_of::<BatchEntry>() < FRAME_MEMORY_BYTES_MIN {
            return;
        }
        entries.clear();
        let mut kept = self.lock();
        if kept.entries.len() < LISTS_MAX {
            kept.entries.push(entries);
        }
    }

    /// Nothing happens: others have more use for it.
    pub(crate) fn clear(&self) {
        *self.lock() = Kept::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = FRAME_MEMORY_BYTES_MIN;

    #[test]
    fn memory_comes_back_when_nobody_holds_it() {
        let memory = FrameMemory::default();
        let frame = Bytes::from(vec![1; BYTES]);
        let place = frame.as_ptr();
        let held = frame.slice(10..20);
        memory.give(frame);
        let other = memory.take(BYTES);
        assert_ne!(other.as_ptr(), place, "somebody reads it");
        drop(held);
        let again = memory.take(BYTES - 1);
        assert_eq!((again.as_ptr(), again.len()), (place, 0));
        let other = memory.take(BYTES);
        assert_ne!(other.as_ptr(), place, "it is given out once");
    }

    #[test]
    fn only_what_is_large_is_kept_and_only_so_much() {
        let memory = FrameMemory::default();
        memory.give(Bytes::from(vec![1; BYTES - 1]));
        assert_eq!(memory.lock().bytes, 0);
        (0..=FRAME_MEMORY_BYTES_MAX / BYTES).for_each(|_| memory.give(Bytes::from(vec![1; BYTES])));
        assert_eq!(memory.lock().bytes, FRAME_MEMORY_BYTES_MAX);
        assert_eq!(memory.lock().frames.len(), FRAME_MEMORY_BYTES_MAX / BYTES);
        assert!(memory.take(BYTES / 2 - 1).capacity() < BYTES, "much too large for it");
        (0..9).for_each(|_| memory.give_entries(Vec::with_capacity(BYTES)));
        assert_eq!(memory.lock().entries.len(), LISTS_MAX);
        memory.clear();
        let kept = memory.lock();
        assert_eq!((kept.bytes, kept.entries.len()), (0, 0));
    }
}
