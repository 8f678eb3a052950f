use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use promethean_delivery::dead_letter::fingerprint;
use promethean_delivery::{Ack, Token, Verdict};
use promethean_event::{Event, GroupName, Timestamp};

use super::failure::{Failure, FailureVerdict};
use crate::error::AckError;
use crate::member::{Answer, Leased, Seat};
use crate::typed::{DecodeError, FromEvent};

/// An event on lease. Dropped without a word, it is not acked: the lease runs out, and the event
/// comes again.
pub struct Delivered<T = Event> {
    leased: Leased,
    event: Event,
    payload: PhantomData<fn() -> T>,
}

impl<T: FromEvent> Delivered<T> {
    /// Decodes a delivery. One that makes no sense becomes a dead letter.
    pub(crate) fn of(leased: Leased) -> Option<Self> {
        match leased.event() {
            Some(event) => Some(Self { leased, event, payload: PhantomData }),
            None => {
                let failure = Failure::park("the stored event cannot be understood");
                drop(fail(leased.seat(), leased.token(), &failure));
                None
            }
        }
    }

    /// The event.
    pub const fn event(&self) -> &Event {
        &self.event
    }

    /// What happened, as the type of the topic.
    pub fn payload(&self) -> Result<T, DecodeError> {
        T::from_event(self.event())
    }

    /// The group it was delivered to.
    pub fn group(&self) -> &GroupName {
        self.leased.seat().group()
    }

    /// Which delivery of the event this is, counted from 1.
    pub const fn attempt(&self) -> u16 {
        self.leased.attempt()
    }

    /// Names this delivery, and no other.
    pub const fn token(&self) -> Token {
        self.leased.token()
    }

    /// When the store took the event.
    pub fn appended_at(&self) -> Timestamp {
        self.leased.appended_at()
    }

    /// A span for the work on it, with the names of OpenTelemetry's messaging conventions. Handlers
    /// run in one already.
    pub fn span(&self) -> tracing::Span {
        crate::spans::process(self.event(), self.group(), self.attempt())
    }

    /// It is done. Waits until that is durable.
    pub async fn ack(self) -> Result<(), AckError> {
        self.acked().all().await
    }

    /// It is done. Said at once; the answer may be waited for, or left alone.
    pub fn acked(self) -> Answer {
        self.leased.seat().ack(&[Ack::Token(self.leased.token())])
    }

    /// It could not be handled: again, after the group's backoff.
    pub async fn retry(self, error: impl fmt::Display) -> Result<(), AckError> {
        self.fail(&Failure::retry(error)).all().await
    }

    /// It could not be handled: again, after a time.
    pub async fn retry_after(
        self,
        delay: Duration,
        error: impl fmt::Display,
    ) -> Result<(), AckError> {
        self.fail(&Failure::retry_after(delay, error)).all().await
    }

    /// It will never be handled: a dead letter at once.
    pub async fn park(self, error: impl fmt::Display) -> Result<(), AckError> {
        self.fail(&Failure::park(error)).all().await
    }

    /// It is not wanted: done, without a dead letter.
    pub async fn skip(self) -> Result<(), AckError> {
        self.fail(&Failure::skip()).all().await
    }

    /// It takes longer: the lease ends so long from now, within the group's maximum.
    pub async fn extend(&self, time: Duration) -> Result<(), AckError> {
        let ms = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        self.leased.seat().extend(Ack::Token(self.leased.token()), ms).all().await
    }

    fn fail(&self, failure: &Failure) -> Answer {
        fail(self.leased.seat(), self.leased.token(), failure)
    }
}

/// Says what becomes of a delivery that failed.
pub(crate) fn fail(seat: &Seat, token: Token, failure: &Failure) -> Answer {
    let error = failure.error.as_bytes();
    let fingerprint = fingerprint(&failure.error);
    let verdict = match failure.verdict {
        FailureVerdict::Retry => Verdict::Retry { delay_ms: None, error, fingerprint },
        FailureVerdict::RetryAfter(delay) => {
            let delay_ms = Some(u32::try_from(delay.as_millis()).unwrap_or(u32::MAX));
            Verdict::Retry { delay_ms, error, fingerprint }
        }
        FailureVerdict::Park => Verdict::Park { error, fingerprint },
        FailureVerdict::Skip => Verdict::Skip,
    };
    seat.nack(Ack::Token(token), verdict)
}

impl<T> fmt::Debug for Delivered<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivered").field("token", &self.leased.token()).finish_non_exhaustive()
    }
}
