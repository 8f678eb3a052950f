//! Reads the partitions of a projection from its own cursors on, merged by append time.
//!
//! Not as a member of a group: the cursor is in the database, in the same transaction as the
//! documents, and what a group has acked says nothing about it. So there are no leases either: a
//! projection has one reader, and its handling may take as long as it likes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

use promethean_event::Offset;

use super::limits::READ_AHEAD_BYTES;
use super::view_store::BuildCursor;
use crate::store::{Gap, GapReason, Lane, PageLimit, Read, ReadError, Store, Stored};

/// What comes next in a partition.
#[derive(Debug, Clone)]
pub(crate) enum Fed {
    /// An event.
    Event(Lane, Box<Stored>),
    /// Offsets without events.
    Passed(Lane, Gap),
}

impl Fed {
    pub(crate) const fn lane(&self) -> Lane {
        match self {
            Self::Event(lane, _) | Self::Passed(lane, _) => *lane,
        }
    }

    /// The offset after it.
    pub(crate) const fn next(&self) -> Offset {
        match self {
            Self::Event(_, stored) => stored.event.offset.next(),
            Self::Passed(_, gap) => gap.to,
        }
    }
}

/// How much is taken at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchLimit {
    pub(crate) events: usize,
    pub(crate) bytes: usize,
}

/// The partitions of a projection.
#[derive(Debug)]
pub(crate) struct Feed {
    store: Arc<dyn Store>,
    lanes: Vec<LaneFeed>,
    places: HashMap<Lane, usize>,
    /// The next of each lane that has one, by append time and lane.
    heads: BinaryHeap<Reverse<(u64, usize)>>,
    /// Lanes to look at: nothing is read ahead of them, and they may have more.
    hungry: Vec<usize>,
    mark: u64,
}

#[derive(Debug)]
struct LaneFeed {
    lane: Lane,
    next: Offset,
    /// Not to be read beyond.
    until: Option<Offset>,
    ahead: VecDeque<Fed>,
    is_hungry: bool,
}

impl Feed {
    pub(crate) fn new(store: Arc<dyn Store>, cursors: &[BuildCursor]) -> Self {
        let lanes: Vec<LaneFeed> = cursors
            .iter()
            .map(|cursor| LaneFeed {
                lane: cursor.lane,
                next: cursor.next,
                until: None,
                ahead: VecDeque::new(),
                is_hungry: true,
            })
            .collect();
        let places = lanes.iter().enumerate().map(|(place, lane)| (lane.lane, place)).collect();
        let hungry = (0..lanes.len()).collect();
        Self { store, lanes, places, heads: BinaryHeap::new(), hungry, mark: 0 }
    }

    /// Reads no further than this.
    pub(crate) fn stop_at(&mut self, ends: &HashMap<Lane, Offset>) {
        for (place, lane) in self.lanes.iter_mut().enumerate() {
            lane.until = Some(ends.get(&lane.lane).copied().unwrap_or(lane.next));
            // It may have come to an earlier such end.
            if lane.ahead.is_empty() && !lane.is_hungry {
                lane.is_hungry = true;
                self.hungry.push(place);
            }
        }
    }

    /// What comes next, in order; nothing if all partitions are at their ends.
    pub(crate) async fn batch(&mut self, limit: BatchLimit) -> Result<Vec<Fed>, ReadError> {
        let mut batch = Vec::new();
        let (mut events, mut bytes) = (0, 0);
        while events < limit.events && bytes < limit.bytes {
            self.fill().await?;
            let Some(Reverse((_, place))) = self.heads.pop() else {
                break;
            };
            let Some(lane) = self.lanes.get_mut(place) else {
                break;
            };
            if let Some(fed) = lane.ahead.pop_front() {
                if let Fed::Event(_, stored) = &fed {
                    events += 1;
                    bytes += stored.bytes as usize;
                }
                batch.push(fed);
            }
            self.queue(place);
        }
        Ok(batch)
    }

    /// What a plan says, in its order. Nothing has been read ahead yet.
    pub(crate) async fn planned(&mut self, plan: &[(Lane, Offset)]) -> Result<Vec<Fed>, ReadError> {
        let mut batch = Vec::new();
        for (lane, to) in plan {
            let Some(&place) = self.places.get(lane) else {
                continue;
            };
            while let Some(known) = self.lanes.get_mut(place) {
                while let Some(fed) = known.ahead.pop_front_if(|fed| fed.next() <= *to) {
                    batch.push(fed);
                }
                if !known.ahead.is_empty() || known.next >= *to {
                    break;
                }
                let before = known.next;
                let read = Read::From { lane: *lane, from: before, limit: PageLimit::default() };
                let page = self.store.read(read).await?;
                self.take(place, page);
                if self.lanes.get(place).is_none_or(|known| known.next == before) {
                    break;
                }
            }
        }
        (0..self.lanes.len()).for_each(|place| self.wake_with_ahead(place));
        Ok(batch)
    }

    /// A lane of which more was read than a plan wanted has its head among the heads.
    fn wake_with_ahead(&mut self, place: usize) {
        if self.lanes.get(place).is_some_and(|lane| !lane.ahead.is_empty()) {
            self.hungry.retain(|&hungry| hungry != place);
            if let Some(lane) = self.lanes.get_mut(place) {
                lane.is_hungry = false;
            }
            self.queue(place);
        }
    }

    /// Puts the head of a lane among the heads, or the lane among those to look at.
    fn queue(&mut self, place: usize) {
        let Some(lane) = self.lanes.get_mut(place) else {
            return;
        };
        match lane.ahead.front() {
            Some(Fed::Event(_, stored)) => {
                self.heads.push(Reverse((stored.appended_at.millis(), place)));
            }
            Some(Fed::Passed(..)) => self.heads.push(Reverse((0, place))),
            None if !lane.is_hungry => {
                lane.is_hungry = true;
                self.hungry.push(place);
            }
            None => {}
        }
    }

    /// Reads on where nothing has been read ahead. All lanes have to show their heads before one
    /// is taken: the order is the append times'.
    async fn fill(&mut self) -> Result<(), ReadError> {
        let bytes = (READ_AHEAD_BYTES / self.lanes.len().max(1)).max(1);
        while let Some(&place) = self.hungry.last() {
            let Some(lane) = self.lanes.get(place) else {
                break;
            };
            let (from, until) = (lane.next, lane.until);
            if until.is_none_or(|until| from < until) {
                let limit = PageLimit { bytes, ..PageLimit::default() };
                let page = self.store.read(Read::From { lane: lane.lane, from, limit }).await?;
                self.take(place, page);
            }
            // Only now: a read that was broken off is made again.
            self.hungry.pop();
            if let Some(lane) = self.lanes.get_mut(place) {
                lane.is_hungry = false;
                if !lane.ahead.is_empty() {
                    self.queue(place);
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, place: usize, page: crate::store::Page) {
        let Some(lane) = self.lanes.get_mut(place) else {
            return;
        };
        let mut gaps = page.gaps.into_iter().peekable();
        let until = lane.until.unwrap_or(Offset::new(u64::MAX));
        for stored in page.events.into_iter().filter(|stored| stored.event.offset < until) {
            while let Some(gap) = gaps.next_if(|gap| gap.from < stored.event.offset) {
                lane.ahead.push_back(Fed::Passed(lane.lane, gap));
            }
            lane.ahead.push_back(Fed::Event(lane.lane, Box::new(stored)));
        }
        for gap in gaps.filter(|gap| gap.from < until) {
            let gap = Gap { to: gap.to.min(until), ..gap };
            lane.ahead.push_back(Fed::Passed(lane.lane, gap));
        }
        lane.next = page.next.min(until);
    }

    /// Waits until a partition may have more. False if there will never be more.
    pub(crate) async fn grown(&mut self) -> bool {
        let growth = self.store.grown(self.mark).await;
        self.mark = growth.mark;
        match growth.lanes {
            Some(lanes) => {
                for (lane, _) in lanes {
                    if let Some(&place) = self.places.get(&lane) {
                        self.wake(place);
                    }
                }
            }
            None => (0..self.lanes.len()).for_each(|place| self.wake(place)),
        }
        !growth.closed
    }

    fn wake(&mut self, place: usize) {
        if self.lanes.get(place).is_some_and(|lane| lane.ahead.is_empty()) {
            self.queue(place);
        }
    }
}

/// Whether a gap means that something was missed. What compaction has taken has a newer event of
/// its key behind it, or was a deletion of something that a build from the beginning never saw.
pub(crate) fn is_missed(gap: &Gap, by_key: bool, begun: Offset) -> bool {
    !by_key || gap.reason == GapReason::Expired || gap.to > begun
}
