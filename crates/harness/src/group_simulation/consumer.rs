//! What consumers say of their deliveries: rightly, late, twice, and of those of others.

use promethean_delivery::{Ack, Input, MemberId, Span, Token, Verdict};

use super::world::World;

impl World {
    /// A token that a client holds, or thinks it does; it keeps it one time in five.
    fn any_token(&mut self) -> Option<(MemberId, Token)> {
        let at = self.any_client()?;
        let keep = self.random.chance(20);
        let choice = self.random.number();
        let client = self.clients.get_mut(at)?;
        let index = usize::try_from(choice.checked_rem(client.held.len() as u64)?).ok()?;
        let token = match keep {
            true => client.held.get(index).copied()?,
            false => client.held.remove(index),
        };
        Some((client.id, token))
    }

    fn named(&mut self, token: Token) -> Ack {
        match self.random.chance(70) {
            true => Ack::Token(token),
            false => Ack::Offset { lane: token.lane, offset: token.offset },
        }
    }

    pub(crate) fn ack_some(&mut self) {
        let Some((member, token)) = self.any_token() else {
            return;
        };
        let mut items = vec![self.named(token)];
        if self.random.chance(30) {
            let more = self.clients.iter().find(|client| client.id == member);
            items.extend(more.and_then(|client| client.held.first()).map(|t| Ack::Token(*t)));
        }
        let request = self.request();
        self.feed(Input::Ack { member, request, items: &items });
    }

    pub(crate) fn ack_range(&mut self) {
        let Some((member, token)) = self.any_token() else {
            return;
        };
        let from = token.offset.saturating_sub(self.random.below(3));
        let (lane, epoch) = (token.lane, token.epoch);
        let span = Span { from, to: token.offset + 1 + self.random.below(6) };
        let items = [match self.random.chance(50) {
            true => Ack::Range { lane, epoch, span },
            false => Ack::FirstAttempts { lane, epoch, span },
        }];
        let request = self.request();
        self.feed(Input::Ack { member, request, items: &items });
    }

    /// An ack by the wrong member, of the wrong attempt, or of the wrong epoch.
    pub(crate) fn ack_stale(&mut self) {
        let (Some((_, mut token)), Some(member)) = (self.any_token(), self.any_member()) else {
            return;
        };
        self.faults.stale_acks += 1;
        match self.random.below(4) {
            0 => token.attempt = token.attempt.saturating_sub(1),
            1 => token.epoch = token.epoch.saturating_sub(1),
            2 => token.attempt += 1,
            _ => {}
        }
        let request = self.request();
        self.feed(Input::Ack { member, request, items: &[Ack::Token(token)] });
    }

    pub(crate) fn nack(&mut self) {
        let Some((member, token)) = self.any_token() else {
            return;
        };
        self.faults.nacks += 1;
        let delay = self.random.chance(30).then(|| self.random.below(100) as u32);
        let (target, request) = (self.named(token), self.request());
        self.feed(Input::Nack {
            member,
            request,
            target,
            verdict: Verdict::Retry { delay_ms: delay, error: b"not today", fingerprint: 7 },
        });
    }

    pub(crate) fn park_now(&mut self) {
        let Some((member, token)) = self.any_token() else {
            return;
        };
        let verdict = match self.random.chance(70) {
            true => Verdict::Park { error: b"never", fingerprint: 8 },
            false => Verdict::Skip,
        };
        let (target, request) = (self.named(token), self.request());
        self.feed(Input::Nack { member, request, target, verdict });
    }

    pub(crate) fn extend(&mut self) {
        let Some((member, token)) = self.any_token() else {
            return;
        };
        let lease_ms = self.random.below(800) as u32;
        let (target, request) = (self.named(token), self.request());
        self.feed(Input::Extend { member, request, target, lease_ms });
    }

    /// A consumer acks all it has. Whether it had any.
    pub(crate) fn ack_all(&mut self, member: MemberId) -> bool {
        let held: Vec<Ack> = self
            .clients
            .iter_mut()
            .filter(|client| client.id == member)
            .flat_map(|client| std::mem::take(&mut client.held))
            .map(Ack::Token)
            .collect();
        if held.is_empty() {
            return false;
        }
        let request = self.request();
        self.feed(Input::Ack { member, request, items: &held });
        true
    }
}
