//! By which claim a bus keeps the views of a projection, where several hubs could.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

use super::database::DatabaseError;
use super::view_store::{Right, ViewStore};
use crate::bus::Bus;
use crate::store::HubId;

/// The claim of a bus to a projection.
pub(crate) struct Tenure {
    bus: Bus,
    claim: AtomicU64,
    is_held: AtomicBool,
    /// Rung when somebody waits to hear how far the views are at another hub.
    pub(crate) look: Notify,
}

impl Tenure {
    pub(crate) fn new(bus: Bus) -> Self {
        let (claim, is_held) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { bus, claim, is_held, look: Notify::new() }
    }

    fn hub(&self) -> Option<HubId> {
        self.bus.inner.groups.site().hub.as_ref().map(|hub| hub.me())
    }

    /// The newest claim. What it was lost to, the store knows.
    pub(crate) fn claim(&self) -> u64 {
        self.claim.load(Ordering::SeqCst)
    }

    /// Whether it is this bus, as far as it knows.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held.load(Ordering::SeqCst)
    }

    /// It has turned out to be another's.
    pub(crate) fn lose(&self) {
        self.is_held.store(false, Ordering::SeqCst);
    }

    /// Claims the projection; false if another hub has it.
    pub(crate) async fn take(
        &self,
        store: &dyn ViewStore,
        projection: &str,
        right: Right,
    ) -> Result<bool, DatabaseError> {
        let claim = store.claim(projection.to_owned(), self.hub(), right).await?;
        if let Some(claim) = claim {
            self.claim.store(claim, Ordering::SeqCst);
        }
        self.is_held.store(claim.is_some(), Ordering::SeqCst);
        Ok(claim.is_some())
    }

    /// Claims it once more; refused if it has become another's.
    pub(crate) async fn renew(
        &self,
        store: &dyn ViewStore,
        projection: &str,
    ) -> Result<(), DatabaseError> {
        match self.take(store, projection, Right::Free).await? {
            true => Ok(()),
            false => Err(DatabaseError::Fenced),
        }
    }

    /// Asks whether it is still this bus that has it.
    pub(crate) async fn is_still_held(
        &self,
        store: &dyn ViewStore,
        projection: &str,
    ) -> Result<bool, DatabaseError> {
        store.holds(projection.to_owned(), self.claim()).await
    }

    /// Gives it back, so that another hub need not wait.
    pub(crate) async fn give_back(&self, store: &dyn ViewStore, projection: &str) {
        if !self.is_held() {
            return;
        }
        self.lose();
        if let Err(error) = store.release(projection.to_owned(), self.claim()).await {
            tracing::warn!(projection, %error, "other hubs hear only by and by that this one has gone");
        }
    }
}

impl fmt::Debug for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenure").field("claim", &self.claim).finish_non_exhaustive()
    }
}
