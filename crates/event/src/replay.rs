use crate::{Pattern, Start, Timestamp};

/// Which events to replay.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Replay {
    /// The topics.
    pub topics: Vec<Pattern>,
    /// Where to begin in each partition. Default: with the oldest event.
    pub from: Start,
    /// Only what the store took before this time.
    pub until: Option<Timestamp>,
}

impl Replay {
    /// Everything of the topics that a pattern matches.
    pub fn of(topics: Pattern) -> Self {
        Self { topics: vec![topics], from: Start::Earliest, until: None }
    }

    /// From somewhere else than the beginning.
    #[must_use]
    pub const fn from(mut self, start: Start) -> Self {
        self.from = start;
        self
    }

    /// Only what the store took before a time.
    #[must_use]
    pub const fn until(mut self, time: Timestamp) -> Self {
        self.until = Some(time);
        self
    }
}
