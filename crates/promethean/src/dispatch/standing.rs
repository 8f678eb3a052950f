//! How a group stands, for those who watch it.

use promethean_delivery::{Counters, LaneId};
use promethean_event::Topic;

use super::active::{ActiveGroup, Inner};
use super::lanes::LaneView;
use crate::metrics::{Carried, Series};
use crate::store::Lane;

/// How a group stands in one lane.
#[derive(Debug, Clone)]
pub(crate) struct LaneStanding {
    pub(crate) lane: Lane,
    pub(crate) topic: Topic,
    pub(crate) series: Series,
    pub(crate) floor: u64,
    pub(crate) out: u64,
    pub(crate) holes: u64,
    pub(crate) released: u64,
    pub(crate) counters: Counters,
}

impl ActiveGroup {
    /// Its lanes, and what was counted in those that it has let go: at one moment, so that nothing
    /// is missed or counted twice.
    pub(crate) fn standing(&self) -> (Vec<LaneStanding>, Carried) {
        let inner = self.lock();
        let lanes = inner.lanes.iter().filter_map(|(&id, view)| {
            let status = inner.engine.status(id)?;
            Some(LaneStanding {
                lane: view.name.lane,
                topic: view.name.topic.clone(),
                series: view.series,
                floor: status.floor,
                out: u64::from(status.out),
                holes: u64::from(status.holes),
                released: u64::from(status.released),
                counters: status.counters,
            })
        });
        (lanes.collect(), self.site.meters.carried(&self.name))
    }

    /// Keeps what was counted in a lane that is about to be removed.
    pub(super) fn carry_counters(&self, inner: &Inner, id: LaneId, view: &LaneView) {
        if let Some(status) = inner.engine.status(id) {
            let pair = (&self.name, view.name.lane.topic);
            self.site.meters.carry(pair, status.counters, view.series);
        }
    }
}
