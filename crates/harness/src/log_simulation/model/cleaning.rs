use std::collections::HashMap;

use promethean_event::Key;

use super::{LaneKey, Model, StoredEvent};
use crate::log_simulation::violation::{Broken, Violation};

impl Model {
    /// Whether the rules of the topic let every event go that is marked as removed, at a time
    /// when clocks have shown `now` at most.
    pub(super) fn check_removals(&self, key: LaneKey, now: u64) -> Result<(), Violation> {
        let rules = self.topics[key.topic].definition.cleaning;
        let lane = self.lane(key);
        let mut bytes_after = 0;
        let mut newest: HashMap<&Key, &StoredEvent> = HashMap::new();
        for (offset, event) in lane.iter().enumerate().rev() {
            let age =
                now.saturating_sub(event.appended_ms.unwrap_or(event.draft.event.ts.millis()));
            let expired = rules.age_ms_max.is_some_and(|max| age >= max)
                || rules.bytes_max.is_some_and(|max| bytes_after >= max);
            let superseded = event.draft.event.key.as_ref().and_then(|key| newest.get(key));
            let compacted = rules.compaction.is_some_and(|rule| {
                let old = age >= rule.age_ms_min;
                let buried = event.draft.event.key.is_some()
                    && event.draft.is_tombstone()
                    && age >= rule.tombstone_ms;
                old && (superseded.is_some() || buried)
            });
            if event.removed && !expired && !compacted {
                return Violation::err(
                    Broken::Removed,
                    format!("{key:?} offset {offset} of age {age} ms is gone; {rules:?}"),
                );
            }
            if !event.removed && !expired && superseded.is_some_and(|newer| newer.removed) {
                return Violation::err(
                    Broken::Removed,
                    format!("{key:?} offset {offset} is the newest of its key once more"),
                );
            }
            if let Some(key) = &event.draft.event.key {
                newest.entry(key).or_insert(event);
            }
            bytes_after += event.draft.bytes_max;
        }
        Ok(())
    }
}
