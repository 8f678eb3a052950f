use promethean_event::Partition;
pub use promethean_event::{Cleaning, Compaction, TopicDefinition};

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
