use std::ops::Range;

use super::frame::FrameHeader;

/// Bytes of a segment that are no frames, and the events that were there: those between the frame
/// before them and the one behind.
#[derive(Debug)]
pub(crate) struct Holes {
    next_seq: u64,
    /// The frame behind the last one is still to come.
    open: bool,
    found: Vec<(Range<u64>, Range<u64>)>,
}

impl Holes {
    /// None so far, in a segment that begins with this seq.
    pub(crate) const fn since(base: u64) -> Self {
        Self { next_seq: base, open: false, found: Vec::new() }
    }

    /// A valid frame.
    pub(crate) fn frame(&mut self, header: &FrameHeader) {
        if std::mem::take(&mut self.open)
            && let Some((_, seqs)) = self.found.last_mut()
        {
            seqs.end = seqs.end.max(header.first_seq);
        }
        self.next_seq = self.next_seq.max(header.next_seq());
    }

    /// Bytes that are none.
    pub(crate) fn hole(&mut self, bytes: Range<u64>) {
        self.open = true;
        self.found.push((bytes, self.next_seq..self.next_seq));
    }

    /// The seq behind the last frame.
    pub(crate) const fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Bytes and seqs of each.
    pub(crate) fn into_found(self) -> Vec<(Range<u64>, Range<u64>)> {
        self.found
    }
}
