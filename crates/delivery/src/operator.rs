//! What an operator may do to a group that works: move it, take events out, give dead letters
//! back or up.

use alloc::vec::Vec;

use crate::group::Group;
use crate::input::DeadLetterRef;
use crate::lane::{Horizon, Lane, Reading};
use crate::lane_table::LaneRef;
use crate::limits::RELEASES_MAX;
use crate::output::{Output, Refusal, Refused, Reply};
use crate::place::{LaneId, RequestId};
use crate::save::Pending;
use crate::slot::{Slot, Standing};
use crate::state::{Change, ParkedKey, ReleasedEvent};
use crate::watermark::Span;

impl Group {
    /// Moves the group in a lane. Deliveries of the past are fenced by the new epoch, and new
    /// ones wait until it is durable.
    pub(crate) fn seek(
        &mut self,
        request: RequestId,
        (id, to): (LaneId, u64),
        outputs: &mut Vec<Output>,
    ) {
        let result = match self.lanes.find(id) {
            None => Err(Refusal::Unknown),
            Some(at) => match self.lanes.get(at) {
                Some(lane) if to <= lane.tail => Ok(self.seek_lane(at, to)),
                _ => Err(Refusal::BeyondTail),
            },
        };
        self.reply_operator(request, (to, result), outputs);
    }

    fn seek_lane(&mut self, at: LaneRef, to: u64) -> u64 {
        let ahead = u64::from(self.options.horizon_events);
        let Some(lane) = self.lanes.get_mut(at) else {
            return 0;
        };
        let held: Vec<Slot> =
            lane.leases_all().iter().filter_map(|offset| lane.slot(*offset).copied()).collect();
        lane.settle_changes();
        lane.reset(to, ahead);
        let (epoch, horizon) = (lane.epoch, lane.horizon.requested);
        let lane_ref = at;
        self.ledger.after_next(Pending::Horizon { lane: lane_ref, epoch, to: horizon });
        for slot in held {
            self.members.give_back(slot.member, slot.bytes);
            self.members.refresh(slot.member);
        }
        self.settle(at);
        1
    }

    /// Takes offsets out of the flow.
    pub(crate) fn skip(
        &mut self,
        request: RequestId,
        (id, span): (LaneId, Span),
        outputs: &mut Vec<Output>,
    ) {
        let result = match self.lanes.find(id) {
            None => Err(Refusal::Unknown),
            Some(at) => self.skip_span(at, span),
        };
        self.reply_operator(request, (span.from, result), outputs);
    }

    fn skip_span(&mut self, at: LaneRef, span: Span) -> Result<u64, Refusal> {
        let lane = self.lanes.get_mut(at).ok_or(Refusal::Unknown)?;
        if span.to > lane.tail {
            return Err(Refusal::BeyondTail);
        }
        let from = span.from.max(lane.floor);
        if from >= span.to {
            return Err(Refusal::AlreadyDone);
        }
        let fetched = lane.next().min(span.to);
        let open = (from..fetched)
            .filter(|offset| lane.window_standing(*offset) != Some(Standing::Done))
            .collect::<Vec<u64>>();
        let mut skipped = open.len() as u64;
        let ahead = Span { from: from.max(lane.next()), to: span.to };
        if ahead.from < ahead.to {
            skipped += ahead.count();
            lane.finished_ahead.insert(ahead);
            lane.unsaved.acked.insert(ahead);
            lane.unsaved.pressing = true;
            if lane.reading == Reading::Broken {
                lane.reading = Reading::Idle;
            }
        }
        for offset in open {
            self.finish_any(at, offset);
        }
        if let Some(lane) = self.lanes.get_mut(at) {
            lane.raise_floor();
        }
        self.settle(at);
        Ok(skipped)
    }

    /// Gives a dead letter back to this group.
    pub(crate) fn release(
        &mut self,
        request: RequestId,
        (id, event): (LaneId, DeadLetterRef),
        outputs: &mut Vec<Output>,
    ) {
        let result = match self.lanes.find(id) {
            None => Err(Refusal::Unknown),
            Some(at) => self.release_event(at, event),
        };
        self.reply_operator(request, (event.offset, result), outputs);
    }

    fn release_event(&mut self, at: LaneRef, event: DeadLetterRef) -> Result<u64, Refusal> {
        let lane = self.lanes.get_mut(at).ok_or(Refusal::Unknown)?;
        if event.round == 0 || event.round > RELEASES_MAX {
            return Err(Refusal::ReleasedTooOften);
        }
        if lane.released.contains_key(&event.offset) {
            return Err(Refusal::AlreadyDone);
        }
        let done = event.offset < lane.floor
            || lane.window_standing(event.offset) == Some(Standing::Done)
            || lane.finished_ahead.contains(event.offset);
        if !done {
            return Err(Refusal::Unknown);
        }
        let mut slot = Slot::new(Standing::Waiting).with_key(event.key);
        slot.round = event.round;
        lane.unsaved.push(Change::Released(ReleasedEvent {
            offset: event.offset,
            key: event.key,
            round: event.round,
        }));
        lane.unpark(event);
        lane.add_released(event.offset, slot);
        self.settle(at);
        Ok(1)
    }

    /// Gives a dead letter up: its key goes on without it.
    pub(crate) fn discard(
        &mut self,
        request: RequestId,
        (id, event): (LaneId, DeadLetterRef),
        outputs: &mut Vec<Output>,
    ) {
        let result = match self.lanes.find(id) {
            None => Err(Refusal::Unknown),
            Some(at) => self.discard_event(at, event),
        };
        self.reply_operator(request, (event.offset, result), outputs);
    }

    fn discard_event(&mut self, at: LaneRef, event: DeadLetterRef) -> Result<u64, Refusal> {
        let lane = self.lanes.get_mut(at).ok_or(Refusal::Unknown)?;
        if !lane.unpark(event) {
            return Err(Refusal::Unknown);
        }
        if let Some(key) = event.key {
            lane.key_resolves(key);
        }
        self.settle(at);
        Ok(1)
    }

    fn reply_operator(
        &mut self,
        request: RequestId,
        (offset, result): (u64, Result<u64, Refusal>),
        outputs: &mut Vec<Output>,
    ) {
        let reply = Reply {
            request,
            accepted: result.unwrap_or(0),
            refused: result.err().map(|why| Refused { item: 0, offset, why }).into_iter().collect(),
        };
        self.reply(reply, outputs);
    }
}

impl Lane {
    fn window_standing(&self, offset: u64) -> Option<Standing> {
        let index = usize::try_from(offset.checked_sub(self.floor)?).ok()?;
        Some(self.slots.get(index)?.standing)
    }

    /// Whether a key waited for this dead letter; it does no more.
    fn unpark(&mut self, event: DeadLetterRef) -> bool {
        let Some(key) = event.key else {
            return false;
        };
        let parked = ParkedKey { key, offset: event.offset };
        let waited = self.parked.remove(&(key, event.offset));
        if waited {
            self.unsaved.push(Change::Resolved(parked));
        }
        waited
    }

    /// Begins a new epoch at `to`. Released dead letters before it stay: they do not come again
    /// by themselves.
    fn reset(&mut self, to: u64, ahead: u64) {
        self.epoch = self.epoch.saturating_add(1);
        let kept: Vec<(u64, Slot)> = self
            .released
            .iter()
            .filter(|(offset, _)| **offset < to)
            .map(|(offset, slot)| (*offset, *slot))
            .collect();
        self.released.clear();
        self.slots.clear();
        self.keys.clear();
        self.ready.clear();
        self.recorded.clear();
        self.chores.clear();
        (self.fresh, self.out, self.recording) = (0, 0, 0);
        self.floor = to;
        self.walk = to;
        self.implied_below = to;
        self.finished_ahead.clear();
        self.reading = Reading::Idle;
        self.records
            .retain(|offset, _| kept.binary_search_by_key(offset, |(kept, _)| *kept).is_ok());
        self.parked.retain(|(_, offset)| *offset < to);
        self.horizon = Horizon {
            durable: if self.exact { u64::MAX } else { 0 },
            ..Horizon::at(to.saturating_add(ahead))
        };
        self.unsaved.push(Change::Seek {
            epoch: self.epoch,
            floor: to,
            horizon: to.saturating_add(ahead),
        });
        self.saved_floor(to);
        let parked: Vec<u64> = self.parked.iter().map(|(key, _)| *key).collect();
        for key in parked {
            self.key_parks(key);
        }
        for (offset, mut slot) in kept {
            if slot.recorded || slot.standing == Standing::Recording {
                // Counted, but not made.
                slot.attempt -= 1;
            }
            slot.standing = Standing::Waiting;
            slot.recorded = false;
            slot.next = 0;
            self.add_released(offset, slot);
        }
    }
}
