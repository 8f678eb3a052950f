use promethean_event::{Partition, PartitionCount, Topic};

/// A topic's number in one log: what its records carry instead of the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub(crate) u32);

impl TopicId {
    /// The topic with this number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// One partition of one topic: the unit of order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane {
    /// The topic.
    pub topic: TopicId,
    /// The partition.
    pub partition: Partition,
}

/// What the log keeps about a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicDefinition {
    /// Its name.
    pub topic: Topic,
    /// How many partitions it has.
    pub partitions: PartitionCount,
    /// What may be removed from it, and when. Default: nothing.
    pub cleaning: Cleaning,
}

/// What the cleaner may remove from a topic. Nothing by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cleaning {
    /// Events older than this go. By append time.
    pub age_ms_max: Option<u64>,
    /// The oldest events go while each partition has more than this. Whole segments at a time, so
    /// that up to one segment more than this is kept.
    pub bytes_max: Option<u64>,
    /// Keep only the newest event of each key.
    pub compaction: Option<Compaction>,
}

/// Which events key compaction may remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Compaction {
    /// Events younger than this stay, so that readers who keep up see every one. Default 0.
    pub age_ms_min: u64,
    /// Tombstones stay this long, so that readers who keep up see the removal. Default 0.
    pub tombstone_ms: u64,
}

impl TopicDefinition {
    /// A topic of one partition that keeps everything.
    pub fn new(topic: Topic) -> Self {
        Self { topic, partitions: PartitionCount::ONE, cleaning: Cleaning::default() }
    }

    /// With so many partitions.
    #[must_use]
    pub fn with_partitions(mut self, partitions: PartitionCount) -> Self {
        self.partitions = partitions;
        self
    }

    /// With so much cleaning.
    #[must_use]
    pub fn with_cleaning(mut self, cleaning: Cleaning) -> Self {
        self.cleaning = cleaning;
        self
    }
}
