//! Dead letters: which there are, and what can become of them.

use promethean_event::{
    DeadLetter, DeadLetterQuery, DeadLetterState, Event, EventId, GroupName, Offset, Partition,
    ReplayTo, Timestamp, Topic,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::bus::Bus;
use crate::code::Code;
use crate::error::{DeadLetterError, GroupError};
use crate::http::Ask;
use crate::limits::DEAD_LETTERS_MAX;

/// A dead letter with the id it is called by.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetterEntry {
    /// Its id: what `replay` and `discard` take.
    pub id: EventId,
    /// What became of it.
    pub state: DeadLetterState,
    /// What it says.
    pub letter: DeadLetter,
}

/// As it comes: both in one, and not by flattening, in which payloads would lose their spelling.
#[derive(Deserialize)]
struct Listed {
    id: EventId,
    state: DeadLetterState,
    topic: Topic,
    partition: Partition,
    offset: Offset,
    group: GroupName,
    #[serde(default)]
    original: Option<Event>,
    err: String,
    reason: String,
    fingerprint: String,
    ts: Timestamp,
    attempts: u16,
    #[serde(default)]
    times: Vec<u64>,
    #[serde(default)]
    round: u16,
}

impl From<Listed> for DeadLetterEntry {
    fn from(listed: Listed) -> Self {
        let letter = DeadLetter {
            topic: listed.topic,
            partition: listed.partition,
            offset: listed.offset,
            group: listed.group,
            original: listed.original,
            err: listed.err,
            reason: listed.reason,
            fingerprint: listed.fingerprint,
            ts: listed.ts,
            attempts: listed.attempts,
            times: listed.times,
            round: listed.round,
        };
        Self { id: listed.id, state: listed.state, letter }
    }
}

/// How dead letters are to be replayed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ReplayDeadLetters {
    /// Which.
    pub query: DeadLetterQuery,
    /// To whom.
    pub to: ReplayTo,
}

impl ReplayDeadLetters {
    /// Gives what waits back to the groups that gave it up.
    pub const fn new(query: DeadLetterQuery) -> Self {
        Self { query, to: ReplayTo::FailingGroup }
    }

    /// To everybody instead.
    #[must_use]
    pub const fn to(mut self, to: ReplayTo) -> Self {
        self.to = to;
        self
    }
}

/// What a replay has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayReport {
    /// Dead letters that were replayed, by id.
    pub replayed: Vec<EventId>,
    /// Those that were not: they do not wait any more, or their group is gone.
    pub left: Vec<EventId>,
}

#[derive(Deserialize)]
struct Letters {
    dead_letters: Vec<Listed>,
    /// Where to go on, if there may be more.
    #[serde(default)]
    next: Option<EventId>,
}

impl Bus {
    /// Dead letters, oldest first by topic; 10,000 at most.
    pub async fn dead_letters(
        &self,
        query: &DeadLetterQuery,
    ) -> Result<Vec<DeadLetterEntry>, DeadLetterError> {
        let max = if query.max == 0 { DEAD_LETTERS_MAX } else { query.max.min(DEAD_LETTERS_MAX) };
        let wanted = |letter: &Listed| query.ids.is_empty() || query.ids.contains(&letter.id);
        let (mut found, mut after) = (Vec::new(), query.after);
        loop {
            let page = self.dead_letter_page(query, after).await?;
            let left = max - found.len();
            let letters = page.dead_letters.into_iter().filter(wanted).take(left);
            found.extend(letters.map(DeadLetterEntry::from));
            after = page.next;
            if after.is_none() || found.len() == max {
                return Ok(found);
            }
        }
    }

    async fn dead_letter_page(
        &self,
        query: &DeadLetterQuery,
        after: Option<EventId>,
    ) -> Result<Letters, DeadLetterError> {
        let after = after.map(|id| id.to_string());
        // One is asked for by name; of several, the others are left out here.
        let id = query.ids.first().filter(|_| query.ids.len() == 1).map(EventId::to_string);
        let state = match query.state {
            None => "all",
            Some(DeadLetterState::Waiting) => "waiting",
            Some(DeadLetterState::Replayed) => "replayed",
            Some(DeadLetterState::Discarded) => "discarded",
        };
        let mut asked = vec![("state", state), ("limit", "1000")];
        asked.extend(query.topics.as_ref().map(|topics| ("topic", topics.as_str())));
        asked.extend(query.group.as_ref().map(|group| ("group", group.as_str())));
        asked.extend(after.as_deref().map(|id| ("after", id)));
        asked.extend(query.fingerprint.as_deref().map(|kind| ("fingerprint", kind)));
        asked.extend(id.as_deref().map(|id| ("id", id)));
        self.inner.http.ask(Ask::get("/dead-letters", &asked)).await
    }

    /// Replays dead letters. Each one is settled as soon as it is replayed, so that a replay that
    /// was broken off goes on where it was.
    pub async fn replay_dead_letters(
        &self,
        replay: &ReplayDeadLetters,
    ) -> Result<ReplayReport, DeadLetterError> {
        let mut query = replay.query.clone();
        query.state = Some(DeadLetterState::Waiting);
        let to = match replay.to {
            ReplayTo::FailingGroup => "failing_group",
            ReplayTo::AllGroups => "all_groups",
        };
        let mut report = ReplayReport::default();
        for entry in self.dead_letters(&query).await? {
            let ask =
                Ask::post(&format!("/dead-letters/{}/replay", entry.id), &json!({ "to": to }));
            match self.inner.http.ask::<Value>(ask).await {
                Ok(_) => report.replayed.push(entry.id),
                Err(GroupError::Refused(refusal)) if refusal.code == Code::Conflict => {
                    report.left.push(entry.id);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(report)
    }

    /// Gives a dead letter up for good; its key goes on.
    pub async fn discard_dead_letter(&self, id: EventId) -> Result<(), DeadLetterError> {
        let ask = Ask::post(&format!("/dead-letters/{id}/discard"), &json!({}));
        self.inner.http.ask::<Value>(ask).await.map(drop)
    }
}
