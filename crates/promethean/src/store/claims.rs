//! Who delivers what, where several hubs use one store.
//!
//! A hub *attends*: it says, again and again, that it is there, and which groups it has members of.
//! One that has not been heard of for its lease is forgotten by whoever notices, for good: if it
//! comes back, it comes as another hub. A lane of a group is *claimed* by one hub at a time; each
//! claim has an epoch above that of every claim before, and a save that names the claims of its
//! lanes is refused as [`SaveError::Fenced`] if one of them is another's by now. All of it goes by
//! the time of the store, never by that of a hub.

use std::fmt;
use std::time::Duration;

use futures_core::future::BoxFuture;
use promethean_event::{EventId, GroupName};

use super::error::{ReadError, SaveError};
use super::topics::Lane;

/// One life of a hub. Never used again after it was forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HubId(u64);

impl HubId {
    /// The hub with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// A number that nobody else has.
    pub fn generate() -> Self {
        let [.., a, b, c, d, e, f, g] = *EventId::generate().as_bytes();
        Self(u64::from_be_bytes([0, a, b, c, d, e, f, g]))
    }

    /// Its number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// A hub says that it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attend {
    /// Which hub.
    pub hub: HubId,
    /// Whether it says so for the first time.
    pub arrives: bool,
    /// The groups that it has members of.
    pub groups: Vec<GroupName>,
    /// How long it counts as there without saying so again.
    pub lease: Duration,
}

/// A hub that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubPresence {
    /// Which hub.
    pub hub: HubId,
    /// The groups that it has members of.
    pub groups: Vec<GroupName>,
}

/// A lane of a group in the hands of a hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The lane.
    pub lane: Lane,
    /// The hub.
    pub hub: HubId,
    /// Higher than that of every claim before.
    pub epoch: u64,
}

/// How hubs that use one store share out the lanes of groups.
pub trait Claims: fmt::Debug + Send + Sync {
    /// Says that a hub is there; gives all that are, by number. `None`: the hub was forgotten, and
    /// all that it held may be others' by now.
    ///
    /// A hub that says so in time forgets those that do not. One that is late itself forgets only
    /// those that were silent for a lease longer than itself: after an outage of the store everybody
    /// is late, and nobody is dead.
    fn attend(&self, attend: Attend) -> BoxFuture<'_, Result<Option<Vec<HubPresence>>, SaveError>>;

    /// A hub goes: what it holds is free at once.
    fn depart(&self, hub: HubId) -> BoxFuture<'_, Result<(), SaveError>>;

    /// Which lanes of a group are held, by hubs that are not forgotten.
    fn holders(&self, group: GroupName) -> BoxFuture<'_, Result<Vec<Claim>, ReadError>>;

    /// Claims lanes of a group. Gives those that were free, or the hub's own, each with its new
    /// epoch; none if the hub was forgotten. A lane has its state when it was claimed: no save of
    /// an earlier claim comes after it.
    fn claim(
        &self,
        hub: HubId,
        group: GroupName,
        lanes: Vec<Lane>,
    ) -> BoxFuture<'_, Result<Vec<Claim>, SaveError>>;

    /// Gives claims back. Those that are others' by now stay theirs.
    fn release(&self, group: GroupName, claims: Vec<Claim>)
    -> BoxFuture<'_, Result<(), SaveError>>;
}

/// Spaces of entries that hubs want to hear of at once when something is put there.
pub const HEARD_SPACES: [&str; 3] = ["requests", "pauses", "schema-topics"];
