//! A delivery that did not succeed: counted, put off, or given up.

use crate::group::Group;
use crate::lane_table::LaneRef;
use crate::options::Park;
use crate::output::{DeadLetter, Reason};
use crate::retry::{Failed, backoff_ms};
use crate::slot::Standing;
use crate::state::AttemptRecord;
use crate::timer::Due;

/// How a delivery failed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Failure<'a> {
    pub(crate) reason: Reason,
    /// Until the next one; by the group's backoff if it is not given.
    pub(crate) delay_ms: Option<u32>,
    pub(crate) error: Option<(&'a [u8], u64)>,
}

impl Failure<'_> {
    pub(crate) const fn plain(reason: Reason) -> Self {
        Self { reason, delay_ms: None, error: None }
    }

    pub(crate) const fn at_once(reason: Reason) -> Self {
        Self { reason, delay_ms: Some(0), error: None }
    }
}

impl Group {
    /// The lease of an event ends without success. Call `settle` for the lane afterwards.
    pub(crate) fn fail(&mut self, at: LaneRef, offset: u64, failure: Failure<'_>) {
        let now = self.now;
        let Some(lane) = self.lanes.get_mut(at) else {
            return;
        };
        let id = lane.id;
        let Some(slot) = lane.slot_mut(offset) else {
            return;
        };
        if slot.standing != Standing::Out {
            return;
        }
        slot.standing = Standing::Backoff;
        let (seat, bytes, attempt) = (slot.member, slot.bytes, slot.attempt);
        let delivered_at = slot.deadline - u64::from(slot.lease_ms);
        lane.out -= 1;
        let is_last = attempt >= lane.max_attempts || failure.reason == Reason::Permanent;
        let record = lane.record(offset);
        if record.count < attempt {
            // A first attempt, which was not recorded before it was made.
            record.count = attempt;
            record.add_time(delivered_at);
        }
        if let Some((error, fingerprint)) = failure.error {
            record.set_error(error);
            record.fingerprint = fingerprint;
        }
        self.members.give_back(seat, bytes);
        self.members.refresh(seat);
        if is_last {
            return self.give_up(at, offset, failure.reason);
        }
        let failed = Failed { lane: id, offset, attempt };
        let delay = failure
            .delay_ms
            .map_or_else(|| backoff_ms(&self.options, self.seed, failed), u64::from);
        self.put_off(at, offset, now + delay);
    }

    /// The event is due at `due`.
    fn put_off(&mut self, at: LaneRef, offset: u64, due: u64) {
        let now = self.now;
        let Some(lane) = self.lanes.get_mut(at) else {
            return;
        };
        lane.record(offset).not_before = if due > now { due } else { 0 };
        let Some(slot) = lane.slot_mut(offset) else {
            return;
        };
        if due > now {
            slot.deadline = due;
            self.timers.add(due, Due::Retry { lane: at, offset });
        } else {
            slot.standing = Standing::Ready;
            lane.ready.push_back(offset);
        }
    }

    /// The time of an event's next attempt has come.
    pub(crate) fn retry_due(&mut self, at: LaneRef, offset: u64) {
        let now = self.now;
        let Some(lane) = self.lanes.get_mut(at) else {
            return;
        };
        if let Some(slot) = lane.slot_mut(offset)
            && slot.standing == Standing::Backoff
            && slot.deadline <= now
        {
            slot.standing = Standing::Ready;
            lane.ready.push_back(offset);
            self.settle(at);
        }
    }

    /// The event becomes a dead letter: in the save that takes it out of the flow.
    pub(crate) fn give_up(&mut self, at: LaneRef, offset: u64, reason: Reason) {
        let Some(lane) = self.lanes.get_mut(at) else {
            return;
        };
        let Some(slot) = lane.slot(offset).copied() else {
            return;
        };
        let record = match lane.records.get(&offset) {
            Some(record) => record.clone(),
            None => AttemptRecord::default(),
        };
        let dead_letter = DeadLetter {
            lane: lane.id,
            offset,
            epoch: lane.epoch,
            key: slot.key(),
            reason,
            round: slot.round,
            attempts: slot.attempt,
            times: record.times,
            error: record.error,
            fingerprint: record.fingerprint,
        };
        match slot.key() {
            Some(key) if self.options.park == Park::Key => lane.finish_parked(offset, key),
            _ => lane.finish(offset),
        }
        lane.counters.dead_lettered += 1;
        self.counters.dead_lettered += 1;
        self.ledger.add_dead_letter(dead_letter);
    }
}
