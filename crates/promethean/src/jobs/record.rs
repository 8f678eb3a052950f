use promethean_event::{Event, EventId, Offset, Partition, Position, Topic};
use serde::{Deserialize, Serialize};

use super::spec::ReplaySpec;

/// How a job stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum JobState {
    /// It goes on, also after a restart.
    Running,
    /// It waits to be resumed.
    Paused,
    /// It was given up.
    Cancelled,
    /// It is over.
    Done,
    /// It cannot go on; resuming tries again.
    Failed,
}

impl JobState {
    /// Whether it can still become something else.
    pub const fn is_open(&self) -> bool {
        matches!(self, Self::Running | Self::Paused | Self::Failed)
    }
}

/// How far a partition is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayCursor {
    /// The topic.
    pub topic: Topic,
    /// Its number, so that another topic of that name is not taken for it.
    pub number: u32,
    /// The partition.
    pub partition: Partition,
    /// Where to go on.
    pub next: Offset,
    /// Where it ended when the job began.
    pub end: Offset,
}

/// An event that could not be replayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Where it stands: `topic/partition/offset`.
    pub position: String,
    /// Its id.
    pub id: EventId,
    /// Why.
    pub why: String,
}

/// Refused events that are told; all are counted.
const REFUSALS_MAX: usize = 16;

impl Refused {
    /// Adds an event to those that are told, if there is room.
    pub(super) fn note(told: &mut Vec<Self>, event: &Event, why: String) {
        if told.len() < REFUSALS_MAX {
            let position = Position::of(event).to_string();
            told.push(Self { position, id: event.id, why });
        }
    }
}

/// What is kept of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JobRecord {
    /// Its id.
    pub id: EventId,
    /// What it does.
    pub replay: ReplaySpec,
    /// How it stands.
    pub state: JobState,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Epoch milliseconds.
    pub started_at: u64,
    /// Epoch milliseconds.
    pub updated_at: u64,
    /// How far it is.
    pub cursors: Vec<ReplayCursor>,
    /// Events that were read.
    pub read: u64,
    /// Events that were published.
    pub published: u64,
    /// Events that had been published by an earlier run.
    pub duplicates: u64,
    /// Events that could not be.
    pub refused: u64,
    /// The first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<Refused>,
    /// How often another hub went on with it because the one that did it was silent.
    #[serde(default, skip_serializing_if = "is_none")]
    pub taken_over: u32,
    /// The version of its entry when it was read or written last: who does it writes on condition of
    /// that, so that of two hubs one stops.
    #[serde(skip)]
    pub(super) version: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over references")]
const fn is_none(count: &u32) -> bool {
    *count == 0
}

impl JobRecord {
    /// Offsets that are not read yet.
    pub fn left(&self) -> u64 {
        self.cursors.iter().map(|c| c.end.get().saturating_sub(c.next.get())).sum()
    }
}
