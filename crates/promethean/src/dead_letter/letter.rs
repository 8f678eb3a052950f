//! Dead letters: what they look like as events of `dlq.<topic>`.

use promethean_delivery::Reason;
use promethean_delivery::dead_letter::DeadLetterRecord;
use promethean_event::{
    DeadLetter, DeadLetterState, EventId, NewEvent, Offset, Payload, Timestamp, Topic,
};

use crate::store::Stored;

/// The header of an event that was changed and replayed: the one group it is for.
pub(crate) const REPLAY_FOR: &str = "x-replay-for";

/// The header of an event that was published anew: how often it went round so far.
pub(crate) const REPLAY_ROUND: &str = "x-replay-round";

/// A dead letter that is being written.
pub(crate) struct DeadEvent<'a> {
    pub(crate) record: &'a DeadLetterRecord,
    pub(crate) reason: Reason,
    pub(crate) topic: Topic,
    pub(crate) now: Timestamp,
}

impl DeadEvent<'_> {
    /// The event, with a copy of what was given up. The copy may make it larger than a user's
    /// event may be: it is the system's.
    pub(crate) fn with(self, original: Option<&Stored>) -> NewEvent {
        let Self { record, reason, topic, now } = self;
        let origin = &record.origin;
        let letter = DeadLetter {
            topic: origin.topic.clone(),
            partition: origin.partition,
            offset: origin.offset,
            group: origin.group.clone(),
            original: original.map(|stored| stored.event.clone()),
            err: record.error.clone(),
            reason: reason_text(reason).to_owned(),
            fingerprint: format!("{:016x}", record.fingerprint),
            // The time of the last delivery, so that the same move twice is the same event.
            ts: record.times.last().map_or(now, |&ms| Timestamp::from_millis(ms)),
            attempts: record.attempts,
            times: record.times.clone(),
            round: record.round,
        };
        // Plain fields always have a JSON form.
        let bytes = serde_json::to_vec(&letter).unwrap_or_else(|_| b"null".to_vec());
        let payload = Payload::from_stored(bytes.into());
        let mut event = NewEvent::new(record.id, now, topic, payload);
        event.key = original.and_then(|stored| stored.event.key.clone());
        event.caused_by = original.map(|stored| stored.event.id).into_iter().collect();
        event
    }
}

const fn reason_text(reason: Reason) -> &'static str {
    match reason {
        Reason::Refused => "refused",
        Reason::LeaseExpired => "lease_expired",
        Reason::MemberLost => "member_lost",
        Reason::Permanent => "permanent",
        Reason::ProcessLost => "process_lost",
        _ => "other",
    }
}

/// A dead letter with the id it is called by.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetterEntry {
    /// Its id: what `replay` and `discard` take.
    pub id: EventId,
    /// Its own place in `dlq.<topic>`.
    pub offset: Offset,
    /// What it says.
    pub letter: DeadLetter,
    /// What became of it.
    pub state: DeadLetterState,
}
