use promethean_delivery::{Ack, Reply, Verdict};

use super::checker::Checker;
use super::lane_books::Lease;

/// What is owed to somebody who asked.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) accepted: u64,
    /// Events (lane, epoch, offset, round) that must be durable before the answer.
    pub(super) done: Vec<(u64, u32, u64, u16)>,
    /// Epochs (lane, epoch) that must be.
    pub(super) sought: Option<(u64, u32)>,
}

impl Checker {
    /// Which events of `item` the member may rightly speak for.
    fn rightful(&self, member: u64, item: Ack) -> Vec<(u64, u64, Lease)> {
        let (lane, from, to) = match item {
            Ack::Token(token) => (token.lane.get(), token.offset, token.offset + 1),
            Ack::Offset { lane, offset } => (lane.get(), offset, offset + 1),
            Ack::Range { lane, span, .. } | Ack::FirstAttempts { lane, span, .. } => {
                (lane.get(), span.from, span.to)
            }
        };
        let Some(books) = self.lanes.get(&lane) else {
            return Vec::new();
        };
        let named = |lease: &Lease| match item {
            Ack::Token(token) => token == lease.token,
            Ack::Offset { .. } => true,
            Ack::Range { epoch, .. } => epoch == lease.token.epoch,
            Ack::FirstAttempts { epoch, .. } => {
                let token = lease.token;
                (token.epoch, token.attempt, token.round) == (epoch, 1, 0)
            }
        };
        let live = books.live_leases(self.now).filter(|(offset, lease)| {
            (from..to).contains(offset) && lease.member == member && named(lease)
        });
        live.map(|(offset, lease)| (lane, offset, *lease)).collect()
    }

    pub(super) fn acked(&mut self, member: u64, request: u64, items: &[Ack]) {
        let mut expected = Expected { accepted: 0, done: Vec::new(), sought: None };
        for item in items {
            for (lane, offset, lease) in self.rightful(member, *item) {
                self.lane(lane).finish(offset, lease.token.round);
                expected.accepted += 1;
                let token = lease.token;
                expected.done.push((lane, token.epoch, offset, token.round));
            }
        }
        self.expected.insert(request, expected);
    }

    pub(super) fn nacked(
        &mut self,
        (member, request): (u64, u64),
        target: Ack,
        verdict: Verdict<'_>,
    ) {
        let mut expected = Expected { accepted: 0, done: Vec::new(), sought: None };
        for (lane, offset, lease) in self.rightful(member, target) {
            expected.accepted += 1;
            let books = self.lane(lane);
            if verdict == Verdict::Skip {
                books.finish(offset, lease.token.round);
                let token = lease.token;
                expected.done.push((lane, token.epoch, offset, token.round));
            } else {
                books.leases.remove(&offset);
            }
        }
        self.expected.insert(request, expected);
    }

    pub(super) fn extended(&mut self, member: u64, target: Ack, lease_ms: u32) {
        let longest = u64::from(self.options.lease_ms_max);
        let wanted = self.now + u64::from(lease_ms);
        for (lane, offset, _) in self.rightful(member, target) {
            let books = self.lane(lane);
            if let Some(lease) = books.leases.get_mut(&offset) {
                let end = wanted.min(lease.began + longest);
                lease.deadline = lease.deadline.max(end);
            }
        }
    }

    pub(super) fn replied(&mut self, reply: &Reply) {
        let request = reply.request.get();
        let Some(expected) = self.expected.remove(&request) else {
            return;
        };
        if reply.accepted > expected.accepted {
            let (got, due) = (reply.accepted, expected.accepted);
            self.broken("P20", format!("request {request}: {got} accepted, {due} rightful"));
        }
        if reply.accepted < expected.accepted {
            let how = format!("request {request}: rightful and refused, {:?}", reply.refused);
            self.broken("P17", how);
        }
        for (lane, epoch, offset, round) in expected.done {
            if !self.lane(lane).is_durably_done(epoch, offset, round) {
                self.broken("P19", format!("lane {lane} offset {offset}: answered, not durable"));
            }
        }
        if let Some((lane, epoch)) = expected.sought
            && self.lane(lane).image.epoch < epoch
        {
            self.broken("P19", format!("lane {lane}: seek answered, not durable"));
        }
    }
}
