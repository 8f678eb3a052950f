use promethean_delivery::{
    DeadLetterRef, Input, LaneId, MemberId, MemberOptions, Mode, RequestId, Span,
};

use super::swarm::Action;
use super::world::{LogEntry, World};

impl World {
    pub(crate) fn act(&mut self, action: Action) {
        match action {
            Action::Append => self.append(),
            Action::Advance => self.advance(),
            Action::AnswerFetch => self.answer_some(),
            Action::FailFetch => self.fail_fetch(),
            Action::MakeDurable => self.make_durable(),
            Action::ReportSaved => self.report_saved(),
            Action::Join => self.maybe_join(),
            Action::Leave => self.leave(),
            Action::Silence => self.fall_silent(),
            Action::Heartbeat => self.heartbeats(),
            Action::Credit => self.credit(),
            Action::Pause => self.pause(),
            Action::Ack => self.ack_some(),
            Action::AckRange => self.ack_range(),
            Action::AckStale => self.ack_stale(),
            Action::Nack => self.nack(),
            Action::ParkNow => self.park_now(),
            Action::Extend => self.extend(),
            Action::Skip => self.skip(),
            Action::Seek => self.seek(),
            Action::Resolve => self.resolve(),
            Action::Crash => self.crash(),
            Action::ClockJump => self.clock_jump(),
            Action::DropLane => self.drop_lane(),
        }
    }

    pub(crate) fn request(&mut self) -> RequestId {
        self.numbers += 1;
        RequestId::new(self.numbers)
    }

    fn any_lane(&mut self) -> (u64, u64) {
        let lane = self.random.below(self.swarm.lanes);
        (lane, self.logs.get(&lane).map_or(0, Vec::len) as u64)
    }

    fn append(&mut self) {
        let (lane, _) = self.any_lane();
        for _ in 0..=self.random.below(8) {
            let key = self.random.chance(85).then(|| self.random.below(self.swarm.keys));
            let entry =
                LogEntry { key, filtered: self.random.chance(10), gone: self.random.chance(3) };
            self.logs.entry(lane).or_default().push(entry);
            self.checker.appended(lane, entry);
        }
        let tail = self.logs.get(&lane).map_or(0, Vec::len) as u64;
        let lane = LaneId::new(lane);
        self.feed(Input::Appended { lane, tail });
    }

    fn advance(&mut self) {
        self.now += self.random.below(60);
        self.feed(Input::Tick);
    }

    fn clock_jump(&mut self) {
        self.faults.clock_jumps += 1;
        if self.random.chance(50) {
            self.now += self.random.below(3_000);
        } else {
            // Back: the group has to take it for standing still.
            self.now = self.now.saturating_sub(self.random.below(500));
        }
        self.feed(Input::Tick);
    }

    fn answer_some(&mut self) {
        if self.fetches.is_empty() {
            return;
        }
        // In any order; now and then twice.
        let at = self.random.below(self.fetches.len() as u64) as usize;
        let fetch = self.fetches.swap_remove(at);
        self.answer(fetch);
        if self.random.chance(5) {
            self.faults.bad_fetches += 1;
            self.answer(fetch);
        }
    }

    fn fail_fetch(&mut self) {
        if let Some(fetch) = self.fetches.pop() {
            self.faults.bad_fetches += 1;
            self.feed(Input::FetchFailed { lane: fetch.lane, fetch: fetch.fetch });
        }
    }

    fn maybe_join(&mut self) {
        if self.clients.iter().filter(|client| !client.gone).count() >= 4 {
            return;
        }
        let choosy = self.swarm.group.mode == Mode::Shared && self.random.chance(15);
        let lanes = choosy.then(|| vec![LaneId::new(self.random.below(self.swarm.lanes))]);
        let credits = self.random.chance(30).then(|| self.random.below(10) as u32);
        let options = MemberOptions {
            credits,
            max_in_flight: 1 + self.random.below(20) as u32,
            max_bytes_in_flight: 10 + self.random.below(300),
            batch_size: 1 + self.random.below(6) as u32,
            lanes,
        };
        self.join(options);
    }

    /// A client, alive or not.
    pub(crate) fn any_client(&mut self) -> Option<usize> {
        let count = self.clients.len() as u64;
        (count > 0).then(|| self.random.below(count) as usize)
    }

    pub(crate) fn any_member(&mut self) -> Option<MemberId> {
        let at = self.any_client()?;
        self.clients.get(at).map(|client| client.id)
    }

    fn leave(&mut self) {
        if let Some(member) = self.any_member() {
            self.faults.lost_members += 1;
            for client in self.clients.iter_mut().filter(|c| c.id == member) {
                client.gone = true;
            }
            self.feed(Input::Left { member });
        }
    }

    fn fall_silent(&mut self) {
        if let Some(client) = self.any_client().and_then(|at| self.clients.get_mut(at)) {
            client.silent = true;
            self.faults.lost_members += 1;
        }
    }

    fn heartbeats(&mut self) {
        let alive: Vec<MemberId> = self
            .clients
            .iter()
            .filter(|client| !client.silent && !client.gone)
            .map(|client| client.id)
            .collect();
        for member in alive {
            self.feed(Input::Heartbeat { member });
        }
        if self.random.chance(40)
            && let Some(of) = self.revoked.pop()
        {
            self.feed(Input::LaneReleased {
                member: of.member,
                lane: of.lane,
                generation: of.generation,
            });
        }
    }

    fn credit(&mut self) {
        if let Some(member) = self.any_member() {
            let events = self.random.below(10) as u32;
            self.feed(Input::Credit { member, events });
        }
    }

    fn pause(&mut self) {
        match self.random.below(4) {
            0 => {
                self.paused = true;
                self.feed(Input::Paused);
            }
            1 => {
                self.paused = false;
                self.feed(Input::Resumed);
            }
            kind => {
                let Some(member) = self.any_member() else {
                    return;
                };
                self.feed(match kind {
                    2 => Input::MemberPaused { member },
                    _ => Input::MemberResumed { member },
                });
            }
        }
    }

    fn skip(&mut self) {
        let (lane, tail) = self.any_lane();
        let from = self.random.below(tail + 2);
        let request = self.request();
        let to = from + self.random.below(4);
        self.feed(Input::Skip { request, lane: LaneId::new(lane), span: Span { from, to } });
    }

    fn seek(&mut self) {
        let (lane, tail) = self.any_lane();
        self.faults.seeks += 1;
        let to = self.random.below(tail + 2);
        let request = self.request();
        self.feed(Input::Seek { request, lane: LaneId::new(lane), to });
    }

    fn resolve(&mut self) {
        let (lane, _) = self.any_lane();
        let letters = self.checker.dead_letters(lane);
        if let Some(event) = self.random.pick(&letters) {
            let release = self.random.chance(60);
            self.resolve_one(lane, event, release);
        }
    }

    fn resolve_one(&mut self, lane: u64, event: DeadLetterRef, release: bool) {
        let request = self.request();
        let lane = LaneId::new(lane);
        self.feed(match release {
            true => Input::Release { request, lane, event },
            false => Input::Discard { request, lane, event },
        });
    }

    /// Another process takes the lane over and gives it back.
    fn drop_lane(&mut self) {
        let (lane, _) = self.any_lane();
        self.feed(Input::LaneRemoved { lane: LaneId::new(lane) });
        // Its last words must be durable before anybody takes it up.
        self.report_saved();
        while self.store.pending() > 0 {
            self.make_durable();
            self.report_saved();
        }
        self.checker.reopened(lane);
        self.open_lane(lane);
    }

    /// An operator discards every dead letter that a key waits for. Whether there was one.
    pub(crate) fn resolve_all(&mut self) -> bool {
        let lanes: Vec<u64> = self.logs.keys().copied().collect();
        let mut any = false;
        for lane in lanes {
            for event in self.checker.parked(lane) {
                self.resolve_one(lane, event, false);
                any = true;
            }
        }
        any
    }
}
