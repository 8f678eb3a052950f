use std::collections::BTreeMap;

use futures_core::future::BoxFuture;
use promethean_event::{GroupName, Timestamp};

use super::contents::Contents;
use super::{MemoryStore, ready};
use crate::store::{
    Attend, Claim, Claims, GroupSave, HubId, HubPresence, Lane, ReadError, SaveError,
};

/// Which hubs are there, and what they hold.
#[derive(Debug, Default)]
pub(super) struct Held {
    hubs: BTreeMap<HubId, Hub>,
    claims: BTreeMap<(GroupName, Lane), Claim>,
    /// The last epoch given.
    epoch: u64,
}

#[derive(Debug)]
struct Hub {
    until: Timestamp,
    groups: Vec<GroupName>,
}

impl Held {
    /// The lanes of a save that are others' by now.
    pub(super) fn fenced(&self, save: &GroupSave) -> Vec<Lane> {
        let is_lost = |(lane, epoch): &&(Lane, u64)| {
            let claim = self.claims.get(&(save.group.clone(), *lane));
            claim.is_none_or(|claim| claim.epoch != *epoch)
        };
        save.claims.iter().filter(is_lost).map(|(lane, _)| *lane).collect()
    }

    pub(super) fn forget_group(&mut self, group: &GroupName) {
        self.claims.retain(|(name, _), _| name != group);
    }

    fn is_free(&self, group: &GroupName, lane: Lane, hub: HubId) -> bool {
        let claim = self.claims.get(&(group.clone(), lane));
        claim.is_none_or(|claim| claim.hub == hub || !self.hubs.contains_key(&claim.hub))
    }
}

impl Contents {
    fn attend(&mut self, attend: Attend, now: Timestamp) -> Option<Vec<HubPresence>> {
        let lease_ms = u64::try_from(attend.lease.as_millis()).unwrap_or(u64::MAX);
        let until = Timestamp::from_millis(now.millis().saturating_add(lease_ms));
        let hubs = &mut self.held.hubs;
        let before = hubs.get(&attend.hub);
        if before.is_none() && !attend.arrives {
            return None;
        }
        let lease_before =
            |time: Timestamp| Timestamp::from_millis(time.millis().saturating_sub(lease_ms));
        let silent_since = match before {
            Some(before) if before.until < now => lease_before(before.until),
            _ => now,
        };
        let changed = before.is_none_or(|before| before.groups != attend.groups);
        hubs.insert(attend.hub, Hub { until, groups: attend.groups });
        let known = hubs.len();
        hubs.retain(|_, hub| hub.until >= silent_since);
        let gone = hubs.len() < known;
        let presence =
            |(hub, kept): (&HubId, &Hub)| HubPresence { hub: *hub, groups: kept.groups.clone() };
        let present = hubs.iter().map(presence).collect();
        if changed || gone {
            self.recent.note_hubs();
        }
        Some(present)
    }

    fn claim(
        &mut self,
        hub: HubId,
        group: &GroupName,
        lanes: Vec<Lane>,
    ) -> Result<Vec<Claim>, SaveError> {
        self.refuse_if_closed()?;
        if self.group(group).is_none() {
            return Err(SaveError::UnknownGroup(group.clone()));
        }
        if !self.held.hubs.contains_key(&hub) {
            return Ok(Vec::new());
        }
        let mut claims = Vec::new();
        for lane in lanes {
            if self.lane(lane).is_ok() && self.held.is_free(group, lane, hub) {
                self.held.epoch += 1;
                let claim = Claim { lane, hub, epoch: self.held.epoch };
                self.held.claims.insert((group.clone(), lane), claim);
                claims.push(claim);
            }
        }
        Ok(claims)
    }

    fn release(&mut self, group: &GroupName, claims: &[Claim]) {
        let is_given_back = |claim: &Claim| claims.contains(claim);
        self.held.claims.retain(|(name, _), claim| name != group || !is_given_back(claim));
        self.recent.note_hubs();
    }
}

impl Claims for MemoryStore {
    fn attend(&self, attend: Attend) -> BoxFuture<'_, Result<Option<Vec<HubPresence>>, SaveError>> {
        let now = self.clock.now();
        ready(Ok(self.change(|contents| contents.attend(attend, now))))
    }

    fn depart(&self, hub: HubId) -> BoxFuture<'_, Result<(), SaveError>> {
        self.change(|contents| {
            contents.held.hubs.remove(&hub);
            contents.recent.note_hubs();
        });
        ready(Ok(()))
    }

    fn holders(&self, group: GroupName) -> BoxFuture<'_, Result<Vec<Claim>, ReadError>> {
        let contents = self.lock();
        let held = contents.held.claims.iter();
        let of_group = held.filter(|((name, _), claim)| {
            *name == group && contents.held.hubs.contains_key(&claim.hub)
        });
        ready(Ok(of_group.map(|(_, claim)| *claim).collect()))
    }

    fn claim(
        &self,
        hub: HubId,
        group: GroupName,
        lanes: Vec<Lane>,
    ) -> BoxFuture<'_, Result<Vec<Claim>, SaveError>> {
        ready(self.change(|contents| contents.claim(hub, &group, lanes)))
    }

    fn release(
        &self,
        group: GroupName,
        claims: Vec<Claim>,
    ) -> BoxFuture<'_, Result<(), SaveError>> {
        self.change(|contents| contents.release(&group, &claims));
        ready(Ok(()))
    }
}
