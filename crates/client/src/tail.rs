//! Topics, followed without a group: nothing is kept on the server, nothing is acked.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use promethean_event::frame::SubscribeOpts;
use promethean_event::{Event, Pattern, Start};

use crate::bus::{Bus, Handle};
use crate::error::GroupError;
use crate::inbox::Inbox;
use crate::limits::{IN_FLIGHT_MAX, LEASE_MS, PREFETCH};
use crate::link::{Command, Feed};
use crate::machine::{Gap, SubKey, SubscribeWish};
use crate::subscribe::{Reads, begin};

/// What a tail has to say.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Tailed {
    /// An event.
    Event(Box<Event>),
    /// Events that this tail will never get, and why.
    Missing(Gap),
    /// The connection was lost, and the tail goes on where it was.
    Resumed {
        /// Whether nothing is missing; otherwise it is named next.
        recovered: bool,
    },
}

/// A tail that is being described. Ends with [`stream`](Self::stream).
#[derive(Debug, Clone)]
#[must_use = "nothing is followed unless this ends with `stream`"]
pub struct TailWish {
    bus: Bus,
    topics: Vec<Pattern>,
    opts: SubscribeOpts,
    prefetch: u32,
    error: Option<GroupError>,
}

impl Bus {
    /// Follows topics and patterns without a group.
    pub fn tail<'a>(&self, topics: impl IntoIterator<Item = &'a str>) -> TailWish {
        let mut error = None;
        let mut patterns = Vec::new();
        for topic in topics {
            match Pattern::new(topic) {
                Ok(pattern) => patterns.push(pattern),
                Err(refused) => error = error.or(Some(refused.into())),
            }
        }
        let (bus, opts) = (self.clone(), SubscribeOpts::default());
        TailWish { bus, topics: patterns, opts, prefetch: PREFETCH, error }
    }
}

impl TailWish {
    /// Where to begin. Default: with what is published from now on.
    pub fn from(mut self, start: Start) -> Self {
        begin(&mut self.opts, start);
        self
    }

    /// In all that can be said on the wire.
    pub(crate) fn with(mut self, opts: SubscribeOpts) -> Self {
        self.opts = opts;
        self
    }

    /// Only events of which a CEL expression is true, such as `payload.cpu_pct > 90`.
    pub fn filter_by(mut self, expression: &str) -> Self {
        self.opts.filter = Some(expression.to_owned());
        self
    }

    /// In which form events come. Default: as they were written.
    pub const fn reads(mut self, reads: Reads) -> Self {
        self.opts.reads = Some(reads.form());
        self
    }

    /// Events that may wait here to be taken. Default: 256, and 1,000 at most.
    pub const fn prefetch(mut self, events: u32) -> Self {
        self.prefetch = events;
        self
    }

    /// Follows. What is published from then on comes.
    pub async fn stream(self) -> Result<Tail, GroupError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let wish = SubscribeWish {
            topics: self.topics,
            group: None,
            opts: self.opts,
            prefetch: self.prefetch.clamp(1, IN_FLIGHT_MAX),
            lease_ms: LEASE_MS,
            processing_ms: 0,
        };
        let link = self.bus.inner.link.clone();
        let inbox = Arc::new(Inbox::new());
        let key = link.subscribe(wish, Feed::Tail(Arc::clone(&inbox))).await?;
        Ok(Tail { link, key, inbox })
    }
}

/// Events as they come, over all connections. It knows how far it is in each partition, and goes on
/// from there after a lost connection, or says what is missing.
pub struct Tail {
    link: Handle,
    key: SubKey,
    inbox: Arc<Inbox<Tailed>>,
}

impl Tail {
    /// What comes next; `None` once the bus is closed.
    pub async fn next(&mut self) -> Option<Result<Tailed, GroupError>> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &Context<'_>) -> Poll<Option<Result<Tailed, GroupError>>> {
        let next = ready!(self.inbox.poll(context));
        if let Some(Ok(Tailed::Event(_))) = &next {
            self.link.say(Command::Taken(self.key));
        }
        Poll::Ready(next)
    }
}

impl Stream for Tail {
    type Item = Result<Tailed, GroupError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll(context)
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.link.say(Command::Leave(self.key, None));
    }
}

impl fmt::Debug for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tail").field("key", &self.key).finish_non_exhaustive()
    }
}
