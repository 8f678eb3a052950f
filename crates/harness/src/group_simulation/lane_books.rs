use std::collections::{BTreeMap, BTreeSet};

use promethean_delivery::{DeadLetter, DeadLetterRef, GroupOptions, LaneState, Park, Token};

use super::checker::is_ordered;
use super::world::LogEntry;

/// A delivery that is out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lease {
    pub(crate) member: u64,
    pub(crate) token: Token,
    pub(crate) began: u64,
    pub(crate) deadline: u64,
}

/// What the checker knows of one lane.
#[derive(Debug, Default)]
pub(crate) struct LaneBooks {
    pub(crate) log: Vec<LogEntry>,
    pub(crate) leases: BTreeMap<u64, Lease>,
    pub(crate) epoch: u32,
    pub(crate) generation: u32,
    pub(crate) owner: Option<(u64, u32)>,
    pub(crate) revoked_until: Option<u64>,
    /// Offsets rightly acked or skipped, by epoch.
    finished: BTreeSet<(u32, u64)>,
    /// Those of them that were acked.
    acked: BTreeSet<(u32, u64)>,
    /// Where epochs began.
    begins: BTreeMap<u32, u64>,
    /// Given up by the group, durable or not.
    given_up: BTreeSet<(u32, u64)>,
    /// Dead letters that are durable: epoch, offset, round.
    pub(crate) dead: BTreeSet<(u32, u64, u16)>,
    letters: BTreeMap<u64, DeadLetterRef>,
    /// Released dead letters that are not finished.
    released: BTreeMap<u64, u16>,
    parked: BTreeSet<(u64, u64)>,
    /// Events that were overtaken: the next save must give them up.
    pub(crate) owed: BTreeSet<u64>,
    counts: BTreeMap<(u32, u64, u16), u16>,
    restarts: u16,
    tokens: BTreeSet<Token>,
    pub(crate) image: LaneState,
}

impl LaneBooks {
    pub(crate) fn live_leases(&self, now: u64) -> impl Iterator<Item = (u64, &Lease)> {
        let until = self.revoked_until.unwrap_or(u64::MAX);
        let live = move |lease: &Lease| now < lease.deadline.min(until);
        let all = self.leases.iter().filter(move |(_, lease)| live(lease));
        all.map(|(offset, lease)| (*offset, lease))
    }

    /// A revoked lane gets a new owner: leases that ended with the old one do not come back.
    pub(crate) fn end_revoked(&mut self, now: u64) {
        let until = self.revoked_until.take().unwrap_or(u64::MAX);
        self.leases.retain(|_, lease| now < lease.deadline.min(until));
    }

    fn key(&self, offset: u64) -> Option<u64> {
        self.log.get(offset as usize)?.key
    }

    /// Whether the group is done with the event, as far as anybody was told.
    fn is_done(&self, offset: u64) -> bool {
        let wanted = self.log.get(offset as usize).is_some_and(LogEntry::wanted);
        !wanted
            || offset < self.begin(self.epoch)
            || self.finished.contains(&(self.epoch, offset))
            || self.given_up.contains(&(self.epoch, offset))
    }

    fn begin(&self, epoch: u32) -> u64 {
        self.begins.get(&epoch).copied().unwrap_or(0)
    }

    pub(crate) fn finish(&mut self, offset: u64, round: u16) {
        self.leases.remove(&offset);
        if round > 0 {
            self.released.remove(&offset);
        } else {
            self.finished.insert((self.epoch, offset));
            self.acked.insert((self.epoch, offset));
        }
    }

    pub(crate) fn skip(&mut self, offset: u64) {
        if self.is_done(offset) {
            return;
        }
        self.leases.remove(&offset);
        self.finished.insert((self.epoch, offset));
    }

    pub(crate) fn seek(&mut self, to: u64) {
        self.epoch += 1;
        self.begins.insert(self.epoch, to);
        self.leases.clear();
        self.released.retain(|offset, _| *offset < to);
        self.parked.retain(|(_, offset)| *offset < to);
        // Those behind the new cursor come again by themselves.
        self.letters.retain(|offset, _| *offset < to);
        self.owed.clear();
    }

    pub(crate) fn release(&mut self, event: DeadLetterRef) {
        if !self.is_done(event.offset) || self.released.contains_key(&event.offset) {
            return;
        }
        self.released.insert(event.offset, event.round);
        self.letters.remove(&event.offset);
        self.unpark(event);
    }

    pub(crate) fn discard(&mut self, event: DeadLetterRef) {
        if self.unpark(event) {
            self.letters.remove(&event.offset);
        }
    }

    fn unpark(&mut self, event: DeadLetterRef) -> bool {
        event.key.is_some_and(|key| self.parked.remove(&(key, event.offset)))
    }

    /// A delivery. What is wrong with it.
    pub(crate) fn deliver(
        &mut self,
        now: u64,
        lease: Lease,
        options: &GroupOptions,
    ) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let (token, offset) = (lease.token, lease.token.offset);
        if let Some((_, held)) = self.live_leases(now).find(|(o, _)| *o == offset) {
            found.push(("P20", format!("out to {} and to {}", held.member, lease.member)));
        }
        if !self.tokens.insert(token) {
            found.push(("P20", format!("token used before: {token:?}")));
        }
        if token.epoch != self.epoch {
            found.push(("P24", format!("epoch {}, should be {}", token.epoch, self.epoch)));
        }
        let round = self.released.get(&offset).copied();
        if token.round > 0 && round != Some(token.round) {
            found.push(("P21", format!("round {}, released {round:?}", token.round)));
        }
        if token.round == 0 && self.is_done(offset) {
            found.push(("P17", "delivered though it is done".to_owned()));
        }
        let count = self.counts.entry((token.epoch, offset, token.round)).or_default();
        *count += 1;
        let least = *count;
        // A released event keeps its count over seeks.
        let all =
            self.counts.iter().filter(|((_, o, round), _)| (*o, *round) == (offset, token.round));
        let made: u16 = match token.round {
            0 => least,
            _ => all.map(|(_, count)| *count).sum(),
        };
        let most = made + self.restarts + 1;
        if !(least..=most.min(options.max_attempts)).contains(&token.attempt) {
            let how = format!("attempt {}, delivered {least} times", token.attempt);
            found.push(("P20", how));
        }
        if is_ordered(options) {
            found.extend(self.check_order(now, lease, options));
        }
        self.leases.insert(offset, lease);
        found
    }

    fn check_order(
        &mut self,
        now: u64,
        lease: Lease,
        options: &GroupOptions,
    ) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let (token, offset) = (lease.token, lease.token.offset);
        let Some(key) = self.key(offset) else {
            return found;
        };
        let other = self.live_leases(now).find(|(o, _)| *o != offset && self.key(*o) == Some(key));
        if let Some((other, _)) = other {
            found.push(("P13", format!("key {key} is out with {other}, too")));
        }
        if let Some((_, letter)) = self.parked.range((key, 0)..(key, offset)).next() {
            found.push(("P13", format!("key {key} is parked behind {letter}")));
        }
        if token.round > 0 {
            return found;
        }
        let overtaken: Vec<u64> = (self.begin(self.epoch)..offset)
            .filter(|o| self.key(*o) == Some(key) && !self.is_done(*o))
            .collect();
        match options.park {
            Park::Key if !overtaken.is_empty() => {
                found.push(("P13", format!("overtakes {overtaken:?} of key {key}")));
            }
            // Unless they were given up, which the next save must say.
            _ => self.owed.extend(overtaken),
        }
        found
    }

    /// The group says, in a save that is not durable, that it gave an event up.
    pub(crate) fn given_up(&mut self, letter: &DeadLetter, parks: bool) {
        let offset = letter.offset;
        if letter.round == 0 {
            self.given_up.insert((letter.epoch, offset));
        } else if self.released.get(&offset) == Some(&letter.round) {
            self.released.remove(&offset);
        }
        if letter.epoch != self.epoch {
            return;
        }
        self.leases.remove(&offset);
        self.owed.remove(&offset);
        if let Some(key) = letter.key.filter(|_| parks) {
            self.parked.insert((key, offset));
        }
    }

    /// A dead letter is durable. What is wrong with it.
    pub(crate) fn bury(&mut self, letter: &DeadLetter) -> Option<String> {
        let (offset, round, epoch) = (letter.offset, letter.round, letter.epoch);
        if epoch == self.epoch || offset < self.begin(self.epoch) {
            let event = DeadLetterRef { offset, key: letter.key, round: round + 1 };
            self.letters.insert(offset, event);
        }
        let count = self.counts.get(&(epoch, offset, round)).copied().unwrap_or(0);
        if letter.attempts < count {
            return Some(format!(
                "offset {offset}: {} attempts noted, {count} made",
                letter.attempts
            ));
        }
        if !self.dead.insert((epoch, offset, round)) {
            return Some(format!("offset {offset}: dead letter twice"));
        }
        if round == 0 && self.acked.contains(&(epoch, offset)) {
            return Some(format!("offset {offset}: acked, and a dead letter"));
        }
        None
    }

    /// The lane's durable state changed. What it claims without right.
    pub(crate) fn advance(&mut self, state: LaneState) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let before = std::mem::replace(&mut self.image, state);
        let epoch = self.image.epoch;
        if epoch < before.epoch || self.image.generation < before.generation {
            found.push(("P24", "epoch or generation went back".to_owned()));
        }
        if epoch == before.epoch && self.image.floor < before.floor {
            found.push(("P18", "the cursor went back".to_owned()));
        }
        let begin = self.begin(epoch);
        for (offset, entry) in (0u64..).zip(&self.log).skip(begin as usize) {
            let known = epoch == before.epoch && covers(&before, offset);
            let rightly = !entry.wanted()
                || self.finished.contains(&(epoch, offset))
                || self.dead.contains(&(epoch, offset, 0));
            if !known && !rightly && covers(&self.image, offset) {
                let floor = self.image.floor;
                found.push(("P18", format!("floor {floor} passes {offset}, which nobody acked")));
            }
        }
        found
    }

    pub(crate) fn is_covered(&self, offset: u64) -> bool {
        covers(&self.image, offset)
    }

    pub(crate) fn is_durably_done(&self, epoch: u32, offset: u64, round: u16) -> bool {
        if self.image.epoch > epoch {
            return true;
        }
        match round {
            0 => covers(&self.image, offset),
            _ => !self
                .image
                .released
                .iter()
                .any(|event| (event.offset, event.round) == (offset, round)),
        }
    }

    /// Only what is durable counts.
    pub(crate) fn revert(&mut self) {
        let image = &self.image;
        self.epoch = image.epoch;
        self.leases.clear();
        self.owner = None;
        self.revoked_until = None;
        self.owed.clear();
        self.restarts += 1;
        self.begins.retain(|epoch, _| *epoch <= image.epoch);
        let kept = |(epoch, offset): &(u32, u64)| {
            *epoch < image.epoch || (*epoch == image.epoch && covers(image, *offset))
        };
        self.finished.retain(kept);
        self.acked.retain(kept);
        self.given_up.retain(kept);
        // What was given up for good is done as well, however it came to be durable.
        let dead = self.dead.iter().filter(|(_, _, round)| *round == 0);
        self.given_up.extend(dead.map(|(epoch, offset, _)| (*epoch, *offset)));
        self.released = image.released.iter().map(|e| (e.offset, e.round)).collect();
        self.parked = image.parked.iter().map(|p| (p.key, p.offset)).collect();
    }

    pub(crate) fn letters(&self) -> Vec<DeadLetterRef> {
        self.letters.values().copied().collect()
    }
}

fn covers(state: &LaneState, offset: u64) -> bool {
    offset < state.floor || state.acked.contains(offset)
}
