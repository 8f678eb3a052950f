//! The lanes of a group that this hub holds: taken, given back, lost.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use promethean_delivery::{
    Input, LaneId, LanePlace, LaneState, Refusal, Refused, Reply, RequestId, assign,
};

use super::active::{ActiveGroup, Inner};
use super::hub::Hub;
use super::join::MemberMessage;
use crate::error::GroupError;
use crate::store::{Claim, Claims, HubId, Lane, SaveError};

/// What the last sharing out went by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sharing {
    me: HubId,
    hubs: Vec<HubId>,
    lanes: Vec<Lane>,
}

impl ActiveGroup {
    /// The hub and the claims of the store, where there are several hubs.
    pub(super) fn hubs(&self) -> Option<(&Hub, &dyn Claims)> {
        Some((self.site.hub.as_ref()?, self.site.store.claims()?))
    }

    /// Whether a lane is delivered here.
    pub(crate) fn has(&self, lane: Lane) -> bool {
        self.lock().lanes.contains_key(&lane.id())
    }

    fn lanes_read(&self) -> Vec<Lane> {
        let (topics, settings) = (self.site.store.topics(), self.settings());
        let read = topics.users().filter(|entry| settings.reads(&entry.definition.topic));
        read.flat_map(crate::store::TopicEntry::lanes).collect()
    }

    /// Whether topics came or went since lanes were last shared out.
    pub(super) fn has_other_lanes(&self) -> bool {
        let read = self.lanes_read();
        self.lock().shared.as_ref().is_none_or(|shared| shared.lanes != read)
    }

    /// Gives back what is others' share, and takes what is this hub's and free.
    pub(super) async fn balance(self: &Arc<Self>) -> Result<(), GroupError> {
        let Some((hub, claims)) = self.hubs() else { return Ok(()) };
        // One that is under way is followed by another within a second.
        let Ok(_one_at_a_time) = self.sharing.try_lock() else { return Ok(()) };
        if self.failure().is_some() {
            return self.give_back_all().await;
        }
        self.pause_as_told(hub.is_paused(&self.name));
        let hubs = hub.with_members_of(&self.name);
        let wish = Sharing { me: hub.me(), hubs, lanes: self.lanes_read() };
        if self.lock().shared.as_ref() == Some(&wish) {
            return Ok(());
        }
        let held = claims.holders(self.name.clone()).await?;
        self.lose_those_of_others(wish.me, &held);
        let holders: HashMap<Lane, HubId> = held.iter().map(|c| (c.lane, c.hub)).collect();
        let mine = wish.share(&holders);
        let here: HashSet<Lane> = self.lock().claims.keys().map(|id| Lane::of(*id)).collect();
        let is_free = |lane: &&Lane| holders.get(lane).is_none_or(|holder| *holder == wish.me);
        let free: Vec<Lane> = mine.difference(&here).filter(is_free).copied().collect();
        self.take(free).await?;
        let surplus: Vec<Lane> = here.difference(&mine).copied().collect();
        // The last member went, and another one came before this hub could say so: what it was given
        // stays. Its coming was rung for, and is shared out next.
        if !wish.hubs.contains(&wish.me) && self.member_count() > 0 {
            return Ok(());
        }
        self.drain(&surplus).await;
        self.give_back(surplus).await?;
        let mut inner = self.lock();
        let has_all = mine.iter().all(|lane| inner.claims.contains_key(&lane.id()));
        inner.shared = (has_all && inner.claims.len() == mine.len()).then_some(wish);
        Ok(())
    }

    fn pause_as_told(self: &Arc<Self>, paused: bool) {
        if std::mem::replace(&mut self.lock().paused, paused) != paused {
            self.step(if paused { Input::Paused } else { Input::Resumed });
        }
    }

    /// Claims lanes, and takes up those that were free with the state that they have in the store.
    pub(super) async fn take(self: &Arc<Self>, lanes: Vec<Lane>) -> Result<(), GroupError> {
        let Some((hub, claims)) = self.hubs().filter(|_| !lanes.is_empty()) else {
            return Ok(());
        };
        let claimed = match claims.claim(hub.me(), self.name.clone(), lanes).await {
            Err(SaveError::UnknownGroup(group)) => {
                self.fail("it was removed");
                return Err(GroupError::Unknown(group));
            }
            other => other?,
        };
        if claimed.is_empty() {
            return Ok(());
        }
        let record = self.site.store.group(self.name.clone()).await?;
        let record = record.ok_or_else(|| GroupError::Unknown(self.name.clone()))?;
        if super::registry::settings_of(&self.name, &record)? != self.settings() {
            self.fail("its settings were changed at another hub");
            return Ok(());
        }
        let mut states: HashMap<Lane, LaneState> = record.lanes.into_iter().collect();
        let topics = self.site.store.topics();
        for Claim { lane, epoch, .. } in claimed {
            if let Some(entry) = topics.by_id(lane.topic) {
                self.add_lane(entry, lane, states.remove(&lane), Some(epoch)).await?;
            }
        }
        Ok(())
    }

    /// Lets consumers finish what they have of lanes, for as long as they may.
    async fn drain(self: &Arc<Self>, lanes: &[Lane]) {
        if lanes.is_empty() {
            return;
        }
        for lane in lanes.iter().map(|lane| lane.id()) {
            self.step(Input::LaneClosing { lane });
        }
        let finished = async {
            loop {
                let stepped = self.stepped.notified();
                tokio::pin!(stepped);
                stepped.as_mut().enable();
                let is_out = |lane: &Lane| {
                    let status = self.lock().engine.status(lane.id());
                    status.is_some_and(|status| status.out > 0)
                };
                if self.failure().is_some() || !lanes.iter().any(is_out) {
                    return;
                }
                stepped.await;
            }
        };
        let time = Duration::from_millis(u64::from(self.settings().drain_ms));
        if tokio::time::timeout(time, finished).await.is_err() {
            tracing::debug!(group = %self.name, "what is still out comes again elsewhere");
        }
    }

    /// Lets lanes go: their last words become durable, then they are free.
    pub(super) async fn give_back(self: &Arc<Self>, lanes: Vec<Lane>) -> Result<(), GroupError> {
        let Some((hub, claims)) = self.hubs().filter(|_| !lanes.is_empty()) else {
            return Ok(());
        };
        let ids: Vec<LaneId> = lanes.iter().map(|lane| lane.id()).collect();
        for &lane in &ids {
            self.remove_lane(lane, Input::LaneRemoved { lane });
        }
        self.last_words_saved(&ids).await;
        let me = hub.me();
        let given_back: Vec<Claim> = {
            let mut inner = self.lock();
            inner.shared = None;
            let claim = |lane: &Lane| {
                Some(Claim { lane: *lane, hub: me, epoch: inner.claims.remove(&lane.id())? })
            };
            lanes.iter().filter_map(claim).collect()
        };
        Ok(claims.release(self.name.clone(), given_back).await?)
    }

    /// Lets all lanes go.
    pub(super) async fn give_back_all(self: &Arc<Self>) -> Result<(), GroupError> {
        let lanes = self.lock().claims.keys().map(|id| Lane::of(*id)).collect();
        self.give_back(lanes).await
    }

    async fn last_words_saved(&self, lanes: &[LaneId]) {
        loop {
            let stepped = self.stepped.notified();
            tokio::pin!(stepped);
            stepped.as_mut().enable();
            {
                let inner = self.lock();
                let is_unsaved = |lane: &LaneId| {
                    inner.claims.contains_key(lane)
                        && (inner.engine.has_last_word(*lane) || inner.is_saving(*lane))
                };
                if inner.failure.is_some() || !lanes.iter().any(is_unsaved) {
                    return;
                }
            }
            stepped.await;
        }
    }

    fn lose_those_of_others(self: &Arc<Self>, me: HubId, held: &[Claim]) {
        let lost: Vec<Lane> = {
            let inner = self.lock();
            let is_mine = |id: LaneId, epoch: u64| {
                held.iter().any(|c| c.lane.id() == id && c.hub == me && c.epoch == epoch)
            };
            let lost = inner.claims.iter().filter(|(id, epoch)| !is_mine(**id, **epoch));
            lost.map(|(id, _)| Lane::of(*id)).collect()
        };
        self.lose(&lost);
    }

    /// Another hub has lanes: what was out of them here is void, and who waits for an answer about
    /// them is told that it is not confirmed.
    pub(super) fn lose(self: &Arc<Self>, lanes: &[Lane]) {
        for lane in lanes.iter().map(|lane| lane.id()) {
            tracing::info!(group = %self.name, lane = lane.get(), "another hub has the lane now");
            self.remove_lane(lane, Input::LaneLost { lane });
            let mut inner = self.lock();
            inner.claims.remove(&lane);
            inner.shared = None;
            inner.refuse_waiting(lane);
        }
        if let Some((hub, _)) = self.hubs().filter(|_| !lanes.is_empty()) {
            hub.ring();
            self.stepped.notify_waiters();
        }
    }

    pub(super) fn lose_all(self: &Arc<Self>) {
        let lanes: Vec<Lane> = self.lock().claims.keys().map(|id| Lane::of(*id)).collect();
        self.lose(&lanes);
    }

    /// Takes a lane out of the group, and tells its members.
    pub(super) fn remove_lane(self: &Arc<Self>, lane: LaneId, input: Input<'_>) {
        let chores = {
            let mut inner = self.lock();
            if let Some(view) = inner.lanes.remove(&lane) {
                self.carry_counters(&inner, lane, &view);
                if let Some(owner) = view.owner.filter(|_| self.site.hub.is_some()) {
                    inner.tell(owner, MemberMessage::Revoked(Lane::of(lane)));
                }
            }
            self.step_locked(&mut inner, input);
            std::mem::take(&mut inner.chores)
        };
        self.work(chores);
    }
}

impl Sharing {
    /// The lanes that are this hub's: balanced within one, and with whom they are where that can
    /// be. Every hub that sees the same comes to the same.
    fn share(&self, holders: &HashMap<Lane, HubId>) -> HashSet<Lane> {
        let place = |lane: &Lane| {
            let holder = holders.get(lane);
            let holder = holder.and_then(|holder| self.hubs.iter().position(|hub| hub == holder));
            LanePlace { lane: lane.id().get(), holder }
        };
        let places: Vec<LanePlace> = self.lanes.iter().map(place).collect();
        let numbers: Vec<u64> = self.hubs.iter().map(|hub| hub.get()).collect();
        let me = self.hubs.iter().position(|hub| *hub == self.me);
        let owned = self.lanes.iter().zip(assign(&places, &numbers));
        owned.filter(|(_, owner)| me.is_some() && *owner == me).map(|(lane, _)| *lane).collect()
    }
}

impl Inner {
    pub(super) fn is_saving(&self, lane: LaneId) -> bool {
        self.under_way.iter().any(|(_, lanes)| lanes.contains(&lane))
    }

    /// Nothing that rests on a lane is confirmed any more.
    fn refuse_waiting(&mut self, lane: LaneId) {
        let touched = self.replies.iter().filter(|(_, waiting)| waiting.is_about(lane));
        let touched: Vec<RequestId> = touched.map(|(request, _)| *request).collect();
        for request in touched {
            if let Some(waiting) = self.replies.remove(&request) {
                let refused = |(item, (_, offset)): (u32, &(LaneId, u64))| Refused {
                    item,
                    offset: *offset,
                    why: Refusal::LeaseLost,
                };
                let refused = (0..).zip(&waiting.about).map(refused).collect();
                // Whoever asked may have gone since.
                drop(waiting.sender.send(Reply { request, accepted: 0, refused }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use promethean_event::Partition;

    use super::*;
    use crate::store::TopicId;

    fn lanes(count: u32) -> Vec<Lane> {
        let lane =
            |partition| Lane { topic: TopicId::new(1), partition: Partition::new(partition) };
        (0..count).map(lane).collect()
    }

    fn shares(hubs: &[HubId], holders: &HashMap<Lane, HubId>) -> Vec<HashSet<Lane>> {
        let share =
            |me: &HubId| Sharing { me: *me, hubs: hubs.to_vec(), lanes: lanes(8) }.share(holders);
        hubs.iter().map(share).collect()
    }

    #[test]
    fn hubs_share_everything_and_nothing_twice() {
        let hubs = [1, 2, 3].map(HubId::new);
        let shares = shares(&hubs, &HashMap::new());
        let sizes: Vec<usize> = shares.iter().map(HashSet::len).collect();
        assert!(sizes.iter().all(|size| (2..=3).contains(size)), "{sizes:?}");
        let all: HashSet<Lane> = shares.iter().flatten().copied().collect();
        assert_eq!((all.len(), sizes.iter().sum::<usize>()), (8, 8));
    }

    #[test]
    fn what_a_hub_holds_stays_with_it() {
        let hubs = [1, 2].map(HubId::new);
        let held = lanes(8).into_iter().take(4).map(|lane| (lane, hubs[1]));
        let holders: HashMap<Lane, HubId> = held.collect();
        let shares = shares(&hubs, &holders);
        assert!(holders.keys().all(|lane| shares[1].contains(lane)));
        assert_eq!(shares[0].len(), 4);
    }

    #[test]
    fn a_hub_without_members_gets_nothing() {
        let shared = Sharing { me: HubId::new(3), hubs: vec![HubId::new(1)], lanes: lanes(2) };
        assert!(shared.share(&HashMap::new()).is_empty());
        let shared = Sharing { me: HubId::new(3), hubs: Vec::new(), lanes: lanes(2) };
        assert!(shared.share(&HashMap::new()).is_empty());
    }
}
