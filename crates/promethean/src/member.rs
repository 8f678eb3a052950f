//! One connected consumer of a group, as close to delivery as it gets: what subscriptions and the
//! gateway stand on.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use promethean_delivery::{Ack, Input, MemberId, Run};
use promethean_event::{
    Event, EventId, Failure, GroupName, NewEvent, Offset, Payload, Timestamp, Topic,
};
use tokio::sync::{mpsc, oneshot};

use crate::decode::{DecodeError, WhyUnreadable};
use crate::dispatch::{ActiveGroup, GroupFailure, JoinRequest, MemberMessage, OutBatch, OutEvent};
use crate::error::AckError;
use crate::limits::UNKNOWN_VERSION_RETRY_MS;
use crate::metrics::GroupMeters;
use crate::store::Lane;
use crate::subscribe::fail;

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
    topic: Topic,
    /// The group gets these events as they were written.
    as_written: bool,
    seat: Seat,
}

/// One event of a batch. It is decoded when it is asked for.
#[derive(Debug, Clone)]
pub struct Leased {
    batch: Arc<BatchInner>,
    event: OutEvent,
}

impl Batch {
    /// The partition.
    pub fn lane(&self) -> Lane {
        self.inner.out.lane
    }

    /// The topic of all of them.
    pub fn topic(&self) -> &Topic {
        &self.inner.topic
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
        let event = self.inner.out.get(number)?;
        Some(Leased { batch: Arc::clone(&self.inner), event })
    }

    /// The events.
    pub fn events(&self) -> impl Iterator<Item = Leased> {
        let events = self.inner.out.events();
        events.map(|event| Leased { batch: Arc::clone(&self.inner), event })
    }

    /// The events, from the first to the last.
    pub fn into_events(self) -> impl Iterator<Item = Leased> {
        (0..self.len()).filter_map(move |number| self.get(number))
    }

    /// Whether the group gets them as they were written, and all can be read for sure.
    pub(crate) fn is_sound(&self) -> bool {
        self.inner.as_written && self.inner.out.are_sound()
    }

    /// What was delivered.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Run> {
        self.inner.out.runs()
    }
}

impl Leased {
    /// The event in the form that the group reads; `None` if it cannot be brought to it:
    /// [`decoded`](Self::decoded) says why.
    pub fn event(&self) -> Option<Event> {
        self.decoded().ok()
    }

    /// The event in the form that the group reads, or why it cannot be brought to it. Then trying
    /// again is useless: [`give_up`](Self::give_up).
    pub fn decoded(&self) -> Result<Event, DecodeError> {
        self.decoded_as(None)
    }

    /// The same for a type of a version.
    pub(crate) fn decoded_as(&self, version: Option<u32>) -> Result<Event, DecodeError> {
        let group = &self.batch.seat.group;
        let Some(event) = self.stored() else {
            return Err(DecodeError { event: None, reason: WhyUnreadable::Senseless });
        };
        let want = group.reads_as.of(&event.topic, version);
        group.site.schemas.decode(event, want)
    }

    /// Whether the group gets it as it was written, and it can be read for sure.
    pub(crate) fn is_sound(&self) -> bool {
        self.batch.as_written && self.batch.out.is_sound(self.event)
    }

    /// The event as it was written, if it is sound.
    pub(crate) fn written(&self) -> Event {
        self.stored().unwrap_or_else(|| {
            // Not reached: what is sound can be read. It would be an event that says nothing.
            let (id, ts) = (EventId::from_bytes([0; 16]), self.appended_at());
            let event = NewEvent::new(id, ts, self.batch.topic.clone(), Payload::null());
            let lane = self.batch.out.lane;
            event.placed(lane.partition, Offset::new(self.event.token.offset))
        })
    }

    /// Its payload alone, as it was written.
    pub(crate) fn payload(&self) -> Option<Payload> {
        let (page, index) = self.batch.out.place(self.event)?;
        page.payload(index)
    }

    /// The event as it was written; `None` if it was stored by a faulty program and makes no
    /// sense.
    pub fn stored(&self) -> Option<Event> {
        let (page, index) = self.batch.out.place(self.event)?;
        page.event(index)
    }

    /// Makes a dead letter of an event that cannot be read, at once. Only what may be registered
    /// elsewhere by now gets a second chance.
    pub fn give_up(&self, error: &DecodeError) {
        let unknown = matches!(error.reason, WhyUnreadable::UnknownVersion(_));
        let failure = if unknown && self.attempt() == 1 {
            let group = &self.batch.seat.group;
            let schemas = Arc::clone(&group.site.schemas);
            group.site.runtime.spawn(async move {
                if let Err(error) = schemas.refresh().await {
                    tracing::warn!(%error, "the schemas could not be read");
                }
            });
            Failure::retry_after(Duration::from_millis(UNKNOWN_VERSION_RETRY_MS), error)
        } else {
            Failure::park(error)
        };
        drop(fail(self.seat(), self.token(), &failure));
    }

    /// When the store took it.
    pub fn appended_at(&self) -> Timestamp {
        let appended_at = self.batch.out.appended_at(self.event);
        appended_at.unwrap_or(Timestamp::from_millis(0))
    }

    /// Names this delivery, and no other.
    pub const fn token(&self) -> Token {
        self.event.token
    }

    /// Which delivery of the event this is, counted from 1.
    pub const fn attempt(&self) -> u16 {
        self.event.token.attempt
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
            MemberMessage::Events(out, topic) => {
                let (group, seat) = (&self.seat.group, self.seat.clone());
                let want = group.reads_as.of(&topic, None);
                let as_written = group.site.schemas.leaves(&topic, want);
                let inner = BatchInner { out, topic, as_written, seat };
                Told::Events(Batch { inner: Arc::new(inner) })
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
        let asked = self.group.ask_about(|request, step| {
            step(Input::Extend { member, request, target, lease_ms });
        });
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

    /// Whether deliveries and acks may fail on purpose. For tests.
    pub(crate) fn is_faulty(&self) -> bool {
        self.group.site.faults.is_some()
    }

    /// Whether the next delivery is to fail, and what it says. For tests.
    pub(crate) fn planned_failure(&self) -> Option<Failure> {
        let faults = self.group.site.faults.as_ref()?;
        faults.failure(&self.group.name).map(Failure::retry)
    }

    /// Whether the next ack is to get lost. For tests.
    pub(crate) fn loses_ack(&self) -> bool {
        self.group.site.faults.as_ref().is_some_and(|faults| faults.loses_ack(&self.group.name))
    }

    pub(crate) fn meters(&self) -> &GroupMeters {
        &self.group.meters
    }

    fn answer(&self, asked: oneshot::Receiver<Reply>) -> Answer {
        Answer { group: Arc::clone(&self.group), asked, is_awaited: false }
    }
}

/// The answer to an ack, nack or extension, once it is durable. What was asked for has been done,
/// whether one waits for the answer or not.
#[derive(Debug)]
pub struct Answer {
    group: Arc<ActiveGroup>,
    asked: oneshot::Receiver<Reply>,
    /// Somebody waits for it.
    is_awaited: bool,
}

impl Future for Answer {
    /// How many events were changed, and what was not, with reasons.
    type Output = Result<Reply, AckError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = Pin::new(&mut self.asked).poll(context);
        if polled.is_pending() && !std::mem::replace(&mut self.is_awaited, true) {
            self.group.hurry();
        }
        let reply = ready!(polled);
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
