use serde::{Deserialize, Serialize};

use crate::{GroupName, Offset, Partition, Timestamp, Topic};

/// How far a group is behind in one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionLag {
    /// The topic.
    pub topic: Topic,
    /// The partition.
    pub partition: Partition,
    /// The lowest offset that is not finished.
    pub cursor: Offset,
    /// The offset that the next event will get.
    pub end: Offset,
    /// Events that are not finished; dead letters that were given back included.
    pub events: u64,
    /// Events on lease.
    pub out: u64,
    /// Finished events beyond the cursor, which an unfinished one holds back.
    pub holes: u64,
    /// Keys that wait behind a dead letter.
    pub parked: u64,
    /// When the store took the oldest event that is not finished.
    #[serde(default)]
    pub oldest_unacked: Option<Timestamp>,
    /// How long ago that was, in milliseconds; 0 if nothing is unfinished.
    pub age_ms: u64,
}

/// How far a group is behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupLag {
    /// The group.
    pub group: GroupName,
    /// Its members in the process that was asked.
    pub members: usize,
    /// By partition.
    pub partitions: Vec<PartitionLag>,
}

impl GroupLag {
    /// Events that are not finished, in all partitions.
    pub fn events(&self) -> u64 {
        self.partitions.iter().map(|lag| lag.events).sum()
    }

    /// The age of the oldest event that is not finished, in milliseconds.
    pub fn age_ms(&self) -> u64 {
        self.partitions.iter().map(|lag| lag.age_ms).max().unwrap_or(0)
    }
}

/// Where a seek would move, or has moved, a group in one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// The topic.
    pub topic: Topic,
    /// The partition.
    pub partition: Partition,
    /// Where the cursor is.
    pub from: Offset,
    /// Where it goes.
    pub to: Offset,
}

impl Move {
    /// Events that come again (negative: that are passed over).
    pub const fn again(&self) -> i64 {
        self.from.get() as i64 - self.to.get() as i64
    }
}
