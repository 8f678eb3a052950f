use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use promethean_event::Topic;

use super::catalogue::{ERROR_KINDS, OTHER};
use super::histogram::Histogram;
use crate::error::PublishError;
use crate::limits::METRIC_TOPICS_MAX;
use crate::store::{AppendError, Receipt, TopicId, TopicTable};

/// What publishing counts.
#[derive(Debug, Default)]
pub(crate) struct PublishMeters {
    topics: RwLock<HashMap<TopicId, TopicMeters>>,
    other: TopicMeters,
    errors: [AtomicU64; ERROR_KINDS.len()],
    pub(super) duration: Histogram,
}

/// What publishing counts for one topic.
#[derive(Debug, Default)]
struct TopicMeters {
    published: AtomicU64,
    duplicates: AtomicU64,
}

impl TopicMeters {
    fn add(&self, counted: Counted) {
        let Counted { published, duplicates } = counted;
        if published > 0 {
            self.published.fetch_add(published, Ordering::Relaxed);
        }
        if duplicates > 0 {
            self.duplicates.fetch_add(duplicates, Ordering::Relaxed);
        }
    }

    fn read(&self) -> Counted {
        Counted {
            published: self.published.load(Ordering::Relaxed),
            duplicates: self.duplicates.load(Ordering::Relaxed),
        }
    }
}

/// What was published to one topic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) published: u64,
    pub(super) duplicates: u64,
}

impl Counted {
    const fn add(&mut self, receipt: &Receipt) {
        if receipt.duplicate {
            self.duplicates += 1;
        } else {
            self.published += 1;
        }
    }
}

impl PublishMeters {
    /// Counts what was stored: one look-up for events of one topic that stand together.
    pub(crate) fn count<'a>(
        &self,
        receipts: impl Iterator<Item = &'a Receipt>,
        topics: impl Fn() -> Arc<TopicTable>,
    ) {
        let mut receipts = receipts.peekable();
        while let Some(first) = receipts.next() {
            let topic = first.lane.topic;
            let mut counted = Counted::default();
            counted.add(first);
            while let Some(next) = receipts.next_if(|next| next.lane.topic == topic) {
                counted.add(next);
            }
            self.count_topic(topic, counted, &topics);
        }
    }

    fn count_topic(&self, topic: TopicId, counted: Counted, topics: impl Fn() -> Arc<TopicTable>) {
        let mut known = self.read();
        if !known.contains_key(&topic) && known.len() < METRIC_TOPICS_MAX {
            drop(known);
            self.admit(topic, &topics());
            known = self.read();
        }
        known.get(&topic).unwrap_or(&self.other).add(counted);
    }

    fn admit(&self, id: TopicId, topics: &TopicTable) {
        let named_other = |topic: &Topic| topic.as_str() == OTHER;
        if topics.by_id(id).is_none_or(|entry| named_other(&entry.definition.topic)) {
            return;
        }
        let mut known = self.topics.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() < METRIC_TOPICS_MAX {
            known.entry(id).or_default();
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<TopicId, TopicMeters>> {
        self.topics.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn failed(&self, error: &PublishError) {
        if let Some(count) = self.errors.get(kind_of(error)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A publish is over, one way or the other, and took so long.
    pub(crate) fn ended<T>(&self, result: &Result<T, PublishError>, nanos: u64) {
        match result {
            Ok(_) => self.duration.record(nanos),
            Err(error) => self.failed(error),
        }
    }

    /// The same of many that took as long as each other.
    pub(crate) fn all_ended<T>(&self, results: &[Result<T, PublishError>], nanos: u64) {
        let mut stored = 0;
        for result in results {
            match result {
                Ok(_) => stored += 1,
                Err(error) => self.failed(error),
            }
        }
        self.duration.record_many(nanos, stored);
    }

    /// What was counted, by topic and for all others; topics that are gone lose their series.
    /// Asks for the topics under the lock, so that none is too new to be among them.
    pub(super) fn by_topic(
        &self,
        topics: impl FnOnce() -> Arc<TopicTable>,
    ) -> (Vec<(Topic, Counted)>, Counted) {
        let mut known = self.topics.write().unwrap_or_else(PoisonError::into_inner);
        let topics = topics();
        known.retain(|id, _| topics.by_id(*id).is_some());
        let named = known.iter().filter_map(|(id, meters)| {
            Some((topics.by_id(*id)?.definition.topic.clone(), meters.read()))
        });
        let mut named: Vec<_> = named.collect();
        named.sort_by(|(a, _), (b, _)| a.cmp(b));
        (named, self.other.read())
    }

    pub(super) fn by_error(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.errors.iter().map(|count| count.load(Ordering::Relaxed));
        ERROR_KINDS.into_iter().zip(counts)
    }
}

/// The place among `ERROR_KINDS`.
fn kind_of(error: &PublishError) -> usize {
    let name = match error {
        PublishError::Event(_) | PublishError::Topic(_) | PublishError::Key(_) => "event",
        PublishError::Payload(_) => "payload",
        PublishError::System(_) => "system_topic",
        PublishError::UnknownTopic(_) => "unknown_topic",
        PublishError::Define { .. } => "define",
        PublishError::Refused(_) => "schema",
        PublishError::Schemas(_) | PublishError::Snapshots(_) => "unavailable",
        PublishError::Append(error) => match error {
            AppendError::Empty => "empty",
            AppendError::TooLarge { .. } => "too_large",
            AppendError::UnknownTopic(_) => "unknown_topic",
            AppendError::IdConflict { .. } => "id_conflict",
            AppendError::UnknownLane(_) | AppendError::OffsetMismatch { .. } => "expectation",
            AppendError::Unavailable(_) => "unavailable",
            AppendError::Busy(_) => "busy",
            AppendError::NoSpace => "no_space",
            AppendError::StorageFailed(_) => "storage_failed",
            AppendError::Indeterminate(_) => "indeterminate",
            AppendError::Closed => "closed",
        },
    };
    ERROR_KINDS.iter().position(|kind| *kind == name).unwrap_or(ERROR_KINDS.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_error_has_a_place() {
        let busy = PublishError::Append(AppendError::Busy(1));
        let meters = PublishMeters::default();
        meters.failed(&busy);
        meters.failed(&PublishError::Append(AppendError::Closed));
        let counted: Vec<_> = meters.by_error().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [("busy", 1), ("closed", 1)]);
    }
}
