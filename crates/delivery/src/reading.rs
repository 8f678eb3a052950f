//! What is read next: nothing without room to deliver it, and never more than a window.

use alloc::vec::Vec;

use crate::group::Group;
use crate::input::Page;
use crate::lane::{Lane, Reading};
use crate::lane_table::LaneRef;
use crate::limits::{FETCH_EVENTS_MAX, FETCH_EVENTS_MIN, FETCH_RETRY_MS, OFFSET_MAX};
use crate::options::Mode;
use crate::output::{Fetch, Output};
use crate::place::LaneId;
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
            let max = room
                .clamp(u64::from(FETCH_EVENTS_MIN), u64::from(FETCH_EVENTS_MAX))
                .min(free)
                .min(lane.tail - lane.next()) as u32;
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
        let mut events = page.events.iter().peekable();
        let mut gaps = page.gaps.iter().peekable();
        while self.next() < page.to.min(OFFSET_MAX) && self.slots.len() < window {
            let offset = self.next();
            while gaps.next_if(|gap| gap.to <= offset).is_some() {}
            if let Some(gap) = gaps.peek().filter(|gap| gap.from <= offset) {
                let to = gap.to.min(page.to).min(OFFSET_MAX);
                self.take_gap(to, window);
                continue;
            }
            if !self.finished_ahead.is_empty() && self.finished_ahead.contains(offset) {
                self.push_done();
                continue;
            }
            while events.next_if(|event| event.offset < offset).is_some() {}
            let Some(event) = events.next_if(|event| event.offset == offset) else {
                return Err(offset);
            };
            if event.skip {
                self.push_done();
            } else {
                self.push_event(event.key, event.bytes);
            }
        }
        self.forget_ahead();
        Ok(())
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
