//! The log's words for what the seam says, and back.

use promethean_event::Offset;
use promethean_log as log;

use crate::store::{
    AppendError, Appended, Expectation, Lane, ReadError, Receipt, SaveError, TopicDefinition,
    TopicEntry, TopicId,
};

pub(super) const fn log_topic(topic: TopicId) -> log::TopicId {
    log::TopicId::new(topic.get())
}

pub(super) const fn log_lane(lane: Lane) -> log::Lane {
    log::Lane { topic: log_topic(lane.topic), partition: lane.partition }
}

pub(super) const fn lane(lane: log::Lane) -> Lane {
    Lane { topic: TopicId::new(lane.topic.get()), partition: lane.partition }
}

pub(super) const fn entry(id: log::TopicId, definition: TopicDefinition) -> TopicEntry {
    TopicEntry { id: TopicId::new(id.get()), definition }
}

const fn log_expectation(expected: &Expectation) -> log::Expectation {
    log::Expectation { lane: log_lane(expected.lane), next: expected.next }
}

pub(super) fn log_part(
    events: usize,
    durability: log::Durability,
    expect: &[Expectation],
) -> log::Part {
    log::Part { events, durability, expect: expect.iter().map(log_expectation).collect() }
}

pub(super) fn holds(held: Vec<(Lane, Offset)>) -> log::Holds {
    let mut holds = log::Holds::default();
    held.into_iter().for_each(|(lane, from)| holds.keep(log_lane(lane), from));
    holds
}

impl From<log::Appended> for Appended {
    fn from(appended: log::Appended) -> Self {
        let receipt = |receipt: &log::Receipt| Receipt {
            lane: lane(receipt.lane),
            offset: receipt.offset,
            duplicate: receipt.duplicate,
        };
        Self {
            receipts: appended.receipts.iter().map(receipt).collect(),
            appended_at: appended.appended_at,
            durability: appended.durability,
        }
    }
}

impl From<log::AppendError> for AppendError {
    fn from(error: log::AppendError) -> Self {
        use log::AppendError as E;
        match error {
            E::Empty => Self::Empty,
            E::TooLarge { events, bytes } => Self::TooLarge { events, bytes },
            E::UnknownTopic(topic) => Self::UnknownTopic(topic),
            E::IdConflict { topic, id } => Self::IdConflict { topic, id },
            E::OffsetMismatch { lane: at, expected, actual } => {
                Self::OffsetMismatch { lane: lane(at), expected, actual }
            }
            E::NoSpace => Self::NoSpace,
            E::StorageFailed(reason) => Self::StorageFailed(reason),
            E::Busy(waiting) => Self::Busy(waiting),
            E::Closed => Self::Closed,
            other => Self::Unavailable(other.to_string()),
        }
    }
}

impl From<log::AppendError> for SaveError {
    fn from(error: log::AppendError) -> Self {
        use log::AppendError as E;
        match error {
            E::PartitionsFixed { topic, has, wanted } => {
                Self::PartitionsFixed { topic, has, wanted }
            }
            E::TooManyTopics(limit) => Self::TooManyTopics(limit),
            other => Self::Append(other.into()),
        }
    }
}

impl From<log::ReadError> for ReadError {
    fn from(error: log::ReadError) -> Self {
        use log::ReadError as E;
        match error {
            E::UnknownLane => Self::UnknownLane,
            E::BeyondEnd { wanted, next } => Self::BeyondEnd { wanted, next },
            E::Damaged { .. } => Self::Damaged(error.to_string()),
            E::Io(source) => Self::Failed(source.to_string()),
            other => Self::Failed(other.to_string()),
        }
    }
}

impl From<log::CleanError> for ReadError {
    fn from(error: log::CleanError) -> Self {
        match error {
            log::CleanError::Read(error) => error.into(),
            log::CleanError::Append(error) => Self::Failed(error.to_string()),
            log::CleanError::Io(error) => Self::Failed(error.to_string()),
            other => Self::Failed(other.to_string()),
        }
    }
}
