use std::collections::{BTreeMap, HashSet};

use promethean_event::{Key, Offset, Partition, Timestamp};
use promethean_log::Compaction;

use super::contents::{Contents, TopicEvents};
use super::lane::LaneEvents;
use crate::store::Lane;

impl Contents {
    pub(super) fn clean(&mut self, holds: &[(Lane, Offset)], now: Timestamp) {
        for (&topic, events) in &mut self.topics {
            let partitions = events.definition.partitions.partitions();
            for partition in partitions {
                let lane = Lane { topic, partition };
                let on_lane = holds.iter().filter(|(held, _)| *held == lane);
                let hold = on_lane.map(|(_, offset)| offset.get()).min().unwrap_or(u64::MAX);
                events.clean_lane(partition, hold, now);
            }
        }
    }
}

impl TopicEvents {
    fn clean_lane(&mut self, partition: Partition, hold: u64, now: Timestamp) {
        let cleaning = self.definition.cleaning;
        let Some(lane) = self.lanes.get_mut(partition.get() as usize) else { return };
        let mut gone = Vec::new();
        if let Some(age) = cleaning.age_ms_max {
            let oldest = Timestamp::from_millis(now.millis().saturating_sub(age));
            gone.extend(lane.expire(lane.offset_at(oldest).get().min(hold)));
        }
        if let Some(bytes) = cleaning.bytes_max {
            gone.extend(lane.expire(lane.start_by_bytes(bytes).min(hold)));
        }
        if let Some(compaction) = cleaning.compaction {
            gone.extend(lane.compact(compaction, hold, now));
        }
        for id in gone {
            self.ids.remove(&id);
        }
    }
}

impl LaneEvents {
    /// Lets go of everything before an offset.
    fn expire(&mut self, start: u64) -> Vec<promethean_event::EventId> {
        let start = start.max(self.start);
        let kept = self.events.split_off(&start);
        self.start = start;
        let gone = std::mem::replace(&mut self.events, kept);
        gone.into_values().map(|stored| stored.event.id).collect()
    }

    /// Where the lane must start to have no more than so many bytes.
    fn start_by_bytes(&self, bytes_max: u64) -> u64 {
        let mut bytes = 0;
        for (&offset, stored) in self.events.iter().rev() {
            bytes += u64::from(stored.bytes);
            if bytes > bytes_max {
                return offset + 1;
            }
        }
        self.start
    }

    /// Removes events with a newer one of their key, and tombstones that hide nothing.
    fn compact(
        &mut self,
        rule: Compaction,
        hold: u64,
        now: Timestamp,
    ) -> Vec<promethean_event::EventId> {
        let newest: BTreeMap<Key, u64> = self
            .events
            .iter()
            .filter_map(|(&offset, stored)| Some((stored.event.key.clone()?, offset)))
            .collect();
        // Keys of which something older stays: their tombstones have to hide it.
        let mut left: HashSet<Key> = HashSet::new();
        let mut gone = Vec::new();
        for (&offset, stored) in &self.events {
            let Some(key) = &stored.event.key else { continue };
            let older_than = |age: u64| stored.appended_at.plus_millis(age) <= now;
            let superseded = newest.get(key).is_some_and(|&newest| newest > offset);
            let tombstone = stored.event.payload.is_tombstone()
                && older_than(rule.tombstone_ms)
                && !left.contains(key);
            let free = offset < hold && older_than(rule.age_ms_min);
            if free && (superseded || tombstone) {
                gone.push((offset, stored.event.id));
            } else {
                left.insert(key.clone());
            }
        }
        for (offset, _) in &gone {
            self.events.remove(offset);
        }
        gone.into_iter().map(|(_, id)| id).collect()
    }
}
