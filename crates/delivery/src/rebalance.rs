//! Lanes change hands: revoke, drain up to a deadline, fence, and only then assign.
//!
//! Between two owners there may be none, never two. The old owner gets nothing new once its lane
//! is revoked; its leases end with its last ack, or at the deadline, and acks after that find no
//! lease. The new owner is told when its generation is durable, so that generations rise also
//! over crashes.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::assignment::{LanePlace, assign};
use crate::failure::Failure;
use crate::group::Group;
use crate::lane_table::LaneRef;
use crate::output::{Output, Ownership, Reason};
use crate::place::{LaneId, MemberId};
use crate::save::Pending;
use crate::state::Change;
use crate::timer::Due;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Phase {
    /// Nobody's.
    #[default]
    Vacant,
    /// Given to a member that does not know it yet.
    Saving,
    /// A member's.
    Acting,
    /// Still a member's, to finish what it has.
    Draining { until: u64 },
}

/// Who owns a lane.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Owner {
    pub(crate) generation: u32,
    phase: Phase,
    seat: Option<u32>,
    /// Who is to have it.
    target: Option<u32>,
}

impl Owner {
    /// The member that may get events.
    pub(crate) fn acting(&self) -> Option<u32> {
        self.seat.filter(|_| self.phase == Phase::Acting)
    }

    /// The member in `seat` is gone.
    pub(crate) fn vacate(&mut self, seat: u32) {
        if self.target == Some(seat) {
            self.target = None;
        }
        if self.seat == Some(seat) {
            self.seat = None;
            self.phase = Phase::Vacant;
        }
    }
}

impl Group {
    /// Finds out who should own what, and begins to bring it about.
    pub(crate) fn rebalance(&mut self, outputs: &mut Vec<Output>) {
        if !self.is_partitioned() {
            return;
        }
        let mut seats: Vec<(MemberId, u32)> =
            self.members.iter().map(|(seat, m)| (m.id, seat)).collect();
        seats.sort_unstable();
        let index: BTreeMap<u32, usize> =
            (0..).zip(&seats).map(|(at, (_, seat))| (*seat, at)).collect();
        let mut lanes: Vec<(LaneId, LaneRef)> = self
            .lanes
            .refs()
            .into_iter()
            .filter_map(|at| Some((self.lanes.get(at)?.id, at)))
            .collect();
        lanes.sort_unstable();
        let holder = |at: LaneRef| index.get(&self.lanes.get(at)?.owner.target?).copied();
        let places: Vec<LanePlace> = lanes
            .iter()
            .map(|(id, at)| LanePlace { lane: id.get(), holder: holder(*at) })
            .collect();
        let numbers: Vec<u64> = seats.iter().map(|(id, _)| id.get()).collect();
        for ((_, at), owner) in lanes.iter().zip(assign(&places, &numbers)) {
            let target = owner.and_then(|owner| seats.get(owner)).map(|(_, seat)| *seat);
            self.aim(*at, target, outputs);
        }
    }

    fn aim(&mut self, at: LaneRef, target: Option<u32>, outputs: &mut Vec<Output>) {
        let until = self.now + u64::from(self.options.drain_ms);
        let Some(lane) = self.lanes.get_mut(at) else {
            return;
        };
        lane.owner.target = target;
        match lane.owner.phase {
            Phase::Vacant => self.hand_over(at),
            Phase::Saving if lane.owner.seat != target => self.hand_over(at),
            Phase::Acting if lane.owner.seat != target => {
                #[cfg(feature = "planted-bugs")]
                if self.planted == Some(crate::PlantedBug::TwoOwners) {
                    return self.hand_over(at);
                }
                lane.owner.phase = Phase::Draining { until };
                let (id, owner) = (lane.id, lane.owner);
                self.timers.add(until, Due::Drain { lane: at });
                self.draining.push(at);
                if let Some(of) = self.ownership(id, owner) {
                    let deadline = until;
                    outputs.push(Output::Revoke { of, deadline });
                }
            }
            _ => {}
        }
    }

    fn ownership(&self, lane: LaneId, owner: Owner) -> Option<Ownership> {
        Some(Ownership {
            member: self.members.get(owner.seat?)?.id,
            lane,
            generation: owner.generation,
        })
    }

    /// Gives a lane that nobody acts on to the member that is to have it.
    fn hand_over(&mut self, at: LaneRef) {
        let Some(lane) = self.lanes.get_mut(at) else {
            return;
        };
        lane.owner.seat = lane.owner.target;
        lane.owner.phase = Phase::Vacant;
        if lane.owner.seat.is_some() {
            lane.owner.phase = Phase::Saving;
            lane.owner.generation = lane.owner.generation.saturating_add(1);
            let generation = lane.owner.generation;
            lane.unsaved.push(Change::Generation(generation));
            let lane = at;
            self.ledger.after_next(Pending::Assigned { lane, generation });
        }
        self.settle(at);
    }

    /// A change of owner is durable: the owner may know.
    pub(crate) fn owner_saved(&mut self, at: LaneRef, generation: u32, outputs: &mut Vec<Output>) {
        let Some(lane) = self.lanes.get_mut(at) else {
            return;
        };
        if lane.owner.generation != generation || lane.owner.phase != Phase::Saving {
            return;
        }
        lane.owner.phase = Phase::Acting;
        let (id, owner) = (lane.id, lane.owner);
        if let Some(of) = self.ownership(id, owner) {
            outputs.push(Output::Assign(of));
        }
        self.settle(at);
    }

    /// A member says that it is done with a lane that was revoked.
    pub(crate) fn released_by(&mut self, id: MemberId, lane: LaneId, generation: u32) {
        let seat = self.members.seat(id);
        let at = self.lanes.find(lane);
        let Some(lane) = at.and_then(|at| self.lanes.get_mut(at)) else {
            return;
        };
        let draining = matches!(lane.owner.phase, Phase::Draining { .. });
        if draining && lane.owner.seat == seat && lane.owner.generation == generation {
            lane.owner.phase = Phase::Draining { until: 0 };
        }
    }

    /// Takes lanes away from those who are done with them, or out of time.
    pub(crate) fn finish_drains(&mut self) {
        let mut left = core::mem::take(&mut self.draining);
        left.retain(|at| self.is_still_draining(*at));
        self.draining = left;
    }

    fn is_still_draining(&mut self, at: LaneRef) -> bool {
        let Some(lane) = self.lanes.get(at) else {
            return false;
        };
        let Phase::Draining { until } = lane.owner.phase else {
            return false;
        };
        if lane.out > 0 && until > self.now {
            return true;
        }
        for offset in lane.leases_all() {
            self.fail(at, offset, Failure::at_once(Reason::MemberLost));
        }
        self.hand_over(at);
        false
    }
}
