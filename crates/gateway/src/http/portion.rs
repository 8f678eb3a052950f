use crate::limits::PAGE_BYTES_MAX;

/// How many things are asked for at once, for an answer of about [`PAGE_BYTES_MAX`] of which it is
/// not known before how large they are.
#[derive(Debug)]
pub(super) struct Portion {
    next: usize,
    count: usize,
    bytes: usize,
}

impl Portion {
    /// Asked for before anything is known.
    const FIRST: usize = 8;

    pub(super) const fn new() -> Self {
        Self { next: Self::FIRST, count: 0, bytes: 0 }
    }

    /// So many next.
    pub(super) const fn next(&self) -> usize {
        self.next
    }

    /// These have come.
    pub(super) fn add(&mut self, sizes: impl Iterator<Item = usize>) {
        for size in sizes {
            self.count += 1;
            self.bytes += size;
        }
        // As many as fit if the rest is alike, and not so many that it could not be borne if not.
        let room = PAGE_BYTES_MAX.saturating_sub(self.bytes);
        let fitting = room * self.count / self.bytes.max(1);
        self.next = fitting.clamp(1, self.next * 4);
    }

    /// Whether they are as large as an answer may be.
    pub(super) const fn is_full(&self) -> bool {
        self.bytes >= PAGE_BYTES_MAX
    }
}
