use std::collections::BTreeMap;

use promethean_delivery::LaneState;
use promethean_event::{GroupName, Payload, Timestamp};

use super::contents::Contents;
use crate::store::{GroupRecord, GroupSave, Lane, SaveError};

/// What is kept of all groups.
#[derive(Debug, Default)]
pub(super) struct Groups(BTreeMap<GroupName, Kept>);

#[derive(Debug, Default)]
struct Kept {
    settings: Option<Payload>,
    lanes: BTreeMap<Lane, LaneState>,
}

impl Groups {
    pub(super) fn names(&self) -> Vec<GroupName> {
        self.0.keys().cloned().collect()
    }
}

impl Contents {
    /// What is kept of a group; nothing of topics that are gone.
    pub(super) fn group(&self, name: &GroupName) -> Option<GroupRecord> {
        let kept = self.groups.0.get(name)?;
        let lanes = kept.lanes.iter().filter(|(lane, _)| self.topics.contains_key(&lane.topic));
        let lanes = lanes.map(|(&lane, state)| (lane, state.clone())).collect();
        Some(GroupRecord { settings: kept.settings.clone()?, lanes })
    }

    pub(super) fn save(&mut self, save: GroupSave, now: Timestamp) -> Result<(), SaveError> {
        self.refuse_if_closed()?;
        let known = self.groups.0.get(&save.group);
        if known.is_none() && save.settings.is_none() {
            return Err(SaveError::UnknownGroup(save.group));
        }
        let fenced = self.held.fenced(&save);
        let is_live = |lane: &Lane| self.topics.contains_key(&lane.topic);
        if self.is_shared && fenced.iter().any(is_live) {
            return Err(SaveError::Fenced(fenced));
        }
        let mut changed: BTreeMap<Lane, LaneState> = BTreeMap::new();
        let live = |(lane, _): &&(Lane, _)| self.topics.contains_key(&lane.topic);
        for (lane, delta) in save.lanes.iter().filter(live) {
            let state = changed.entry(*lane).or_insert_with(|| {
                known.and_then(|known| known.lanes.get(lane)).cloned().unwrap_or_default()
            });
            state.apply(delta)?;
        }
        // The last thing that can be refused: from here on all of it happens.
        self.place_all(save.dead_letters, now)?;
        let kept = self.groups.0.entry(save.group).or_default();
        kept.lanes.extend(changed);
        if let Some(settings) = save.settings {
            kept.settings = Some(settings);
        }
        Ok(())
    }

    pub(super) fn remove_group(&mut self, group: &GroupName) -> Result<(), SaveError> {
        self.refuse_if_closed()?;
        self.groups.0.remove(group);
        self.held.forget_group(group);
        Ok(())
    }
}
