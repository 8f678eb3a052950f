//! Groups at work: `delivery` decides, this does.
//!
//! There is no task per group. Whoever brings something (a grown lane, an ack, a save that is
//! durable) takes the group's lock, lets the state machine decide, and performs what it said, in
//! order. Nothing under the lock waits: saves are handed to the store, events to the members'
//! queues. Reads are made after the lock is let go; those that the store can answer from memory
//! are answered on the spot, so that an event is two wake-ups away from its handler: the log wakes
//! the router, the router the member.

mod active;

mod dead_letters;

mod elsewhere;

mod fetch;

mod hub;

mod join;

mod lanes;

mod mail;

mod orders;

mod out_batch;

mod perform;

mod registry;

mod router;

mod save;

mod sharing;

mod standing;

mod stash;

pub(crate) use active::ActiveGroup;
pub use active::GroupFailure;
pub(crate) use join::{JoinRequest, MemberMessage};
pub(crate) use lanes::LaneName;
pub(crate) use orders::Order;
pub(crate) use out_batch::{OutBatch, OutEvent};
pub(crate) use registry::{GroupWish, Groups, Redact};
pub(crate) use standing::LaneStanding;
