use std::collections::VecDeque;
use std::future::poll_fn;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::Done;

/// Requests that are under way, and are answered in the order in which they came.
///
/// Each was polled once before it came here, which has handed it to the store. From then on only the
/// first one is: the store answers in order too, so that one waker does for all of them.
#[derive(Default)]
pub(crate) struct Pipeline(VecDeque<BoxFuture<'static, Done>>);

impl Pipeline {
    /// Adds a request that was polled.
    pub(crate) fn push(&mut self, under_way: BoxFuture<'static, Done>) {
        self.0.push_back(under_way);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits for the outcome of the first one; for ever if there is none. Nothing is lost if this is
    /// dropped.
    pub(super) async fn next(&mut self) -> Done {
        let Some(first) = self.0.front_mut() else {
            return std::future::pending().await;
        };
        let done = poll_fn(|context| first.poll_unpin(context)).await;
        self.0.pop_front();
        done
    }

    /// The outcome of the first one, if it is there.
    pub(super) fn ready(&mut self) -> Option<Done> {
        let done = self.0.front_mut()?.now_or_never()?;
        self.0.pop_front();
        Some(done)
    }
}
