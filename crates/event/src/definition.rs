use crate::{PartitionCount, Topic};

/// What a topic is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicDefinition {
    /// Its name.
    pub topic: Topic,
    /// How many partitions it has. Fixed.
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
