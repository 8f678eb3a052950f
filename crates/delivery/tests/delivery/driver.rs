use std::collections::BTreeMap;

use promethean_delivery::{
    Ack, DeadLetter, Deliver, Found, Group, GroupOptions, Input, LaneDelta, LaneId, LaneStart,
    LaneState, MemberId, MemberOptions, Output, Ownership, Page, Refusal, Reply, RequestId, Save,
    Span, StartFrom, Token, Verdict,
};

/// A group with a log and a store around it that do what it asks for at once, unless told not to.
pub(crate) struct Driver {
    pub(crate) group: Group,
    pub(crate) now: u64,
    pub(crate) logs: BTreeMap<u64, Vec<Found>>,
    pub(crate) gaps: BTreeMap<u64, Vec<Span>>,
    pub(crate) states: BTreeMap<u64, LaneState>,
    /// Saves wait for [`Driver::save_all`].
    pub(crate) slow_saves: bool,
    pub(crate) saves: Vec<Save>,
    pub(crate) deliveries: Vec<Deliver>,
    pub(crate) replies: Vec<Reply>,
    pub(crate) dead: Vec<DeadLetter>,
    pub(crate) assigned: Vec<Ownership>,
    pub(crate) revoked: Vec<(Ownership, u64)>,
    pub(crate) others: Vec<Output>,
    pub(crate) fetches: u64,
    options: GroupOptions,
    requests: u64,
}

pub(crate) const LANE: LaneId = LaneId::new(0);

pub(crate) fn member(number: u64) -> MemberId {
    MemberId::new(number)
}

impl Driver {
    pub(crate) fn new(options: GroupOptions) -> Self {
        Self {
            group: Group::new(options.clone(), 1).unwrap(),
            now: 1_000,
            logs: BTreeMap::new(),
            gaps: BTreeMap::new(),
            states: BTreeMap::new(),
            slow_saves: false,
            saves: Vec::new(),
            deliveries: Vec::new(),
            replies: Vec::new(),
            dead: Vec::new(),
            assigned: Vec::new(),
            revoked: Vec::new(),
            others: Vec::new(),
            fetches: 0,
            options,
            requests: 0,
        }
    }

    /// A group with one lane.
    pub(crate) fn with_lane(options: GroupOptions) -> Self {
        let mut driver = Self::new(options);
        driver.open(0, 0);
        driver
    }

    pub(crate) fn open(&mut self, lane: u64, offset: u64) {
        let tail = self.logs.entry(lane).or_default().len() as u64;
        let from = match self.states.get(&lane) {
            Some(state) => StartFrom::State(Box::new(state.clone())),
            None => StartFrom::Offset(offset),
        };
        let lane = LaneId::new(lane);
        self.feed(Input::LaneAdded(LaneStart { lane, tail, from }));
    }

    /// The process goes down, with what was not durable, and comes up again.
    pub(crate) fn crash(&mut self) {
        self.saves.clear();
        self.deliveries.clear();
        self.replies.clear();
        self.group = Group::new(self.options.clone(), 2).unwrap();
        let lanes: Vec<u64> = self.logs.keys().copied().collect();
        for lane in lanes {
            self.open(lane, 0);
        }
    }

    /// Publishes events with these keys.
    pub(crate) fn append(&mut self, keys: &[Option<u64>]) {
        self.append_to(0, keys);
    }

    pub(crate) fn append_to(&mut self, lane: u64, keys: &[Option<u64>]) {
        let log = self.logs.entry(lane).or_default();
        for key in keys {
            log.push(Found { offset: log.len() as u64, key: *key, bytes: 100, skip: false });
        }
        let tail = log.len() as u64;
        let lane = LaneId::new(lane);
        self.feed(Input::Appended { lane, tail });
    }

    pub(crate) fn join(&mut self, number: u64) {
        self.join_with(number, MemberOptions::default());
    }

    pub(crate) fn join_with(&mut self, number: u64, options: MemberOptions) {
        let member = member(number);
        self.feed(Input::Joined { member, options });
    }

    pub(crate) fn wait(&mut self, millis: u64) {
        self.now += millis;
        self.feed(Input::Tick);
    }

    pub(crate) fn feed(&mut self, input: Input<'_>) {
        let mut outputs = Vec::new();
        self.group.step(self.now, input, &mut outputs);
        let mut work = std::collections::VecDeque::from(outputs);
        while let Some(output) = work.pop_front() {
            let mut more = Vec::new();
            self.perform(output, &mut more);
            work.extend(more);
        }
    }

    fn perform(&mut self, output: Output, more: &mut Vec<Output>) {
        match output {
            Output::Fetch(fetch) => {
                self.fetches += 1;
                let log = &self.logs[&fetch.lane.get()];
                let to = (fetch.from + u64::from(fetch.max)).min(log.len() as u64);
                let all = log[fetch.from as usize..to as usize].iter().copied();
                let all: Vec<Found> = all.filter(|found| found.offset < u64::MAX).collect();
                let gaps = self.gaps.get(&fetch.lane.get()).cloned().unwrap_or_default();
                let page = Page {
                    lane: fetch.lane,
                    fetch: fetch.fetch,
                    from: fetch.from,
                    to,
                    events: &all,
                    gaps: &gaps,
                };
                self.group.step(self.now, Input::Fetched(page), more);
            }
            Output::Save(save) if self.slow_saves => self.saves.push(save),
            Output::Save(save) => self.save(save, more),
            Output::Deliver(deliver) => self.deliveries.push(deliver),
            Output::Reply(reply) => self.replies.push(reply),
            Output::Assign(of) => self.assigned.push(of),
            Output::Revoke { of, deadline } => self.revoked.push((of, deadline)),
            other => self.others.push(other),
        }
    }

    fn save(&mut self, save: Save, more: &mut Vec<Output>) {
        let number = save.number;
        for (lane, delta) in save.lanes {
            let delta = LaneDelta::decode(&delta.encode()).unwrap();
            self.states.entry(lane.get()).or_default().apply(&delta).unwrap();
        }
        self.dead.extend(save.dead_letters);
        self.group.step(self.now, Input::Saved { number }, more);
    }

    /// Makes the saves that wait durable, and those that follow from them.
    pub(crate) fn save_all(&mut self) {
        while !self.saves.is_empty() {
            for save in std::mem::take(&mut self.saves) {
                let mut more = Vec::new();
                self.save(save, &mut more);
                for output in more {
                    let mut rest = Vec::new();
                    self.perform(output, &mut rest);
                    assert!(rest.is_empty(), "fetches are over before saves are slow");
                }
            }
        }
    }

    /// Everything delivered since the last time: member and token.
    pub(crate) fn take(&mut self) -> Vec<(u64, Token)> {
        let all = std::mem::take(&mut self.deliveries);
        let tokens = all.iter().flat_map(|deliver| {
            let events = deliver.events();
            events.map(|event| (deliver.member.get(), deliver.token(event)))
        });
        tokens.collect()
    }

    /// Offsets and attempts delivered since the last time.
    pub(crate) fn taken(&mut self) -> Vec<(u64, u16)> {
        let all = self.take().into_iter();
        all.map(|(_, token)| (token.offset, token.attempt)).collect()
    }

    pub(crate) fn request(&mut self) -> RequestId {
        self.requests += 1;
        RequestId::new(self.requests)
    }

    /// Acks, and says what the answer was if there is one.
    pub(crate) fn ack(&mut self, from: u64, item: Ack) -> Option<Result<u64, Refusal>> {
        let request = self.request();
        self.feed(Input::Ack { member: member(from), request, items: &[item] });
        self.answer(request)
    }

    pub(crate) fn answer(&mut self, request: RequestId) -> Option<Result<u64, Refusal>> {
        let at = self.replies.iter().position(|reply| reply.request == request)?;
        let reply = self.replies.remove(at);
        Some(match reply.refused.first() {
            Some(refused) if reply.accepted == 0 => Err(refused.why),
            _ => Ok(reply.accepted),
        })
    }

    pub(crate) fn nack(&mut self, from: u64, token: Token, delay_ms: Option<u32>) {
        let request = self.request();
        self.feed(Input::Nack {
            member: member(from),
            request,
            target: Ack::Token(token),
            verdict: Verdict::Retry { delay_ms, error: b"boom", fingerprint: 9 },
        });
    }

    pub(crate) fn floor(&self) -> u64 {
        self.group.status(LANE).unwrap().floor
    }

    pub(crate) fn saved_floor(&self) -> u64 {
        self.states[&0].floor
    }
}
