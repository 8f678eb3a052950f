use std::collections::BTreeMap;

use promethean_delivery::{
    Fetch, Found, Group, Input, LaneId, LaneStart, MemberId, MemberOptions, Output, Ownership,
    Page, Span, StartFrom, Token,
};

use super::checker::Checker;
use super::ledger::Store;
use super::swarm::Swarm;
use super::{Faults, Random, Report, SimOptions, Violation};

/// An event of a simulated lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogEntry {
    pub(crate) key: Option<u64>,
    /// The group's filter refuses it.
    pub(crate) filtered: bool,
    /// It was removed since.
    pub(crate) gone: bool,
}

impl LogEntry {
    pub(crate) const fn wanted(&self) -> bool {
        !self.filtered && !self.gone
    }
}

/// A consumer, alive or only thinking that it is.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) id: MemberId,
    /// Says nothing any more.
    pub(crate) silent: bool,
    /// Not a member any more, but may still send acks.
    pub(crate) gone: bool,
    pub(crate) held: Vec<Token>,
}

/// One seed's group with everything around it.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) options: SimOptions,
    pub(crate) random: Random,
    pub(crate) swarm: Swarm,
    pub(crate) now: u64,
    pub(crate) timer: Option<u64>,
    pub(crate) group: Group,
    pub(crate) checker: Checker,
    pub(crate) store: Store,
    pub(crate) logs: BTreeMap<u64, Vec<LogEntry>>,
    pub(crate) fetches: Vec<Fetch>,
    pub(crate) clients: Vec<Client>,
    pub(crate) paused: bool,
    pub(crate) numbers: u64,
    pub(crate) inputs: u64,
    pub(crate) faults: Faults,
    pub(crate) assignments: u64,
    pub(crate) dead_letters: u64,
    /// Lanes that were revoked, for their owners to say that they are done.
    pub(crate) revoked: Vec<Ownership>,
    pub(crate) trace: Vec<String>,
}

impl World {
    pub(crate) fn new(seed: u64, options: SimOptions) -> Self {
        let mut random = Random::new(seed);
        let swarm = Swarm::new(&mut random);
        let logs = (0..swarm.lanes).map(|lane| (lane, Vec::new())).collect();
        let group = Self::new_group(&swarm, seed, options);
        let mut world = Self {
            seed,
            options,
            random,
            now: 1_000,
            timer: None,
            group,
            checker: Checker::new(swarm.group.clone()),
            swarm,
            store: Store::default(),
            logs,
            fetches: Vec::new(),
            clients: Vec::new(),
            paused: false,
            numbers: 0,
            inputs: 0,
            faults: Faults::default(),
            assignments: 0,
            dead_letters: 0,
            revoked: Vec::new(),
            trace: Vec::new(),
        };
        world.open_lanes();
        world
    }

    #[expect(clippy::expect_used, reason = "a swarm with bad options is a mistake in the swarm")]
    fn new_group(swarm: &Swarm, seed: u64, options: SimOptions) -> Group {
        let mut group =
            Group::new(swarm.group.clone(), seed).expect("the swarm's options are good");
        if let Some(bug) = options.bug {
            group.plant(bug);
        }
        group
    }

    pub(crate) fn open_lanes(&mut self) {
        let lanes: Vec<u64> = self.logs.keys().copied().collect();
        for lane in lanes {
            self.open_lane(lane);
        }
    }

    pub(crate) fn open_lane(&mut self, lane: u64) {
        let tail = self.logs.get(&lane).map_or(0, Vec::len) as u64;
        let from = match self.store.state(lane) {
            Some(state) => StartFrom::State(Box::new(state.clone())),
            None => StartFrom::Offset(0),
        };
        let lane = LaneId::new(lane);
        self.feed(Input::LaneAdded(LaneStart { lane, tail, from }));
    }

    /// The process goes down and comes up again: only what is durable is left.
    pub(crate) fn crash(&mut self) {
        self.faults.crashes += 1;
        // Some of what was under way may have made it.
        for _ in 0..self.random.below(self.store.pending() as u64 + 1) {
            self.make_durable();
        }
        self.faults.lost_saves += self.store.crash();
        self.fetches.clear();
        self.revoked.clear();
        self.timer = None;
        self.paused = false;
        for client in &mut self.clients {
            client.gone = true;
        }
        self.numbers += 1;
        self.group = Self::new_group(&self.swarm, self.seed ^ self.numbers, self.options);
        self.checker.crashed(self.now);
        self.open_lanes();
    }

    pub(crate) fn make_durable(&mut self) {
        if let Some((lanes, dead_letters)) = self.store.make_durable() {
            self.note(|world| format!("durable: save {}", world.store.durable));
            self.dead_letters += dead_letters.len() as u64;
            let states = lanes
                .into_iter()
                .filter_map(|lane| Some((lane, self.store.state(lane)?.clone())))
                .collect();
            self.checker.saved(states, &dead_letters);
        }
    }

    pub(crate) fn report_saved(&mut self) {
        if self.store.reported < self.store.durable {
            self.store.reported = self.store.durable;
            let number = self.store.durable;
            self.feed(Input::Saved { number });
        }
    }

    /// Gives the group an input, and the checker everything.
    pub(crate) fn feed(&mut self, input: Input<'_>) {
        if self.timer.is_some_and(|at| at <= self.now) {
            self.timer = None;
            self.step(Input::Tick);
        }
        self.step(input);
    }

    fn step(&mut self, input: Input<'_>) {
        self.inputs += 1;
        self.note(|world| format!("{} in: {input:?}", world.now));
        self.checker.input(self.now, &input);
        let mut outputs = Vec::new();
        self.group.step(self.now, input, &mut outputs);
        for output in outputs {
            self.note(|_| format!("   out: {output:?}"));
            self.checker.output(&output);
            self.perform(output);
        }
    }

    /// Writes down what happens, if anybody wants to read it.
    fn note(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.options.trace {
            let line = line(self);
            self.trace.push(line);
        }
    }

    fn perform(&mut self, output: Output) {
        match output {
            Output::Fetch(fetch) => self.fetches.push(fetch),
            Output::Deliver(deliver) => {
                let client = self.clients.iter_mut().find(|c| c.id == deliver.member);
                if let Some(client) = client {
                    let tokens = deliver.events().map(|event| deliver.token(event));
                    client.held.extend(tokens);
                }
            }
            Output::Save(save) => self.store.write(save),
            Output::SetTimer { at } => self.timer = Some(at),
            Output::Assign(_) => self.assignments += 1,
            Output::Revoke { of, .. } => self.revoked.push(of),
            Output::Expired { member } | Output::Rejoin { member } => {
                for client in self.clients.iter_mut().filter(|c| c.id == member) {
                    client.gone = true;
                }
            }
            _ => {}
        }
    }

    /// A fetch is answered, from the log as it is now.
    pub(crate) fn answer(&mut self, fetch: Fetch) {
        let log = self.logs.get(&fetch.lane.get()).cloned().unwrap_or_default();
        let to = (fetch.from + u64::from(fetch.max)).min(log.len() as u64);
        let (mut events, mut gaps) = (Vec::new(), Vec::new());
        for (offset, entry) in (0u64..).zip(&log).take(to as usize).skip(fetch.from as usize) {
            if entry.gone {
                gaps.push(Span { from: offset, to: offset + 1 });
            } else {
                events.push(Found { offset, key: entry.key, bytes: 10, skip: entry.filtered });
            }
        }
        self.feed(Input::Fetched(Page {
            lane: fetch.lane,
            fetch: fetch.fetch,
            from: fetch.from,
            to,
            events: &events,
            gaps: &gaps,
        }));
    }

    pub(crate) fn join(&mut self, options: MemberOptions) {
        self.numbers += 1;
        let id = MemberId::new(self.numbers);
        self.clients.push(Client { id, silent: false, gone: false, held: Vec::new() });
        let member = id;
        self.feed(Input::Joined { member, options });
    }

    pub(crate) fn run(mut self, report: &mut Report) {
        for _ in 0..self.options.steps {
            let action = self.swarm.pick(&mut self.random);
            self.act(action);
            if self.checker.has_violation() {
                break;
            }
        }
        if !self.checker.has_violation() {
            self.drain();
        }
        report.steps += self.inputs;
        report.events += self.logs.values().map(|log| log.len() as u64).sum::<u64>();
        report.deliveries += self.checker.deliveries();
        report.dead_letters += self.dead_letters;
        report.assignments += self.assignments;
        report.faults.add(&self.faults);
        report.trace.append(&mut self.trace);
        for what in self.checker.violations() {
            report.violations.push(Violation {
                seed: self.seed,
                step: self.inputs,
                what: what.clone(),
            });
        }
    }

    /// The faults stop: everything must be finished in the end.
    fn drain(&mut self) {
        if self.paused {
            self.paused = false;
            self.feed(Input::Resumed);
        }
        let stale: Vec<MemberId> = self.clients.iter().map(|client| client.id).collect();
        for member in stale {
            self.feed(Input::Left { member });
        }
        self.clients.clear();
        self.join(MemberOptions::default());
        self.join(MemberOptions::default());
        for _ in 0..2_000 {
            if self.drain_round() || self.checker.has_violation() {
                break;
            }
        }
        if self.checker.has_violation() {
            return;
        }
        for (lane, log) in &self.logs {
            self.checker.ended(*lane, log);
        }
    }

    /// One round of everybody doing what they should. Whether all is done.
    fn drain_round(&mut self) -> bool {
        let mut busy = false;
        for fetch in std::mem::take(&mut self.fetches) {
            self.answer(fetch);
            busy = true;
        }
        while self.store.pending() > 0 {
            self.make_durable();
            busy = true;
        }
        self.report_saved();
        for member in self.clients.iter().map(|c| c.id).collect::<Vec<_>>() {
            self.feed(Input::Heartbeat { member });
            busy |= self.ack_all(member);
        }
        busy |= self.resolve_all();
        if busy {
            return false;
        }
        let done = self.logs.iter().all(|(lane, log)| {
            let status = self.group.status(LaneId::new(*lane));
            status.is_some_and(|s| s.floor == log.len() as u64 && s.released == 0)
        });
        if done && self.store.pending() == 0 {
            return true;
        }
        // Not so far that members that mean well are late with their heartbeat.
        let (soonest, latest) = (self.now + 1, self.now + 100);
        self.now = self.timer.unwrap_or(latest).clamp(soonest, latest);
        self.feed(Input::Tick);
        false
    }
}

impl Faults {
    fn add(&mut self, other: &Self) {
        self.crashes += other.crashes;
        self.lost_saves += other.lost_saves;
        self.lost_members += other.lost_members;
        self.stale_acks += other.stale_acks;
        self.nacks += other.nacks;
        self.seeks += other.seeks;
        self.clock_jumps += other.clock_jumps;
        self.bad_fetches += other.bad_fetches;
    }
}
