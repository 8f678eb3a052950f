use serde::{Deserialize, Serialize};

use crate::{Event, EventId, GroupName, Offset, Partition, Pattern, Timestamp, Topic};

/// What a dead letter says: the payload of an event of `dlq.<topic>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// The topic that it comes from.
    pub topic: Topic,
    /// The partition there.
    pub partition: Partition,
    /// The place there.
    pub offset: Offset,
    /// The group that gave it up; others have their own opinion.
    pub group: GroupName,
    /// The event, whole; `None` if it was gone before it could be copied.
    #[serde(default)]
    pub original: Option<Event>,
    /// What the consumer last said.
    pub err: String,
    /// Why it was given up: `refused`, `lease_expired`, `member_lost`, `permanent`,
    /// `process_lost`.
    pub reason: String,
    /// The same for errors that differ only in numbers, ids and quoted text.
    pub fingerprint: String,
    /// When it was given up.
    pub ts: Timestamp,
    /// How often it was delivered.
    pub attempts: u16,
    /// When, epoch milliseconds, the latest last.
    #[serde(default)]
    pub times: Vec<u64>,
    /// How often it had been replayed before.
    #[serde(default)]
    pub round: u16,
}

impl DeadLetter {
    /// What an event of a topic of dead letters says; `None` if it is none.
    pub fn of(event: &Event) -> Option<Self> {
        event.payload.decode().ok()
    }
}

/// What became of a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeadLetterState {
    /// Nothing yet.
    Waiting,
    /// It was given back to its group, or published again.
    Replayed,
    /// It was given up for good.
    Discarded,
}

/// Which dead letters.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct DeadLetterQuery {
    /// Of these topics (their own names, without `dlq.`).
    pub topics: Option<Pattern>,
    /// Given up by this group.
    pub group: Option<GroupName>,
    /// With errors of this kind; the beginning of a fingerprint will do.
    pub fingerprint: Option<String>,
    /// Exactly these.
    pub ids: Vec<EventId>,
    /// In this state; `None` for all.
    pub state: Option<DeadLetterState>,
    /// Those that a listing has behind this one: to go on where the last one ended.
    pub after: Option<EventId>,
    /// So many at most; 0 for as many as a listing may have.
    pub max: usize,
}

impl DeadLetterQuery {
    /// All that wait.
    pub fn waiting() -> Self {
        Self { state: Some(DeadLetterState::Waiting), ..Self::default() }
    }

    /// Only those of a group.
    #[must_use]
    pub fn group(mut self, group: GroupName) -> Self {
        self.group = Some(group);
        self
    }

    /// Only those of the topics that a pattern matches.
    #[must_use]
    pub fn topics(mut self, topics: Pattern) -> Self {
        self.topics = Some(topics);
        self
    }

    /// Only those whose errors are of one kind.
    #[must_use]
    pub fn fingerprint(mut self, fingerprint: impl Into<String>) -> Self {
        self.fingerprint = Some(fingerprint.into());
        self
    }

    /// Only those behind this one.
    #[must_use]
    pub const fn after(mut self, id: EventId) -> Self {
        self.after = Some(id);
        self
    }

    /// Only this one.
    #[must_use]
    pub fn id(mut self, id: EventId) -> Self {
        self.ids.push(id);
        self
    }
}

/// Who gets a dead letter again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplayTo {
    /// The group that gave it up, and no other. Default.
    #[default]
    FailingGroup,
    /// Everybody: it is published again, linked to the original by `caused_by`.
    AllGroups,
}
