use std::collections::{HashMap, HashSet};

use promethean_delivery::Counters;
use promethean_event::{GroupName, Topic};

use super::catalogue::OTHER;
use crate::limits::METRIC_PAIRS_MAX;
use crate::store::{TopicId, TopicTable};

/// Whether a group's reading of a topic has figures of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Series {
    Own,
    /// It came after the limit was reached.
    Other,
}

/// What was counted in lanes that were let go.
#[derive(Debug, Clone, Default)]
pub(crate) struct Carried {
    by_topic: HashMap<TopicId, Counters>,
}

impl Carried {
    pub(super) fn iter(&self) -> impl Iterator<Item = (TopicId, Counters)> {
        self.by_topic.iter().map(|(topic, counters)| (*topic, *counters))
    }
}

/// Which pairs of group and topic have figures of their own, and what was counted for them in
/// lanes that were let go.
#[derive(Debug, Default)]
pub(super) struct PairTable {
    by_group: HashMap<GroupName, Carried>,
    count: usize,
    other: Counters,
}

impl PairTable {
    /// Decided once for a lane: what was counted as `other` stays there, or its counters would go
    /// back.
    pub(super) fn admit(&mut self, group: &GroupName, id: TopicId, topic: &Topic) -> Series {
        let known = self.by_group.get(group).is_some_and(|own| own.by_topic.contains_key(&id));
        if known {
            return Series::Own;
        }
        if self.count >= METRIC_PAIRS_MAX || is_other(group, topic) {
            return Series::Other;
        }
        self.count += 1;
        self.by_group.entry(group.clone()).or_default().by_topic.insert(id, Counters::default());
        Series::Own
    }

    /// Keeps what was counted in a lane that is let go.
    pub(super) fn carry(&mut self, (group, id): (&GroupName, TopicId), done: Counters, to: Series) {
        let own = self.by_group.get_mut(group).and_then(|own| own.by_topic.get_mut(&id));
        match (to, own) {
            (Series::Own, Some(own)) => *own += done,
            // Its series has gone.
            (Series::Own, None) => {}
            (Series::Other, _) => self.other += done,
        }
    }

    pub(super) fn carried(&self, group: &GroupName) -> Carried {
        self.by_group.get(group).cloned().unwrap_or_default()
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = &GroupName> {
        self.by_group.keys()
    }

    pub(super) const fn carried_as_other(&self) -> Counters {
        self.other
    }

    /// Takes the series from pairs that are gone.
    pub(super) fn prune(&mut self, gone: &HashSet<GroupName>, topics: &TopicTable) {
        self.by_group.retain(|group, own| {
            own.by_topic.retain(|id, _| topics.by_id(*id).is_some());
            !gone.contains(group) && !own.by_topic.is_empty()
        });
        self.count = self.by_group.values().map(|own| own.by_topic.len()).sum();
    }
}

/// Whoever is called like what stands for all others is counted with them.
fn is_other(group: &GroupName, topic: &Topic) -> bool {
    group.as_str() == OTHER || topic.as_str() == OTHER
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{TopicDefinition, TopicEntry};

    fn topic(number: u32) -> (TopicId, Topic) {
        (TopicId::new(number), Topic::new(&format!("t{number}")).unwrap())
    }

    fn acked(acked: u64) -> Counters {
        Counters { acked, ..Counters::default() }
    }

    #[test]
    fn pairs_beyond_the_limit_are_other_and_stay_so() {
        let mut table = PairTable::default();
        let group = GroupName::new("g").unwrap();
        let most = METRIC_PAIRS_MAX as u32;
        for number in 0..most + 10 {
            let (id, name) = topic(number);
            let series = if number < most { Series::Own } else { Series::Other };
            assert_eq!(table.admit(&group, id, &name), series);
            table.carry((&group, id), acked(1), series);
        }
        assert_eq!((table.count, table.carried_as_other().acked), (METRIC_PAIRS_MAX, 10));
        let one = TopicTable::from_iter([0].map(|number| {
            let (id, name) = topic(number);
            TopicEntry { id, definition: TopicDefinition::new(name) }
        }));
        table.prune(&HashSet::new(), &one);
        assert_eq!((table.count, table.carried_as_other().acked), (1, 10));
        assert_eq!(table.carried(&group).iter().collect::<Vec<_>>(), [(topic(0).0, acked(1))]);
        table.prune(&HashSet::from([group]), &one);
        assert_eq!(table.count, 0);
    }

    #[test]
    fn nobody_is_taken_for_all_others() {
        let mut table = PairTable::default();
        let (group, other) = (GroupName::new("g").unwrap(), GroupName::new(OTHER).unwrap());
        let (id, name) = topic(1);
        assert_eq!(table.admit(&group, id, &Topic::new(OTHER).unwrap()), Series::Other);
        assert_eq!(table.admit(&other, id, &name), Series::Other);
        assert_eq!(table.count, 0);
    }
}
