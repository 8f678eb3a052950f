use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::stream::SplitSink;
use futures_util::{Sink, SinkExt};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Message;

use super::WebSocket;
use super::outbox::Outbox;
use crate::clock::Clock;

/// Nothing can be written any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Broken;

/// Writes what is in an [`Outbox`] to its socket, in the task that reads from it: a task of its own
/// would have to be woken for every answer, and is woken for every read by the socket that they share.
/// What it has begun is kept here, so that nobody has to wait for its end.
#[derive(Debug)]
pub(super) struct Pen<S = SplitSink<WebSocket, Message>> {
    sink: S,
    clock: Clock,
    /// How long a client may take nothing.
    stalled: Duration,
    /// When it has to have taken something.
    until: Option<Instant>,
    /// Something was given to the socket that may not be on its way yet.
    is_behind: bool,
}

impl<S: Sink<Message> + Unpin> Pen<S> {
    pub(super) const fn new(sink: S, clock: Clock, stalled: Duration) -> Self {
        Self { sink, clock, stalled, until: None, is_behind: false }
    }

    /// Whether something has to be written.
    pub(super) fn is_wanted(&self, outbox: &Outbox) -> bool {
        self.is_behind || !outbox.is_empty()
    }

    /// When to give up, unless the client takes something before.
    pub(super) const fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Whether the client has taken nothing for too long.
    pub(super) fn is_stalled(&self) -> bool {
        self.until.is_some_and(|until| until <= self.clock.instant())
    }

    /// Writes as much as the client takes. Ready when something has changed: there is more room, all
    /// is on its way, or nothing can be written any more.
    pub(super) fn poll_write(
        &mut self,
        outbox: &Outbox,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Broken>> {
        let mut taken = false;
        match self.poll_all(outbox, &mut taken, context) {
            Poll::Pending if taken => {
                self.until = None;
                Poll::Ready(Ok(()))
            }
            Poll::Pending => {
                if self.until.is_none() {
                    self.until = Some(self.clock.instant() + self.stalled);
                }
                Poll::Pending
            }
            done => {
                self.until = None;
                done
            }
        }
    }

    fn poll_all(
        &mut self,
        outbox: &Outbox,
        taken: &mut bool,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Broken>> {
        while !outbox.is_empty() {
            ready!(self.sink.poll_ready_unpin(context)).map_err(|_| Broken)?;
            let Some(message) = outbox.take() else { break };
            (*taken, self.is_behind) = (true, true);
            self.sink.start_send_unpin(message).map_err(|_| Broken)?;
        }
        if self.is_behind {
            ready!(self.sink.poll_flush_unpin(context)).map_err(|_| Broken)?;
            self.is_behind = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes what the client takes at once, and waits for nothing.
    pub(super) async fn write_some(&mut self, outbox: &Outbox) -> Result<(), Broken> {
        poll_fn(|context| match self.poll_write(outbox, context) {
            Poll::Ready(written) => Poll::Ready(written),
            Poll::Pending => Poll::Ready(Ok(())),
        })
        .await
    }

    /// Writes all of it.
    pub(super) async fn write_out(&mut self, outbox: &Outbox) -> Result<(), Broken> {
        while self.is_wanted(outbox) {
            poll_fn(|context| self.poll_write(outbox, context)).await?;
        }
        Ok(())
    }
}
