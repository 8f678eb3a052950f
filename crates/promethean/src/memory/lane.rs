use std::collections::BTreeMap;

use promethean_event::{Offset, Partition, Timestamp};
use promethean_log::GapReason;

use crate::store::{Gap, LaneBounds, Page, PageLimit, ReadError, Stored};

/// The events of one partition.
#[derive(Debug, Default)]
pub(super) struct LaneEvents {
    /// What is before it has expired.
    pub(super) start: u64,
    pub(super) next: u64,
    /// By offset; what is missing from `start` on was compacted.
    pub(super) events: BTreeMap<u64, Stored>,
}

impl LaneEvents {
    pub(super) fn push(&mut self, stored: Stored) {
        self.events.insert(self.next, stored);
        self.next += 1;
    }

    /// Takes the newest event back.
    pub(super) fn pop(&mut self) -> Option<Stored> {
        self.next -= 1;
        self.events.remove(&self.next)
    }

    pub(super) fn get(&self, offset: Offset) -> Option<&Stored> {
        self.events.get(&offset.get())
    }

    pub(super) const fn bounds(&self) -> LaneBounds {
        LaneBounds { start: Offset::new(self.start), next: Offset::new(self.next) }
    }

    pub(super) fn offset_at(&self, time: Timestamp) -> Offset {
        let first = self.events.iter().find(|(_, stored)| stored.appended_at >= time);
        Offset::new(first.map_or(self.next, |(&offset, _)| offset))
    }

    pub(super) fn from(
        &self,
        partition: Partition,
        from: Offset,
        limit: PageLimit,
    ) -> Result<Page, ReadError> {
        if from.get() > self.next {
            return Err(ReadError::BeyondEnd { wanted: from, next: Offset::new(self.next) });
        }
        let mut page = PageMaker::new(partition, limit);
        let mut next = from.get();
        if next < self.start {
            page.gap(next, self.start, GapReason::Expired);
            next = self.start;
        }
        for (&offset, stored) in self.events.range(next..) {
            page.gap(next, offset, GapReason::Compacted);
            next = offset + 1;
            if page.add(stored) {
                return Ok(page.finish(next));
            }
        }
        page.gap(next, self.next, GapReason::Compacted);
        Ok(page.finish(self.next))
    }

    pub(super) fn before(&self, partition: Partition, before: Offset, limit: PageLimit) -> Page {
        let mut page = PageMaker::new(partition, limit);
        let mut end = before.get().min(self.next);
        for (&offset, stored) in self.events.range(..end).rev() {
            page.gap(offset + 1, end, GapReason::Compacted);
            end = offset;
            if page.add(stored) {
                return page.finish(end);
            }
        }
        page.gap(self.start, end, GapReason::Compacted);
        page.gap(0, self.start.min(end), GapReason::Expired);
        page.finish(0)
    }
}

/// A page that is being filled.
struct PageMaker {
    partition: Partition,
    limit: PageLimit,
    bytes: usize,
    page: Page,
}

impl PageMaker {
    fn new(partition: Partition, limit: PageLimit) -> Self {
        Self { partition, limit, bytes: 0, page: Page::default() }
    }

    fn gap(&mut self, from: u64, to: u64, reason: GapReason) {
        if from < to {
            let (from, to) = (Offset::new(from), Offset::new(to));
            self.page.gaps.push(Gap { partition: self.partition, from, to, reason });
        }
    }

    /// Adds an event; true if the page is full.
    fn add(&mut self, stored: &Stored) -> bool {
        self.bytes += stored.bytes as usize;
        self.page.events.push(stored.clone());
        self.page.events.len() >= self.limit.events || self.bytes >= self.limit.bytes
    }

    fn finish(mut self, next: u64) -> Page {
        self.page.next = Offset::new(next);
        self.page
    }
}
