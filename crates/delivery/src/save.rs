//! Saves: numbered, in order, and shared. While as many are under way as may be, changes gather
//! and go out together in the next one, so that the work of saving shrinks as the load grows.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::group::Group;
use crate::lane_table::LaneRef;
use crate::output::{DeadLetter, Output, Reply, Save};
use crate::place::LaneId;
use crate::state::LaneDelta;

/// What happens once a save is durable.
#[derive(Debug)]
pub(crate) enum Pending {
    /// A question is answered.
    Reply(Reply),
    /// An attempt may be made.
    Recorded(Attempted),
    /// First deliveries may go further.
    Horizon { lane: LaneRef, epoch: u32, to: u64 },
    /// An owner may begin.
    Assigned { lane: LaneRef, generation: u32 },
}

/// An attempt that is being made durable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempted {
    pub(crate) lane: LaneRef,
    pub(crate) epoch: u32,
    pub(crate) offset: u64,
    pub(crate) attempt: u16,
    pub(crate) round: u16,
}

/// What is to be saved, is being saved, and waits for it.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    emitted: u64,
    durable: u64,
    urgent: bool,
    changed: Vec<LaneRef>,
    /// Last words of lanes that were removed.
    orphans: Vec<(LaneId, LaneDelta)>,
    dead_letters: Vec<DeadLetter>,
    #[cfg(feature = "planted-bugs")]
    late_dead_letters: Vec<DeadLetter>,
    pending: VecDeque<(u64, Pending)>,
}

impl Ledger {
    pub(crate) fn add_dead_letter(&mut self, dead_letter: DeadLetter) {
        self.dead_letters.push(dead_letter);
        self.urgent = true;
    }

    pub(crate) fn add_orphan(&mut self, lane: LaneId, delta: LaneDelta) {
        self.orphans.push((lane, delta));
        self.urgent = true;
    }

    pub(crate) fn has_orphan(&self, lane: LaneId) -> bool {
        self.orphans.iter().any(|(orphan, _)| *orphan == lane)
    }

    /// Nothing of a lane is saved any more.
    pub(crate) fn forget(&mut self, lane: LaneId) {
        self.orphans.retain(|(orphan, _)| *orphan != lane);
        self.dead_letters.retain(|letter| letter.lane != lane);
    }

    pub(crate) fn add_changed(&mut self, lane: LaneRef) {
        self.changed.push(lane);
        self.urgent = true;
    }

    /// Does `pending` once everything that changed until now is durable.
    pub(crate) fn after_next(&mut self, pending: Pending) {
        self.pending.push_back((self.emitted + 1, pending));
        self.urgent = true;
    }
}

impl Group {
    /// Answers once everything the answer rests on is durable, which may be at once.
    pub(crate) fn reply(&mut self, reply: Reply, outputs: &mut Vec<Output>) {
        let ledger = &mut self.ledger;
        let number = ledger.emitted + u64::from(ledger.urgent);
        if number <= ledger.durable {
            outputs.push(Output::Reply(reply));
        } else {
            ledger.pending.push_back((number, Pending::Reply(reply)));
        }
    }

    pub(crate) fn emit_save(&mut self, outputs: &mut Vec<Output>) {
        let ledger = &mut self.ledger;
        let under_way = ledger.emitted - ledger.durable;
        if !ledger.urgent || under_way >= u64::from(self.options.saves_in_flight) {
            return;
        }
        ledger.urgent = false;
        ledger.emitted += 1;
        let mut lanes = core::mem::take(&mut ledger.orphans);
        for at in core::mem::take(&mut ledger.changed) {
            if let Some(lane) = self.lanes.get_mut(at)
                && let Some(delta) = lane.take_delta()
            {
                lanes.push((lane.id, delta));
            }
        }
        #[cfg(feature = "planted-bugs")]
        if self.planted == Some(crate::PlantedBug::AttemptsInMemory) {
            for (_, delta) in &mut lanes {
                let is_attempt = |change: &_| matches!(change, crate::Change::Attempted(_));
                delta.changes.retain(|change| !is_attempt(change));
            }
        }
        #[cfg(feature = "planted-bugs")]
        if self.planted == Some(crate::PlantedBug::DeadLetterApart) {
            core::mem::swap(&mut ledger.dead_letters, &mut ledger.late_dead_letters);
            ledger.urgent = !ledger.late_dead_letters.is_empty();
        }
        outputs.push(Output::Save(Save {
            number: ledger.emitted,
            lanes,
            dead_letters: core::mem::take(&mut ledger.dead_letters),
        }));
    }

    /// A save, and all before it, is durable.
    pub(crate) fn saved(&mut self, number: u64, outputs: &mut Vec<Output>) {
        let number = number.min(self.ledger.emitted);
        self.ledger.durable = self.ledger.durable.max(number);
        while let Some((waits_for, _)) = self.ledger.pending.front()
            && *waits_for <= self.ledger.durable
        {
            match self.ledger.pending.pop_front() {
                Some((_, Pending::Reply(reply))) => outputs.push(Output::Reply(reply)),
                Some((_, Pending::Recorded(attempted))) => self.attempt_recorded(attempted),
                Some((_, Pending::Horizon { lane, epoch, to })) => {
                    self.horizon_saved(lane, epoch, to);
                }
                Some((_, Pending::Assigned { lane, generation })) => {
                    self.owner_saved(lane, generation, outputs);
                }
                None => {}
            }
        }
    }
}
