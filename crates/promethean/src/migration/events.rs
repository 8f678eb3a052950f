//! Events of all lanes, merged by the time at which they were appended: a store on one machine has one
//! time for all of them, which does not go back.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use promethean_event::{Offset, Timestamp};

use super::error::MigrateError;
use super::places::{Places, topics};
use crate::store::{Lane, PageLimit, Read, Restore, Store, Stored};

/// Events that wait in memory, about, over all lanes.
const WAITING_MAX: usize = 100_000;
/// Events that are handed over together.
const AT_ONCE: usize = 4_000;
/// Or bytes.
const BYTES_AT_ONCE: usize = 8 * 1024 * 1024;

/// What is left to read of a lane.
struct LaneSource {
    from: Lane,
    to: Lane,
    next: Offset,
    end: Offset,
    waiting: VecDeque<Stored>,
}

/// Takes over the events that the target does not have yet. `told` is called with how many it was.
pub(super) async fn take_over(
    (from, to): (&dyn Store, &dyn Store),
    restore: &dyn Restore,
    places: &Places,
    mut told: impl FnMut(u64) + Send,
) -> Result<(), MigrateError> {
    let mut sources = sources(from, to, places).await?;
    let page = (WAITING_MAX / sources.len().max(1)).clamp(16, 1_000);
    let mut order: BinaryHeap<Reverse<(Timestamp, usize)>> = BinaryHeap::new();
    for (number, source) in sources.iter_mut().enumerate() {
        order.extend(source.first(from, page).await?.map(|time| Reverse((time, number))));
    }
    let (mut piece, mut bytes) = (Vec::new(), 0);
    while let Some(Reverse((_, number))) = order.pop() {
        let Some(source) = sources.get_mut(number) else { continue };
        if let Some(stored) = source.waiting.pop_front() {
            bytes += stored.bytes as usize;
            piece.push((source.to, stored));
        }
        order.extend(source.first(from, page).await?.map(|time| Reverse((time, number))));
        if piece.len() >= AT_ONCE || bytes >= BYTES_AT_ONCE {
            let count = piece.len() as u64;
            restore.restore(std::mem::take(&mut piece)).await?;
            bytes = 0;
            told(count);
        }
    }
    let count = piece.len() as u64;
    restore.restore(piece).await?;
    told(count);
    let mut bounds = Vec::with_capacity(sources.len());
    for source in &sources {
        let wanted = from.bounds(source.from).await?;
        if to.bounds(source.to).await? != wanted {
            bounds.push((source.to, wanted));
        }
    }
    for piece in bounds.chunks(AT_ONCE) {
        restore.place(piece.to_vec()).await?;
    }
    Ok(())
}

async fn sources(
    from: &dyn Store,
    to: &dyn Store,
    places: &Places,
) -> Result<Vec<LaneSource>, MigrateError> {
    let mut sources = Vec::new();
    for lane in topics(&from.topics()).flat_map(|entry| entry.lanes()) {
        let Some(target) = places.lane(lane) else { continue };
        let bounds = from.bounds(lane).await?;
        // What is there is passed over: all before the end is, in this order.
        let next = to.bounds(target).await?.next.max(bounds.start);
        let waiting = VecDeque::new();
        sources.push(LaneSource { from: lane, to: target, next, end: bounds.next, waiting });
    }
    Ok(sources)
}

impl LaneSource {
    /// When the next event was appended; `None` at the end.
    async fn first(
        &mut self,
        store: &dyn Store,
        page: usize,
    ) -> Result<Option<Timestamp>, MigrateError> {
        while self.waiting.is_empty() && self.next < self.end {
            let limit = PageLimit { events: page, ..PageLimit::default() };
            let read = Read::From { lane: self.from, from: self.next, limit };
            let page = store.read(read).await?;
            self.next = page.next;
            self.waiting.extend(page.events);
        }
        Ok(self.waiting.front().map(|stored| stored.appended_at))
    }
}
