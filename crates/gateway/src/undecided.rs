use std::sync::{Arc, LazyLock};
use std::time::Duration;

use promethean_event::{Event, GroupName};

use crate::clock::Clock;
use crate::metrics::Counters;
use crate::seldom::Seldom;

/// Why an event that a filter cannot decide about is not in a page or a tail.
pub(crate) const REASON: &str = "more than a filter takes";

/// Events that filters could not decide about. Groups and jobs get them: one too many is noticed, one too few is
/// not. Whoever reads without a group is told where they are.
#[derive(Debug)]
pub(crate) struct Undecided {
    pub(crate) counters: Counters,
    clock: Clock,
    said: Seldom,
}

impl Default for Undecided {
    fn default() -> Self {
        let said = Seldom::every(Duration::from_secs(60));
        Self { counters: Counters::default(), clock: Clock::start(), said }
    }
}

impl Undecided {
    /// Those of all filters of this process: the filters of jobs are made where no server is known.
    pub(crate) fn of_all() -> Arc<Self> {
        static ALL: LazyLock<Arc<Undecided>> = LazyLock::new(Arc::default);
        Arc::clone(&ALL)
    }

    /// One more.
    pub(crate) fn note(&self, event: &Event, group: Option<&GroupName>) {
        let group = group.map_or("", |group| group.as_str());
        self.counters.add(event.topic.as_str(), group, 1);
        if let Some(before) = self.said.is_due(self.clock.elapsed()) {
            let Event { topic, id, .. } = event;
            tracing::warn!(%topic, group, %id, before, "an event is more than a filter takes");
        }
    }
}
