use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use promethean_delivery::dead_letter::fingerprint;
use promethean_delivery::{Ack, Token, Verdict};
use promethean_event::{Event, Failure, FailureVerdict, FromEvent, GroupName, Payload, Timestamp};

use crate::decode::DecodeError;
use crate::error::AckError;
use crate::member::{Answer, Leased, Seat};

/// An event on lease. Dropped without a word, it is not acked: the lease runs out, and the event
/// comes again.
pub struct Delivered<T = Event> {
    leased: Leased,
    /// Decoded when somebody asks for it, if that cannot fail; else before it is handed over.
    event: OnceLock<Box<Event>>,
    /// What was read of it already; taken by the first who asks.
    payload: Mutex<Option<Box<T>>>,
}

impl<T: FromEvent> Delivered<T> {
    /// A delivery that can be read for sure, when somebody asks for it.
    pub(super) const fn unread(leased: Leased) -> Self {
        Self { leased, event: OnceLock::new(), payload: Mutex::new(None) }
    }

    /// Decodes a delivery. One that cannot be read becomes a dead letter: trying again would
    /// change nothing.
    pub(crate) fn of(leased: Leased) -> Option<Self> {
        if let Some(failure) = leased.seat().planned_failure() {
            drop(fail(leased.seat(), leased.token(), &failure));
            return None;
        }
        if T::version().is_none() && leased.is_sound() {
            return Some(Self::unread(leased));
        }
        let read = leased.decoded_as(T::version()).and_then(|event| {
            let payload = T::version().map(|_| T::from_event(&event)).transpose()?;
            Ok((Box::new(event), payload.map(Box::new)))
        });
        match read {
            Ok((event, payload)) => {
                Some(Self { leased, event: event.into(), payload: Mutex::new(payload) })
            }
            Err(error) => {
                leased.give_up(&error);
                None
            }
        }
    }

    /// The event.
    pub fn event(&self) -> &Event {
        self.event.get_or_init(|| Box::new(self.leased.written()))
    }

    /// The JSON of what happened, without the rest of the event.
    pub fn json(&self) -> Payload {
        match self.event.get() {
            Some(event) => event.payload.clone(),
            None => self.leased.payload().unwrap_or_else(|| self.event().payload.clone()),
        }
    }

    /// What happened, as the type of the topic.
    pub fn payload(&self) -> Result<T, DecodeError> {
        let read = self.payload.lock().unwrap_or_else(PoisonError::into_inner).take();
        read.map_or_else(|| Ok(T::from_event(self.event())?), |read| Ok(*read))
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
        if !crate::spans::are_made() {
            return tracing::Span::none();
        }
        crate::spans::process(self.event(), self.group(), self.attempt())
    }

    /// It is done. Waits until that is durable.
    pub async fn ack(self) -> Result<(), AckError> {
        self.acked().all().await
    }

    /// It is done. Said at once; the answer may be waited for, or left alone.
    pub fn acked(self) -> Answer {
        if self.leased.seat().loses_ack() {
            return self.fail(&lost_ack());
        }
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

/// What happens instead of an ack that is to get lost.
pub(crate) fn lost_ack() -> Failure {
    Failure::retry_after(Duration::ZERO, "the ack was lost on purpose")
}

/// Says what becomes of a delivery that failed.
pub(crate) fn fail(seat: &Seat, token: Token, failure: &Failure) -> Answer {
    let error = failure.error().as_bytes();
    let fingerprint = fingerprint(failure.error());
    let verdict = match failure.verdict() {
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
