use promethean_event::Offset;

use super::page::{Gap, GapReason, Page, PageLimit};
use crate::engine::{Engine, ReadPlace};
use crate::error::ReadError;
use crate::segment::Record;
use crate::topic::Lane;

/// A page on its way back through a lane.
struct Backward<'a> {
    engine: &'a Engine,
    lane: Lane,
    limit: PageLimit,
    /// Where the lane starts.
    start: u64,
    /// All from here on is in the page, or was not wanted.
    next: u64,
    bytes: usize,
    page: Page,
}

impl Engine {
    /// Up to `limit` events of a lane before an offset, newest first. What is missing between them is
    /// among the gaps, and, if the page is not full, what is missing before them.
    pub(crate) fn page_before(
        &self,
        lane: Lane,
        before: u64,
        limit: PageLimit,
    ) -> Result<Page, ReadError> {
        let (page, bytes) = (Page::default(), 0);
        let (start, next) = (0, before);
        let mut back = Backward { engine: self, lane, limit, start, next, bytes, page };
        loop {
            let (sealed, place, positions) = {
                let state = self.read();
                let known = state.catalog.lane(lane).ok_or(ReadError::UnknownLane)?;
                back.start = known.start.get();
                back.next = back.next.min(known.next.get());
                let index = &state.active.index;
                let positions = index.positions_before(lane, back.next, back.wanted());
                (state.sealed.clone(), state.active.place(), positions)
            };
            if !positions.is_empty() {
                if back.take(&place, &positions)? {
                    return Ok(back.finish());
                }
                continue;
            }
            for segment in sealed.iter().rev() {
                loop {
                    let (next, wanted) = (back.next, back.wanted());
                    let positions =
                        self.ask(segment, |index| index.positions_before(lane, next, wanted))?;
                    if back.take(&segment.place(), &positions)? {
                        return Ok(back.finish());
                    }
                    // More of them if some were damaged.
                    if positions.len() < wanted {
                        break;
                    }
                }
            }
            return Ok(back.finish());
        }
    }
}

impl Backward<'_> {
    fn is_full(&self) -> bool {
        self.wanted() == 0 || self.bytes >= self.limit.bytes
    }

    fn wanted(&self) -> usize {
        self.limit.events.saturating_sub(self.page.records.len())
    }

    /// Takes events that stand one before the other; true if no more are wanted.
    fn take(&mut self, place: &ReadPlace, positions: &[(u64, u32)]) -> Result<bool, ReadError> {
        for &(offset, position) in positions {
            if self.is_full() || offset < self.start {
                return Ok(true);
            }
            if offset + 1 < self.next {
                let gap = self.engine.missing(self.lane, offset + 1, self.next);
                self.page.gaps.push(gap);
            }
            self.next = offset;
            // A block that stands where it does not belong brings good records to wrong places.
            let belongs =
                |record: &Record| record.lane() == self.lane && record.offset().get() == offset;
            match place.record(position)?.filter(belongs) {
                Some(record) => {
                    self.bytes += record.bytes();
                    self.page.records.push(record);
                }
                None => self.corrupt(offset),
            }
        }
        Ok(self.is_full())
    }

    /// One whose bytes are damaged, and most often so are its neighbours'.
    fn corrupt(&mut self, offset: u64) {
        let (from, to) = (Offset::new(offset), Offset::new(offset + 1));
        match self.page.gaps.last_mut() {
            Some(last) if last.reason == GapReason::Corrupt && last.from == to => last.from = from,
            _ => self.gap(from, to, GapReason::Corrupt),
        }
    }

    fn gap(&mut self, from: Offset, to: Offset, reason: GapReason) {
        self.page.gaps.push(Gap { lane: self.lane, from, to, reason });
    }

    /// The page, and what is missing before it if nothing more is there.
    fn finish(mut self) -> Page {
        if self.is_full() {
            return self.page;
        }
        if self.start < self.next {
            let gap = self.engine.missing(self.lane, self.start, self.next);
            self.page.gaps.push(gap);
        }
        let expired = self.start.min(self.next);
        if expired > 0 {
            self.gap(Offset::ZERO, Offset::new(expired), GapReason::Expired);
        }
        self.page
    }
}
