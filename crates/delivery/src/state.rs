//! What of a lane survives: plain values, changed only by applying deltas in order.
//!
//! A store keeps one [`LaneState`] per (group, topic, partition), as fields or as bytes, and
//! brings it forward with [`LaneState::apply`]. Every delta has a number one above the last one's:
//! one that was applied already is passed over, one that comes too early is refused.

use alloc::vec::Vec;

use crate::limits::{ATTEMPT_TIMES_MAX, ERROR_BYTES_MAX};
use crate::watermark::{Span, SpanSet};

/// What is known of the deliveries of an event that did not succeed at the first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AttemptRecord {
    /// The event.
    pub offset: u64,
    /// Deliveries that were made, or were about to be.
    pub count: u16,
    /// When they were made, the latest last; the oldest are dropped beyond a limit.
    pub times: Vec<u64>,
    /// The next delivery is not due before this time; 0 if it is.
    pub not_before: u64,
    /// What the consumer last said, opaque.
    pub error: Vec<u8>,
    /// The hash of that error with its variable parts taken out, opaque.
    pub fingerprint: u64,
}

impl AttemptRecord {
    pub(crate) fn add_time(&mut self, at: u64) {
        if self.times.len() >= ATTEMPT_TIMES_MAX {
            self.times.remove(0);
        }
        self.times.push(at);
    }

    pub(crate) fn set_error(&mut self, error: &[u8]) {
        self.error = error.iter().copied().take(ERROR_BYTES_MAX).collect();
    }
}

/// A key whose later events wait behind a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParkedKey {
    /// The hash of the key.
    pub key: u64,
    /// The dead letter.
    pub offset: u64,
}

/// A dead letter that was given back to the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReleasedEvent {
    /// The event.
    pub offset: u64,
    /// The hash of its key.
    pub key: Option<u64>,
    /// How often it has been released, this time included.
    pub round: u16,
}

/// What of a lane survives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaneState {
    /// Number of the last delta in it.
    pub version: u64,
    /// Rises with every seek; deliveries of an earlier epoch are void.
    pub epoch: u32,
    /// Rises with every change of owner.
    pub generation: u32,
    /// The cursor: the lowest offset that is not finished.
    pub floor: u64,
    /// Events below it may have been delivered once; none beyond it has been.
    pub horizon: u64,
    /// Finished offsets beyond the floor.
    pub acked: SpanSet,
    /// Exact counts, by offset.
    pub attempts: Vec<AttemptRecord>,
    /// Parked keys, by key and dead letter.
    pub parked: Vec<ParkedKey>,
    /// Released dead letters, by offset.
    pub released: Vec<ReleasedEvent>,
}

/// One step of a delta.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// The cursor moved up.
    Floor(u64),
    /// Offsets beyond the cursor were finished.
    Acked(Span),
    /// First deliveries may go up to here.
    Horizon(u64),
    /// A delivery was counted, or its outcome noted.
    Attempted(AttemptRecord),
    /// A key waits from now on.
    Parked(ParkedKey),
    /// A dead letter that a key waited for was resolved.
    Resolved(ParkedKey),
    /// A dead letter was given back to the group.
    Released(ReleasedEvent),
    /// A released dead letter was finished, by an ack or by becoming a dead letter again.
    Finished {
        /// The event.
        offset: u64,
    },
    /// The group was moved.
    Seek {
        /// The new epoch.
        epoch: u32,
        /// The new cursor.
        floor: u64,
        /// The new horizon.
        horizon: u64,
    },
    /// The lane got another owner.
    Generation(u32),
}

/// Numbered changes of one lane that belong together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaneDelta {
    /// One above the number of the delta before.
    pub version: u64,
    /// What changed, in this order.
    pub changes: Vec<Change>,
}

/// Why a delta cannot be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("delta {found} does not follow {have}: a save is missing")]
pub struct ApplyError {
    /// Number of the last delta applied.
    pub have: u64,
    /// Number of the one that came.
    pub found: u64,
}

impl LaneState {
    /// A lane of which nothing is known but where it begins.
    pub fn starting_at(floor: u64) -> Self {
        Self { floor, horizon: floor, ..Self::default() }
    }

    /// Brings the state forward. A delta that is in it already changes nothing.
    pub fn apply(&mut self, delta: &LaneDelta) -> Result<(), ApplyError> {
        if delta.version <= self.version {
            return Ok(());
        }
        if delta.version != self.version + 1 {
            return Err(ApplyError { have: self.version, found: delta.version });
        }
        self.version = delta.version;
        for change in &delta.changes {
            self.change(change);
        }
        Ok(())
    }

    fn change(&mut self, change: &Change) {
        match change {
            Change::Floor(floor) => self.raise_floor(*floor),
            Change::Acked(span) => self.finish(*span),
            Change::Horizon(horizon) => self.horizon = self.horizon.max(*horizon),
            Change::Attempted(record) => {
                put(&mut self.attempts, record.clone(), |have| have.offset);
            }
            Change::Parked(parked) => {
                put(&mut self.parked, *parked, |have| (have.key, have.offset));
            }
            Change::Resolved(parked) => self.parked.retain(|have| have != parked),
            Change::Released(released) => {
                put(&mut self.released, *released, |have| have.offset);
            }
            Change::Finished { offset } => {
                self.released.retain(|have| have.offset != *offset);
                self.attempts.retain(|have| have.offset != *offset);
            }
            Change::Seek { epoch, floor, horizon } => self.seek(*epoch, *floor, *horizon),
            Change::Generation(generation) => self.generation = *generation,
        }
    }

    fn raise_floor(&mut self, floor: u64) {
        if floor <= self.floor {
            return;
        }
        self.acked.cut_below(floor);
        self.floor = floor;
        self.horizon = self.horizon.max(floor);
        let released = &self.released;
        self.attempts.retain(|have| have.offset >= floor || is_released(released, have.offset));
    }

    fn finish(&mut self, span: Span) {
        let from = span.from.max(self.floor);
        self.acked.insert(Span { from, to: span.to });
        let released = &self.released;
        self.attempts.retain(|have| {
            have.offset < from || have.offset >= span.to || is_released(released, have.offset)
        });
    }

    fn seek(&mut self, epoch: u32, floor: u64, horizon: u64) {
        self.epoch = epoch;
        self.floor = floor;
        self.horizon = horizon;
        self.acked.clear();
        // What lies behind the new cursor comes again by itself.
        self.released.retain(|have| have.offset < floor);
        self.parked.retain(|have| have.offset < floor);
        let released = &self.released;
        self.attempts.retain(|have| is_released(released, have.offset));
    }
}

fn is_released(released: &[ReleasedEvent], offset: u64) -> bool {
    !released.is_empty() && released.binary_search_by_key(&offset, |r| r.offset).is_ok()
}

fn put<T, N: Ord>(list: &mut Vec<T>, entry: T, number: impl Fn(&T) -> N) {
    match list.binary_search_by_key(&number(&entry), &number) {
        Ok(at) => {
            if let Some(have) = list.get_mut(at) {
                *have = entry;
            }
        }
        Err(at) => list.insert(at, entry),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn delta(version: u64, changes: Vec<Change>) -> LaneDelta {
        LaneDelta { version, changes }
    }

    #[test]
    fn deltas_are_ordered_and_idempotent() {
        let mut state = LaneState::starting_at(5);
        let one = delta(1, vec![Change::Horizon(100), Change::Acked(Span { from: 7, to: 9 })]);
        state.apply(&one).unwrap();
        let once = state.clone();
        state.apply(&one).unwrap();
        assert_eq!(state, once);
        let early = delta(3, vec![]);
        assert_eq!(state.apply(&early), Err(ApplyError { have: 1, found: 3 }));
        assert_eq!(state, once);
    }

    /// Pitfall 20: a reset that leaves parts of the old cursor in place does nothing.
    #[test]
    fn a_seek_replaces_the_whole_cursor() {
        let mut state = LaneState::starting_at(0);
        let record = AttemptRecord { offset: 12, count: 2, ..AttemptRecord::default() };
        state
            .apply(&delta(
                1,
                vec![
                    Change::Floor(10),
                    Change::Acked(Span { from: 20, to: 30 }),
                    Change::Attempted(record),
                    Change::Parked(ParkedKey { key: 1, offset: 3 }),
                    Change::Parked(ParkedKey { key: 2, offset: 8 }),
                ],
            ))
            .unwrap();
        let seek = Change::Seek { epoch: 1, floor: 4, horizon: 50 };
        state.apply(&delta(2, vec![seek])).unwrap();
        let mut expected = LaneState::starting_at(4);
        expected.version = 2;
        expected.epoch = 1;
        expected.horizon = 50;
        expected.parked = vec![ParkedKey { key: 1, offset: 3 }];
        assert_eq!(state, expected);
    }
}
