//! What is read next: nothing without room to deliver it, and never more than a window.

use alloc::vec::Vec;

use crate::group::Group;
use crate::input::{Found, Page};
use crate::lane::{Lane, Reading};
use crate::lane_table::LaneRef;
use crate::limits::{FETCH_EVENTS, FETCH_RETRY_MS, OFFSET_MAX};
use crate::options::Mode;
use crate::output::{Fetch, Output};
use crate::place::LaneId;
use crate::slot::{Slot, Standing};
use crate::timer::Due;

impl Group {
    /// Asks for more where there is room for it.
    pub(crate) fn read(&mut self, outputs: &mut Vec<Output>) {
        let window = self.options.window_events;
        for _ in 0..self.hungry.len() {
            let Some(at) = self.hungry.pop_front() else {
                return;
            };
            let room = self.room_for(at);
            if room == 0 && self.is_one_pool() {
                self.hungry.push_front(at);
                return;
            }
            let Some(lane) = self.lanes.get_mut(at) else {
                continue;
            };
            lane.hungry = false;
            if !lane.wants_reading(window) {
                continue;
            }
            if room == 0 {
                self.block(at);
                continue;
            }
            let free = u64::from(window) - lane.slots.len() as u64;
            let max = u64::from(FETCH_EVENTS).min(free).min(lane.tail - lane.next()) as u32;
            self.fetches += 1;
            let (fetch, from) = (self.fetches, lane.next());
            lane.reading = Reading::Asked { fetch };
            let lane = lane.id;
            outputs.push(Output::Fetch(Fetch { lane, fetch, from, max }));
        }
    }

    /// Whether every member may take events of every lane, so that room and backlog are sums.
    fn is_one_pool(&self) -> bool {
        self.options.mode == Mode::Shared && self.members.choosy == 0
    }

    /// How many more events of the lane could go out than are read.
    fn room_for(&self, at: LaneRef) -> u64 {
        if self.is_one_pool() {
            return self.members.room.saturating_sub(self.backlog);
        }
        let Some(lane) = self.lanes.get(at) else {
            return 0;
        };
        let room = match self.options.mode {
            Mode::Shared => self.members.room,
            Mode::Partitioned => {
                let owner = lane.owner.acting().and_then(|seat| self.members.get(seat));
                owner.map_or(0, |owner| u64::from(owner.room()))
            }
        };
        room.saturating_sub(u64::from(lane.backlog()))
    }

    /// A fetch is answered.
    pub(crate) fn fetched(&mut self, page: Page<'_>, outputs: &mut Vec<Output>) {
        let Some(at) = self.lanes.find(page.lane) else {
            return;
        };
        let window = self.options.window_events as usize;
        let Some(lane) = self.lanes.get_mut(at) else {
            return;
        };
        let asked = Reading::Asked { fetch: page.fetch };
        if lane.reading != asked {
            return;
        }
        lane.reading = Reading::Idle;
        lane.tail = lane.tail.max(page.to.min(OFFSET_MAX));
        if page.from <= lane.next()
            && let Err(offset) = lane.take_page(page, window)
        {
            lane.reading = Reading::Broken;
            let lane = lane.id;
            outputs.push(Output::Broken { lane, offset });
        }
        self.settle(at);
    }

    /// A fetch came to nothing.
    pub(crate) fn fetch_failed(&mut self, id: LaneId, fetch: u64) {
        let Some(at) = self.lanes.find(id) else {
            return;
        };
        if let Some(lane) = self.lanes.get_mut(at)
            && lane.reading == (Reading::Asked { fetch })
        {
            lane.reading = Reading::Resting;
            let due = self.now + FETCH_RETRY_MS;
            self.timers.add(due, Due::Read { lane: at });
        }
    }

    pub(crate) fn read_again(&mut self, at: LaneRef) {
        if let Some(lane) = self.lanes.get_mut(at)
            && lane.reading == Reading::Resting
        {
            lane.reading = Reading::Idle;
            self.settle(at);
        }
    }
}

impl Lane {
    /// Whether there is something to read and a place to put it.
    pub(crate) fn wants_reading(&self, window: u32) -> bool {
        self.reading == Reading::Idle
            && self.tail > self.next()
            && (self.slots.len() as u64) < u64::from(window)
    }

    /// Takes in as much of a page as the window holds; the rest is read again later. An offset
    /// that the page says nothing about is an error.
    fn take_page(&mut self, page: Page<'_>, window: usize) -> Result<(), u64> {
        let end = page.to.min(OFFSET_MAX);
        let mut events = page.events;
        let mut gaps = page.gaps.iter().peekable();
        while self.next() < end && self.slots.len() < window {
            let offset = self.next();
            while gaps.next_if(|gap| gap.to <= offset).is_some() {}
            if let Some(gap) = gaps.peek().filter(|gap| gap.from <= offset) {
                self.take_gap(gap.to.min(end), window);
                continue;
            }
            if !self.finished_ahead.is_empty() && self.finished_ahead.contains(offset) {
                self.push_done();
                continue;
            }
            while let Some((_, after)) = events.split_first().filter(|(e, _)| e.offset < offset) {
                events = after;
            }
            let to = gaps.peek().map_or(end, |gap| gap.from.min(end));
            let new = self.push_new(events, to, window);
            if new > 0 {
                events = events.get(new..).unwrap_or_default();
                continue;
            }
            let Some((event, after)) = events.split_first().filter(|(e, _)| e.offset == offset)
            else {
                return Err(offset);
            };
            events = after;
            if event.skip {
                self.push_done();
            } else {
                self.push_event(event.key, event.bytes);
            }
        }
        self.forget_ahead();
        Ok(())
    }

    /// Takes in the first of `events` before `to`, as far as they follow each other and nothing is
    /// known of them from before, which is the rule; gives how many.
    fn push_new(&mut self, events: &[Found], to: u64, window: usize) -> usize {
        let first = self.next();
        if self.exact
            || first < self.implied_below
            || !self.records.is_empty()
            || !self.finished_ahead.is_empty()
        {
            return 0;
        }
        let room = usize::try_from(to.saturating_sub(first)).unwrap_or(usize::MAX);
        let room = room.min(window - self.slots.len());
        let new = events.iter().zip(first..).take(room);
        let new = new.take_while(|(event, offset)| event.offset == *offset && !event.skip);
        let before = self.slots.len();
        if self.ordered_by_key {
            for (event, offset) in new {
                let mut slot = Slot::new(Standing::Fresh).of(event);
                if event.key.is_none_or(|key| self.key_arrives(key, offset)) {
                    self.fresh += 1;
                } else {
                    slot.standing = Standing::Waiting;
                }
                self.slots.push_back(slot);
            }
            self.slots.len() - before
        } else {
            self.slots.extend(new.map(|(event, _)| Slot::new(Standing::Fresh).of(event)));
            let count = self.slots.len() - before;
            self.fresh += count as u32;
            count
        }
    }

    fn take_gap(&mut self, to: u64, window: usize) {
        if self.slots.is_empty() {
            self.floor = to;
            self.walk = self.walk.max(to);
        }
        while self.next() < to && self.slots.len() < window {
            self.push_done();
        }
    }

    /// Finished offsets that have a slot now are known by it.
    fn forget_ahead(&mut self) {
        if !self.finished_ahead.is_empty() {
            let next = self.next();
            self.finished_ahead.cut_below(next);
            self.raise_floor();
        }
    }
}
