use std::time::Duration;

use super::backoff::Backoff;
use super::error::OptionsError;
use super::limits::{BATCH_ROWS_MAX, HOLD_MAX, LEASE_MIN};

/// How a drainer works. Drainers of one outbox should agree on `after_dead`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainOptions {
    /// Most rows of one claim. Default 100.
    pub batch: usize,
    /// How long a claim lasts unless it is renewed, which a living drainer does: after so long, the
    /// rows of one that died are taken over. Default 30 s.
    pub lease: Duration,
    /// How long an answer to a publish is waited for; afterwards it is tried again. Also the
    /// longest time that stopping takes. Default 15 s.
    pub publish_timeout: Duration,
    /// First wait after a failure; it doubles with each one. Default 100 ms.
    pub backoff_min: Duration,
    /// Longest wait between attempts. Default 1 min.
    pub backoff_max: Duration,
    /// After so many failed attempts an event is dead, if what failed is the event (its topic is
    /// not defined, say) and not the store: an outage makes nothing dead. Default 20; `None`:
    /// never.
    pub max_attempts: Option<u32>,
    /// What later events of a dead event's key do. Default: they wait.
    pub after_dead: AfterDead,
    /// How long sent rows are kept, for those who want to look. Default 1 day; `None`: for ever.
    pub keep_sent: Option<Duration>,
    /// How often to look whether another process has written, which costs a few microseconds.
    /// Default 1 s.
    pub poll: Duration,
}

/// What later events of a dead event's key do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AfterDead {
    /// They wait until it is retried or discarded: the order of the key is kept.
    #[default]
    Wait,
    /// They go on: a retry comes after them.
    GoOn,
}

impl Default for DrainOptions {
    fn default() -> Self {
        Self {
            batch: 100,
            lease: Duration::from_secs(30),
            publish_timeout: Duration::from_secs(15),
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(60),
            max_attempts: Some(20),
            after_dead: AfterDead::Wait,
            keep_sent: Some(Duration::from_secs(24 * 3600)),
            poll: Duration::from_secs(1),
        }
    }
}

impl DrainOptions {
    pub(super) fn check(&self) -> Result<(), OptionsError> {
        let Self { backoff_min: min, backoff_max: max, .. } = *self;
        let millisecond = Duration::from_millis(1);
        if self.batch == 0 || self.batch > BATCH_ROWS_MAX {
            return Err(OptionsError::Batch(self.batch));
        }
        if self.lease < LEASE_MIN || self.lease > HOLD_MAX {
            return Err(OptionsError::Lease(self.lease));
        }
        if min < millisecond || max < min || max > HOLD_MAX {
            return Err(OptionsError::Backoff { min, max });
        }
        if self.publish_timeout < millisecond {
            return Err(OptionsError::Zero("publish_timeout"));
        }
        if self.poll < millisecond {
            return Err(OptionsError::Zero("poll"));
        }
        if self.max_attempts == Some(0) {
            return Err(OptionsError::MaxAttempts);
        }
        Ok(())
    }

    pub(super) const fn backoff(&self) -> Backoff {
        Backoff { min: self.backoff_min, max: self.backoff_max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senseless_options_are_refused_by_name() {
        let check = |change: fn(&mut DrainOptions)| {
            let mut options = DrainOptions::default();
            change(&mut options);
            options.check().err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert_eq!(check(|_| {}), "");
        assert!(check(|o| o.batch = 0).starts_with("batch is 0"));
        assert!(check(|o| o.batch = usize::MAX).starts_with("batch is"));
        assert!(check(|o| o.lease = Duration::ZERO).starts_with("lease"));
        assert!(check(|o| o.lease = Duration::MAX).starts_with("lease"));
        assert!(check(|o| o.backoff_min = Duration::ZERO).starts_with("backoff"));
        assert!(check(|o| o.backoff_max = Duration::from_millis(1)).starts_with("backoff"));
        assert!(check(|o| o.publish_timeout = Duration::ZERO).starts_with("publish_timeout"));
        assert!(check(|o| o.poll = Duration::ZERO).starts_with("poll"));
        assert!(check(|o| o.max_attempts = Some(0)).starts_with("max_attempts"));
    }
}
