use bytes::Bytes;
use promethean_event::Offset;

use super::lane::LaneReader;
use super::page::{Gap, PageLimit};
use crate::error::ReadError;
use crate::segment::RecordRef;

/// Records in order, in the memory they were read into: nothing is copied or decoded, and the
/// memory is held once for many of them. For those who hand events on.
#[derive(Debug, Clone, Default)]
pub struct RecordPage {
    memory: Vec<Bytes>,
    /// Which memory, and where in it.
    places: Vec<(u32, u32)>,
    /// Offsets that were passed and are not among them.
    pub gaps: Vec<Gap>,
    /// Where to go on.
    pub next: Offset,
}

impl RecordPage {
    /// How many records.
    pub const fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// One of the records.
    pub fn get(&self, index: usize) -> Option<RecordRef<'_>> {
        let &(memory, start) = self.places.get(index)?;
        RecordRef::unchecked(self.memory.get(memory as usize)?, start as usize)
    }

    fn push(&mut self, record: &RecordRef<'_>) {
        let (memory, start) = record.place();
        let same = |last: &Bytes| {
            std::ptr::eq(last.as_ptr(), memory.as_ptr()) && last.len() == memory.len()
        };
        if !self.memory.last().is_some_and(same) {
            self.memory.push(memory.clone());
        }
        self.places.push((self.memory.len() as u32 - 1, start as u32));
    }
}

impl LaneReader {
    /// The next records; none at the end of the lane. Each is shown while it is at hand.
    pub fn next_records(
        &mut self,
        limit: PageLimit,
        mut show: impl FnMut(&RecordRef<'_>),
    ) -> Result<RecordPage, ReadError> {
        let mut page = RecordPage { places: Vec::with_capacity(256), ..RecordPage::default() };
        let visited = self.visit(limit, |record| {
            page.push(&record);
            show(&record);
        })?;
        page.gaps = visited.gaps;
        page.next = self.position();
        Ok(page)
    }
}
