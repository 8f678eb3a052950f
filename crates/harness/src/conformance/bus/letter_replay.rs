//! Dead letters that are given another chance, or none.

use std::time::Duration;

use promethean::event::{EventId, Payload};
use promethean::{
    DeadLetterEntry, DeadLetterError, DeadLetterQuery, DeadLetterState, ReplayDeadLetters,
    ReplayReport, ReplayTo, Start, Subscription, Unreplayed,
};

use super::factory::BusFactory;
use super::scene::{BILLING, ORDERS, Scene, group, number};

fn waiting() -> ReplayDeadLetters {
    ReplayDeadLetters::new(DeadLetterQuery::waiting())
}

async fn replay(scene: &Scene<'_>, replay: &ReplayDeadLetters) -> ReplayReport {
    scene.bus.replay_dead_letters(replay).await.expect("the replay goes through")
}

async fn states(scene: &Scene<'_>) -> Vec<DeadLetterState> {
    let all = scene.bus.dead_letters(&DeadLetterQuery::default()).await;
    all.expect("they can be listed").iter().map(|entry| entry.state).collect()
}

async fn shipping(scene: &Scene<'_>) -> Subscription {
    let builder = scene.bus.subscribe_to([ORDERS], "shipping").from(Start::Earliest);
    builder.stream().await.expect("one can subscribe")
}

/// Two groups have read 0, 1, 2; billing has given up 1.
async fn one_letter(scene: &Scene<'_>) -> (Subscription, Subscription, DeadLetterEntry) {
    let mut billing = scene.subscribe().await;
    let mut shipping = shipping(scene).await;
    scene.publish_all("k", 0..3).await;
    assert_eq!(scene.take(&mut billing, 1).await, [0]);
    scene.next(&mut billing).await.park("no").await.expect("it is ours");
    assert_eq!(scene.take(&mut billing, 1).await, [2]);
    assert_eq!(scene.take(&mut shipping, 3).await, [0, 1, 2]);
    let entry = scene.letters_come_to(1).await.remove(0);
    (billing, shipping, entry)
}

/// Pitfalls 108, 111, 112: back to the group that failed, as the event it was, once.
pub async fn a_replay_goes_to_the_failing_group_only(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let (mut billing, mut shipping, entry) = one_letter(&scene).await;
    let before = scene.stored(ORDERS).await;
    let report = replay(&scene, &waiting()).await;
    assert_eq!((report.replayed, report.left), (vec![entry.id], vec![]));
    let again = scene.next(&mut billing).await;
    assert_eq!(Some(again.event()), entry.letter.original.as_ref(), "the same event");
    assert_eq!(again.attempt(), 1, "with all its attempts");
    again.ack().await.expect("it can be acked");
    scene.silent(&mut shipping).await;
    assert_eq!(scene.stored(ORDERS).await, before, "nothing was published");
    assert_eq!(states(&scene).await, [DeadLetterState::Replayed]);
    let report = replay(&scene, &waiting()).await;
    assert_eq!(report, ReplayReport::default(), "it is not there any more");
    scene.silent(&mut billing).await;
    assert_eq!(scene.cursor().await, 3);
}

/// A replayed event that is not finished is part of the lag, and `caught_up` waits for it.
pub async fn a_replayed_event_is_unfinished_business(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let (mut billing, _shipping, _) = one_letter(&scene).await;
    replay(&scene, &waiting()).await;
    let lag = scene.bus.lag(&group(BILLING)).await.expect("the group is there");
    assert_eq!(lag.events(), 1);
    let name = group(BILLING);
    let caught_up = tokio::time::timeout(scene.pace.quiet, scene.bus.caught_up(&name)).await;
    assert!(caught_up.is_err(), "one is not finished");
    assert_eq!(scene.take(&mut billing, 1).await, [1]);
    scene.within("it is finished", scene.bus.caught_up(&name)).await.expect("it goes on");
}

/// To all on request: a new event, linked to the old one, once.
pub async fn a_replay_can_go_to_all(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let (mut billing, mut shipping, entry) = one_letter(&scene).await;
    let original = entry.letter.original.clone().expect("it is kept");
    let report = replay(&scene, &waiting().to(ReplayTo::AllGroups)).await;
    assert_eq!(report.replayed, [entry.id]);
    for subscription in [&mut billing, &mut shipping] {
        let delivered = scene.next(subscription).await;
        let event = delivered.event();
        assert_ne!(event.id, original.id);
        assert_eq!(event.caused_by, [original.id]);
        assert_eq!((&event.payload, &event.key), (&original.payload, &original.key));
        assert_eq!((event.ts, &event.tags), (original.ts, &original.tags));
        delivered.ack().await.expect("it can be acked");
    }
    assert_eq!(states(&scene).await, [DeadLetterState::Replayed]);
    assert_eq!(scene.stored(ORDERS).await, 4);
    replay(&scene, &waiting().to(ReplayTo::AllGroups)).await;
    assert_eq!(scene.stored(ORDERS).await, 4);
}

/// A changed event goes to the failing group only, and the others pass over it.
pub async fn a_replay_can_change_the_event(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let (mut billing, mut shipping, entry) = one_letter(&scene).await;
    let refuse = waiting().transform(|_| None);
    let report = replay(&scene, &refuse).await;
    assert_eq!(report.left, [(entry.id, Unreplayed::Unchanged)]);
    assert_eq!(states(&scene).await, [DeadLetterState::Waiting]);
    let change = waiting().transform(|mut event| {
        event.payload = Payload::of(&100_u64).expect("a number has a JSON form");
        Some(event)
    });
    assert_eq!(replay(&scene, &change).await.replayed, [entry.id]);
    let delivered = scene.next(&mut billing).await;
    assert_eq!(number(delivered.event()), 100);
    let original = entry.letter.original.expect("it is kept");
    assert!(delivered.event().caused_by.contains(&original.id));
    delivered.ack().await.expect("it can be acked");
    scene.silent(&mut shipping).await;
    let name = group("shipping");
    scene.within("it passes over", scene.bus.caught_up(&name)).await.expect("it goes on");
    assert_eq!(scene.take(&mut shipping, 0).await.len(), 0);
    scene.publish_all("k", 101..102).await;
    assert_eq!(scene.take(&mut shipping, 1).await, [101]);
}

/// A dry run says what would happen, and nothing happens.
pub async fn a_dry_run_changes_nothing(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let (mut billing, mut shipping, entry) = one_letter(&scene).await;
    let runs = [
        waiting().dry_run(),
        waiting().to(ReplayTo::AllGroups).dry_run(),
        waiting().transform(Some).dry_run(),
    ];
    for dry in runs {
        assert_eq!(replay(&scene, &dry).await.replayed, [entry.id]);
        scene.silent(&mut billing).await;
        scene.silent(&mut shipping).await;
        assert_eq!(states(&scene).await, [DeadLetterState::Waiting]);
    }
    assert_eq!(scene.stored(ORDERS).await, 3);
}

/// Pitfall 112: what keeps dying is not replayed for ever.
pub async fn rounds_are_bounded(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let (mut billing, _shipping, _) = one_letter(&scene).await;
    let mut limited = waiting();
    limited.rounds_max = 3;
    let mut ids = std::collections::BTreeSet::new();
    for round in 0..3 {
        let entry = scene.letters_come_to(1).await.remove(0);
        assert_eq!(entry.letter.round, round);
        assert_eq!(entry.letter.attempts, 1, "each round counts for itself");
        ids.insert(entry.id);
        assert_eq!(replay(&scene, &limited).await.replayed, [entry.id]);
        let again = scene.next(&mut billing).await;
        again.park("still no").await.expect("it is ours");
    }
    let entry = scene.letters_come_to(1).await.remove(0);
    ids.insert(entry.id);
    assert_eq!(ids.len(), 4, "every death has its letter");
    let report = replay(&scene, &limited).await;
    assert_eq!(report.left, [(entry.id, Unreplayed::TooManyRounds)]);
    scene.silent(&mut billing).await;
}

/// The same for what is published anew, to all or changed: each of them is another event, and goes
/// round as one.
pub async fn rounds_of_published_replays_are_bounded(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let (mut billing, mut shipping, _) = one_letter(&scene).await;
    for round in 0..4 {
        let entry = scene.letters_come_to(1).await.remove(0);
        assert_eq!(entry.letter.round, 0, "it is an event of its own");
        let (mut wish, is_for_all) = if round % 2 == 0 {
            (waiting().to(ReplayTo::AllGroups), true)
        } else {
            (waiting().transform(Some), false)
        };
        wish.rounds_max = 3;
        let report = replay(&scene, &wish).await;
        if round == 3 {
            assert_eq!(report.left, [(entry.id, Unreplayed::TooManyRounds)]);
            break;
        }
        assert_eq!(report.replayed, [entry.id]);
        let again = scene.next(&mut billing).await;
        again.park("still no").await.expect("it is ours");
        // To all means to all, also if it was for one before.
        if is_for_all {
            assert_eq!(scene.take(&mut shipping, 1).await, [1]);
        }
    }
    scene.silent(&mut shipping).await;
}

/// A changed event that has no room for the mark of its group would go to everybody.
pub async fn a_replay_without_room_for_its_mark_is_left(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let (mut billing, mut shipping, entry) = one_letter(&scene).await;
    let full = waiting().transform(|mut event| {
        for n in 0..32 {
            event.headers.set(&format!("x-{n}"), "v").expect("32 headers fit");
        }
        Some(event)
    });
    assert_eq!(replay(&scene, &full).await.left, [(entry.id, Unreplayed::NoRoom)]);
    assert_eq!(states(&scene).await, [DeadLetterState::Waiting]);
    scene.silent(&mut billing).await;
    scene.silent(&mut shipping).await;
}

/// Two at once: both go through, as does one that begins anew after a crash.
pub async fn a_letter_that_is_given_back_already_stops_nobody(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let (mut billing, _shipping, entry) = one_letter(&scene).await;
    let wish = waiting();
    let (first, second) = tokio::join!(replay(&scene, &wish), replay(&scene, &wish));
    assert!(first.left.is_empty() && second.left.is_empty(), "{first:?}, {second:?}");
    assert!(first.replayed.contains(&entry.id) || second.replayed.contains(&entry.id));
    assert_eq!(scene.take(&mut billing, 1).await, [1]);
    assert_eq!(states(&scene).await, [DeadLetterState::Replayed]);
}

/// A letter can be given up for good; what is not there is said not to be.
pub async fn letters_can_be_discarded(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let (mut billing, _shipping, entry) = one_letter(&scene).await;
    scene.bus.discard_dead_letter(entry.id).await.expect("it waits");
    assert_eq!(states(&scene).await, [DeadLetterState::Discarded]);
    assert_eq!(replay(&scene, &waiting()).await, ReplayReport::default());
    let again = scene.bus.discard_dead_letter(entry.id).await;
    assert!(matches!(again, Err(DeadLetterError::NotWaiting { .. })));
    let unknown = EventId::generate();
    let nothing = scene.bus.discard_dead_letter(unknown).await;
    assert!(matches!(nothing, Err(DeadLetterError::Unknown(id)) if id == unknown));
    scene.silent(&mut billing).await;
}

/// Pitfall 111: a replay goes through all that wait, however many, also bit by bit.
pub async fn many_letters_are_all_replayed(factory: &dyn BusFactory) {
    const LETTERS: u64 = 1_200;
    let scene = Scene::open(factory).await;
    // It reads nothing while they are replayed, however long that takes.
    let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
    let builder = builder.ack_timeout(scene.pace.patience * 10);
    let mut billing = builder.stream().await.expect("one can subscribe");
    scene.publish_all("", 0..LETTERS).await;
    for _ in 0..LETTERS {
        let delivered = scene.next(&mut billing).await;
        let target = promethean::member::AckTarget::Token(delivered.token());
        let park = promethean_delivery::Verdict::Park { error: b"no", fingerprint: 1 };
        drop(billing.seat().nack(target, park));
    }
    scene.letters_come_to(LETTERS as usize).await;
    let mut few = waiting();
    few.query.max = 100;
    assert_eq!(replay(&scene, &few).await.replayed.len(), 100);
    assert_eq!(replay(&scene, &few).await.replayed.len(), 100, "it goes on where it was");
    let rest = replay(&scene, &waiting()).await;
    assert_eq!(rest.replayed.len() as u64, LETTERS - 200);
    let mut got = Vec::new();
    for _ in 0..LETTERS {
        let delivered = scene.next(&mut billing).await;
        got.push(number(delivered.event()));
        drop(delivered.acked());
    }
    got.sort_unstable();
    assert_eq!(got, (0..LETTERS).collect::<Vec<_>>());
}

/// Not faster than one says.
pub async fn a_replay_keeps_its_rate(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut billing = scene.subscribe().await;
    scene.publish_all("", 0..6).await;
    for delivered in scene.hold(&mut billing, 6).await {
        delivered.park("no").await.expect("it is ours");
    }
    scene.letters_come_to(6).await;
    let started = tokio::time::Instant::now();
    assert_eq!(replay(&scene, &waiting().per_second(20)).await.replayed.len(), 6);
    assert!(started.elapsed() >= Duration::from_millis(250));
}

/// A letter whose group is gone is left where it is, and does not stop the others.
pub async fn a_letter_without_its_group_is_left(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let builder = scene.bus.subscribe_to([ORDERS], "a-former-one").from(Start::Earliest);
    let mut former = builder.stream().await.expect("one can subscribe");
    scene.publish(ORDERS, "k", 0).await;
    scene.next(&mut former).await.park("no").await.expect("it is ours");
    drop(former);
    let gone = scene.letters_come_to(1).await.remove(0);
    let mut billing = scene.subscribe().await;
    scene.next(&mut billing).await.park("no").await.expect("it is ours");
    let entry = scene.letters_come_to(2).await.remove(1);
    let name = group("a-former-one");
    scene.bus.remove_group(&name).await.expect("it has no members");
    let report = replay(&scene, &waiting()).await;
    assert_eq!(report.replayed, [entry.id]);
    assert_eq!(report.left, [(gone.id, Unreplayed::NoGroup)]);
    assert_eq!(scene.take(&mut billing, 1).await, [0]);
}

/// A query that finds nothing replays nothing.
pub async fn a_replay_of_nothing_is_nothing(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    assert_eq!(replay(&scene, &waiting()).await, ReplayReport::default());
    let (_billing, _shipping, entry) = one_letter(&scene).await;
    let other = ReplayDeadLetters::new(DeadLetterQuery::waiting().id(EventId::generate()));
    assert_eq!(replay(&scene, &other).await, ReplayReport::default());
    let none = ReplayDeadLetters::new(DeadLetterQuery::waiting().group(group("none")));
    assert_eq!(replay(&scene, &none).await, ReplayReport::default());
    assert_eq!(scene.letters().await, [entry]);
}
