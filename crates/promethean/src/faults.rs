use std::fmt;

use promethean_event::GroupName;

/// What is to go wrong on purpose, for tests: `promethean-testing` turns these knobs.
pub trait Faults: fmt::Debug + Send + Sync {
    /// Whether the next delivery to a group fails before a consumer sees it, and what it says.
    fn failure(&self, group: &GroupName) -> Option<String>;

    /// Whether the next ack of a group gets lost, so that the event is delivered again.
    fn loses_ack(&self, group: &GroupName) -> bool;
}
