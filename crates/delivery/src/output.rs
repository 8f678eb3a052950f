use alloc::vec::Vec;

use crate::place::{LaneId, MemberId, RequestId, Token};
use crate::state::LaneDelta;

/// What the caller must do. In the order in which an event meets them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Output {
    /// Look at up to `max` offsets from `from` on and answer with `Fetched`.
    Fetch(Fetch),
    /// Hand events to a member.
    Deliver(Deliver),
    /// Make this durable, all of it or nothing, after every earlier save; then say `Saved`.
    Save(Save),
    /// Answer a question.
    Reply(Reply),
    /// Tell a member that a lane is its own.
    Assign(Ownership),
    /// Tell a member to finish what it has of a lane.
    Revoke {
        /// The lane and its owner.
        of: Ownership,
        /// Until when.
        deadline: u64,
    },
    /// A member was silent for too long and is not one any more.
    Expired {
        /// The member.
        member: MemberId,
    },
    /// Tell a consumer that is not a member (any more) to join again.
    Rejoin {
        /// The consumer.
        member: MemberId,
    },
    /// A page left out offsets without announcing a gap: the lane stands still, for to go on
    /// would lose them silently. A seek or a skip gets it going.
    Broken {
        /// The lane.
        lane: LaneId,
        /// The first offset that is neither there nor announced missing.
        offset: u64,
    },
    /// Say `Tick` at this time, and not at any told before.
    SetTimer {
        /// When.
        at: u64,
    },
}

/// A wish to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fetch {
    /// The lane.
    pub lane: LaneId,
    /// The number of the wish; the answer carries it.
    pub fetch: u64,
    /// The first offset.
    pub from: u64,
    /// How many offsets at most.
    pub max: u32,
}

/// Events for one member from one lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deliver {
    /// The member.
    pub member: MemberId,
    /// The lane.
    pub lane: LaneId,
    /// The lane's epoch.
    pub epoch: u32,
    /// The lane's owner generation; 0 in shared groups.
    pub generation: u32,
    /// When the leases end.
    pub deadline: u64,
    /// The events, those that come for the first time in the order of their places.
    pub runs: Vec<Run>,
}

/// Events that follow each other, on their way to a member, alike but for their place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The first one.
    pub from: u64,
    /// The offset after the last one.
    pub to: u64,
    /// Which delivery of each of them this is, counted from 1.
    pub attempt: u16,
    /// How often each had been released from the dead letters before.
    pub round: u16,
}

impl Run {
    /// How many events.
    pub const fn count(&self) -> u64 {
        self.to - self.from
    }

    /// One by one.
    pub fn events(self) -> impl Iterator<Item = Delivery> {
        let Self { from, to, attempt, round } = self;
        (from..to).map(move |offset| Delivery { offset, attempt, round })
    }
}

/// One event on its way to a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// Its place.
    pub offset: u64,
    /// Which delivery of it this is, counted from 1.
    pub attempt: u16,
    /// How often it had been released from the dead letters before.
    pub round: u16,
}

impl Deliver {
    /// How many events.
    pub fn count(&self) -> u64 {
        self.runs.iter().map(Run::count).sum()
    }

    /// The events, one by one.
    pub fn events(&self) -> impl Iterator<Item = Delivery> {
        self.runs.iter().flat_map(|run| run.events())
    }

    /// The token of one of its events.
    pub const fn token(&self, delivery: Delivery) -> Token {
        Token {
            lane: self.lane,
            offset: delivery.offset,
            epoch: self.epoch,
            attempt: delivery.attempt,
            round: delivery.round,
        }
    }
}

/// What must become durable together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Save {
    /// Its number, one above the last.
    pub number: u64,
    /// Changes, by lane.
    pub lanes: Vec<(LaneId, LaneDelta)>,
    /// Events that leave the flow by these changes: written in the same atomic step, or an event
    /// would be in both places, or in none.
    pub dead_letters: Vec<DeadLetter>,
}

/// An event given up on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Where it lies.
    pub lane: LaneId,
    /// Its place there.
    pub offset: u64,
    /// The epoch in which it was given up; a seek may have begun another one since.
    pub epoch: u32,
    /// The hash of its key.
    pub key: Option<u64>,
    /// Why.
    pub reason: Reason,
    /// How often it had been released before.
    pub round: u16,
    /// How often it was delivered.
    pub attempts: u16,
    /// When, the latest last; the oldest may be missing.
    pub times: Vec<u64>,
    /// What the consumer last said, opaque.
    pub error: Vec<u8>,
    /// The hash of that error, opaque.
    pub fingerprint: u64,
}

/// Why an event became a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The consumer refused it as often as it may.
    Refused,
    /// The consumer did not answer in time, the last time it may.
    LeaseExpired,
    /// The consumer went away with it, the last time it may.
    MemberLost,
    /// The consumer said that trying again is useless.
    Permanent,
    /// The whole process went down with it, the last time it may.
    ProcessLost,
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The question.
    pub request: RequestId,
    /// How many events were changed by it.
    pub accepted: u64,
    /// What was not, with reasons; empty if all is well.
    pub refused: Vec<Refused>,
}

/// One thing that was asked for and did not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// Which of the things that were asked for, counted from 0.
    pub item: u32,
    /// The event, or the position asked for.
    pub offset: u64,
    /// Why.
    pub why: Refusal,
}

/// Why nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Refusal {
    /// The event is done already.
    AlreadyDone,
    /// The token is of another delivery of the event.
    StaleToken,
    /// The lease ended, or another member holds it.
    LeaseLost,
    /// The group was moved since.
    Fenced,
    /// There is no such delivery, lane, member or dead letter.
    Unknown,
    /// The position lies beyond the last event.
    BeyondTail,
    /// The lease has its greatest length already.
    LeaseAtMaximum,
    /// The dead letter has been released too often.
    ReleasedTooOften,
}

/// Who owns a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ownership {
    /// The owner.
    pub member: MemberId,
    /// The lane.
    pub lane: LaneId,
    /// Rises with every change of owner.
    pub generation: u32,
}
