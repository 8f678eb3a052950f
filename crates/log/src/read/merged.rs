use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use promethean_event::{Offset, Seq};

use super::lane::LaneReader;
use super::page::{Gap, Page, PageLimit};
use crate::engine::Engine;
use crate::error::ReadError;
use crate::segment::Record;
use crate::topic::Lane;

/// Reads several lanes forward, in the order in which their events were appended.
#[derive(Debug)]
pub struct MergedReader {
    lanes: Vec<Buffered>,
}

#[derive(Debug)]
struct Buffered {
    reader: LaneReader,
    records: VecDeque<Record>,
    /// The first seq that was asked for.
    from: u64,
}

impl MergedReader {
    pub(crate) fn new(
        engine: &Arc<Engine>,
        lanes: impl IntoIterator<Item = Lane>,
        from: Seq,
    ) -> Result<Self, ReadError> {
        let next = engine.read().next_seq;
        if from.get() > next {
            return Err(ReadError::SeqBeyondEnd { wanted: from, next: Seq::new(next) });
        }
        let lanes = lanes.into_iter().map(|lane| {
            let start = Offset::new(engine.offset_at_seq(lane, from.get())?);
            let reader = LaneReader::new(Arc::clone(engine), lane, start)?;
            Ok(Buffered { reader, records: VecDeque::new(), from: from.get() })
        });
        Ok(Self { lanes: lanes.collect::<Result<_, ReadError>>()? })
    }

    /// The next events by seq; empty at the end.
    pub fn next_page(&mut self, limit: PageLimit) -> Result<Page, ReadError> {
        let mut page = Page::default();
        let mut bytes = 0;
        let Some(first) = self.lanes.first() else {
            return Ok(page);
        };
        // Lanes are only compared up to where the log stands now: one that seems to have ended
        // may get an event at any time that comes before one of another lane.
        let end = first.reader.engine().read().next_seq;
        let mut heap = BinaryHeap::with_capacity(self.lanes.len());
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            let next = lane.next_seq(limit, &mut page.gaps)?;
            heap.extend(next.filter(|&seq| seq < end).map(|seq| Reverse((seq, number))));
        }
        while page.records.len() < limit.events.max(1) && bytes < limit.bytes {
            let Some(Reverse((_, number))) = heap.pop() else {
                break;
            };
            let Some(lane) = self.lanes.get_mut(number) else {
                break;
            };
            if let Some(record) = lane.records.pop_front() {
                bytes += record.bytes();
                page.records.push(record);
            }
            let next = lane.next_seq(limit, &mut page.gaps)?;
            heap.extend(next.filter(|&seq| seq < end).map(|seq| Reverse((seq, number))));
        }
        Ok(page)
    }
}

impl Buffered {
    /// The seq of the lane's next event, read ahead if need be.
    fn next_seq(
        &mut self,
        limit: PageLimit,
        gaps: &mut Vec<Gap>,
    ) -> Result<Option<u64>, ReadError> {
        if self.records.is_empty() {
            let part = PageLimit { events: limit.events.min(256), bytes: limit.bytes };
            // The first frame may hold events before the seq that was asked for.
            while self.records.is_empty() {
                let page = self.reader.next_page(part)?;
                let at_end = page.records.is_empty();
                gaps.extend(page.gaps);
                if at_end {
                    break;
                }
                let wanted = |record: &Record| record.seq().get() >= self.from;
                self.records.extend(page.records.into_iter().filter(wanted));
            }
        }
        Ok(self.records.front().map(|record| record.seq().get()))
    }
}
