use crate::limits::{ATTEMPTS_MAX, WINDOW_EVENTS_MAX};

/// Who may get an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Any member with credit.
    #[default]
    Shared,
    /// The one member that owns the lane.
    Partitioned,
}

/// What order is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ordered {
    /// One event of a key out at a time, and never a later one before an earlier one.
    #[default]
    Key,
    /// None.
    None,
}

/// What happens to later events of the key of a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Park {
    /// They go on without it.
    #[default]
    Event,
    /// They wait behind it until the dead letter is released or discarded.
    Key,
}

/// How a group delivers. Plain values; [`GroupOptions::check`] says what is wrong with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupOptions {
    /// Who may get an event. Default: shared.
    pub mode: Mode,
    /// What order is kept. Default: by key.
    pub ordered: Ordered,
    /// What a dead letter does to its key. Default: nothing.
    pub park: Park,
    /// How long a lease lasts unless it is extended. Default: 30 000 ms.
    pub lease_ms: u32,
    /// How long one lease may last with all its extensions. Default: 600 000 ms.
    pub lease_ms_max: u32,
    /// Deliveries of one event before it is a dead letter. Default: 5.
    pub max_attempts: u16,
    /// Delay before the second delivery; doubles with each further one. Default: 200 ms.
    pub backoff_ms: u32,
    /// Longest such delay. Default: 60 000 ms.
    pub backoff_ms_max: u32,
    /// Fetched events between floor and fetch position of one lane. Default: 65 536.
    pub window_events: u32,
    /// How far the durable delivery horizon runs ahead of the fetch position. Default: 4 096.
    pub horizon_events: u32,
    /// Saves that may be under way at once; more changes wait and share the next. Default: 2.
    pub saves_in_flight: u32,
    /// A member silent for this long is removed. Default: none, members never expire.
    pub member_ttl_ms: Option<u32>,
    /// How long a member may finish its leases of a revoked lane. Default: 10 000 ms.
    pub drain_ms: u32,
}

impl Default for GroupOptions {
    fn default() -> Self {
        Self {
            mode: Mode::Shared,
            ordered: Ordered::Key,
            park: Park::Event,
            lease_ms: 30_000,
            lease_ms_max: 600_000,
            max_attempts: 5,
            backoff_ms: 200,
            backoff_ms_max: 60_000,
            window_events: 65_536,
            horizon_events: 4_096,
            saves_in_flight: 2,
            member_ttl_ms: None,
            drain_ms: 10_000,
        }
    }
}

/// Why options are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// No attempt at all, or more than can be counted.
    #[error("max_attempts is {0}; choose 1 to {ATTEMPTS_MAX}")]
    Attempts(u16),
    /// A lease that is over before it begins, or a maximum below the usual length.
    #[error(
        "a lease of {lease_ms} ms with at most {lease_ms_max} ms; choose 1 ms or more, and a maximum not below it"
    )]
    Lease {
        /// The usual length.
        lease_ms: u32,
        /// The longest.
        lease_ms_max: u32,
    },
    /// A first delay above the longest.
    #[error("backoff of {0} ms is above its maximum of {1} ms; raise the maximum")]
    Backoff(u32, u32),
    /// A window without a slot, or too large to hold in memory.
    #[error("window_events is {0}; choose 1 to {WINDOW_EVENTS_MAX}")]
    Window(u32),
    /// A horizon that never gets ahead.
    #[error("horizon_events is {0}; choose 2 or more")]
    Horizon(u32),
    /// Nothing could ever be saved.
    #[error("saves_in_flight is 0; choose 1 or more")]
    Saves,
    /// A member would be gone as soon as it is there.
    #[error("member_ttl_ms is 0; choose 1 or more, or none")]
    Ttl,
    /// Keys can be parked only where keys are kept in order.
    #[error("park = \"key\" needs ordered = \"key\"")]
    ParkWithoutOrder,
}

impl GroupOptions {
    /// Whether a group can work with them.
    pub const fn check(&self) -> Result<(), OptionsError> {
        if self.max_attempts == 0 || self.max_attempts > ATTEMPTS_MAX {
            return Err(OptionsError::Attempts(self.max_attempts));
        }
        if self.lease_ms == 0 || self.lease_ms_max < self.lease_ms {
            return Err(OptionsError::Lease {
                lease_ms: self.lease_ms,
                lease_ms_max: self.lease_ms_max,
            });
        }
        if self.backoff_ms > self.backoff_ms_max {
            return Err(OptionsError::Backoff(self.backoff_ms, self.backoff_ms_max));
        }
        if self.window_events == 0 || self.window_events > WINDOW_EVENTS_MAX {
            return Err(OptionsError::Window(self.window_events));
        }
        if self.horizon_events < 2 {
            return Err(OptionsError::Horizon(self.horizon_events));
        }
        if self.saves_in_flight == 0 {
            return Err(OptionsError::Saves);
        }
        if matches!(self.member_ttl_ms, Some(0)) {
            return Err(OptionsError::Ttl);
        }
        if matches!(self.park, Park::Key) && matches!(self.ordered, Ordered::None) {
            return Err(OptionsError::ParkWithoutOrder);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_good_and_nonsense_is_refused() {
        let good = GroupOptions::default();
        assert_eq!(good.check(), Ok(()));
        let refused = |change: fn(&mut GroupOptions)| {
            let mut options = GroupOptions::default();
            change(&mut options);
            options.check().is_err()
        };
        assert!(refused(|o| o.max_attempts = 0));
        assert!(refused(|o| o.max_attempts = ATTEMPTS_MAX + 1));
        assert!(refused(|o| o.lease_ms = 0));
        assert!(refused(|o| o.lease_ms_max = 1));
        assert!(refused(|o| o.backoff_ms = 90_000));
        assert!(refused(|o| o.window_events = 0));
        assert!(refused(|o| o.horizon_events = 1));
        assert!(refused(|o| o.saves_in_flight = 0));
        assert!(refused(|o| o.member_ttl_ms = Some(0)));
        assert!(refused(|o| {
            o.park = Park::Key;
            o.ordered = Ordered::None;
        }));
    }
}
