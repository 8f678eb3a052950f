use std::fmt;
use std::time::Duration;

/// What becomes of an event that a handler could not handle. Any error makes one with `?`: then
/// the event is tried again, as often as the group says.
#[derive(Debug)]
pub struct Failure {
    verdict: FailureVerdict,
    error: String,
}

/// What is to be done with the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureVerdict {
    /// Again, after the group's backoff.
    Retry,
    /// Again, after a time.
    RetryAfter(Duration),
    /// A dead letter at once.
    Park,
    /// Done, without a dead letter.
    Skip,
}

impl Failure {
    /// Try again, after the group's backoff.
    pub fn retry(error: impl fmt::Display) -> Self {
        Self { verdict: FailureVerdict::Retry, error: error.to_string() }
    }

    /// Try again after a time.
    pub fn retry_after(delay: Duration, error: impl fmt::Display) -> Self {
        Self { verdict: FailureVerdict::RetryAfter(delay), error: error.to_string() }
    }

    /// Trying again is useless: a dead letter at once.
    pub fn park(error: impl fmt::Display) -> Self {
        Self { verdict: FailureVerdict::Park, error: error.to_string() }
    }

    /// The event is not wanted after all: done, without a dead letter.
    pub const fn skip() -> Self {
        Self { verdict: FailureVerdict::Skip, error: String::new() }
    }

    /// What is to be done with the event.
    pub const fn verdict(&self) -> FailureVerdict {
        self.verdict
    }

    /// What went wrong.
    pub fn error(&self) -> &str {
        &self.error
    }

    /// What went wrong, to keep.
    pub fn into_error(self) -> String {
        self.error
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            source = cause.source();
        }
        Self::retry(text)
    }
}
