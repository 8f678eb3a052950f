use std::sync::Arc;

use promethean_delivery::{Delivery, Input, MemberId, MemberOptions, Token};
use tokio::sync::mpsc;

use super::active::{ActiveGroup, GroupFailure};
use super::stash::EventRef;
use crate::store::Lane;

/// What a member is told.
#[derive(Debug)]
pub(crate) enum MemberMessage {
    Events(OutBatch),
    /// The partition is the member's.
    Assigned(Lane),
    /// The partition is about to go to another: finish what is out.
    Revoked(Lane),
}

/// Events for one member from one lane.
#[derive(Debug)]
pub(crate) struct OutBatch {
    pub(crate) lane: Lane,
    pub(crate) epoch: u32,
    pub(crate) generation: u32,
    pub(crate) deadline_ms: u64,
    pub(crate) events: Vec<OutEvent>,
}

/// One event on its way to a member.
#[derive(Debug)]
pub(crate) struct OutEvent {
    pub(crate) event: EventRef,
    pub(crate) delivery: Delivery,
}

impl OutBatch {
    pub(crate) const fn token(&self, delivery: &Delivery) -> Token {
        Token {
            lane: self.lane.id(),
            offset: delivery.offset,
            epoch: self.epoch,
            attempt: delivery.attempt,
            round: delivery.round,
        }
    }
}

/// What a consumer brings along.
#[derive(Debug, Clone, Default)]
pub(crate) struct JoinRequest {
    pub(crate) options: MemberOptions,
}

impl ActiveGroup {
    /// Adds a member; its queue holds as much as may ever be out to it.
    pub(crate) fn join(
        self: &Arc<Self>,
        request: JoinRequest,
    ) -> Result<(MemberId, mpsc::Receiver<MemberMessage>), GroupFailure> {
        let lanes = self.lock().lanes.len();
        let capacity = request.options.max_in_flight.max(1) as usize + 2 * lanes + 16;
        let (sender, receiver) = mpsc::channel(capacity);
        let (member, chores) = {
            let mut inner = self.lock();
            if let Some(failure) = &inner.failure {
                return Err(failure.clone());
            }
            let member = MemberId::new(inner.next_number());
            inner.members.insert(member, sender);
            let joined = Input::Joined { member, options: request.options };
            self.step_locked(&mut inner, joined);
            (member, std::mem::take(&mut inner.chores))
        };
        self.work(chores);
        Ok((member, receiver))
    }

    /// Takes a member out; what it had goes to others at once.
    pub(crate) fn leave(self: &Arc<Self>, member: MemberId) {
        let chores = {
            let mut inner = self.lock();
            inner.members.remove(&member);
            self.step_locked(&mut inner, Input::Left { member });
            std::mem::take(&mut inner.chores)
        };
        self.work(chores);
    }
}
