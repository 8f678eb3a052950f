use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use promethean_event::PartitionCount;

use crate::dispatch::Redact;
use crate::faults::Faults;
use crate::limits::HUB_LEASE_MS;
use crate::metrics::Metering;

/// How a bus works. The defaults are right for most.
#[derive(Clone)]
#[non_exhaustive]
pub struct BusOptions {
    /// What happens when somebody publishes to a topic that is not there. Default: it is made,
    /// with one partition.
    pub unknown_topics: UnknownTopics,
    /// How many topics there may be before publishing makes no more; those that are defined are not
    /// held to it. Default: as many as the store takes.
    pub topics_max: usize,
    /// How many groups there may be before subscribing makes no more. Default: any number.
    pub groups_max: usize,
    /// How often retention and compaction are looked after. Default: every 5 minutes.
    pub clean_every: Duration,
    /// In what time everything that is stored is read once, to see whether it still is what was
    /// written. Default: 7 days.
    pub scrub_every: Duration,
    /// Whether times are taken and publishing is counted. Default: they are.
    pub metering: Metering,
    /// Where several hubs use one store: how long this one counts as there without saying so. Others
    /// take over what it delivers within a second after that. Default: 5 s.
    pub hub_lease: Duration,
    redact: Redact,
    faults: Option<Arc<dyn Faults>>,
}

/// What happens when somebody publishes to a topic that is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnknownTopics {
    /// It is made, with so many partitions.
    Make(PartitionCount),
    /// The publish is refused.
    Refuse,
}

impl Default for BusOptions {
    fn default() -> Self {
        Self {
            unknown_topics: UnknownTopics::Make(PartitionCount::ONE),
            topics_max: usize::MAX,
            groups_max: usize::MAX,
            clean_every: Duration::from_secs(300),
            scrub_every: Duration::from_secs(7 * 24 * 60 * 60),
            metering: Metering::On,
            hub_lease: Duration::from_millis(HUB_LEASE_MS),
            redact: Arc::new(|text| text),
            faults: None,
        }
    }
}

impl BusOptions {
    /// Takes out of error texts what must not be kept with dead letters.
    #[must_use]
    pub fn redact(mut self, redact: impl Fn(String) -> String + Send + Sync + 'static) -> Self {
        self.redact = Arc::new(redact);
        self
    }

    /// What happens when somebody publishes to a topic that is not there.
    #[must_use]
    pub const fn unknown_topics(mut self, policy: UnknownTopics) -> Self {
        self.unknown_topics = policy;
        self
    }

    /// How many topics there may be before publishing makes no more.
    #[must_use]
    pub const fn topics_max(mut self, max: usize) -> Self {
        self.topics_max = max;
        self
    }

    /// How many groups there may be before subscribing makes no more.
    #[must_use]
    pub const fn groups_max(mut self, max: usize) -> Self {
        self.groups_max = max;
        self
    }

    /// How often retention and compaction are looked after.
    #[must_use]
    pub const fn clean_every(mut self, period: Duration) -> Self {
        self.clean_every = period;
        self
    }

    /// In what time everything that is stored is read once.
    #[must_use]
    pub const fn scrub_every(mut self, period: Duration) -> Self {
        self.scrub_every = period;
        self
    }

    /// Whether times are taken and publishing is counted.
    #[must_use]
    pub const fn metering(mut self, metering: Metering) -> Self {
        self.metering = metering;
        self
    }

    /// How long this hub counts as there without saying so, where several use one store.
    #[must_use]
    pub const fn hub_lease(mut self, lease: Duration) -> Self {
        self.hub_lease = lease;
        self
    }

    /// Lets things go wrong, for tests.
    #[must_use]
    pub fn faults(mut self, faults: Arc<dyn Faults>) -> Self {
        self.faults = Some(faults);
        self
    }

    pub(crate) fn wanted_faults(&self) -> Option<Arc<dyn Faults>> {
        self.faults.clone()
    }

    pub(crate) fn redactor(&self) -> Redact {
        Arc::clone(&self.redact)
    }
}

impl fmt::Debug for BusOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BusOptions")
            .field("unknown_topics", &self.unknown_topics)
            .field("topics_max", &self.topics_max)
            .field("groups_max", &self.groups_max)
            .field("clean_every", &self.clean_every)
            .field("scrub_every", &self.scrub_every)
            .field("metering", &self.metering)
            .field("hub_lease", &self.hub_lease)
            .finish_non_exhaustive()
    }
}
