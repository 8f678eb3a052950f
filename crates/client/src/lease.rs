use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Whether a delivery is still ours.
#[derive(Debug, Default)]
pub(crate) struct LeaseCell {
    is_lost: AtomicBool,
    lost: Notify,
}

impl LeaseCell {
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Acquire)
    }

    pub(crate) fn lose(&self) {
        self.is_lost.store(true, Ordering::Release);
        self.lost.notify_waiters();
    }

    /// Waits until it is lost.
    pub(crate) async fn lost(&self) {
        let lost = self.lost.notified();
        tokio::pin!(lost);
        // From here on nothing is missed.
        lost.as_mut().enable();
        if !self.is_lost() {
            lost.await;
        }
    }
}
