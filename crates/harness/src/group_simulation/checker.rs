//! Watches a group from outside and says which promise it breaks. It sees inputs, outputs and
//! what is durable, and keeps its own books: who holds what, what was rightly acked, what was
//! given up. Nothing in here looks into a group.

use std::collections::{BTreeMap, BTreeSet};

use promethean_delivery::{
    DeadLetter, DeadLetterRef, Deliver, GroupOptions, Input, LaneId, LaneState, Mode, Ordered,
    Output, Ownership, Park, ParkedKey, Save,
};

use super::answers::Expected;
use super::lane_books::{LaneBooks, Lease};
use super::world::LogEntry;

#[derive(Debug, Default)]
struct MemberBooks {
    credits: Option<u64>,
    max_in_flight: usize,
    lanes: Option<Vec<LaneId>>,
    seen: u64,
}

/// The watcher.
#[derive(Debug)]
pub struct Checker {
    pub(super) options: GroupOptions,
    pub(super) now: u64,
    pub(super) lanes: BTreeMap<u64, LaneBooks>,
    members: BTreeMap<u64, MemberBooks>,
    pub(super) expected: BTreeMap<u64, Expected>,
    deliveries: u64,
    violations: Vec<String>,
}

impl Checker {
    /// A watcher of a group with these options.
    pub(crate) fn new(options: GroupOptions) -> Self {
        Self {
            options,
            now: 0,
            lanes: BTreeMap::new(),
            members: BTreeMap::new(),
            expected: BTreeMap::new(),
            deliveries: 0,
            violations: Vec::new(),
        }
    }

    /// What was found.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// Whether anything was.
    pub fn has_violation(&self) -> bool {
        !self.violations.is_empty()
    }

    /// Deliveries seen.
    pub fn deliveries(&self) -> u64 {
        self.deliveries
    }

    pub(super) fn broken(&mut self, promise: &str, how: impl std::fmt::Display) {
        // The first few tell the story; the rest follow from them.
        if self.violations.len() < 3 {
            self.violations.push(format!("{promise}: {how}"));
        }
    }

    pub(super) fn lane(&mut self, lane: u64) -> &mut LaneBooks {
        self.lanes.entry(lane).or_default()
    }

    /// An event was published.
    pub(crate) fn appended(&mut self, lane: u64, entry: LogEntry) {
        self.lane(lane).log.push(entry);
    }

    /// The group gets an input.
    pub(crate) fn input(&mut self, now: u64, input: &Input<'_>) {
        self.now = self.now.max(now);
        match input {
            Input::Joined { member, options } => {
                let books = MemberBooks {
                    credits: options.credits.map(u64::from),
                    max_in_flight: options.max_in_flight as usize,
                    lanes: options.lanes.clone(),
                    seen: self.now,
                };
                self.members.entry(member.get()).or_insert(books);
            }
            Input::Left { member } => self.member_gone(member.get()),
            Input::Heartbeat { member } => {
                let now = self.now;
                if let Some(books) = self.members.get_mut(&member.get()) {
                    books.seen = now;
                }
            }
            Input::Credit { member, events } => {
                if let Some(books) = self.members.get_mut(&member.get()) {
                    books.credits = Some(books.credits.unwrap_or(0) + u64::from(*events));
                }
            }
            Input::Ack { member, request, items } => self.acked(member.get(), request.get(), items),
            Input::Nack { member, request, target, verdict } => {
                self.nacked((member.get(), request.get()), *target, *verdict)
            }
            Input::Extend { member, target, lease_ms, .. } => {
                self.extended(member.get(), *target, *lease_ms)
            }
            _ => self.operated(input),
        }
    }

    fn operated(&mut self, input: &Input<'_>) {
        match input {
            Input::Seek { request, lane, to } => {
                let books = self.lane(lane.get());
                let good = *to <= books.log.len() as u64;
                if good {
                    books.seek(*to);
                }
                let sought = good.then_some((lane.get(), books.epoch));
                let expected = Expected { accepted: u64::from(good), done: Vec::new(), sought };
                self.expected.insert(request.get(), expected);
            }
            Input::Skip { lane, span, .. } => {
                let books = self.lane(lane.get());
                if span.to <= books.log.len() as u64 {
                    (span.from..span.to).for_each(|offset| books.skip(offset));
                }
            }
            Input::LaneReleased { member, lane, generation } => {
                let books = self.lane(lane.get());
                let owned = books.owner == Some((member.get(), *generation));
                if owned && books.revoked_until.is_some() {
                    books.revoked_until = Some(0);
                }
            }
            Input::LaneRemoved { lane } => self.lane(lane.get()).leases.clear(),
            Input::Release { lane, event, .. } => self.lane(lane.get()).release(*event),
            Input::Discard { lane, event, .. } => self.lane(lane.get()).discard(*event),
            _ => {}
        }
    }

    fn member_gone(&mut self, member: u64) {
        self.members.remove(&member);
        for books in self.lanes.values_mut() {
            books.leases.retain(|_, lease| lease.member != member);
            if books.owner.is_some_and(|(owner, _)| owner == member) {
                books.owner = None;
                books.revoked_until = None;
            }
        }
    }

    /// The group wants something done.
    pub(crate) fn output(&mut self, output: &Output) {
        match output {
            Output::Deliver(deliver) => self.delivered(deliver),
            Output::Save(save) => self.save_emitted(save),
            Output::Reply(reply) => self.replied(reply),
            Output::Assign(of) => self.assigned(*of),
            Output::Revoke { of, deadline } => {
                let books = self.lane(of.lane.get());
                books.revoked_until = Some(*deadline);
            }
            Output::Expired { member } => self.member_gone(member.get()),
            _ => {}
        }
    }

    fn delivered(&mut self, deliver: &Deliver) {
        let (member, lane, now) = (deliver.member.get(), deliver.lane.get(), self.now);
        let count = deliver.events().count();
        let in_flight: usize = self
            .lanes
            .values()
            .map(|b| b.live_leases(now).filter(|(_, l)| l.member == member).count())
            .sum();
        let ttl = self.options.member_ttl_ms.map(u64::from);
        match self.members.get_mut(&member) {
            None => self.broken("P26", format!("delivery to {member}, who is no member")),
            Some(books) => {
                let silent = ttl.is_some_and(|ttl| books.seen + ttl <= now);
                let lanes = books.lanes.as_ref();
                let unwanted = lanes.is_some_and(|lanes| !lanes.contains(&deliver.lane));
                let full = in_flight + count > books.max_in_flight;
                let broke = books.credits.is_some_and(|credits| credits < count as u64);
                books.credits = books.credits.map(|c| c.saturating_sub(count as u64));
                if silent {
                    self.broken("P26", format!("delivery to {member}, silent for too long"));
                }
                if unwanted {
                    self.broken("P22", format!("{member} gets a lane it did not ask for"));
                }
                if full || broke {
                    self.broken("P22", format!("{member} gets more than it has room for"));
                }
            }
        }
        for event in deliver.events() {
            self.deliveries += 1;
            let lease = Lease {
                member,
                token: deliver.token(event),
                began: now,
                deadline: deliver.deadline,
            };
            let options = self.options.clone();
            let found = self.lane(lane).deliver(now, lease, &options);
            for (promise, how) in found {
                self.broken(promise, format!("lane {lane} offset {}: {how}", event.offset));
            }
        }
        let owner = self.lane(lane).owner;
        let revoked = self.lane(lane).revoked_until.is_some();
        let owned = owner == Some((member, deliver.generation)) && !revoked;
        if self.options.mode == Mode::Partitioned && !owned {
            self.broken("P25", format!("lane {lane}: delivery to {member}, owner is {owner:?}"));
        }
    }

    fn assigned(&mut self, of: Ownership) {
        let (member, lane, now) = (of.member.get(), of.lane.get(), self.now);
        let books = self.lane(lane);
        let others = books.live_leases(now).filter(|(_, l)| l.member != member).count();
        let rises = of.generation > books.generation;
        books.generation = of.generation;
        books.owner = Some((member, of.generation));
        books.end_revoked(now);
        if others > 0 {
            self.broken("P25", format!("lane {lane}: two owners, {others} leases of the other"));
        }
        if !rises {
            self.broken("P24", format!("lane {lane}: generation {} again", of.generation));
        }
    }

    fn save_emitted(&mut self, save: &Save) {
        for letter in &save.dead_letters {
            let parks = self.options.park == Park::Key;
            self.lane(letter.lane.get()).given_up(letter, parks);
        }
        let mut owed = Vec::new();
        for (lane, books) in &mut self.lanes {
            owed.extend(std::mem::take(&mut books.owed).into_iter().map(|o| (*lane, o)));
        }
        for (lane, offset) in owed {
            self.broken("P13", format!("lane {lane}: a later event of the key overtook {offset}"));
        }
    }

    /// A save is durable, all of it.
    pub(crate) fn saved(&mut self, states: Vec<(u64, LaneState)>, letters: &[DeadLetter]) {
        for letter in letters {
            let found = self.lane(letter.lane.get()).bury(letter);
            if let Some(how) = found {
                self.broken("P21", how);
            }
        }
        for (lane, state) in states {
            for (promise, how) in self.lane(lane).advance(state) {
                self.broken(promise, format!("lane {lane}: {how}"));
            }
        }
        for letter in letters {
            let books = self.lane(letter.lane.get());
            let epoch = books.image.epoch;
            let kept = !books.is_durably_done(epoch, letter.offset, letter.round);
            if kept && books.dead.contains(&(epoch, letter.offset, letter.round)) {
                let how = format!("offset {}: dead letter, and still in the flow", letter.offset);
                self.broken("P21", how);
            }
            if letter.attempts > self.options.max_attempts {
                self.broken("P20", format!("offset {}: too many attempts", letter.offset));
            }
        }
    }

    /// The process is gone.
    pub(crate) fn crashed(&mut self, now: u64) {
        // A new process has a clock of its own, which may be behind.
        self.now = now;
        self.members.clear();
        self.expected.clear();
        self.lanes.values_mut().for_each(LaneBooks::revert);
    }

    /// One lane was given away and came back.
    pub(crate) fn reopened(&mut self, lane: u64) {
        self.lane(lane).revert();
    }

    /// Dead letters of a lane that are neither released nor discarded.
    pub(crate) fn dead_letters(&self, lane: u64) -> Vec<DeadLetterRef> {
        self.lanes.get(&lane).map(LaneBooks::letters).unwrap_or_default()
    }

    /// Durable dead letters that a key waits for.
    pub(crate) fn parked(&self, lane: u64) -> Vec<DeadLetterRef> {
        let parked = self.lanes.get(&lane).map(|books| books.image.parked.as_slice());
        let letter = |parked: &ParkedKey| DeadLetterRef {
            offset: parked.offset,
            key: Some(parked.key),
            round: 1,
        };
        parked.unwrap_or_default().iter().map(letter).collect()
    }

    /// All faults are over and everything had time.
    pub(crate) fn ended(&mut self, lane: u64, log: &[LogEntry]) {
        let books = self.lane(lane);
        let open: BTreeSet<u64> = (0u64..)
            .zip(log)
            .filter(|(offset, entry)| entry.wanted() && !books.is_covered(*offset))
            .map(|(offset, _)| offset)
            .collect();
        let released = books.image.released.len();
        if !open.is_empty() || released > 0 {
            self.broken(
                "P17",
                format!("lane {lane}: never finished: {open:?}, {released} released"),
            );
        }
    }
}

/// Whether key order is kept.
pub(crate) fn is_ordered(options: &GroupOptions) -> bool {
    options.ordered == Ordered::Key
}
