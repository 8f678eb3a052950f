use std::collections::VecDeque;
use std::future::poll_fn;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::command::Stored;
use crate::limits::{PIPELINE_BYTES_MAX, PIPELINE_MAX};

/// Requests that are under way, and are answered in the order in which they came.
///
/// Those that came together are one future. Each was polled once before it came here, which has
/// handed it to the store. From then on only the first one is: the store answers in order too, so
/// that one waker does for all of them. One that has more to do than that is [the
/// last](Pipeline::close) for as long as it takes.
#[derive(Default)]
pub(crate) struct Pipeline {
    under_way: VecDeque<UnderWay>,
    requests: usize,
    bytes: usize,
    /// The last one has to be answered before another one is taken.
    is_alone: bool,
}

struct UnderWay {
    requests: usize,
    /// About what they take.
    bytes: usize,
    /// When they are answered, whether the store has or not.
    until: Instant,
    done: BoxFuture<'static, Stored>,
}

impl Pipeline {
    /// Adds requests that were polled.
    pub(crate) fn push(
        &mut self,
        (requests, bytes): (usize, usize),
        until: Instant,
        done: BoxFuture<'static, Stored>,
    ) {
        self.requests += requests;
        self.bytes += bytes;
        self.under_way.push_back(UnderWay { requests, bytes, until, done });
    }

    /// Has those that were added last answered before more is read.
    pub(crate) fn close(&mut self) {
        self.is_alone = !self.under_way.is_empty();
    }

    /// Whether more may be read: neither so many nor such large ones are under way.
    pub(super) const fn has_room(&self) -> bool {
        self.requests < PIPELINE_MAX && self.bytes < PIPELINE_BYTES_MAX && !self.is_alone
    }

    /// When the first ones are to be looked at again, whether the store has answered or not: they
    /// know themselves that it is too late then.
    pub(super) fn until(&self) -> Option<Instant> {
        self.under_way.front().map(|first| first.until)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Waits for the outcome of the first ones; for ever if there are none. Nothing is lost if this
    /// is dropped.
    pub(super) async fn next(&mut self) -> Stored {
        let Some(first) = self.under_way.front_mut() else {
            return std::future::pending().await;
        };
        let done = poll_fn(|context| first.done.poll_unpin(context)).await;
        self.pop();
        done
    }

    /// The outcome of the first ones, if it is there.
    pub(super) fn ready(&mut self) -> Option<Stored> {
        let done = (&mut self.under_way.front_mut()?.done).now_or_never()?;
        self.pop();
        Some(done)
    }

    fn pop(&mut self) {
        if let Some(first) = self.under_way.pop_front() {
            self.requests -= first.requests;
            self.bytes -= first.bytes;
        }
        self.is_alone &= !self.under_way.is_empty();
    }
}
