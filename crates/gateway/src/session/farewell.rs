use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::sync::Notify;

/// A Close of the client. Once it is read, nothing but the answer to it can be written: so it waits
/// in front of the door, until what the client said before it has been answered.
#[derive(Debug, Default)]
pub(crate) struct Farewell {
    stand: Mutex<Stand>,
    reached: Notify,
}

#[derive(Debug, Default)]
struct Stand {
    /// Nothing is left to be read before it.
    come: bool,
    through: bool,
    reader: Option<Waker>,
}

impl Farewell {
    fn lock(&self) -> MutexGuard<'_, Stand> {
        self.stand.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asked by who reads, in front of a Close: whether it may be read.
    pub(super) fn poll_reached(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut stand = self.lock();
        if stand.through {
            return Poll::Ready(());
        }
        stand.reader = Some(context.waker().clone());
        if !stand.come {
            stand.come = true;
            self.reached.notify_one();
        }
        Poll::Pending
    }

    /// Lets the Close through, also one that has yet to come.
    pub(super) fn let_through(&self) {
        let mut stand = self.lock();
        stand.through = true;
        let reader = stand.reader.take();
        drop(stand);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    pub(super) fn has_come(&self) -> bool {
        self.lock().come
    }

    /// Waits until a Close is next, and all that was said before it has been heard.
    pub(super) async fn reached(&self) {
        while !self.has_come() {
            self.reached.notified().await;
        }
    }
}
