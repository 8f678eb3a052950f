//! One connected consumer of a group, as close to delivery as it gets: what subscriptions and the
//! gateway stand on.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use promethean_delivery::{Ack, Input, MemberId};
use promethean_event::{Event, GroupName, Timestamp};
use tokio::sync::{mpsc, oneshot};

use crate::dispatch::{ActiveGroup, GroupFailure, JoinRequest, MemberMessage, OutBatch};
use crate::error::AckError;
use crate::metrics::GroupMeters;
use crate::store::Lane;

pub use promethean_delivery::dead_letter::fingerprint;
pub use promethean_delivery::{
    Ack as AckTarget, LaneId, MemberOptions, Refusal, Refused, Reply, Span, Token, Verdict,
};

/// A member of a group. Dropping it gives back what it has.
pub struct Member {
    seat: Seat,
    messages: mpsc::Receiver<MemberMessage>,
}

/// What answers deliveries: can outlive the stream of them, not the member.
#[derive(Clone)]
pub struct Seat {
    group: Arc<ActiveGroup>,
    member: MemberId,
}

/// What a member is told.
#[derive(Debug)]
#[non_exhaustive]
pub enum Told {
    /// Events to work on.
    Events(Batch),
    /// A partition is the member's now (`partitioned` groups).
    Assigned(Lane),
    /// A partition goes to another: finish what is out, nothing more will come.
    Revoked(Lane),
}

/// Events of one partition, on lease.
#[derive(Debug, Clone)]
pub struct Batch {
    inner: Arc<BatchInner>,
}

#[derive(Debug)]
struct BatchInner {
    out: OutBatch,
    seat: Seat,
}

/// One event of a batch. It is decoded when it is asked for.
#[derive(Debug, Clone)]
pub struct Leased {
    batch: Arc<BatchInner>,
    number: usize,
    token: Token,
}

impl Batch {
    /// The partition.
    pub fn lane(&self) -> Lane {
        self.inner.out.lane
    }

    /// The epoch, for acks of ranges.
    pub fn epoch(&self) -> u32 {
        self.inner.out.epoch
    }

    /// When the leases end, in epoch milliseconds of the bus's clock.
    pub fn deadline_ms(&self) -> u64 {
        self.inner.out.deadline_ms
    }

    /// How many events.
    pub fn len(&self) -> usize {
        self.inner.out.len()
    }

    /// Never, for a batch that was told.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One of the events.
    pub fn get(&self, number: usize) -> Option<Leased> {
        let token = self.inner.out.token(number)?;
        Some(Leased { batch: Arc::clone(&self.inner), number, token })
    }

    /// The events.
    pub fn into_events(self) -> impl ExactSizeIterator<Item = Leased> {
        (0..self.len()).map(move |number| Leased {
            batch: Arc::clone(&self.inner),
            number,
            // A number below the length has a token.
            token: self.inner.out.token(number).unwrap_or(NO_TOKEN),
        })
    }
}

const NO_TOKEN: Token =
    Token { lane: promethean_delivery::LaneId::new(0), offset: 0, epoch: 0, attempt: 0, round: 0 };

impl Leased {
    /// The event, decoded; `None` if it was stored by a faulty program and makes no sense.
    pub fn event(&self) -> Option<Event> {
        let (page, index) = self.batch.out.place(self.number)?;
        page.event(index)
    }

    /// When the store took it.
    pub fn appended_at(&self) -> Timestamp {
        let place = self.batch.out.place(self.number);
        let at = place.and_then(|(page, index)| page.appended_at(index));
        at.unwrap_or(Timestamp::from_millis(0))
    }

    /// Names this delivery, and no other.
    pub const fn token(&self) -> Token {
        self.token
    }

    /// Which delivery of the event this is, counted from 1.
    pub const fn attempt(&self) -> u16 {
        self.token.attempt
    }

    /// When the lease ends, in epoch milliseconds of the bus's clock.
    pub fn deadline_ms(&self) -> u64 {
        self.batch.out.deadline_ms
    }

    /// What answers it.
    pub fn seat(&self) -> &Seat {
        &self.batch.seat
    }
}

impl Member {
    pub(crate) fn join(
        group: Arc<ActiveGroup>,
        options: MemberOptions,
    ) -> Result<Self, GroupFailure> {
        let (member, messages) = group.join(JoinRequest { options })?;
        Ok(Self { seat: Seat { group, member }, messages })
    }

    /// What comes next; `None` when the member was expelled or the group has stopped.
    pub async fn next(&mut self) -> Option<Told> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// The same, to be polled.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Told>> {
        let message = ready!(self.messages.poll_recv(context));
        Poll::Ready(message.map(|message| self.told(message)))
    }

    /// What is there already.
    pub fn try_next(&mut self) -> Option<Told> {
        let message = self.messages.try_recv().ok()?;
        Some(self.told(message))
    }

    fn told(&self, message: MemberMessage) -> Told {
        match message {
            MemberMessage::Events(out) => {
                Told::Events(Batch { inner: Arc::new(BatchInner { out, seat: self.seat.clone() }) })
            }
            MemberMessage::Assigned(lane) => Told::Assigned(lane),
            MemberMessage::Revoked(lane) => Told::Revoked(lane),
        }
    }

    /// What answers deliveries.
    pub const fn seat(&self) -> &Seat {
        &self.seat
    }

    /// Why the group has stopped by itself, if it has; a bus that was closed is no reason.
    pub fn failure(&self) -> Option<GroupFailure> {
        self.seat.group.fault()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.seat.group.leave(self.seat.member);
    }
}

impl Seat {
    /// The group.
    pub fn group(&self) -> &GroupName {
        &self.group.name
    }

    /// Events are done. The ack has been made when this returns; the answer comes once it is
    /// durable, and may be left alone.
    pub fn ack(&self, items: &[Ack]) -> Answer {
        let member = self.member;
        let asked = self.group.ask_about(|request, step| {
            step(Input::Ack { member, request, items });
        });
        self.answer(asked)
    }

    /// Events are done, and nobody waits to hear of it.
    pub(crate) fn ack_quietly(&self, items: Vec<Ack>) {
        self.group.post(self.member, items);
    }

    /// An event could not be handled.
    pub fn nack(&self, target: Ack, verdict: Verdict<'_>) -> Answer {
        let member = self.member;
        let asked = self.group.ask_about(|request, step| {
            step(Input::Nack { member, request, target, verdict });
        });
        self.answer(asked)
    }

    /// The lease is to end so long from now.
    pub fn extend(&self, target: Ack, lease_ms: u32) -> Answer {
        let member = self.member;
        let asked = self.group.ask(|request| Input::Extend { member, request, target, lease_ms });
        self.answer(asked)
    }

    /// The member can take more.
    pub fn credit(&self, events: u32) {
        self.group.step(Input::Credit { member: self.member, events });
    }

    /// Nothing new, until resumed.
    pub fn pause(&self) {
        self.group.step(Input::MemberPaused { member: self.member });
    }

    /// New events again.
    pub fn resume(&self) {
        self.group.step(Input::MemberResumed { member: self.member });
    }

    pub(crate) fn meters(&self) -> &GroupMeters {
        &self.group.meters
    }

    fn answer(&self, asked: oneshot::Receiver<Reply>) -> Answer {
        Answer { group: Arc::clone(&self.group), asked }
    }
}

/// The answer to an ack, nack or extension, once it is durable. What was asked for has been done,
/// whether one waits for the answer or not.
#[derive(Debug)]
pub struct Answer {
    group: Arc<ActiveGroup>,
    asked: oneshot::Receiver<Reply>,
}

impl Future for Answer {
    /// How many events were changed, and what was not, with reasons.
    type Output = Result<Reply, AckError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let reply = ready!(Pin::new(&mut self.asked).poll(context));
        Poll::Ready(reply.map_err(|_| match self.group.failure() {
            Some(failure) => AckError::Failed(failure),
            None => AckError::Unknown,
        }))
    }
}

impl Answer {
    /// Waits; an error if anything was refused.
    pub async fn all(self) -> Result<(), AckError> {
        let reply = self.await?;
        match reply.refused.first() {
            Some(refused) => Err(refused.why.into()),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.seat.fmt(f)
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member")
            .field("group", &self.group.name)
            .field("member", &self.member.get())
            .finish()
    }
}
