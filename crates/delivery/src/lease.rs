//! A delivery that is out: how it is lent, how it ends.

use alloc::vec::Vec;

use crate::group::Group;
use crate::lane::Lane;
use crate::lane_table::LaneRef;
use crate::output::{Deliver, Output, Reason, Run};
use crate::save::{Attempted, Pending};
use crate::slot::{Slot, Standing};
use crate::timer::Due;

/// What one member may get from one lane.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) seat: u32,
    pub(crate) now: u64,
    pub(crate) lease_ms: u32,
    /// Events it may get.
    pub(crate) events: u32,
    /// Bytes it may get, exceeded by the last event at most.
    pub(crate) bytes: u64,
    /// Attempts that may be recorded and not out; no more than could go out.
    pub(crate) recordings_max: u32,
    /// First deliveries do not overtake what is in the ready queue.
    pub(crate) in_order: bool,
    /// Counts are kept in memory only: a planted bug.
    pub(crate) unrecorded: bool,
    pub(crate) taken: u32,
    pub(crate) taken_bytes: u64,
    pub(crate) runs: Vec<Run>,
    /// Events whose next attempt has to be saved first.
    pub(crate) recordings: Vec<(u64, u16, u16)>,
}

impl Grant {
    fn is_used_up(&self) -> bool {
        self.taken >= self.events || self.taken_bytes >= self.bytes
    }

    /// Takes an event on lease.
    fn take(&mut self, offset: u64, slot: &mut Slot) {
        slot.standing = Standing::Out;
        slot.member = self.seat;
        slot.lease_ms = self.lease_ms;
        slot.deadline = self.now + u64::from(self.lease_ms);
        self.taken += 1;
        self.taken_bytes += u64::from(slot.bytes);
        let Slot { attempt, round, .. } = *slot;
        match self.runs.last_mut() {
            Some(run) if (run.to, run.attempt, run.round) == (offset, attempt, round) => {
                run.to += 1
            }
            _ => self.runs.push(Run { from: offset, to: offset + 1, attempt, round }),
        }
    }
}

impl Lane {
    /// Whether a member with room would get something.
    pub(crate) fn has_work(&self, in_order: bool) -> bool {
        if !self.ready.is_empty() || !self.recorded.is_empty() {
            return true;
        }
        self.fresh > 0
            && self.walk < self.horizon.durable.min(self.next())
            && !(in_order && self.recording > 0)
    }

    /// Moves events to the grant: those that come again first, for they are older.
    pub(crate) fn lend(&mut self, grant: &mut Grant) {
        self.lend_recorded(grant);
        self.lend_ready(grant);
        let waiting = self.recording > 0 || !self.ready.is_empty();
        if !(grant.in_order && waiting) {
            self.lend_fresh(grant);
        }
    }

    fn lend_recorded(&mut self, grant: &mut Grant) {
        while !grant.is_used_up()
            && let Some(offset) = self.recorded.pop_front()
        {
            if let Some(slot) = self.slot_mut(offset)
                && slot.standing == Standing::Ready
                && slot.recorded
            {
                slot.recorded = false;
                self.recording -= 1;
                self.lend_one(offset, grant);
            }
        }
    }

    fn lend_ready(&mut self, grant: &mut Grant) {
        while !grant.is_used_up()
            && let Some(offset) = self.ready.pop_front()
        {
            let (exact, recording) = (self.exact, self.recording);
            let Some(slot) = self.slot_mut(offset) else {
                continue;
            };
            if slot.standing != Standing::Ready || slot.recorded {
                continue;
            }
            let first = slot.attempt == 0 && slot.round == 0 && !exact;
            if first || grant.unrecorded {
                slot.attempt += 1;
                self.lend_one(offset, grant);
            } else if recording >= grant.recordings_max {
                self.ready.push_front(offset);
                return;
            } else {
                slot.attempt += 1;
                slot.standing = Standing::Recording;
                let (attempt, round) = (slot.attempt, slot.round);
                self.recording += 1;
                let record = self.record(offset);
                record.count = attempt;
                record.not_before = 0;
                record.add_time(grant.now);
                grant.recordings.push((offset, attempt, round));
            }
        }
    }

    fn lend_fresh(&mut self, grant: &mut Grant) {
        let end = self.horizon.durable.min(self.next());
        if self.walk >= end {
            return;
        }
        let (first, last) = ((self.walk - self.floor) as usize, (end - self.floor) as usize);
        for slot in self.slots.range_mut(first..last) {
            if self.fresh == 0 || grant.is_used_up() {
                return;
            }
            let offset = self.walk;
            self.walk += 1;
            if slot.standing == Standing::Fresh {
                slot.attempt = 1;
                self.fresh -= 1;
                self.out += 1;
                grant.take(offset, slot);
            }
        }
    }

    fn lend_one(&mut self, offset: u64, grant: &mut Grant) {
        if let Some(slot) = self.slot_mut(offset) {
            grant.take(offset, slot);
            self.out += 1;
        }
    }

    /// Offsets in `[from, to)` that are out and satisfy `over`, the window's and the released.
    fn leases(&self, from: u64, to: u64, over: impl Fn(u32, u64) -> bool) -> Vec<u64> {
        let first = from.max(self.floor);
        let skipped = (first - self.floor) as usize;
        let count = usize::try_from(to.saturating_sub(first)).unwrap_or(usize::MAX);
        let window = self.slots.iter().skip(skipped).take(count).zip(first..);
        let is_over =
            |standing, member, deadline| standing == Standing::Out && over(member, deadline);
        let released = self.released.range(from..to.max(from));
        released
            .filter(|(_, slot)| is_over(slot.standing, slot.member, slot.deadline))
            .map(|(offset, _)| *offset)
            .chain(
                window
                    .filter(|(slot, _)| is_over(slot.standing, slot.member, slot.deadline))
                    .map(|(_, offset)| offset),
            )
            .collect()
    }

    pub(crate) fn leases_over(&self, now: u64, from: u64, to: u64) -> Vec<u64> {
        self.leases(from, to, |_, deadline| deadline <= now)
    }

    pub(crate) fn leases_of(&self, seat: u32) -> Vec<u64> {
        self.leases(0, u64::MAX, |member, _| member == seat)
    }

    pub(crate) fn leases_all(&self) -> Vec<u64> {
        self.leases(0, u64::MAX, |_, _| true)
    }
}

impl Group {
    /// Hands what `grant` took to its member.
    pub(crate) fn deliver(&mut self, at: LaneRef, grant: Grant, outputs: &mut Vec<Output>) {
        let Some(lane) = self.lanes.get_mut(at) else {
            return;
        };
        for &(offset, attempt, round) in &grant.recordings {
            self.ledger.after_next(Pending::Recorded(Attempted {
                lane: at,
                epoch: lane.epoch,
                offset,
                attempt,
                round,
            }));
        }
        let lowest = grant.runs.iter().map(|run| run.from).min();
        let highest = grant.runs.iter().map(|run| run.to).max();
        let (Some(from), Some(to), Some(member)) = (lowest, highest, self.members.get(grant.seat))
        else {
            return;
        };
        let deadline = grant.now + u64::from(grant.lease_ms);
        self.timers.add(deadline, Due::Leases { lane: at, from, to });
        let count = u64::from(grant.taken);
        let again: u64 = grant.runs.iter().filter(|run| run.attempt > 1).map(Run::count).sum();
        self.counters.delivered += count;
        self.counters.redelivered += again;
        lane.counters.delivered += count;
        lane.counters.redelivered += again;
        outputs.push(Output::Deliver(Deliver {
            member: member.id,
            lane: lane.id,
            epoch: lane.epoch,
            generation: lane.owner.generation,
            deadline,
            runs: grant.runs,
        }));
        self.members.lend(grant.seat, grant.taken, grant.taken_bytes);
    }

    /// The count of an attempt is durable: the event may go out.
    pub(crate) fn attempt_recorded(&mut self, attempted: Attempted) {
        let Some(lane) = self.lanes.get_mut(attempted.lane) else {
            return;
        };
        if lane.epoch != attempted.epoch {
            return;
        }
        if let Some(slot) = lane.slot_mut(attempted.offset)
            && slot.standing == Standing::Recording
            && (slot.attempt, slot.round) == (attempted.attempt, attempted.round)
        {
            slot.standing = Standing::Ready;
            slot.recorded = true;
            lane.recorded.push_back(attempted.offset);
            self.settle(attempted.lane);
        }
    }

    /// Leases whose time is over.
    pub(crate) fn expire_leases(&mut self, at: LaneRef, from: u64, to: u64) {
        let Some(lane) = self.lanes.get_mut(at) else {
            return;
        };
        let over = lane.leases_over(self.now, from, to);
        self.counters.expired += over.len() as u64;
        lane.counters.expired += over.len() as u64;
        for offset in over {
            self.fail(at, offset, crate::failure::Failure::plain(Reason::LeaseExpired));
        }
        self.settle(at);
    }
}
