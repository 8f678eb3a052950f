use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use promethean_event::{Event, FromEvent, GroupName};
use tokio::sync::oneshot;

use super::delivered::Delivered;
use crate::bus::Handle;
use crate::error::GroupFailure;
use crate::inbox::Inbox;
use crate::link::{Command, Leased};
use crate::machine::{Flow, SubKey};

/// Deliveries, as they come, over all connections. Dropping it leaves the group: what was not acked
/// goes to others at once.
pub struct Subscription<T = Event> {
    link: Handle,
    key: SubKey,
    group: GroupName,
    inbox: Arc<Inbox<Leased>>,
    payload: PhantomData<fn() -> T>,
}

impl<T: FromEvent> Subscription<T> {
    pub(super) const fn new(
        link: Handle,
        key: SubKey,
        group: GroupName,
        inbox: Arc<Inbox<Leased>>,
    ) -> Self {
        Self { link, key, group, inbox, payload: PhantomData }
    }

    /// What it can be paused and resumed by.
    pub(super) fn way(&self) -> (Handle, SubKey) {
        (self.link.clone(), self.key)
    }

    /// The group.
    pub const fn group(&self) -> &GroupName {
        &self.group
    }

    /// The next delivery; `None` once the bus is closed.
    pub async fn next(&mut self) -> Option<Result<Delivered<T>, GroupFailure>> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    /// Nothing new comes, until it is resumed; what is here stays.
    pub fn pause(&self) {
        self.link.say(Command::Flow(self.key, Flow::Paused));
    }

    /// New events again.
    pub fn resume(&self) {
        self.link.say(Command::Flow(self.key, Flow::Running));
    }

    /// Leaves the group, and waits until it is left.
    pub async fn leave(self) {
        self.left().await;
    }

    pub(super) async fn left(&self) {
        let (answer, left) = oneshot::channel();
        self.link.say(Command::Leave(self.key, Some(answer)));
        // An error is a task that is gone, and has left as well.
        let _ = left.await;
    }

    pub(super) fn poll(
        &mut self,
        context: &Context<'_>,
    ) -> Poll<Option<Result<Delivered<T>, GroupFailure>>> {
        loop {
            match ready!(self.inbox.poll(context)) {
                Some(Ok(leased)) => {
                    let at = (self.key, &self.group);
                    if let Some(delivered) = Delivered::of(&self.link, at, leased) {
                        return Poll::Ready(Some(Ok(delivered)));
                    }
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
    }
}

impl<T: FromEvent> Stream for Subscription<T> {
    type Item = Result<Delivered<T>, GroupFailure>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll(context)
    }
}

impl<T> Drop for Subscription<T> {
    fn drop(&mut self) {
        self.link.say(Command::Leave(self.key, None));
    }
}

impl<T> fmt::Debug for Subscription<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("group", &self.group).finish_non_exhaustive()
    }
}
