use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use promethean_delivery::{Counters, DeadLetter, Reason};
use promethean_event::{GroupName, Topic};

use super::Metering;
use super::catalogue::{DEAD_LETTER_REASONS, OTHER};
use super::histogram::Histogram;
use super::pairs::{Carried, PairTable, Series};
use super::publishing::PublishMeters;
use crate::clock::Stopwatch;
use crate::limits::METRIC_GROUPS_MAX;
use crate::store::{TopicId, TopicTable};

/// Everything that a bus counts, besides what its groups count themselves.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    metering: Metering,
    pub(crate) publish: PublishMeters,
    groups: Mutex<HashMap<GroupName, Arc<GroupMeters>>>,
    other_groups: Arc<GroupMeters>,
    pairs: Mutex<PairTable>,
    dead_letters: [AtomicU64; DEAD_LETTER_REASONS.len()],
    scrape_errors: AtomicU64,
}

/// The times of one group. A group keeps hold of them, so that nothing is looked up.
#[derive(Debug, Default)]
pub(crate) struct GroupMeters {
    /// `None` for all that came after the limit was reached.
    pub(super) label: Option<GroupName>,
    pub(crate) poll: Histogram,
    pub(crate) handler: Histogram,
    pub(crate) latency: Histogram,
}

impl GroupMeters {
    pub(crate) fn polled(&self, watch: Option<Stopwatch>) {
        if let Some(watch) = watch {
            self.poll.record(watch.nanos());
        }
    }

    pub(super) fn label(&self) -> &str {
        self.label.as_ref().map_or(OTHER, GroupName::as_str)
    }
}

impl Meters {
    pub(crate) fn new(metering: Metering) -> Self {
        Self { metering, ..Self::default() }
    }

    /// Whether times are taken and publishing is counted.
    pub(crate) fn is_on(&self) -> bool {
        self.metering == Metering::On
    }

    fn pairs(&self) -> MutexGuard<'_, PairTable> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn groups(&self) -> MutexGuard<'_, HashMap<GroupName, Arc<GroupMeters>>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The meters of a group; those of all others if there are too many.
    pub(crate) fn group(&self, name: &GroupName) -> Arc<GroupMeters> {
        let mut groups = self.groups();
        if let Some(known) = groups.get(name) {
            return Arc::clone(known);
        }
        if groups.len() >= METRIC_GROUPS_MAX || name.as_str() == OTHER {
            return Arc::clone(&self.other_groups);
        }
        let meters = Arc::new(GroupMeters { label: Some(name.clone()), ..GroupMeters::default() });
        groups.insert(name.clone(), Arc::clone(&meters));
        meters
    }

    /// All of them, the one for all others last.
    pub(super) fn all_groups(&self) -> Vec<Arc<GroupMeters>> {
        let mut all: Vec<_> = self.groups().values().cloned().collect();
        all.sort_by(|a, b| a.label.cmp(&b.label));
        all.push(Arc::clone(&self.other_groups));
        all
    }

    /// Whether a group's reading of a topic gets figures of its own.
    pub(crate) fn admit(&self, group: &GroupName, id: TopicId, topic: &Topic) -> Series {
        self.pairs().admit(group, id, topic)
    }

    /// Keeps what was counted in a lane that is let go.
    pub(crate) fn carry(&self, pair: (&GroupName, TopicId), done: Counters, to: Series) {
        self.pairs().carry(pair, done, to);
    }

    /// What was counted for a group in lanes that were let go. Ask under the group's lock, or it
    /// may be missed, or counted twice.
    pub(crate) fn carried(&self, group: &GroupName) -> Carried {
        self.pairs().carried(group)
    }

    pub(super) fn carried_as_other(&self) -> Counters {
        self.pairs().carried_as_other()
    }

    /// The groups that have a series.
    pub(super) fn group_names(&self) -> HashSet<GroupName> {
        let mut names: HashSet<GroupName> = self.groups().keys().cloned().collect();
        names.extend(self.pairs().groups().cloned());
        names
    }

    /// Takes the series from groups and topics that are gone. Asks for the topics under the lock,
    /// so that none is too new to be among them.
    pub(super) fn prune(
        &self,
        gone: &HashSet<GroupName>,
        topics: impl FnOnce() -> Arc<TopicTable>,
    ) {
        self.groups().retain(|name, _| !gone.contains(name));
        let mut pairs = self.pairs();
        pairs.prune(gone, &topics());
    }

    pub(crate) fn given_up(&self, letters: &[DeadLetter]) {
        for letter in letters {
            if let Some(count) = self.dead_letters.get(place_of(letter.reason)) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn by_reason(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.dead_letters.iter().map(|count| count.load(Ordering::Relaxed));
        DEAD_LETTER_REASONS.into_iter().zip(counts)
    }

    pub(super) fn scrape_failed(&self) {
        self.scrape_errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn scrape_errors(&self) -> u64 {
        self.scrape_errors.load(Ordering::Relaxed)
    }
}

/// The place among `DEAD_LETTER_REASONS`.
fn place_of(reason: Reason) -> usize {
    let name = match reason {
        Reason::Refused => "refused",
        Reason::LeaseExpired => "lease_expired",
        Reason::MemberLost => "member_lost",
        Reason::Permanent => "permanent",
        Reason::ProcessLost => "process_lost",
        _ => OTHER,
    };
    DEAD_LETTER_REASONS.iter().position(|known| *known == name).unwrap_or(DEAD_LETTER_REASONS.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_beyond_the_limit_share_one_series() {
        let meters = Meters::default();
        let name = |number: usize| GroupName::new(&format!("g{number}")).unwrap();
        for number in 0..METRIC_GROUPS_MAX + 10 {
            let own = meters.group(&name(number)).label.is_some();
            assert_eq!(own, number < METRIC_GROUPS_MAX);
        }
        assert!(meters.group(&GroupName::new(OTHER).unwrap()).label.is_none());
        assert_eq!(meters.all_groups().len(), METRIC_GROUPS_MAX + 1);
        let gone = meters.group_names().into_iter().filter(|group| *group != name(7)).collect();
        meters.prune(&gone, Arc::default);
        let labels: Vec<_> = meters.all_groups().iter().map(|m| m.label().to_owned()).collect();
        assert_eq!(labels, ["g7", OTHER]);
    }
}
