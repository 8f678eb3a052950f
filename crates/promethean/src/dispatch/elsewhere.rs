//! How a group stands where it is delivered by other hubs: what the store knows of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use promethean_delivery::{LaneState, LaneStatus};
use promethean_event::{Key, Offset, Payload};

use super::active::ActiveGroup;
use super::hub::PAUSES;
use super::lanes::LaneName;
use crate::error::GroupError;
use crate::limits::ELSEWHERE_LOOK_MS;
use crate::store::{Lane, Put, ReadError};

impl ActiveGroup {
    /// How all its lanes stand. Of those that other hubs deliver what is durable is told: not what
    /// is out.
    pub(crate) async fn statuses_everywhere(
        &self,
    ) -> Result<Vec<(LaneName, LaneStatus)>, ReadError> {
        let mut statuses = self.statuses();
        if self.hubs().is_none() {
            return Ok(statuses);
        }
        let record = self.site.store.group(self.name.clone()).await?;
        let states = record.into_iter().flat_map(|record| record.lanes);
        let states: HashMap<Lane, LaneState> = states.collect();
        let (topics, settings) = (self.site.store.topics(), self.settings());
        for entry in topics.users().filter(|entry| settings.reads(&entry.definition.topic)) {
            for lane in entry.lanes() {
                if statuses.iter().any(|(name, _)| name.lane == lane) {
                    continue;
                }
                let bounds = self.site.store.bounds(lane).await?;
                let fresh = LaneState::starting_at(bounds.start.get());
                let state = states.get(&lane).unwrap_or(&fresh);
                let name = LaneName { lane, topic: entry.definition.topic.clone() };
                statuses.push((name, status_of(state, bounds.next)));
            }
        }
        Ok(statuses)
    }

    /// Waits until the cursors of lanes have come to their ends, durably, wherever they are.
    pub(crate) async fn passed_everywhere(
        self: &Arc<Self>,
        ends: &[(Lane, Offset)],
    ) -> Result<(), GroupError> {
        if self.hubs().is_none() {
            return Ok(self.passed(ends).await?);
        }
        loop {
            let here: Vec<_> = ends.iter().filter(|(lane, _)| self.has(*lane)).copied().collect();
            let look = Duration::from_millis(ELSEWHERE_LOOK_MS);
            // One that is lost here meanwhile is waited for elsewhere.
            let waited = tokio::time::timeout(look, self.passed(&here)).await;
            waited.unwrap_or(Ok(()))?;
            let statuses = self.statuses_everywhere().await?;
            let has_passed = |(lane, end): &(Lane, Offset)| {
                let status = statuses.iter().find(|(name, _)| name.lane == *lane);
                status.is_none_or(|(_, status)| status.floor >= end.get() && status.released == 0)
            };
            if ends.iter().all(has_passed) && !self.is_saving() {
                return Ok(());
            }
            if here.len() < ends.len() {
                tokio::time::sleep(look).await;
            }
        }
    }

    fn is_saving(&self) -> bool {
        self.lock().saving > 0
    }

    /// Makes it known to all hubs that the group is paused, or is not.
    pub(crate) async fn tell_pause(&self, paused: bool) -> Result<(), GroupError> {
        if self.hubs().is_none() {
            return Ok(());
        }
        let unnamed = |_| ReadError::Failed("a group has a name that is no key".to_owned());
        let key = Key::new(self.name.as_str()).map_err(unnamed)?;
        let value = paused.then(Payload::null);
        self.site.store.put(vec![Put { space: PAUSES, key, value, expect: None }]).await?;
        self.lock().paused = paused;
        Ok(())
    }
}

fn status_of(state: &LaneState, tail: Offset) -> LaneStatus {
    let holes: u64 = state.acked.spans().iter().map(|span| span.count()).sum();
    LaneStatus {
        floor: state.floor,
        next: state.floor,
        tail: tail.get(),
        out: 0,
        ready: 0,
        holes: u32::try_from(holes).unwrap_or(u32::MAX),
        parked: u32::try_from(state.parked.len()).unwrap_or(u32::MAX),
        released: u32::try_from(state.released.len()).unwrap_or(u32::MAX),
        epoch: state.epoch,
        generation: state.generation,
        counters: promethean_delivery::Counters::default(),
    }
}
