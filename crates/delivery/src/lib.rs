//! Decides who gets which event, when, and how often: a pure state machine.
//!
//! One [`Group`] is one durable consumer group over all the (topic, partition) *lanes* it reads.
//! [`Group::step`] takes what happened and says what to do; the caller does it. There is no
//! clock, file, thread or randomness inside, so that a simulator can run any schedule, and the
//! memory, embedded and MongoDB stores share one implementation.
//!
//! # What holds
//!
//! - The cursor of a lane, its *floor*, is the lowest offset that is neither acked, skipped,
//!   dead-lettered nor announced missing. Acks beyond it are kept as ranges.
//! - An event is out on one lease at most. A delivery has a [`Token`] of its own; acks with
//!   another one, of another member, after the deadline or from before a seek change nothing.
//! - With `ordered = key` one event of a key is in play at a time, and later ones wait for it
//!   through retries, crashes, seeks and changes of owner.
//! - Attempts are never counted short (the `lane` module says how), and an event without attempts
//!   left becomes a dead letter in the very save that takes it out of the flow.
//! - An answer to an ack goes out when the save that holds the ack is durable. Deliveries do not
//!   wait for it: saves are durable in order, so that a crash takes back a suffix of the acks,
//!   never an earlier one of a key alone.
//! - Nothing is read without room to deliver it, nothing polls, and a lane holds a bounded window.
//!
//! # How a caller drives it
//!
//! Add lanes with their recovered [`LaneState`], join members, feed appends, acks and ticks, and
//! perform every [`Output`] in order. Saves are numbered: apply each [`LaneDelta`] to the stored
//! state (or append its bytes), together with its dead letters, in one atomic step, in order, and
//! say [`Input::Saved`] when it is durable. After a crash make a new group from what was.
//!
//! Modules are listed in the order in which an event meets them.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod input;

mod group;

mod lane_table;

mod lane;

mod slot;

mod key_order;

mod reading;

mod distribution;

mod membership;

mod member;

mod assignment;

mod rebalance;

mod lease;

mod output;

mod acknowledgement;

mod completion;

mod watermark;

mod failure;

mod retry;

mod timer;

pub mod dead_letter;

mod operator;

mod unsaved;

mod save;

mod state;

mod encoding;

mod options;

mod place;

mod hash;

pub mod limits;

#[cfg(feature = "planted-bugs")]
mod planted;

pub use assignment::{LanePlace, assign};
pub use encoding::DecodeError;
pub use group::{Counters, Group, LaneStatus};
pub use input::{
    Ack, DeadLetterRef, Found, Input, LaneStart, MemberOptions, Page, StartFrom, Verdict,
};
pub use options::{GroupOptions, Mode, OptionsError, Ordered, Park};
pub use output::{
    DeadLetter, Deliver, Delivery, Fetch, Output, Ownership, Reason, Refusal, Refused, Reply, Run,
    Save,
};
pub use place::{LaneId, MemberId, RequestId, Token};
#[cfg(feature = "planted-bugs")]
pub use planted::PlantedBug;
pub use state::{
    ApplyError, AttemptRecord, Change, LaneDelta, LaneState, ParkedKey, ReleasedEvent,
};
pub use watermark::{Span, SpanSet};
