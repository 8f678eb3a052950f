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
use crate::member::{Batch, Leased, Member, Seat, Told};

/// Deliveries, as they come. Dropping it leaves the group: what was not acked goes to others at
/// once.
pub struct Subscription<T = Event> {
    member: Member,
    /// Events that are taken together, at most.
    batch_size: usize,
    /// What came behind the last batch and did not fit in.
    behind: Option<Batch>,
    waiting: VecDeque<Leased>,
    payload: PhantomData<fn() -> T>,
}

impl<T: FromEvent> Subscription<T> {
    pub(crate) const fn new(member: Member, batch_size: u32) -> Self {
        let batch_size = batch_size as usize;
        Self { member, batch_size, behind: None, waiting: VecDeque::new(), payload: PhantomData }
    }

    /// The next delivery; `None` once the bus is closed.
    pub async fn next(&mut self) -> Option<Result<Delivered<T>, GroupFailure>> {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    /// The next deliveries that came together, at most the subscription's `batch_size`; `None` once
    /// the bus is closed. For those who work on many at once, and faster than a handler.
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
            let behind = self.behind.take().map(Told::Events);
            let told = match behind {
                Some(told) => Some(told),
                None => ready!(self.member.poll_next(context)),
            };
            match told {
                Some(Told::Events(batch)) => {
                    let batch = self.gathered(batch, seat);
                    if !batch.is_empty() {
                        return Poll::Ready(Some(Ok(batch)));
                    }
                }
                Some(_) => {}
                None => return Poll::Ready(self.member.failure().map(Err)),
            }
        }
    }

    /// A batch with what is there already of those behind it. What is acked together makes room
    /// for as much: small batches would otherwise never become large again.
    fn gathered(&mut self, first: Batch, seat: Seat) -> DeliveredBatch<T> {
        let (lane, mut events) = (first.lane(), first.len());
        let mut batch = DeliveredBatch::of(first, seat);
        while events < self.batch_size
            && let Some(told) = self.member.try_next()
        {
            let Told::Events(more) = told else {
                continue;
            };
            events += more.len();
            if more.lane() != lane || events > self.batch_size {
                self.behind = Some(more);
                break;
            }
            batch.add(more);
        }
        batch
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
            if let Some(batch) = self.behind.take() {
                self.waiting.extend(batch.events());
                continue;
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
