//! The watcher of a random run: knows what was published, delivered and answered, and nothing of
//! how the bus works.

use std::collections::{BTreeMap, BTreeSet};

use promethean::member::Leased;

/// Where an event stands: the lane's number and the offset.
pub(super) type Place = (u64, u64);

/// What is known of an event since the group was last moved in its lane.
#[derive(Debug, Clone, Default)]
struct Life {
    key: Option<String>,
    /// The last delivery: its attempt, who has it, and when its lease began and ends.
    attempt: u16,
    holder: Option<Lease>,
    fate: Fate,
}

#[derive(Debug, Clone, Copy)]
struct Lease {
    member: u64,
    ends_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Fate {
    #[default]
    Open,
    /// It was said to be done, and the answer is not there.
    Said,
    /// It was said to be done, or given up, and that was lost or not in a crash.
    Unknown,
    /// It is done for good.
    Confirmed,
    /// It was given up, or had its last attempt.
    GivenUp,
    /// A move passed over it.
    Passed,
}

/// What a run is held to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) ordered: bool,
    pub(super) max_attempts: u16,
    pub(super) lease_ms: u64,
}

/// The books of one run.
#[derive(Debug)]
pub(super) struct Books {
    rules: Rules,
    lives: BTreeMap<Place, Life>,
    epochs: BTreeMap<u64, u32>,
    pub(super) violations: Vec<String>,
    pub(super) deliveries: u64,
}

impl Books {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            lives: BTreeMap::new(),
            epochs: BTreeMap::new(),
            violations: Vec::new(),
            deliveries: 0,
        }
    }

    fn broken(&mut self, what: String) {
        // The first few tell the story; the rest follow from them.
        if self.violations.len() < 3 {
            self.violations.push(what);
        }
    }

    pub(super) fn published(&mut self, place: Place, key: Option<String>) {
        self.lives.insert(place, Life { key, ..Life::default() });
    }

    /// Something was delivered. Says whether it is of now, and not from before a move.
    pub(super) fn delivered(&mut self, member: u64, leased: &Leased) -> bool {
        self.deliveries += 1;
        let token = leased.token();
        let place = (token.lane.get(), token.offset);
        let epoch = self.epochs.entry(place.0).or_insert(token.epoch);
        if token.epoch < *epoch {
            return false;
        }
        let begun_ms = leased.deadline_ms().saturating_sub(self.rules.lease_ms);
        let Some(life) = self.lives.get(&place).cloned() else {
            self.broken(format!("phantom: {place:?} was never published"));
            return false;
        };
        if token.attempt > self.rules.max_attempts {
            self.broken(format!("attempts: {place:?} is at {}", token.attempt));
        }
        if token.attempt <= life.attempt {
            let (before, now) = (life.attempt, token.attempt);
            self.broken(format!("attempts: {place:?} went from {before} to {now}"));
        }
        if matches!(life.fate, Fate::Confirmed | Fate::Passed) {
            self.broken(format!("done twice: {place:?} was {:?}", life.fate));
        }
        if let Some(lease) = life.holder
            && begun_ms < lease.ends_ms
        {
            self.broken(format!("two leases: {place:?} of {} and {member}", lease.member));
        }
        self.check_order(place, &life);
        let holder = Some(Lease { member, ends_ms: leased.deadline_ms() });
        let life = Life { attempt: token.attempt, holder, fate: Fate::Open, ..life };
        self.lives.insert(place, life);
        true
    }

    /// Promise 4: nothing before it in its key is open, and nothing behind it is done for good.
    fn check_order(&mut self, place: Place, life: &Life) {
        if !self.rules.ordered || life.key.is_none() {
            return;
        }
        let mut wrong = None;
        let lane = (place.0, 0)..=(place.0, u64::MAX);
        for (other, of_key) in self.lives.range(lane).filter(|(_, other)| other.key == life.key) {
            let last = of_key.attempt >= self.rules.max_attempts;
            let early = *other < place && of_key.fate == Fate::Open && !last;
            let late = *other > place && of_key.fate == Fate::Confirmed;
            if early || late {
                wrong = Some(format!("order: {place:?} with {other:?} {:?}", of_key.fate));
            }
        }
        if let Some(wrong) = wrong {
            self.broken(wrong);
        }
    }

    /// Somebody says that it is done.
    pub(super) fn said(&mut self, place: Place) {
        self.settle(place, Fate::Said);
    }

    /// It is done, or was passed over at the consumer's wish, and that is durable.
    pub(super) fn confirmed(&mut self, place: Place) {
        self.settle(place, Fate::Confirmed);
    }

    pub(super) fn given_up(&mut self, place: Place) {
        self.settle(place, Fate::GivenUp);
    }

    fn settle(&mut self, place: Place, fate: Fate) {
        if let Some(life) = self.lives.get_mut(&place) {
            life.fate = fate;
            life.holder = None;
        }
    }

    /// It comes again.
    pub(super) fn refused(&mut self, place: Place) {
        if let Some(life) = self.lives.get_mut(&place) {
            life.holder = None;
        }
    }

    /// Whether an ack with this token could rightly be taken: it is of the last delivery.
    pub(super) fn is_last(&self, leased: &Leased, member: u64) -> bool {
        let token = leased.token();
        let life = self.lives.get(&(token.lane.get(), token.offset));
        let is_now = self.epochs.get(&token.lane.get()) == Some(&token.epoch);
        is_now
            && life.is_some_and(|life| {
                life.attempt == token.attempt
                    && life.holder.is_some_and(|lease| lease.member == member)
            })
    }

    /// An ack was taken that could not rightly be.
    pub(super) fn wrongly_taken(&mut self, leased: &Leased) {
        self.broken(format!("fencing: {:?} was taken", leased.token()));
    }

    /// A member has left: what it had may go to others.
    pub(super) fn left(&mut self, member: u64) {
        for life in self.lives.values_mut() {
            if life.holder.is_some_and(|lease| lease.member == member) {
                life.holder = None;
            }
        }
    }

    /// The process is gone: no leases, and what was not confirmed may be undone.
    pub(super) fn crashed(&mut self) {
        for life in self.lives.values_mut() {
            life.holder = None;
            if matches!(life.fate, Fate::Said | Fate::GivenUp) {
                life.fate = Fate::Unknown;
            }
        }
    }

    /// The group was moved.
    pub(super) fn moved(&mut self, lane: u64, to: u64, epoch: u32) {
        self.epochs.insert(lane, epoch);
        for (place, life) in self.lives.range_mut((lane, 0)..=(lane, u64::MAX)) {
            let fate = if place.1 < to { Fate::Passed } else { Fate::Open };
            let key = life.key.take();
            *life = Life { key, fate, ..Life::default() };
        }
    }

    /// P18: nothing before the cursor is open.
    pub(super) fn cursor(&mut self, lane: u64, next: u64) {
        let rules = self.rules;
        let open = |(_, life): &(&Place, &Life)| {
            life.fate == Fate::Open && life.attempt < rules.max_attempts
        };
        let wrong = self.lives.range((lane, 0)..(lane, next)).find(open);
        if let Some((place, life)) = wrong.map(|(place, life)| (*place, life.clone())) {
            self.broken(format!("cursor: {next} is past {place:?} {life:?}"));
        }
    }

    /// At the end each event is done, or dead, or was passed over.
    pub(super) fn ended(&mut self, dead: &BTreeSet<Place>) {
        let lost: Vec<_> = self
            .lives
            .iter()
            .filter(|(place, life)| match life.fate {
                Fate::Confirmed | Fate::Passed | Fate::Said | Fate::Unknown => false,
                Fate::Open | Fate::GivenUp => !dead.contains(place),
            })
            .map(|(place, life)| format!("lost: {place:?} {life:?}"))
            .collect();
        lost.into_iter().for_each(|lost| self.broken(lost));
    }
}
