use std::time::Duration;

use promethean_event::{Event, GroupName};

use crate::metrics::Counters;
use crate::seldom::Seldom;

/// Why an event that a filter cannot decide about is not in a page or a tail.
pub(crate) const REASON: &str = "more than a filter takes";

/// Events that filters could not decide about. A group gets them: one too many is noticed, one too few is
/// not. Whoever reads without a group is told where they are.
#[derive(Debug)]
pub(crate) struct Undecided {
    pub(crate) counters: Counters,
    said: Seldom,
}

impl Default for Undecided {
    fn default() -> Self {
        Self { counters: Counters::default(), said: Seldom::every(Duration::from_secs(60)) }
    }
}

impl Undecided {
    /// One more, at a time of the monotonic clock.
    pub(crate) fn note(&self, now: Duration, event: &Event, group: Option<&GroupName>) {
        let group = group.map_or("", |group| group.as_str());
        self.counters.add(event.topic.as_str(), group, 1);
        if let Some(before) = self.said.is_due(now) {
            let Event { topic, id, .. } = event;
            tracing::warn!(%topic, group, %id, before, "an event is more than a filter takes");
        }
    }
}
