use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use promethean_event::frame::DeliveryToken;
use promethean_event::{Event, Failure, FromEvent, GroupName, NotOfType, Payload};
use tokio::sync::oneshot;

use crate::bus::Handle;
use crate::error::AckError;
use crate::lease::LeaseCell;
use crate::link::{Command, Leased};
use crate::machine::{DeliveryReply, Reply, SubKey};

/// An event on lease. The lease is renewed while this is there, within the bound of the
/// subscription. Dropped without a word, it is not acked: the lease runs out, and the event comes
/// again.
pub struct Delivered<T = Event> {
    event: Event,
    attempt: u16,
    max_attempts: u16,
    claim: Claim,
    /// What was read of it already; taken by the first who asks.
    payload: Mutex<Option<Box<T>>>,
    /// A handler's: whoever runs it answers.
    is_handled: bool,
}

/// What answers a delivery.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    pub(super) link: Handle,
    pub(super) key: SubKey,
    pub(super) group: GroupName,
    pub(super) token: DeliveryToken,
    pub(super) generation: u64,
    pub(super) cell: Arc<LeaseCell>,
}

impl Claim {
    fn say(&self, reply: Reply, answer: Option<oneshot::Sender<Result<(), AckError>>>) {
        let reply = DeliveryReply {
            key: self.key,
            token: self.token,
            generation: self.generation,
            reply,
            ticket: None,
        };
        self.link.say(Command::Reply(reply, answer));
    }

    /// Says it, and nobody waits to hear of it.
    pub(super) fn quietly(&self, reply: Reply) {
        self.say(reply, None);
    }

    fn ask(&self, reply: Reply) -> Answer {
        let (answer, answered) = oneshot::channel();
        self.say(reply, Some(answer));
        Answer { answered }
    }
}

/// The answer to an ack, nack or extension, once it is durable. What was asked for is on its way,
/// whether one waits for the answer or not.
#[derive(Debug)]
pub struct Answer {
    answered: oneshot::Receiver<Result<(), AckError>>,
}

impl Future for Answer {
    type Output = Result<(), AckError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answered = Pin::new(&mut self.answered).poll(context);
        answered.map(|answered| answered.unwrap_or(Err(AckError::Indeterminate)))
    }
}

impl Answer {
    /// Waits; an error if it was refused.
    pub async fn all(self) -> Result<(), AckError> {
        self.await
    }
}

impl<T: FromEvent> Delivered<T> {
    /// Reads a delivery. One that cannot be read becomes a dead letter: trying again would change
    /// nothing.
    pub(super) fn of(link: &Handle, at: (SubKey, &GroupName), leased: Leased) -> Option<Self> {
        let Leased { item, token, generation, cell } = leased;
        let (key, group) = (at.0, at.1.clone());
        let claim = Claim { link: link.clone(), key, group, token, generation, cell };
        if claim.cell.is_lost() {
            return None;
        }
        let read = T::version().map(|_| T::from_event(&item.event)).transpose();
        match read {
            Ok(payload) => {
                claim.quietly(Reply::Begin);
                Some(Self {
                    event: item.event,
                    attempt: item.ctx.attempt,
                    max_attempts: item.ctx.max_attempts,
                    claim,
                    payload: Mutex::new(payload.map(Box::new)),
                    is_handled: false,
                })
            }
            Err(error) => {
                claim.quietly(Reply::Nack(Failure::park(error)));
                None
            }
        }
    }

    /// Leaves the answer to whoever runs the handler.
    pub(super) fn handled(mut self) -> (Self, Claim) {
        self.is_handled = true;
        let claim = self.claim.clone();
        (self, claim)
    }

    /// The event.
    pub const fn event(&self) -> &Event {
        &self.event
    }

    /// The JSON of what happened, without the rest of the event.
    pub fn json(&self) -> Payload {
        self.event.payload.clone()
    }

    /// What happened, as the type of the topic.
    pub fn payload(&self) -> Result<T, NotOfType> {
        let read = self.payload.lock().unwrap_or_else(PoisonError::into_inner).take();
        read.map_or_else(|| T::from_event(&self.event), |read| Ok(*read))
    }

    /// The group it was delivered to.
    pub const fn group(&self) -> &GroupName {
        &self.claim.group
    }

    /// Which delivery of the event this is, counted from 1.
    pub const fn attempt(&self) -> u16 {
        self.attempt
    }

    /// How many deliveries there will be at most.
    pub const fn max_attempts(&self) -> u16 {
        self.max_attempts
    }

    /// Names this delivery, and no other.
    pub const fn token(&self) -> DeliveryToken {
        self.claim.token
    }

    /// Whether the event goes, or has gone, to another.
    pub fn is_lost(&self) -> bool {
        self.claim.cell.is_lost()
    }

    /// Waits until the event goes to another: the lease has ended, or the connection.
    pub async fn lost(&self) {
        self.claim.cell.lost().await;
    }

    /// It is done. Waits until that is durable.
    pub async fn ack(self) -> Result<(), AckError> {
        self.acked().await
    }

    /// It is done. Said at once; the answer may be waited for, or left alone.
    pub fn acked(self) -> Answer {
        self.answer(Reply::Ack)
    }

    /// It could not be handled: again, after the group's backoff.
    pub async fn retry(self, error: impl fmt::Display) -> Result<(), AckError> {
        self.answer(Reply::Nack(Failure::retry(error))).await
    }

    /// It could not be handled: again, after a time.
    pub async fn retry_after(
        self,
        delay: Duration,
        error: impl fmt::Display,
    ) -> Result<(), AckError> {
        self.answer(Reply::Nack(Failure::retry_after(delay, error))).await
    }

    /// It will never be handled: a dead letter at once.
    pub async fn park(self, error: impl fmt::Display) -> Result<(), AckError> {
        self.answer(Reply::Nack(Failure::park(error))).await
    }

    /// It is not wanted: done, without a dead letter.
    pub async fn skip(self) -> Result<(), AckError> {
        self.answer(Reply::Nack(Failure::skip())).await
    }

    /// It takes longer: the lease ends so long from now, within the group's maximum.
    pub async fn extend(&self, time: Duration) -> Result<(), AckError> {
        let ms = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        self.claim.ask(Reply::Extend(ms)).await
    }

    fn answer(mut self, reply: Reply) -> Answer {
        // Nothing is left to be said when this is dropped.
        self.is_handled = true;
        self.claim.ask(reply)
    }
}

impl<T> Drop for Delivered<T> {
    fn drop(&mut self) {
        if !self.is_handled && !self.claim.cell.is_lost() {
            self.claim.quietly(Reply::Drop);
        }
    }
}

impl<T> fmt::Debug for Delivered<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivered").field("token", &self.claim.token).finish_non_exhaustive()
    }
}
