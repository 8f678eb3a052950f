//! This bus as one of several hubs that use the same store: it says that it is there, hears who
//! else is, and shares out the lanes of its groups with them.
//!
//! What always holds: a lane of a group is delivered by the hub that holds its claim; whoever holds
//! none, or an old one, has its saves refused by the store, so that nothing it confirms is untrue.
//! When to hold what is decided by each hub for itself, from what the store says of all. Hubs that
//! see things differently for a moment leave a lane without a holder, or ask for one that is not
//! free; they never share one.
//!
//! One task says that the hub is there, and does nothing else that could keep it from that. Another
//! brings what groups hold to what they should.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use promethean_event::GroupName;
use tokio::sync::Notify;

use super::registry::{Groups, Site};
use crate::limits::{HUB_BEAT_MS_MAX, HUB_BEATS_PER_LEASE};
use crate::store::{Attend, HubId, HubPresence, ReadError, SaveError};

/// The space in which it is kept which groups are paused.
pub(super) const PAUSES: &str = "pauses";

/// This bus among the hubs.
#[derive(Debug)]
pub(crate) struct Hub {
    lease: Duration,
    seen: Mutex<Seen>,
    /// Rung when this hub has something new to say, or others have.
    beat: Notify,
    /// Rung when lanes may have to change hands.
    balance: Notify,
}

/// What is known of the hubs.
#[derive(Debug)]
struct Seen {
    me: HubId,
    present: Vec<HubPresence>,
    paused: HashSet<GroupName>,
}

impl Hub {
    pub(super) fn new(lease: Duration) -> Self {
        let me = HubId::generate();
        let seen = Seen { me, present: Vec::new(), paused: HashSet::new() };
        Self { lease, seen: Mutex::new(seen), beat: Notify::new(), balance: Notify::new() }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn me(&self) -> HubId {
        self.seen().me
    }

    /// Something has changed, here or elsewhere.
    pub(crate) fn ring(&self) {
        self.beat.notify_one();
    }

    /// The hubs that have members of a group, by number.
    pub(super) fn with_members_of(&self, group: &GroupName) -> Vec<HubId> {
        let seen = self.seen();
        let with = seen.present.iter().filter(|hub| hub.groups.contains(group));
        with.map(|hub| hub.hub).collect()
    }

    /// How many other hubs have members of a group.
    pub(super) fn elsewhere(&self, group: &GroupName) -> usize {
        let me = self.me();
        self.with_members_of(group).into_iter().filter(|hub| *hub != me).count()
    }

    pub(super) fn is_paused(&self, group: &GroupName) -> bool {
        self.seen().paused.contains(group)
    }

    /// Often enough that a hub that goes is missed within a second of its lease.
    fn pace(&self) -> Duration {
        (self.lease / HUB_BEATS_PER_LEASE).min(Duration::from_millis(HUB_BEAT_MS_MAX))
    }
}

/// Says that this hub is there, for as long as the bus is.
pub(super) async fn attend(groups: Weak<Groups>, site: Arc<Site>) {
    let Some(hub) = &site.hub else { return };
    let mut arrives = true;
    loop {
        let Some(groups) = groups.upgrade() else { return };
        match groups.attend(hub, arrives).await {
            Ok(true) => arrives = false,
            Ok(false) => {
                tracing::warn!("this hub was silent for too long, and begins anew");
                hub.seen().me = HubId::generate();
                groups.live().iter().for_each(|group| group.lose_all());
                arrives = true;
                continue;
            }
            // Nothing is confirmed meanwhile; others take over if it lasts.
            Err(error) => tracing::warn!(%error, "this hub could not say that it is there"),
        }
        hub.balance.notify_one();
        drop(groups);
        drop(tokio::time::timeout(hub.pace(), hub.beat.notified()).await);
    }
}

/// Brings what groups hold to what they should, whenever that may have changed.
pub(super) async fn balance(groups: Weak<Groups>, site: Arc<Site>) {
    let Some(hub) = &site.hub else { return };
    loop {
        hub.balance.notified().await;
        let Some(groups) = groups.upgrade() else { return };
        if let Err(error) = groups.hear(hub).await {
            tracing::warn!(%error, "what other hubs want could not be read");
        }
        // Each for itself: one that waits for its consumers to finish holds up no other.
        for group in groups.active().await {
            site.runtime.spawn(async move {
                if let Err(error) = group.balance().await {
                    tracing::warn!(group = %group.name, %error, "lanes could not be shared out");
                }
            });
        }
    }
}

impl Groups {
    /// Says that this hub is there; false if it was forgotten.
    async fn attend(&self, hub: &Hub, arrives: bool) -> Result<bool, SaveError> {
        let site = self.site();
        let Some(claims) = site.store.claims() else { return Ok(true) };
        let with_members = self.live().into_iter().filter(|group| group.member_count() > 0);
        let mut groups: Vec<GroupName> = with_members.map(|group| group.name.clone()).collect();
        groups.sort_unstable();
        let attend = Attend { hub: hub.me(), arrives, groups, lease: hub.lease };
        let Some(present) = claims.attend(attend).await? else { return Ok(false) };
        hub.seen().present = present;
        Ok(true)
    }

    /// Reads which groups are paused, and what others want of lanes that are here.
    async fn hear(self: &Arc<Self>, hub: &Hub) -> Result<(), ReadError> {
        let site = self.site();
        let paused = site.store.entries(PAUSES).await?;
        let paused = paused.iter().filter_map(|entry| GroupName::new(entry.key.as_str()).ok());
        hub.seen().paused = paused.collect();
        self.hear_requests().await
    }

    /// The hub goes in good order: what it held is free at once.
    pub(crate) async fn depart(&self) {
        self.end_tasks();
        let site = self.site();
        if let (Some(claims), Some(hub)) = (site.store.claims(), &site.hub)
            && let Err(error) = claims.depart(hub.me()).await
        {
            tracing::warn!(%error, "other hubs hear only by and by that this one has gone");
        }
    }
}
