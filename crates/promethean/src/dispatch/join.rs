use std::sync::Arc;

use promethean_delivery::{Input, MemberId, MemberOptions};
use promethean_event::Topic;
use tokio::sync::mpsc;

use super::active::{ActiveGroup, GroupFailure};
use super::out_batch::OutBatch;
use crate::limits::MEMBER_MESSAGES_MAX;
use crate::store::Lane;

/// What a member is told.
#[derive(Debug)]
pub(crate) enum MemberMessage {
    Events(OutBatch, Topic),
    /// The partition is the member's.
    Assigned(Lane),
    /// The partition is about to go to another: finish what is out.
    Revoked(Lane),
}

/// What a consumer brings along.
#[derive(Debug, Clone, Default)]
pub(crate) struct JoinRequest {
    pub(crate) options: MemberOptions,
}

/// The way to a member.
pub(super) struct MemberQueue {
    sender: mpsc::Sender<MemberMessage>,
    /// Events that may be out to it.
    room: usize,
}

impl MemberQueue {
    /// Hands over a message, unless the member is gone, or so much waits for it that it cannot be
    /// reading: more than may be out to it and every change of owner there can be.
    pub(super) fn send(&self, lanes: usize, message: MemberMessage) -> bool {
        let waiting = self.sender.max_capacity() - self.sender.capacity();
        waiting <= self.room + 2 * lanes + 16 && self.sender.try_send(message).is_ok()
    }
}

impl ActiveGroup {
    /// Adds a member.
    pub(crate) fn join(
        self: &Arc<Self>,
        request: JoinRequest,
    ) -> Result<(MemberId, mpsc::Receiver<MemberMessage>), GroupFailure> {
        let room = request.options.max_in_flight as usize;
        let (sender, receiver) = mpsc::channel(MEMBER_MESSAGES_MAX);
        let (member, chores) = {
            let mut inner = self.lock();
            if let Some(failure) = &inner.failure {
                return Err(failure.clone());
            }
            let member = MemberId::new(inner.next_number());
            inner.members.insert(member, MemberQueue { sender, room });
            let joined = Input::Joined { member, options: request.options };
            self.step_locked(&mut inner, joined);
            (member, std::mem::take(&mut inner.chores))
        };
        self.work(chores);
        self.tell_hubs();
        Ok((member, receiver))
    }

    /// Takes a member out; what it had goes to others at once.
    pub(crate) fn leave(self: &Arc<Self>, member: MemberId) {
        // What it said before it went still counts.
        self.empty_mail_now();
        let chores = {
            let mut inner = self.lock();
            inner.members.remove(&member);
            self.step_locked(&mut inner, Input::Left { member });
            std::mem::take(&mut inner.chores)
        };
        self.work(chores);
        self.tell_hubs();
    }

    /// The first member came, or the last one went: lanes change hands.
    fn tell_hubs(&self) {
        if let Some(hub) = self.site.hub.as_ref().filter(|_| self.member_count() <= 1) {
            hub.ring();
        }
    }
}
