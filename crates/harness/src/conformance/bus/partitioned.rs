//! `mode = "partitioned"`: one owner for each partition, whoever comes and goes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use promethean::member::{AckTarget, Leased, Member, MemberOptions, Told};
use promethean::store::Lane;
use promethean::{Consumer, Failure, GroupSettings, Mode, Start};

use super::factory::BusFactory;
use super::scene::{BILLING, ORDERS, Scene, event, group, leased_number, millis, number, settings};
use crate::group_simulation::Random;

fn partitioned(scene: &Scene<'_>) -> GroupSettings {
    let mut settings = settings(&[ORDERS]);
    settings.mode = Mode::Partitioned;
    settings.drain_ms = millis(scene.ticks(5));
    settings
}

async fn join(scene: &Scene<'_>, wish: &GroupSettings) -> Member {
    let options = MemberOptions::default();
    let name = group(BILLING);
    let join = scene.bus.join(&name, wish.clone(), Start::Earliest, options);
    join.await.expect("one can join")
}

/// A member with what it was told.
struct Owner {
    member: Member,
    owned: BTreeSet<Lane>,
    held: Vec<Leased>,
}

impl Owner {
    fn new(member: Member) -> Self {
        Self { member, owned: BTreeSet::new(), held: Vec::new() }
    }

    /// Takes up what it is told until nothing comes for a while.
    async fn listen(&mut self, scene: &Scene<'_>) {
        while let Ok(told) = tokio::time::timeout(scene.pace.quiet, self.member.next()).await {
            match told.expect("it is a member") {
                Told::Assigned(lane) => assert!(self.owned.insert(lane), "assigned twice"),
                Told::Revoked(lane) => assert!(self.owned.remove(&lane), "revoked for nothing"),
                Told::Events(batch) => {
                    assert!(
                        self.owned.contains(&batch.lane()),
                        "delivered from {:?}",
                        batch.lane()
                    );
                    self.held.extend(batch.into_events());
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Listens until it has so many events, and then whether more come.
    async fn listen_for(&mut self, scene: &Scene<'_>, events: usize) {
        let listening = async {
            self.listen(scene).await;
            while self.held.len() < events {
                self.listen(scene).await;
            }
        };
        scene.within(&format!("{events} events"), listening).await;
    }

    async fn ack_all(&mut self) {
        let held = std::mem::take(&mut self.held);
        let targets: Vec<_> = held.iter().map(|one| AckTarget::Token(one.token())).collect();
        self.member.seat().ack(&targets).all().await.expect("they are its own");
    }
}

/// Listens until every partition has its one owner, balanced to within one.
async fn settle(scene: &Scene<'_>, owners: &mut [Owner], lanes: usize) {
    let mut unsound = String::new();
    let settling = async {
        loop {
            for owner in owners.iter_mut() {
                owner.listen(scene).await;
            }
            match owners_are_sound(owners, lanes) {
                Ok(()) => return,
                Err(why) => unsound = why,
            }
        }
    };
    let settled = tokio::time::timeout(scene.pace.patience, settling).await;
    assert!(settled.is_ok(), "{unsound}");
}

fn owners_are_sound(owners: &[Owner], lanes: usize) -> Result<(), String> {
    let all: Vec<_> = owners.iter().flat_map(|owner| owner.owned.iter().copied()).collect();
    let distinct: BTreeSet<_> = all.iter().copied().collect();
    let counts: Vec<_> = owners.iter().map(|owner| owner.owned.len()).collect();
    let (least, most) = (counts.iter().min(), counts.iter().max());
    if distinct.len() != all.len() {
        Err(format!("more than one owner: {counts:?}"))
    } else if distinct.len() != lanes {
        Err(format!("not one for every partition: {counts:?}"))
    } else if most.zip(least).is_none_or(|(most, least)| most - least > 1) {
        Err(format!("not balanced: {counts:?}"))
    } else {
        Ok(())
    }
}

/// Pitfalls 79, 80, 82, P25, promise 7: one owner each, balanced to within one, moving as few as
/// possible.
pub async fn partitions_have_one_owner_each(factory: &dyn BusFactory) {
    const LANES: usize = 8;
    let scene = Scene::open(factory).await;
    scene.define(ORDERS, LANES as u32).await;
    let wish = partitioned(&scene);
    let mut random = Random::new(7);
    let mut owners: Vec<Owner> = Vec::new();
    for round in 0..12 {
        let before: Vec<BTreeSet<Lane>> = owners.iter().map(|owner| owner.owned.clone()).collect();
        let joins = owners.len() < 2 || owners.len() < 6 && random.chance(60);
        if joins {
            owners.push(Owner::new(join(&scene, &wish).await));
        } else {
            drop(owners.remove(random.below(owners.len() as u64) as usize));
        }
        settle(&scene, &mut owners, LANES).await;
        if joins && round > 0 {
            let kept: usize = before
                .iter()
                .zip(&owners)
                .map(|(old, now)| old.intersection(&now.owned).count())
                .sum();
            let newest = owners.last().map_or(0, |owner| owner.owned.len());
            assert_eq!(kept, LANES - newest, "only what the new one gets has moved");
        }
    }
}

/// More members than partitions: some have none, and none is in trouble.
pub async fn members_without_a_partition_wait(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    scene.define(ORDERS, 2).await;
    let wish = partitioned(&scene);
    let mut owners = Vec::new();
    for _ in 0..4 {
        owners.push(Owner::new(join(&scene, &wish).await));
    }
    settle(&scene, &mut owners, 2).await;
    owners.retain(|owner| owner.owned.is_empty());
    settle(&scene, &mut owners, 2).await;
}

/// Pitfall 82, P25: the old owner finishes what it has before the new one begins.
pub async fn a_revoked_partition_is_drained_first(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    scene.define(ORDERS, 2).await;
    let mut wish = partitioned(&scene);
    // Longer than anybody waits here: only the acks can end the drain.
    wish.drain_ms = millis(scene.pace.patience * 10);
    wish.ack_timeout_ms = wish.drain_ms;
    wish.processing_ms_max = wish.drain_ms;
    let mut old = Owner::new(join(&scene, &wish).await);
    for turn in 0..20 {
        scene.publish(ORDERS, &format!("key-{turn}"), turn).await;
    }
    old.listen_for(&scene, 20).await;
    assert_eq!(old.held.len(), 20);
    let mut new = Owner::new(join(&scene, &wish).await);
    old.listen(&scene).await;
    new.listen(&scene).await;
    assert_eq!(old.owned.len(), 1, "one is revoked");
    assert!(new.owned.is_empty() && new.held.is_empty(), "but not yet another's");
    for turn in 20..40 {
        scene.publish(ORDERS, &format!("key-{turn}"), turn).await;
    }
    old.listen(&scene).await;
    let owned = old.owned.clone();
    let of_revoked = |one: &&Leased| !owned.contains(&Lane::of(one.token().lane));
    let drained = old.held.iter().filter(of_revoked).map(leased_number);
    assert!(drained.max().is_some_and(|last| last < 20), "nothing new of a revoked partition");
    old.ack_all().await;
    new.listen_for(&scene, 1).await;
    assert_eq!(new.owned.len(), 1);
    assert!(!new.held.is_empty() && new.held.iter().all(|one| leased_number(one) >= 20));
    assert!(new.held.iter().all(|one| one.attempt() == 1), "nothing came twice");
}

/// Pitfall 82, P24: who does not finish in time is fenced; its late acks are void.
pub async fn a_late_owner_is_fenced(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    scene.define(ORDERS, 2).await;
    let mut wish = partitioned(&scene);
    wish.drain_ms = millis(scene.ticks(2));
    let mut old = Owner::new(join(&scene, &wish).await);
    for turn in 0..20 {
        scene.publish(ORDERS, &format!("key-{turn}"), turn).await;
    }
    old.listen_for(&scene, 20).await;
    assert_eq!(old.held.len(), 20);
    let mut new = Owner::new(join(&scene, &wish).await);
    let gained = scene.batch(&mut new.member).await;
    let lane = gained.lane();
    let (theirs, mine): (Vec<_>, Vec<_>) =
        old.held.iter().partition(|one| Lane::of(one.token().lane) == lane);
    assert!(!theirs.is_empty());
    let late: Vec<_> = theirs.iter().map(|one| AckTarget::Token(one.token())).collect();
    let reply = old.member.seat().ack(&late).await.expect("the group goes on");
    assert_eq!((reply.accepted, reply.refused.len()), (0, late.len()), "void, and it is said");
    let mine: Vec<_> = mine.iter().map(|one| AckTarget::Token(one.token())).collect();
    old.member.seat().ack(&mine).all().await.expect("the other partition is still its own");
    let again: Vec<_> = gained.into_events().collect();
    assert!(again.iter().all(|one| one.attempt() == 2));
    let targets: Vec<_> = again.iter().map(|one| AckTarget::Token(one.token())).collect();
    new.member.seat().ack(&targets).all().await.expect("the new owner can");
}

/// Pitfalls 81, 84: each partition has its own cursor, and nothing is skipped when it moves.
pub async fn partitions_have_their_own_cursors(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    scene.define(ORDERS, 2).await;
    let wish = partitioned(&scene);
    let mut one = Owner::new(join(&scene, &wish).await);
    for turn in 0..40 {
        scene.publish(ORDERS, &format!("key-{turn}"), turn).await;
    }
    one.listen_for(&scene, 40).await;
    let first = scene.lane(ORDERS, 0).id();
    let of_first: Vec<_> = one.held.iter().filter(|held| held.token().lane == first).collect();
    let targets: Vec<_> = of_first.iter().map(|held| AckTarget::Token(held.token())).collect();
    one.member.seat().ack(&targets).all().await.expect("they are its own");
    let cursors: Vec<_> = scene.cursors().await.iter().map(|cursor| cursor.next.get()).collect();
    assert_eq!(cursors, [targets.len() as u64, 0]);
    drop(one);
    let mut two = Owner::new(join(&scene, &wish).await);
    two.listen_for(&scene, 40 - targets.len()).await;
    assert_eq!(two.held.len(), 40 - targets.len(), "the backlog of the second, all of it");
}

type Books = Arc<Mutex<(BTreeMap<String, u64>, Vec<String>)>>;

async fn consumer(scene: &Scene<'_>, books: &Books) -> Consumer {
    let books = Arc::clone(books);
    let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
    let builder = builder.mode(Mode::Partitioned).drain(scene.ticks(20)).max_attempts(100);
    let builder = builder.backoff(scene.ticks(1) / 20, scene.ticks(1) / 10).concurrency(4);
    let consumer = builder.handle(move |delivered| {
        let books = Arc::clone(&books);
        async move {
            let key = delivered.event().key.clone().expect("all have keys");
            let turn = number(delivered.event());
            let expected = books.lock().expect("sound").0.get(key.as_str()).copied().unwrap_or(0);
            // At least once: one that was done and not acked in time comes again.
            if turn > expected {
                let line = format!("{} began {turn}, {expected} was due", key.as_str());
                books.lock().expect("sound").1.push(line);
            }
            tokio::task::yield_now().await;
            if (turn + u64::from(delivered.attempt())).is_multiple_of(4) && delivered.attempt() < 3
            {
                return Err(Failure::retry("by order"));
            }
            let mut books = books.lock().expect("sound");
            let done = books.0.entry(key.as_str().to_owned()).or_default();
            *done = (*done).max(turn + 1);
            Ok(())
        }
    });
    consumer.await.expect("one can subscribe")
}

/// Promise 4: keys stay in order while members come and go.
pub async fn keys_stay_in_order_across_rebalances(factory: &dyn BusFactory) {
    const KEYS: u64 = 12;
    let scene = Scene::open(factory).await;
    scene.define(ORDERS, 6).await;
    let books = Books::default();
    let mut consumers = vec![consumer(&scene, &books).await];
    let mut random = Random::new(11);
    for turn in 0..24 {
        let events = (0..KEYS).map(|number| event(ORDERS, &format!("key-{number}"), turn));
        scene.bus.publish_batch(events.collect()).await.expect("the batch is good");
        if consumers.len() < 2 || consumers.len() < 5 && random.chance(50) {
            consumers.push(consumer(&scene, &books).await);
        } else {
            let gone = consumers.remove(random.below(consumers.len() as u64) as usize);
            if random.chance(50) {
                gone.stop().await.expect("it stops");
            }
        }
    }
    let name = group(BILLING);
    scene.within("all is handled", scene.bus.caught_up(&name)).await.expect("it goes on");
    let books = books.lock().expect("sound").clone();
    assert_eq!(books.1, Vec::<String>::new());
    assert_eq!(books.0.len() as u64, KEYS);
    assert!(books.0.values().all(|&turn| turn == 24), "{:?}", books.0);
}

/// A topic with many partitions that appears later, while a member with little room is busy: it
/// is told of all of them, and stays a member.
pub async fn many_partitions_at_once_expel_nobody(factory: &dyn BusFactory) {
    const LANES: usize = 300;
    let scene = Scene::open(factory).await;
    let wish = partitioned(&scene);
    let options = MemberOptions { max_in_flight: 1, ..MemberOptions::default() };
    let name = group(BILLING);
    let join = scene.bus.join(&name, wish, Start::Earliest, options);
    let mut member = join.await.expect("one can join");
    scene.define(ORDERS, LANES as u32).await;
    scene.publish(ORDERS, "k", 7).await;
    scene
        .eventually("the group has taken the topic up", async || {
            scene.cursors().await.len() == LANES
        })
        .await;
    let mut assigned = BTreeSet::new();
    let mut delivered = None;
    while assigned.len() < LANES || delivered.is_none() {
        match scene.within("what it is told", member.next()).await.expect("it is a member") {
            Told::Assigned(lane) => assert!(assigned.insert(lane)),
            Told::Events(batch) => delivered = batch.into_events().next(),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(delivered.as_ref().map(leased_number), Some(7));
}
