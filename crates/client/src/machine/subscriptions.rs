use std::collections::BTreeMap;

use promethean_event::frame::{DeliveryToken, From, SubscribeOpts};
use promethean_event::{
    Cursor, Failure, FailureVerdict, GroupName, Offset, Partition, Pattern, Topic,
};

use super::leases::{LeaseStep, Leases};
use super::wire::{Answer, Gap, Item, Said};
use super::{Asked, Effect, Flow, Machine, SubKey, Ticket};
use crate::error::{AckError, Refusal};
use crate::limits::{ACKS_MAX, REJOIN_MS};

/// What a subscription asks for.
#[derive(Debug, Clone)]
pub(crate) struct SubscribeWish {
    pub(crate) topics: Vec<Pattern>,
    /// None: a tail.
    pub(crate) group: Option<GroupName>,
    pub(crate) opts: SubscribeOpts,
    /// Events that may be here at once.
    pub(crate) prefetch: u32,
    pub(crate) lease_ms: u32,
    /// How long a lease is renewed for work that does not end.
    pub(crate) processing_ms: u64,
}

/// A subscription, over all connections.
#[derive(Debug)]
pub(super) struct Sub {
    wish: SubscribeWish,
    /// What the server calls it on this connection.
    number: Option<u32>,
    leases: Leases,
    /// Handed on or answered, and not granted anew yet.
    owed: u32,
    /// Of a tail: here, and not taken yet.
    unread: u32,
    /// Of a tail: how far it is.
    after: BTreeMap<(Topic, Partition), Offset>,
    /// Of a tail: the store that the positions are of.
    epoch: Option<String>,
    flow: Flow,
    has_joined: bool,
    /// Refused for now: to be asked for again then.
    again_ms: Option<u64>,
    acks: Vec<DeliveryToken>,
}

impl Sub {
    pub(super) fn due_ms(&self) -> u64 {
        self.leases.due_ms().min(self.again_ms.unwrap_or(u64::MAX))
    }

    /// Whether nothing is held, so that leaving the connection loses nothing.
    pub(super) fn is_idle(&self) -> bool {
        self.leases.is_empty() && self.acks.is_empty()
    }
}

/// What is said about a delivery.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Done.
    Ack,
    /// Not done, and what is to become of it.
    Nack(Failure),
    /// The lease is to end so long from now.
    Extend(u32),
    /// Nothing: it was dropped, and comes again when the lease is over.
    Drop,
    /// Work on it begins.
    Begin,
}

/// An answer to a delivery. Without a ticket nobody waits to hear of it.
#[derive(Debug)]
pub(crate) struct DeliveryReply {
    pub(crate) key: SubKey,
    pub(crate) token: DeliveryToken,
    /// The connection that it came over.
    pub(crate) generation: u64,
    pub(crate) reply: Reply,
    pub(crate) ticket: Option<Ticket>,
}

impl DeliveryReply {
    /// Whether nothing more can be said about the delivery.
    pub(crate) const fn ends(&self) -> bool {
        matches!(self.reply, Reply::Ack | Reply::Nack(_) | Reply::Drop)
    }
}

impl Machine {
    pub(super) fn subscribe(&mut self, key: SubKey, wish: SubscribeWish, out: &mut Vec<Effect>) {
        // Where a tail is told to go on, it goes on as after a lost connection.
        let told = wish.opts.after.iter().map(|c| ((c.topic.clone(), c.partition), c.next));
        let sub = Sub {
            after: told.collect(),
            number: None,
            leases: Leases::new(wish.lease_ms),
            owed: 0,
            unread: 0,
            epoch: None,
            flow: Flow::Running,
            has_joined: false,
            again_ms: None,
            acks: Vec::new(),
            wish,
        };
        self.subs.insert(key, sub);
        if self.is_ready() {
            self.join(key, out);
        }
    }

    /// Asks for all subscriptions again, over a new connection.
    pub(super) fn rejoin(&mut self, out: &mut Vec<Effect>) {
        let keys: Vec<SubKey> = self.subs.keys().copied().collect();
        for key in keys {
            self.join(key, out);
        }
    }

    fn join(&mut self, key: SubKey, out: &mut Vec<Effect>) {
        let corr = self.next_corr();
        let epoch = self.epoch.clone();
        let Some(sub) = self.subs.get_mut(&key) else {
            return;
        };
        sub.again_ms = None;
        sub.owed = 0;
        let mut opts = SubscribeOpts { batch: Some(true), ..sub.wish.opts.clone() };
        let text = if let Some(group) = &sub.wish.group {
            opts.credit = Some(sub.wish.prefetch);
            opts.max_in_flight = Some(sub.wish.prefetch);
            Said::Subscribe { corr, topics: &sub.wish.topics, group, opts }.text()
        } else {
            let is_other = sub.epoch.is_some() && sub.epoch != epoch;
            if is_other {
                // The server has another store: positions mean nothing, all in it is news.
                for ((topic, partition), next) in std::mem::take(&mut sub.after) {
                    let reason = "epoch".to_owned();
                    let gap = Gap { topic, partition, from: next, to: next, reason };
                    out.push(Effect::Missing(key, gap));
                }
            }
            if sub.epoch.is_some() {
                // A partition that was not there before is read from its beginning.
                opts.from = Some(From::Earliest);
            }
            let cursor = |((topic, partition), next): (&(Topic, Partition), &Offset)| Cursor {
                topic: topic.clone(),
                partition: *partition,
                next: *next,
            };
            opts.after = sub.after.iter().map(cursor).collect();
            opts.credit = Some(sub.wish.prefetch.saturating_sub(sub.unread));
            Said::Follow { corr, topics: &sub.wish.topics, opts }.text()
        };
        self.asked.insert(corr, Asked::Subscribe(key));
        out.push(Effect::Send(text));
    }

    pub(super) fn joined(&mut self, key: SubKey, answer: Answer, out: &mut Vec<Effect>) {
        let Some(number) = answer.sub else {
            return;
        };
        let corr = self.next_corr();
        let Some(sub) = self.subs.get_mut(&key) else {
            // Left before it was there.
            self.asked.insert(corr, Asked::Leave(key));
            out.push(Effect::Send(Said::Unsubscribe { corr, sub: number }.text()));
            return;
        };
        sub.number = Some(number);
        self.by_number.insert(number, key);
        if sub.flow == Flow::Paused {
            self.asked.insert(corr, Asked::Nothing);
            out.push(Effect::Send(Said::Pause { corr, sub: number }.text()));
        }
        if sub.wish.group.is_none() {
            let is_other = sub.epoch.is_some() && sub.epoch != self.epoch;
            sub.epoch.clone_from(&self.epoch);
            for cursor in answer.after {
                sub.after.insert((cursor.topic, cursor.partition), cursor.next);
            }
            if sub.has_joined {
                out.push(Effect::Resumed(key, answer.recovered && !is_other));
            }
        }
        if !sub.has_joined {
            sub.has_joined = true;
            out.push(Effect::Joined(key));
        }
        for gap in answer.gaps {
            self.missing(key, gap, out);
        }
    }

    pub(super) fn join_refused(
        &mut self,
        (now, key): (u64, SubKey),
        refusal: Refusal,
        out: &mut Vec<Effect>,
    ) {
        let Some(sub) = self.subs.get_mut(&key) else {
            return;
        };
        if refusal.code.is_retryable() {
            let asked = refusal.retry_after.map_or(REJOIN_MS, |wait| wait.as_millis() as u64);
            sub.again_ms = Some(now + asked);
            return;
        }
        self.subs.remove(&key);
        out.push(Effect::Ended(key, refusal.into()));
    }

    /// The server has ended a subscription, and the connection stays: it is asked for again, or
    /// its owner is told that it is over.
    pub(super) fn sub_ended(
        &mut self,
        (now, number): (u64, u32),
        refusal: Refusal,
        out: &mut Vec<Effect>,
    ) {
        let Some(key) = self.by_number.remove(&number) else {
            return;
        };
        if let Some(sub) = self.subs.get_mut(&key) {
            sub.number = None;
            sub.acks.clear();
            sub.leases.clear();
            if sub.wish.group.is_some() {
                out.push(Effect::AllLost(key));
            }
        }
        self.join_refused((now, key), refusal, out);
    }

    /// The connection is gone, and with it every lease. What is unread of a tail stays.
    pub(super) fn lose_leases(&mut self, out: &mut Vec<Effect>) {
        self.by_number.clear();
        for (key, sub) in &mut self.subs {
            sub.number = None;
            sub.acks.clear();
            sub.again_ms = None;
            sub.leases.clear();
            if sub.wish.group.is_some() {
                out.push(Effect::AllLost(*key));
            }
        }
    }

    pub(super) fn deliver(
        &mut self,
        (now, number): (u64, u32),
        events: Vec<Item>,
        out: &mut Vec<Effect>,
    ) {
        let Some(key) = self.by_number.get(&number).copied() else {
            return;
        };
        let Some(sub) = self.subs.get_mut(&key) else {
            return;
        };
        for item in &events {
            if let Some(token) = item.ctx.token {
                let lease = item.ctx.ack_deadline_ms.unwrap_or(sub.wish.lease_ms.into());
                sub.leases.add(token, now + lease);
            } else {
                let Item { event, .. } = item;
                sub.unread += 1;
                sub.after.insert((event.topic.clone(), event.partition), event.offset.next());
            }
        }
        out.push(Effect::Events(key, self.generation, events));
    }

    pub(super) fn gap(&mut self, number: u32, gap: Gap, out: &mut Vec<Effect>) {
        if let Some(key) = self.by_number.get(&number).copied() {
            self.missing(key, gap, out);
        }
    }

    fn missing(&mut self, key: SubKey, gap: Gap, out: &mut Vec<Effect>) {
        if let Some(sub) = self.subs.get_mut(&key) {
            let place = (gap.topic.clone(), gap.partition);
            match gap.reason.as_str() {
                // It is another one if it is made again.
                "removed" => drop(sub.after.remove(&place)),
                // The old place; where it goes on was said.
                "beyond_end" => {}
                _ => {
                    let next = sub.after.entry(place).or_insert(gap.to);
                    *next = (*next).max(gap.to);
                }
            }
            out.push(Effect::Missing(key, gap));
        }
    }

    /// An event of a tail was taken: another one may come.
    pub(super) fn taken(&mut self, key: SubKey, out: &mut Vec<Effect>) {
        if let Some(sub) = self.subs.get_mut(&key) {
            sub.unread = sub.unread.saturating_sub(1);
        }
        self.repay(key, out);
    }

    /// One event less is here: as many more may come, asked for in few frames.
    fn repay(&mut self, key: SubKey, out: &mut Vec<Effect>) {
        let Some(sub) = self.subs.get_mut(&key) else {
            return;
        };
        sub.owed += 1;
        if let Some(number) = sub.number
            && sub.owed * 2 >= sub.wish.prefetch
        {
            let credit = std::mem::take(&mut sub.owed);
            out.push(Effect::Send(Said::Credit { sub: number, credit }.text()));
        }
    }

    pub(super) fn reply(&mut self, now: u64, about: DeliveryReply, out: &mut Vec<Effect>) {
        let DeliveryReply { key, token, generation, reply, ticket } = about;
        let is_current = generation == self.generation && self.is_up();
        let Some(sub) = self.subs.get_mut(&key).filter(|_| is_current) else {
            out.extend(ticket.map(|ticket| Effect::Replied(ticket, Err(AckError::LeaseLost))));
            return;
        };
        match reply {
            Reply::Begin => sub.leases.begin(token, now + sub.wish.processing_ms),
            Reply::Extend(ms) => {
                sub.leases.begin(token, now + sub.wish.processing_ms.max(ms.into()));
                self.ask_extension(token, ms, Asked::Reply { key, ticket, extends: true }, out);
            }
            Reply::Drop => {
                if sub.leases.remove(token) {
                    self.repay(key, out);
                }
            }
            Reply::Ack => {
                if sub.leases.remove(token) {
                    self.repay(key, out);
                }
                self.ack(key, token, ticket, out);
            }
            Reply::Nack(failure) => {
                if sub.leases.remove(token) {
                    self.repay(key, out);
                }
                self.nack((key, token), &failure, ticket, out);
            }
        }
    }

    fn ack(
        &mut self,
        key: SubKey,
        token: DeliveryToken,
        ticket: Option<Ticket>,
        out: &mut Vec<Effect>,
    ) {
        if ticket.is_some() {
            let corr = self.next_corr();
            self.asked.insert(corr, Asked::Reply { key, ticket, extends: false });
            out.push(Effect::Send(Said::Ack { corr, token }.text()));
            return;
        }
        // Nobody waits for it: it goes with others, before anything else is waited for.
        if let Some(sub) = self.subs.get_mut(&key) {
            sub.acks.push(token);
            if sub.acks.len() >= ACKS_MAX {
                let tokens = std::mem::take(&mut sub.acks);
                out.push(Effect::Send(Said::Acks { tokens: &tokens }.text()));
            }
        }
    }

    /// Sends the acks that nobody waits for.
    pub(super) fn flush_acks(&mut self, out: &mut Vec<Effect>) {
        for sub in self.subs.values_mut().filter(|sub| !sub.acks.is_empty()) {
            let tokens = std::mem::take(&mut sub.acks);
            out.push(Effect::Send(Said::Acks { tokens: &tokens }.text()));
        }
    }

    fn nack(
        &mut self,
        (key, token): (SubKey, DeliveryToken),
        failure: &Failure,
        ticket: Option<Ticket>,
        out: &mut Vec<Effect>,
    ) {
        let (delay_ms, park) = match failure.verdict() {
            FailureVerdict::Skip => return self.ack(key, token, ticket, out),
            FailureVerdict::Retry => (None, false),
            FailureVerdict::RetryAfter(delay) => {
                (Some(u32::try_from(delay.as_millis()).unwrap_or(u32::MAX)), false)
            }
            FailureVerdict::Park => (None, true),
        };
        let corr = ticket.map(|_| self.next_corr());
        if let Some(corr) = corr {
            self.asked.insert(corr, Asked::Reply { key, ticket, extends: false });
        }
        let reason = failure.error();
        out.push(Effect::Send(Said::Nack { corr, token, reason, delay_ms, park }.text()));
    }

    fn ask_extension(
        &mut self,
        token: DeliveryToken,
        extend_ms: u32,
        asked: Asked,
        out: &mut Vec<Effect>,
    ) {
        let corr = self.next_corr();
        self.asked.insert(corr, asked);
        out.push(Effect::Send(Said::Modack { corr, token, extend_ms }.text()));
    }

    pub(super) fn renewed(&mut self, key: SubKey, token: DeliveryToken, asked_ms: u64) {
        if let Some(sub) = self.subs.get_mut(&key) {
            let lease_ms = u64::from(sub.wish.lease_ms);
            sub.leases.renewed(token, asked_ms + lease_ms);
        }
    }

    pub(super) fn renewal_refused(
        &mut self,
        (key, token): (SubKey, DeliveryToken),
        refusal: Refusal,
        out: &mut Vec<Effect>,
    ) {
        let Some(sub) = self.subs.get_mut(&key) else {
            return;
        };
        match AckError::of(refusal, true) {
            AckError::LeaseAtMaximum => sub.leases.at_maximum(token),
            _ => {
                if sub.leases.remove(token) {
                    out.push(Effect::LeaseLost(key, token));
                    self.repay(key, out);
                }
            }
        }
    }

    pub(super) fn tick_subs(&mut self, now: u64, out: &mut Vec<Effect>) {
        let keys: Vec<SubKey> =
            self.subs.iter().filter(|(_, sub)| sub.due_ms() <= now).map(|(key, _)| *key).collect();
        for key in keys {
            let Some(sub) = self.subs.get_mut(&key) else {
                continue;
            };
            let lease_ms = sub.wish.lease_ms;
            let is_again = sub.again_ms.is_some_and(|at| at <= now);
            for step in sub.leases.tick(now) {
                match step {
                    LeaseStep::Renew(token) => {
                        let asked = Asked::Renewal { key, token, asked_ms: now };
                        self.ask_extension(token, lease_ms, asked, out);
                    }
                    LeaseStep::Lost(token) => {
                        out.push(Effect::LeaseLost(key, token));
                        self.repay(key, out);
                    }
                }
            }
            if is_again && self.is_ready() {
                self.join(key, out);
            }
        }
    }

    pub(super) fn leave(&mut self, key: SubKey, out: &mut Vec<Effect>) {
        self.flush_acks(out);
        let Some(sub) = self.subs.remove(&key) else {
            out.push(Effect::Left(key));
            return;
        };
        match sub.number {
            Some(number) if self.is_up() => {
                self.by_number.remove(&number);
                let corr = self.next_corr();
                self.asked.insert(corr, Asked::Leave(key));
                out.push(Effect::Send(Said::Unsubscribe { corr, sub: number }.text()));
            }
            // A connection that is gone has left the group as well.
            _ => out.push(Effect::Left(key)),
        }
    }

    pub(super) fn set_flow(&mut self, key: SubKey, flow: Flow, out: &mut Vec<Effect>) {
        let corr = self.next_corr();
        let Some(sub) = self.subs.get_mut(&key) else {
            return;
        };
        sub.flow = flow;
        if let Some(number) = sub.number {
            let said = match flow {
                Flow::Paused => Said::Pause { corr, sub: number },
                Flow::Running => Said::Resume { corr, sub: number },
            };
            self.asked.insert(corr, Asked::Nothing);
            out.push(Effect::Send(said.text()));
        }
    }

    /// There will be no connection any more.
    pub(super) fn end_subs(&mut self, error: &crate::error::ConnectError, out: &mut Vec<Effect>) {
        for key in std::mem::take(&mut self.subs).into_keys() {
            out.push(Effect::Ended(key, error.clone().into()));
        }
    }
}
