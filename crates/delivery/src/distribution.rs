//! Who gets what is ready, and what is read next. Lanes take turns, members take turns, and
//! nobody is looked at who has nothing to give or to take.

use alloc::vec::Vec;

use crate::group::Group;
use crate::input::Page;
use crate::lane::{Chore, Lane, Reading};
use crate::lane_table::LaneRef;
use crate::lease::Grant;
use crate::limits::{FETCH_EVENTS_MAX, FETCH_EVENTS_MIN, FETCH_RETRY_MS};
use crate::options::Mode;
use crate::output::{Fetch, Output, Reason};
use crate::place::LaneId;
use crate::save::Pending;
use crate::timer::Due;

impl Group {
    /// Brings the group's lists up to date after anything about a lane changed.
    pub(crate) fn settle(&mut self, at: LaneRef) {
        self.do_chores(at);
        self.push_horizon(at);
        let in_order = self.options.mode == Mode::Partitioned;
        let window = self.options.window_events;
        let Some(lane) = self.lanes.get_mut(at) else {
            return;
        };
        let backlog = lane.backlog();
        self.backlog = self.backlog + u64::from(backlog) - u64::from(lane.counted);
        lane.counted = backlog;
        if !lane.active && lane.has_work(in_order) {
            lane.active = true;
            self.active.push_back(at);
        }
        if !lane.hungry && wants_reading(lane, window) {
            lane.hungry = true;
            self.hungry.push_back(at);
        }
        if !lane.unsaved.listed && lane.must_save() {
            lane.unsaved.listed = true;
            self.ledger.add_changed(at);
        }
    }

    fn do_chores(&mut self, at: LaneRef) {
        while let Some(chore) = self.lanes.get_mut(at).and_then(|lane| lane.chores.pop()) {
            match chore {
                Chore::GiveUp { offset } => self.give_up(at, offset, Reason::ProcessLost),
                Chore::Wake { offset, at: due } => self.wake(at, offset, due),
            }
        }
    }

    /// A time that was saved is taken with care: the clock may have been set back meanwhile.
    fn wake(&mut self, at: LaneRef, offset: u64, due: u64) {
        let longest = self.options.backoff_ms_max.max(self.options.lease_ms_max);
        let due = due.min(self.now + u64::from(longest));
        if let Some(slot) = self
            .lanes
            .get_mut(at)
            .and_then(|lane| lane.slot_mut(offset))
        {
            slot.deadline = due;
            self.timers.add(due, Due::Retry { lane: at, offset });
        }
    }

    /// Keeps the durable horizon ahead of the fetch position.
    fn push_horizon(&mut self, at: LaneRef) {
        let ahead = u64::from(self.options.horizon_events);
        let Some(lane) = self.lanes.get_mut(at) else {
            return;
        };
        let next = lane.next();
        if lane.exact {
            // Not used; nothing is ever fresh.
            lane.horizon.durable = u64::MAX;
        } else if lane.horizon.requested < next + ahead / 2 {
            lane.horizon.requested = next + ahead;
            lane.unsaved.want_horizon();
            let (epoch, to) = (lane.epoch, lane.horizon.requested);
            let lane = at;
            self.ledger.after_next(Pending::Horizon { lane, epoch, to });
        }
    }

    pub(crate) fn horizon_saved(&mut self, at: LaneRef, epoch: u32, to: u64) {
        if let Some(lane) = self.lanes.get_mut(at)
            && lane.epoch == epoch
        {
            lane.horizon.durable = lane.horizon.durable.max(to);
            self.settle(at);
        }
    }

    /// Hands out everything that can go out.
    pub(crate) fn distribute(&mut self, outputs: &mut Vec<Output>) {
        for at in core::mem::take(&mut self.members.woken) {
            self.settle(at);
        }
        if self.paused {
            return;
        }
        while self.members.room > 0 {
            let Some(at) = self.active.pop_front() else {
                break;
            };
            let Some(lane) = self.lanes.get_mut(at) else {
                continue;
            };
            lane.active = false;
            let id = lane.id;
            match self.taker(at, id) {
                Some(seat) => self.serve(at, seat, outputs),
                None => self.block(at),
            }
        }
        self.read(outputs);
    }

    /// Who gets events of the lane now.
    fn taker(&mut self, at: LaneRef, id: LaneId) -> Option<u32> {
        match self.options.mode {
            Mode::Shared => self.members.take_turn(id),
            Mode::Partitioned => {
                let seat = self.lanes.get(at)?.owner.acting()?;
                (self.members.get(seat)?.room() > 0).then_some(seat)
            }
        }
    }

    /// The lane has to wait until the member that could take its events has room.
    fn block(&mut self, at: LaneRef) {
        if self.options.mode == Mode::Shared {
            return self.members.blocked.push(at);
        }
        // Without an acting owner the lane waits for one.
        let owner = self.lanes.get(at).and_then(|lane| lane.owner.acting());
        if let Some(member) = owner.and_then(|seat| self.members.get_mut(seat)) {
            member.blocked.push(at);
        }
    }

    fn serve(&mut self, at: LaneRef, seat: u32, outputs: &mut Vec<Output>) {
        let in_order = self.options.mode == Mode::Partitioned;
        let (Some(member), Some(lane)) = (self.members.get(seat), self.lanes.get_mut(at)) else {
            return;
        };
        let batch = member.options.batch_size.max(1);
        let mut grant = Grant {
            seat,
            now: self.now,
            lease_ms: self.options.lease_ms,
            events: member.room().min(batch),
            bytes: member
                .options
                .max_bytes_in_flight
                .saturating_sub(member.bytes)
                .max(1),
            recordings_max: u32::try_from(self.members.room).unwrap_or(u32::MAX),
            in_order,
            unrecorded: false,
            taken_bytes: 0,
            deliveries: Vec::with_capacity(member.room().min(batch).min(lane.backlog()) as usize),
            recordings: Vec::new(),
        };
        #[cfg(feature = "planted-bugs")]
        if self.planted == Some(crate::PlantedBug::AttemptsInMemory) {
            grant.unrecorded = true;
        }
        lane.lend(&mut grant);
        let progress = !grant.deliveries.is_empty() || !grant.recordings.is_empty();
        // A lane that gave nothing comes back when a save or a time says so, not before.
        lane.active = !progress;
        self.deliver(at, grant, outputs);
        self.settle(at);
        if let Some(lane) = self.lanes.get_mut(at).filter(|_| !progress) {
            lane.active = false;
        }
    }

    /// Asks for more where there is room for it.
    fn read(&mut self, outputs: &mut Vec<Output>) {
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
            if !wants_reading(lane, window) {
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
            outputs.push(Output::Fetch(Fetch {
                lane,
                fetch,
                from,
                max,
            }));
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
        lane.tail = lane.tail.max(page.to);
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

fn wants_reading(lane: &Lane, window: u32) -> bool {
    lane.reading == Reading::Idle
        && lane.tail > lane.next()
        && (lane.slots.len() as u64) < u64::from(window)
}

impl Lane {
    /// Takes in as much of a page as the window holds; the rest is read again later. An offset
    /// that the page says nothing about is an error.
    fn take_page(&mut self, page: Page<'_>, window: usize) -> Result<(), u64> {
        let mut events = page.events.iter().peekable();
        let mut gaps = page.gaps.iter().peekable();
        while self.next() < page.to && self.slots.len() < window {
            let offset = self.next();
            while gaps.next_if(|gap| gap.to <= offset).is_some() {}
            if let Some(gap) = gaps.peek().filter(|gap| gap.from <= offset) {
                let to = gap.to.min(page.to);
                self.take_gap(to, window);
                continue;
            }
            while events.next_if(|event| event.offset < offset).is_some() {}
            let Some(event) = events.next_if(|event| event.offset == offset) else {
                return Err(offset);
            };
            if event.skip || self.finished_ahead.contains(offset) {
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
