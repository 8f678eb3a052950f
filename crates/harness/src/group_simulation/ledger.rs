use std::collections::{BTreeMap, VecDeque};

use promethean_delivery::{DeadLetter, LaneDelta, LaneState, Save};

/// The store of the simulation: saves that are written and not durable, and what is.
#[derive(Debug, Default)]
pub(crate) struct Store {
    queue: VecDeque<Save>,
    states: BTreeMap<u64, LaneState>,
    /// Saves durable and not reported.
    pub(crate) reported: u64,
    pub(crate) durable: u64,
}

impl Store {
    pub(crate) fn write(&mut self, save: Save) {
        self.queue.push_back(save);
    }

    pub(crate) fn pending(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn state(&self, lane: u64) -> Option<&LaneState> {
        self.states.get(&lane)
    }

    /// The oldest save becomes durable, through its bytes. Lanes that changed, and dead letters.
    #[expect(
        clippy::expect_used,
        reason = "bytes that do not come back end the simulation where it stands"
    )]
    pub(crate) fn make_durable(&mut self) -> Option<(Vec<u64>, Vec<DeadLetter>)> {
        let save = self.queue.pop_front()?;
        self.durable = save.number;
        let mut changed = Vec::new();
        for (lane, delta) in save.lanes {
            let delta = LaneDelta::decode(&delta.encode()).expect("a delta comes back");
            let state = self.states.entry(lane.get()).or_default();
            state.apply(&delta).expect("deltas come in order");
            // Applying again changes nothing.
            state.apply(&delta).expect("deltas may come twice");
            *state = LaneState::decode(&state.encode()).expect("a state comes back");
            changed.push(lane.get());
        }
        Some((changed, save.dead_letters))
    }

    /// The process is gone, and with it what was not durable. How many saves that were.
    pub(crate) fn crash(&mut self) -> u64 {
        let lost = self.queue.len() as u64;
        self.queue.clear();
        (self.reported, self.durable) = (0, 0);
        lost
    }
}
