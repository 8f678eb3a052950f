use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// The answer to a request, once it is there: wait for it, or await it.
#[derive(Debug)]
#[must_use = "an answer that nobody waits for may be an error"]
pub struct Ticket<T>(Arc<Desk<T>>);

/// The other side of a ticket.
#[derive(Debug)]
pub(crate) struct Answer<T>(Arc<Desk<T>>);

#[derive(Debug)]
struct Desk<T> {
    slot: Mutex<Slot<T>>,
    ready: Condvar,
}

#[derive(Debug)]
enum Slot<T> {
    Waiting(Waiter),
    Ready(T),
    Taken,
}

/// Who is to be told of the answer. To tell a thread takes a system call, so that it is not done on
/// suspicion.
#[derive(Debug)]
enum Waiter {
    Nobody,
    Task(Waker),
    Thread,
}

impl<T> Ticket<T> {
    pub(crate) fn new() -> (Self, Answer<T>) {
        let slot = Mutex::new(Slot::Waiting(Waiter::Nobody));
        let desk = Arc::new(Desk { slot, ready: Condvar::new() });
        (Self(Arc::clone(&desk)), Answer(desk))
    }

    /// A ticket that is answered already.
    pub(crate) fn answered(value: T) -> Self {
        Self(Arc::new(Desk { slot: Mutex::new(Slot::Ready(value)), ready: Condvar::new() }))
    }

    /// The answer, if it is there.
    pub fn try_take(&self) -> Option<T> {
        let mut slot = self.0.slot.lock().unwrap_or_else(PoisonError::into_inner);
        slot.take()
    }

    /// Blocks until the answer is there. The log answers every ticket, at the latest when it
    /// closes.
    pub fn wait(self) -> T {
        let mut slot = self.0.slot.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(value) = slot.take() {
                return value;
            }
            *slot = Slot::Waiting(Waiter::Thread);
            slot = self.0.ready.wait(slot).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<T> Slot<T> {
    fn take(&mut self) -> Option<T> {
        if !matches!(self, Self::Ready(_)) {
            return None;
        }
        match std::mem::replace(self, Self::Taken) {
            Self::Ready(value) => Some(value),
            Self::Waiting(_) | Self::Taken => None,
        }
    }
}

impl<T> Future for Ticket<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut slot = self.0.slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = slot.take() {
            return Poll::Ready(value);
        }
        if let Slot::Waiting(waiter) = &mut *slot {
            match waiter {
                Waiter::Task(waker) => waker.clone_from(context.waker()),
                other => *other = Waiter::Task(context.waker().clone()),
            }
        }
        Poll::Pending
    }
}

impl<T> Answer<T> {
    pub(crate) fn give(self, value: T) {
        let mut slot = self.0.slot.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *slot, Slot::Ready(value));
        drop(slot);
        match before {
            Slot::Waiting(Waiter::Task(waker)) => waker.wake(),
            Slot::Waiting(Waiter::Thread) => self.0.ready.notify_one(),
            Slot::Waiting(Waiter::Nobody) | Slot::Ready(_) | Slot::Taken => {}
        }
    }
}
