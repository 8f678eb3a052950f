use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::access::Principal;
use crate::edge::{Edge, stopped};

/// How long an answer may go on: until the server stops, the credential ends, or what it allows
/// is changed. Whoever may go on after that asks again.
#[derive(Debug)]
pub(crate) struct Tenure {
    edge: Arc<Edge>,
    principal: Principal,
    expires: Option<Instant>,
    draining: watch::Receiver<bool>,
    rights: watch::Receiver<u64>,
}

impl Tenure {
    pub(crate) fn new(edge: &Arc<Edge>, principal: &Principal) -> Self {
        Self {
            expires: principal.expires_at_ms().map(|ms| edge.clock.instant_of(ms)),
            draining: edge.draining.subscribe(),
            rights: edge.rights.subscribe(),
            principal: principal.clone(),
            edge: Arc::clone(edge),
        }
    }

    /// Whether it has not ended yet.
    pub(crate) fn lasts(&self) -> bool {
        let expired = self.principal.is_expired(self.edge.clock.latest_ms());
        !expired && self.edge.standing(&self.principal).is_some_and(|now| now == self.principal)
    }

    /// Waits for its end.
    pub(crate) async fn over(&mut self) {
        let expires = self.expires;
        let expired = async {
            match expires {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let edge = Arc::clone(&self.edge);
        let principal = &self.principal;
        let rights = &mut self.rights;
        let changed = async {
            // The sender lives as long as the edge.
            while rights.changed().await.is_ok() {
                if edge.standing(principal).as_ref() != Some(principal) {
                    return;
                }
            }
        };
        tokio::select! {
            () = stopped(&mut self.draining) => {}
            () = expired => {}
            () = changed => {}
        }
    }
}
