use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use promethean_event::{Event, FromEvent};

use super::batch::DeliveredBatch;
use super::delivered::Delivered;
use crate::dispatch::GroupFailure;
use crate::member::{Leased, Member, Seat, Told};

/// Deliveries, as they come. Dropping it leaves the group: what was not acked goes to others at
/// once.
pub struct Subscription<T = Event> {
    member: Member,
    waiting: VecDeque<Leased>,
    payload: PhantomData<fn() -> T>,
}

impl<T: FromEvent> Subscription<T> {
    pub(crate) const fn new(member: Member) -> Self {
        Self { member, waiting: VecDeque::new(), payload: PhantomData }
    }

    /// The next delivery; `None` once the bus is closed.
    pub async fn next(&mut self) -> Option<Result<Delivered<T>, GroupFailure>> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    /// The next deliveries that came together, at most the subscription's `batch_size`; `None` once
    /// the bus is closed. For those who work on many at once; it is no faster than a handler.
    pub async fn next_batch(&mut self) -> Option<Result<DeliveredBatch<T>, GroupFailure>> {
        std::future::poll_fn(|context| self.poll_batch(context)).await
    }

    /// What answers deliveries, pauses and resumes.
    pub const fn seat(&self) -> &Seat {
        self.member.seat()
    }

    fn poll_batch(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<DeliveredBatch<T>, GroupFailure>>> {
        loop {
            let begun: Vec<_> = self.waiting.drain(..).filter_map(Delivered::of).collect();
            let seat = self.member.seat().clone();
            if !begun.is_empty() {
                return Poll::Ready(Some(Ok(DeliveredBatch::new(begun, seat))));
            }
            match ready!(self.member.poll_next(context)) {
                Some(Told::Events(batch)) => {
                    let batch = DeliveredBatch::of(batch, seat);
                    if !batch.is_empty() {
                        return Poll::Ready(Some(Ok(batch)));
                    }
                }
                Some(_) => {}
                None => return Poll::Ready(self.member.failure().map(Err)),
            }
        }
    }

    fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Delivered<T>, GroupFailure>>> {
        loop {
            while let Some(leased) = self.waiting.pop_front() {
                if let Some(delivered) = Delivered::of(leased) {
                    return Poll::Ready(Some(Ok(delivered)));
                }
            }
            match ready!(self.member.poll_next(context)) {
                Some(Told::Events(batch)) => self.waiting.extend(batch.events()),
                Some(_) => {}
                None => return Poll::Ready(self.member.failure().map(Err)),
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

impl<T> fmt::Debug for Subscription<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("member", &self.member).finish_non_exhaustive()
    }
}
