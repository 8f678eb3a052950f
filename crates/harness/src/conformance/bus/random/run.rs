use std::collections::BTreeSet;

use promethean::event::{Cursor, Offset, Partition};
use promethean::member::{AckTarget, Leased, Member, MemberOptions, Told};
use promethean::store::Lane;
use promethean::{DeadLetterQuery, Ordered, Park, Start};
use promethean_delivery::Verdict;

use super::super::factory::BusFactory;
use super::super::scene::{BILLING, ORDERS, Scene, event, group, topic};
use super::books::{Books, Place, Rules};
use super::{Plan, RandomReport};
use crate::group_simulation::Random;

/// A consumer with what it has, or had.
struct Worker {
    number: u64,
    member: Member,
    held: Vec<Leased>,
}

pub(super) struct Run<'a> {
    scene: Scene<'a>,
    plan: Plan,
    random: Random,
    books: Books,
    workers: Vec<Worker>,
    /// Deliveries whose time is over in one way or the other: their acks must be refused.
    stale: Vec<(u64, Leased)>,
    numbers: u64,
    report: RandomReport,
}

fn place(leased: &Leased) -> Place {
    (leased.token().lane.get(), leased.token().offset)
}

impl<'a> Run<'a> {
    pub(super) async fn new(factory: &'a dyn BusFactory, plan: Plan, random: Random) -> Self {
        let scene = Scene::open(factory).await;
        scene.define(ORDERS, plan.lanes).await;
        let rules = Rules {
            ordered: plan.settings.ordered == Ordered::Key,
            max_attempts: plan.settings.max_attempts,
            lease_ms: u64::from(plan.settings.ack_timeout_ms),
        };
        Self {
            scene,
            plan,
            random,
            books: Books::new(rules),
            workers: Vec::new(),
            stale: Vec::new(),
            numbers: 0,
            report: RandomReport::default(),
        }
    }

    pub(super) async fn run(mut self, seed: u64, steps: u32) -> RandomReport {
        self.report.seed = seed;
        for _ in 0..steps {
            self.step().await;
            if !self.books.violations.is_empty() {
                return self.ended();
            }
        }
        self.come_to_an_end().await;
        self.ended()
    }

    fn ended(self) -> RandomReport {
        let Self { books, mut report, .. } = self;
        report.deliveries = books.deliveries;
        report.violations = books.violations;
        report
    }

    async fn step(&mut self) {
        self.take();
        match self.random.below(100) {
            0..25 => self.publish().await,
            25..30 => self.join().await,
            30..33 if self.plan.with_leaving => self.leave(),
            33..35 if self.plan.with_moves => self.seek().await,
            35..36 if self.plan.with_crashes => self.crash().await,
            36..44 if self.plan.with_sleep => self.sleep().await,
            44..50 => self.look_at_cursors().await,
            50..54 => self.ack_stale().await,
            54..58 => self.pause(),
            _ => self.answer().await,
        }
    }

    async fn publish(&mut self) {
        let count = 1 + self.random.below(4);
        for _ in 0..count {
            let number = self.random.below(self.plan.keys + 1);
            let key = if number == 0 { String::new() } else { format!("key-{number}") };
            self.report.events += 1;
            let event = event(ORDERS, &key, self.report.events);
            let key = event.key.as_ref().map(|key| key.as_str().to_owned());
            let published = self.scene.bus.publish(event).await.expect("the publish goes through");
            let lane = self.scene.lane(ORDERS, published.partition.get());
            self.books.published((lane.id().get(), published.offset.get()), key);
        }
    }

    async fn join(&mut self) {
        if self.workers.len() >= 4 {
            return;
        }
        let options = MemberOptions {
            max_in_flight: 1 + self.random.below(6) as u32,
            batch_size: 1 + self.random.below(3) as u32,
            ..MemberOptions::default()
        };
        self.numbers += 1;
        let member = self.member(options).await;
        self.workers.push(Worker { number: self.numbers, member, held: Vec::new() });
    }

    async fn member(&self, options: MemberOptions) -> Member {
        let name = group(BILLING);
        let settings = self.plan.settings.clone();
        let join = self.scene.bus.join(&name, settings, Start::Earliest, options);
        join.await.expect("one can join")
    }

    fn leave(&mut self) {
        if let Some(worker) = self.pick_worker() {
            let Worker { number, held, .. } = self.workers.swap_remove(worker);
            self.books.left(number);
            self.stale.extend(held.into_iter().map(|leased| (number, leased)));
        }
    }

    fn pick_worker(&mut self) -> Option<usize> {
        let count = self.workers.len() as u64;
        (count > 0).then(|| self.random.below(count) as usize)
    }

    /// Everybody takes what has come, in the order in which it was delivered.
    fn take(&mut self) {
        let mut taken = Vec::new();
        for (index, worker) in self.workers.iter_mut().enumerate() {
            while let Some(told) = worker.member.try_next() {
                let Told::Events(batch) = told else { continue };
                taken.extend(batch.into_events().map(|leased| (index, leased)));
            }
        }
        taken.sort_by_key(|(_, leased)| {
            (leased.deadline_ms(), leased.attempt(), leased.token().offset)
        });
        for (index, leased) in taken {
            let worker = &mut self.workers[index];
            if self.books.delivered(worker.number, &leased) {
                worker.held.push(leased);
            } else {
                self.stale.push((worker.number, leased));
            }
        }
    }

    fn pick_held(&mut self) -> Option<(usize, Leased)> {
        let worker = self.pick_worker()?;
        let held = &mut self.workers[worker].held;
        let count = held.len() as u64;
        (count > 0).then(|| (worker, held.swap_remove(self.random.below(count) as usize)))
    }

    async fn answer(&mut self) {
        let Some((worker, leased)) = self.pick_held() else {
            tokio::task::yield_now().await;
            return;
        };
        let (place, target) = (place(&leased), AckTarget::Token(leased.token()));
        let Worker { number, member, .. } = &self.workers[worker];
        let (number, seat) = (*number, member.seat().clone());
        let last = self.books.is_last(&leased, number);
        let taken = match self.random.below(20) {
            0..11 => {
                let taken = seat.ack(&[target]).all().await.is_ok();
                if taken && last {
                    self.books.confirmed(place);
                }
                taken
            }
            11..13 => {
                // Nobody waits for the answer. Taken or not: the lease may be over.
                if last {
                    self.books.said(place);
                }
                drop(seat.ack(&[target]));
                last
            }
            13..16 => {
                let delay_ms = self.random.chance(50).then_some(self.random.below(500) as u32);
                let retry = Verdict::Retry { delay_ms, error: b"no", fingerprint: 1 };
                let taken = seat.nack(target, retry).all().await.is_ok();
                if taken && last {
                    self.books.refused(place);
                }
                taken
            }
            16..17 => {
                let park = Verdict::Park { error: b"never", fingerprint: 2 };
                let taken = seat.nack(target, park).all().await.is_ok();
                if taken && last {
                    self.books.given_up(place);
                }
                taken
            }
            17..18 => {
                let taken = seat.nack(target, Verdict::Skip).all().await.is_ok();
                if taken && last {
                    self.books.confirmed(place);
                }
                taken
            }
            18..19 => {
                // At least as long as it has: shorter would be another's turn earlier.
                let lease_ms = self.plan.settings.ack_timeout_ms;
                let taken = seat.extend(target, lease_ms).all().await.is_ok();
                self.workers[worker].held.push(leased.clone());
                taken
            }
            // Forgotten: its lease runs out.
            _ => last,
        };
        if taken && !last {
            self.books.wrongly_taken(&leased);
        }
        self.stale.push((number, leased));
    }

    /// Says again what was said before, or what comes too late.
    async fn ack_stale(&mut self) {
        let (Some(worker), false) = (self.pick_worker(), self.stale.is_empty()) else {
            return;
        };
        let index = self.random.below(self.stale.len() as u64) as usize;
        let (_, leased) = self.stale[index].clone();
        let Worker { number, member, .. } = &self.workers[worker];
        let (number, seat) = (*number, member.seat().clone());
        if self.books.is_last(&leased, number) {
            // Forgotten by the one who has it, and still its own.
            return;
        }
        if seat.ack(&[AckTarget::Token(leased.token())]).all().await.is_ok() {
            self.books.wrongly_taken(&leased);
        }
    }

    fn pause(&mut self) {
        if let Some(worker) = self.pick_worker() {
            let seat = self.workers[worker].member.seat();
            if self.random.chance(40) { seat.pause() } else { seat.resume() }
        }
    }

    async fn sleep(&mut self) {
        let longest = u64::from(self.plan.settings.ack_timeout_ms) * 3 / 2;
        let time = std::time::Duration::from_millis(self.random.below(longest));
        tokio::time::sleep(time).await;
    }

    async fn look_at_cursors(&mut self) {
        if self.scene.bus.groups().await.expect("they are listed").is_empty() {
            return;
        }
        for cursor in self.scene.cursors().await {
            let lane = self.scene.lane(ORDERS, cursor.partition.get());
            self.books.cursor(lane.id().get(), cursor.next.get());
        }
    }

    async fn seek(&mut self) {
        if self.scene.bus.groups().await.expect("they are listed").is_empty() {
            return;
        }
        let partition = Partition::new(self.random.below(u64::from(self.plan.lanes)) as u32);
        let lane = Lane { partition, ..self.scene.lane(ORDERS, 0) };
        let end = self.scene.bus.store().bounds(lane).await.expect("the lane is there").next;
        let next = Offset::new(self.random.below(end.get() + 1));
        let cursor = Cursor { topic: topic(ORDERS), partition, next };
        let name = group(BILLING);
        self.scene.bus.set_cursor(&name, &cursor).await.expect("the group can be moved");
        let record = self.scene.bus.store().group(name).await.expect("it can be read");
        let record = record.expect("the group is there");
        let state = record.lanes.iter().find(|(known, _)| *known == lane);
        let epoch = state.map_or(0, |(_, state)| state.epoch);
        self.books.moved(lane.id().get(), next.get(), epoch);
        self.report.moves += 1;
    }

    async fn crash(&mut self) {
        self.workers.clear();
        self.stale.clear();
        self.scene.go_down().await;
        self.books.crashed();
        self.report.crashes += 1;
    }

    /// No more faults: a consumer that acks everything, and dead letters that are given up.
    async fn come_to_an_end(&mut self) {
        self.workers.clear();
        let mut last = self.member(MemberOptions::default()).await;
        let name = group(BILLING);
        self.numbers += 1;
        loop {
            let patience = self.scene.pace.patience;
            let told = tokio::select! {
                told = last.next() => told,
                caught_up = self.scene.bus.caught_up(&name) => match caught_up {
                    Ok(()) => break,
                    Err(error) => return self.books.violations.push(format!("stopped: {error}")),
                },
                () = self.parked_are_discarded() => continue,
                () = tokio::time::sleep(patience) => {
                    let lag = self.scene.bus.lag(&name).await;
                    return self.books.violations.push(format!("stuck: {lag:?}"));
                }
            };
            let Some(Told::Events(batch)) = told else { continue };
            for leased in batch.into_events() {
                let (place, is_now) = (place(&leased), self.books.delivered(self.numbers, &leased));
                let target = AckTarget::Token(leased.token());
                if last.seat().ack(&[target]).all().await.is_ok() && is_now {
                    self.books.confirmed(place);
                }
            }
        }
        let all = self.scene.bus.dead_letters(&DeadLetterQuery::default()).await;
        let all = all.expect("they are listed");
        self.report.dead_letters = all.len() as u64;
        let lane = |partition: Partition| self.scene.lane(ORDERS, partition.get()).id().get();
        let dead: BTreeSet<Place> = all
            .iter()
            .map(|entry| (lane(entry.letter.partition), entry.letter.offset.get()))
            .collect();
        self.books.ended(&dead);
        self.look_at_cursors().await;
    }

    /// With `park = "key"` what waits behind a dead letter waits for ever, unless it is discarded.
    async fn parked_are_discarded(&self) {
        if self.plan.settings.park != Park::Key {
            return std::future::pending().await;
        }
        loop {
            tokio::time::sleep(self.scene.ticks(3)).await;
            let letters = self.scene.letters().await;
            for entry in &letters {
                drop(self.scene.bus.discard_dead_letter(entry.id).await);
            }
            if !letters.is_empty() {
                return;
            }
        }
    }
}
