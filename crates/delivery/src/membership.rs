//! Members come, are heard of, and go.

use alloc::vec::Vec;

use crate::failure::Failure;
use crate::group::Group;
use crate::input::MemberOptions;
use crate::options::Mode;
use crate::output::{Output, Reason};
use crate::place::MemberId;
use crate::timer::Due;

impl Group {
    pub(crate) fn join(&mut self, id: MemberId, options: MemberOptions, outputs: &mut Vec<Output>) {
        if self.members.seat(id).is_some() {
            return self.heard_of(id, outputs);
        }
        self.members.join(self.now, id, options);
        if let Some(ttl) = self.options.member_ttl_ms {
            let due = self.now + u64::from(ttl);
            self.timers.add(due, Due::Silence { member: id });
        }
        self.rebalance(outputs);
    }

    /// A member is gone: its leases end now, and its lanes are free.
    pub(crate) fn leave(&mut self, id: MemberId, outputs: &mut Vec<Output>) {
        let Some(seat) = self.members.seat(id) else {
            return;
        };
        for at in self.lanes.refs() {
            let Some(lane) = self.lanes.get_mut(at) else {
                continue;
            };
            lane.owner.vacate(seat);
            if lane.out == 0 {
                continue;
            }
            for offset in lane.leases_of(seat) {
                self.fail(at, offset, Failure::at_once(Reason::MemberLost));
            }
            self.settle(at);
        }
        if let Some(member) = self.members.leave(seat) {
            // Lanes that waited for its room wait for somebody else's.
            self.members.woken.extend(member.blocked);
        }
        self.rebalance(outputs);
    }

    pub(crate) fn heard_of(&mut self, id: MemberId, outputs: &mut Vec<Output>) {
        let now = self.now;
        match self.members.seat(id).and_then(|seat| self.members.get_mut(seat)) {
            Some(member) => member.seen = now,
            None => outputs.push(Output::Rejoin { member: id }),
        }
    }

    pub(crate) fn add_credit(&mut self, id: MemberId, events: u32) {
        let Some(seat) = self.members.seat(id) else {
            return;
        };
        if let Some(member) = self.members.get_mut(seat) {
            let credits = member.credits.unwrap_or(0);
            member.credits = Some(credits.saturating_add(events));
        }
        self.members.refresh(seat);
    }

    pub(crate) fn set_member_paused(&mut self, id: MemberId, paused: bool) {
        let Some(seat) = self.members.seat(id) else {
            return;
        };
        if let Some(member) = self.members.get_mut(seat) {
            member.paused = paused;
        }
        self.members.refresh(seat);
    }

    /// A member may have been silent for too long.
    pub(crate) fn check_silence(&mut self, id: MemberId, outputs: &mut Vec<Output>) {
        let Some(ttl) = self.options.member_ttl_ms else {
            return;
        };
        let seat = self.members.seat(id);
        let Some(member) = seat.and_then(|seat| self.members.get(seat)) else {
            return;
        };
        let due = member.seen + u64::from(ttl);
        if due > self.now {
            return self.timers.add(due, Due::Silence { member: id });
        }
        outputs.push(Output::Expired { member: id });
        self.leave(id, outputs);
    }

    pub(crate) const fn is_partitioned(&self) -> bool {
        matches!(self.options.mode, Mode::Partitioned)
    }
}
