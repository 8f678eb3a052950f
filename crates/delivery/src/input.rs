use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::place::{LaneId, MemberId, RequestId, Token};
use crate::state::LaneState;
use crate::watermark::Span;

/// What happened, as told to a group. In the order in which an event meets them.
#[derive(Debug)]
pub enum Input<'a> {
    /// The group reads this lane from now on.
    LaneAdded(LaneStart),
    /// The group reads this lane no more; its leases are void, what it knew is saved once more.
    /// Whoever takes the lane up, here or elsewhere, waits until that save is durable.
    LaneRemoved {
        /// The lane.
        lane: LaneId,
    },
    /// The lane is about to be removed: nothing new goes out of it, what is out may be finished.
    LaneClosing {
        /// The lane.
        lane: LaneId,
    },
    /// Another has taken the lane over: what it knew is void, saves of it that are not under way
    /// are not made, and its events are no longer out. Answers that rest on it are the caller's to
    /// refuse.
    LaneLost {
        /// The lane.
        lane: LaneId,
    },
    /// A lane grew: its first free offset is now `tail`.
    Appended {
        /// The lane.
        lane: LaneId,
        /// The offset after its last event.
        tail: u64,
    },
    /// What a fetch found.
    Fetched(Page<'a>),
    /// A fetch found nothing out; it is asked for again after a while.
    FetchFailed {
        /// The lane.
        lane: LaneId,
        /// The fetch.
        fetch: u64,
    },

    /// A consumer is there.
    Joined {
        /// Its number, never used before.
        member: MemberId,
        /// What it can take.
        options: MemberOptions,
    },
    /// A consumer is gone, or said goodbye. Its leases end at once.
    Left {
        /// The consumer.
        member: MemberId,
    },
    /// A consumer is alive.
    Heartbeat {
        /// The consumer.
        member: MemberId,
    },
    /// A consumer can take that many more events.
    Credit {
        /// The consumer.
        member: MemberId,
        /// How many.
        events: u32,
    },
    /// A consumer wants no new events; its leases go on.
    MemberPaused {
        /// The consumer.
        member: MemberId,
    },
    /// A consumer wants events again.
    MemberResumed {
        /// The consumer.
        member: MemberId,
    },
    /// A consumer has stopped working on a lane that was revoked.
    LaneReleased {
        /// The consumer.
        member: MemberId,
        /// The lane.
        lane: LaneId,
        /// The generation that was revoked.
        generation: u32,
    },

    /// Events are done.
    Ack {
        /// Who says so.
        member: MemberId,
        /// The question.
        request: RequestId,
        /// The events.
        items: &'a [Ack],
    },
    /// An event could not be handled, or its lease is to change.
    Nack {
        /// Who says so.
        member: MemberId,
        /// The question.
        request: RequestId,
        /// The delivery.
        target: Ack,
        /// What to do.
        verdict: Verdict<'a>,
    },
    /// A consumer needs more time: the lease ends `lease_ms` from now, within its maximum.
    Extend {
        /// Who says so.
        member: MemberId,
        /// The question.
        request: RequestId,
        /// The delivery.
        target: Ack,
        /// How long from now.
        lease_ms: u32,
    },

    /// Everything up to this save is durable.
    Saved {
        /// Its number.
        number: u64,
    },
    /// Time has passed.
    Tick,

    /// An operator or the store takes offsets out of the flow.
    Skip {
        /// The question.
        request: RequestId,
        /// The lane.
        lane: LaneId,
        /// The offsets.
        span: Span,
    },
    /// An operator moves the group.
    Seek {
        /// The question.
        request: RequestId,
        /// The lane.
        lane: LaneId,
        /// The offset to go on with; not beyond the tail.
        to: u64,
    },
    /// Nothing is delivered until the group is resumed; leases go on.
    Paused,
    /// Delivery goes on.
    Resumed,
    /// A dead letter is given back to this group, and to no other.
    Release {
        /// The question.
        request: RequestId,
        /// The lane it came from.
        lane: LaneId,
        /// The dead letter.
        event: DeadLetterRef,
    },
    /// A dead letter is given up for good: its key goes on.
    Discard {
        /// The question.
        request: RequestId,
        /// The lane it came from.
        lane: LaneId,
        /// The dead letter.
        event: DeadLetterRef,
    },
}

/// A lane at the time the group begins to read it.
#[derive(Debug)]
pub struct LaneStart {
    /// The lane.
    pub lane: LaneId,
    /// The offset after its last event.
    pub tail: u64,
    /// Where to begin.
    pub from: StartFrom,
}

/// Where a group begins in a lane.
#[derive(Debug)]
pub enum StartFrom {
    /// At this offset; the group has never read the lane. Saved at once, so that what is
    /// published from now on is not missed.
    Offset(u64),
    /// Where it was.
    State(Box<LaneState>),
}

/// What a fetch found: all of the offsets from `from` to `to`, as events or as gaps.
#[derive(Debug, Clone, Copy)]
pub struct Page<'a> {
    /// The lane.
    pub lane: LaneId,
    /// The fetch this answers.
    pub fetch: u64,
    /// The first offset looked at.
    pub from: u64,
    /// The offset after the last one looked at.
    pub to: u64,
    /// What is there, by offset.
    pub events: &'a [Found],
    /// What is not there any more (expired, compacted, corrupt) and is announced to readers.
    pub gaps: &'a [Span],
}

/// One event, as far as delivery has to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Its place.
    pub offset: u64,
    /// The hash of its key.
    pub key: Option<u64>,
    /// Its size.
    pub bytes: u32,
    /// The group's filter does not want it.
    pub skip: bool,
}

/// What a member can take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberOptions {
    /// Events it takes before it must say `Credit`. Default: none, acks alone make room.
    pub credits: Option<u32>,
    /// Events out to it at once. Default: 1 000.
    pub max_in_flight: u32,
    /// Bytes out to it at once; one event always fits. Default: 8 MiB.
    pub max_bytes_in_flight: u64,
    /// Events in one `Deliver`. Default: 100.
    pub batch_size: u32,
    /// The lanes it wants. Default: all of the group's.
    pub lanes: Option<Vec<LaneId>>,
}

impl Default for MemberOptions {
    fn default() -> Self {
        Self {
            credits: None,
            max_in_flight: 1_000,
            max_bytes_in_flight: 8 << 20,
            batch_size: 100,
            lanes: None,
        }
    }
}

/// Which delivery is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    /// Exactly this one.
    Token(Token),
    /// The one of this event that the member holds, for clients without tokens.
    Offset {
        /// Where the event lies.
        lane: LaneId,
        /// Its place there.
        offset: u64,
    },
    /// Those of these events that the member holds.
    Range {
        /// Where the events lie.
        lane: LaneId,
        /// The epoch they were delivered in.
        epoch: u32,
        /// The events.
        span: Span,
    },
    /// Those of these events that the member holds, each of them delivered for the first time:
    /// what a token says, for many at once.
    FirstAttempts {
        /// Where the events lie.
        lane: LaneId,
        /// The epoch they were delivered in.
        epoch: u32,
        /// The events.
        span: Span,
    },
}

impl Ack {
    /// The event, or the first one.
    pub const fn place(&self) -> (LaneId, u64) {
        match self {
            Self::Token(token) => (token.lane, token.offset),
            Self::Offset { lane, offset } => (*lane, *offset),
            Self::Range { lane, span, .. } | Self::FirstAttempts { lane, span, .. } => {
                (*lane, span.from)
            }
        }
    }
}

/// What becomes of a delivery that did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// It is delivered again, unless that was the last attempt.
    Retry {
        /// After this time; without it, after the group's backoff.
        delay_ms: Option<u32>,
        /// Why, opaque.
        error: &'a [u8],
        /// The hash of the error without its variable parts.
        fingerprint: u64,
    },
    /// It is a dead letter at once.
    Park {
        /// Why, opaque.
        error: &'a [u8],
        /// The hash of the error without its variable parts.
        fingerprint: u64,
    },
    /// It is done without having been handled.
    Skip,
}

impl Input<'_> {
    /// The events, or for operators the places, that an answer to this rests on.
    pub fn about(&self) -> Vec<(LaneId, u64)> {
        match self {
            Self::Ack { items, .. } => items.iter().map(Ack::place).collect(),
            Self::Nack { target, .. } | Self::Extend { target, .. } => {
                alloc::vec![target.place()]
            }
            Self::Skip { lane, span, .. } => alloc::vec![(*lane, span.from)],
            Self::Seek { lane, to, .. } => alloc::vec![(*lane, *to)],
            Self::Release { lane, event, .. } | Self::Discard { lane, event, .. } => {
                alloc::vec![(*lane, event.offset)]
            }
            _ => Vec::new(),
        }
    }
}

/// A dead letter as the group knew it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadLetterRef {
    /// Its place.
    pub offset: u64,
    /// The hash of its key.
    pub key: Option<u64>,
    /// How often it has been released, this time included.
    pub round: u16,
}
