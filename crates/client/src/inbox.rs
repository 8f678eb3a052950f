use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::error::GroupError;

/// What has come and was not taken yet. Bounded by the credit that was granted.
#[derive(Debug)]
pub(crate) struct Inbox<E> {
    inner: Mutex<Inner<E>>,
}

#[derive(Debug)]
struct Inner<E> {
    queue: VecDeque<E>,
    ended: Option<Option<GroupError>>,
    waker: Option<Waker>,
}

impl<E> Inbox<E> {
    pub(crate) fn new() -> Self {
        Self { inner: Mutex::new(Inner { queue: VecDeque::new(), ended: None, waker: None }) }
    }

    fn lock(&self) -> MutexGuard<'_, Inner<E>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, entries: impl IntoIterator<Item = E>) {
        let mut inner = self.lock();
        inner.queue.extend(entries);
        let waker = inner.waker.take();
        drop(inner);
        wake(waker);
    }

    pub(crate) fn clear(&self) {
        self.lock().queue.clear();
    }

    /// Nothing more comes; why, unless it was left.
    pub(crate) fn end(&self, error: Option<GroupError>) {
        let mut inner = self.lock();
        inner.ended.get_or_insert(error);
        let waker = inner.waker.take();
        drop(inner);
        wake(waker);
    }

    /// The next one; once it has ended the error, if there is one, and then nothing.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Option<Result<E, GroupError>>> {
        let mut inner = self.lock();
        if let Some(entry) = inner.queue.pop_front() {
            return Poll::Ready(Some(Ok(entry)));
        }
        if let Some(error) = &mut inner.ended {
            return Poll::Ready(error.take().map(Err));
        }
        inner.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
