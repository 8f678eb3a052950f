//! Who gets what is ready. Lanes take turns, members take turns, and
//! nobody is looked at who has nothing to give or to take.

use alloc::vec::Vec;

use crate::group::Group;
use crate::lane::Chore;
use crate::lane_table::LaneRef;
use crate::lease::Grant;
use crate::options::Mode;
use crate::output::{Output, Reason};
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
        if !lane.active && !lane.closing && lane.has_work(in_order) {
            lane.active = true;
            self.active.push_back(at);
        }
        if !lane.hungry && !lane.closing && lane.wants_reading(window) {
            lane.hungry = true;
            self.hungry.push_back(at);
        }
        if !lane.unsaved.listed && lane.must_save() {
            lane.unsaved.listed = true;
            self.ledger.add_changed(at);
        }
    }

    fn do_chores(&mut self, at: LaneRef) {
        // Giving one event up may bring the next of its key into play, and so on.
        while let Some(lane) = self.lanes.get_mut(at)
            && !lane.chores.is_empty()
        {
            for chore in core::mem::take(&mut lane.chores) {
                match chore {
                    Chore::GiveUp { offset } => self.give_up(at, offset, Reason::ProcessLost),
                    Chore::Wake { offset, at: due } => self.wake(at, offset, due),
                }
            }
        }
    }

    /// A time that was saved is taken with care: the clock may have been set back meanwhile.
    fn wake(&mut self, at: LaneRef, offset: u64, due: u64) {
        let longest = self.options.backoff_ms_max.max(self.options.lease_ms_max);
        let due = due.min(self.now + u64::from(longest));
        if let Some(slot) = self.lanes.get_mut(at).and_then(|lane| lane.slot_mut(offset)) {
            slot.deadline = due;
            self.timers.add(due, Due::Retry { lane: at, offset });
        }
    }

    /// Keeps the durable horizon ahead of the fetch position.
    fn push_horizon(&mut self, at: LaneRef) {
        let least = u64::from(self.options.horizon_events);
        let anybody_takes = self.members.room > 0;
        let Some(lane) = self.lanes.get_mut(at) else {
            return;
        };
        if lane.exact {
            // Not used; nothing is ever fresh.
            lane.horizon.durable = u64::MAX;
        } else if lane.push_horizon(least, anybody_takes) {
            lane.unsaved.want_horizon();
            self.horizons += 1;
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
            if lane.closing {
                continue;
            }
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
    pub(crate) fn block(&mut self, at: LaneRef) {
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
            bytes: member.options.max_bytes_in_flight.saturating_sub(member.bytes).max(1),
            recordings_max: u32::try_from(self.members.room).unwrap_or(u32::MAX),
            in_order,
            unrecorded: false,
            taken: 0,
            taken_bytes: 0,
            runs: Vec::new(),
            recordings: Vec::new(),
        };
        #[cfg(feature = "planted-bugs")]
        if self.planted == Some(crate::PlantedBug::AttemptsInMemory) {
            grant.unrecorded = true;
        }
        lane.lend(&mut grant);
        let progress = !grant.runs.is_empty() || !grant.recordings.is_empty();
        // A lane that gave nothing comes back when a save or a time says so, not before.
        lane.active = !progress;
        self.deliver(at, grant, outputs);
        self.settle(at);
        if let Some(lane) = self.lanes.get_mut(at).filter(|_| !progress) {
            lane.active = false;
        }
    }
}
