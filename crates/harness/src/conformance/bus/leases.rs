//! How long an event stays with a member, and how many do.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use promethean::event::{NewEvent, Payload};
use promethean::member::{AckTarget, MemberOptions};
use promethean::{AckError, Start};

use super::factory::BusFactory;
use super::scene::{BILLING, ORDERS, Scene, event, group, leased_number, millis, number, settings};

/// Pitfalls 5 and 50: a lease runs out, and the event goes to another with its attempt counted.
pub async fn an_expired_lease_goes_to_another(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let builder = || {
        let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
        builder.ack_timeout(scene.ticks(2)).max_attempts(100).max_in_flight(1)
    };
    let mut one = builder().stream().await.expect("one can subscribe");
    scene.publish(ORDERS, "k", 0).await;
    let held = scene.next(&mut one).await;
    assert_eq!(held.attempt(), 1);
    // Says nothing any more, but stays.
    one.seat().pause();
    let mut two = builder().stream().await.expect("two can subscribe");
    let again = scene.next(&mut two).await;
    assert!(again.attempt() > 1);
    assert_eq!(again.event().id, held.event().id);
}

/// An extended lease holds beyond its usual end.
pub async fn an_extended_lease_holds(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
    let builder = builder.ack_timeout(scene.ticks(20));
    let mut subscription = builder.stream().await.expect("one can subscribe");
    let start = tokio::time::Instant::now();
    scene.publish(ORDERS, "k", 0).await;
    let held = scene.next(&mut subscription).await;
    held.extend(scene.ticks(200)).await.expect("there is room");
    // Three usual leases pass.
    let next = tokio::time::timeout_at(start + scene.ticks(60), subscription.next()).await;
    assert!(next.is_err(), "it is still out");
    held.ack().await.expect("it is still ours");
    assert_eq!(scene.cursor().await, 1);
}

/// Pitfall 52: no extension goes beyond the maximum.
pub async fn extensions_are_bounded(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut wish = settings(&[ORDERS]);
    wish.ack_timeout_ms = millis(scene.ticks(10));
    wish.processing_ms_max = millis(scene.ticks(20));
    wish.max_attempts = 100;
    let name = group(BILLING);
    let join = scene.bus.join(&name, wish, Start::Earliest, MemberOptions::default());
    let mut member = join.await.expect("one can join");
    scene.publish(ORDERS, "k", 0).await;
    let leased = scene.batch(&mut member).await.into_events().next().expect("one event");
    let target = AckTarget::Token(leased.token());
    let ever = member.seat().extend(target, u32::MAX).all().await;
    assert!(ever.is_ok() || ever == Err(AckError::LeaseAtMaximum), "{ever:?}");
    let more = member.seat().extend(target, u32::MAX).all().await;
    assert_eq!(more, Err(AckError::LeaseAtMaximum));
    let again = scene.batch(&mut member).await.into_events().next().expect("it comes again");
    assert_eq!(again.attempt(), 2);
    let late = member.seat().extend(target, 1_000).all().await;
    assert_eq!(late, Err(AckError::LeaseLost));
}

/// P26, pitfall 59: what a member had goes to others when it leaves, not when its leases end.
pub async fn leaving_gives_back_at_once(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let builder = || {
        let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
        builder.ack_timeout(scene.pace.patience * 10)
    };
    let mut one = builder().stream().await.expect("one can subscribe");
    scene.publish_all("", 0..50).await;
    drop(scene.hold(&mut one, 10).await);
    let mut two = builder().stream().await.expect("two can subscribe");
    scene.silent(&mut two).await;
    drop(one);
    let mut got = scene.take(&mut two, 50).await;
    got.sort_unstable();
    assert_eq!(got, (0..50).collect::<Vec<_>>());
}

/// A paused member gets nothing new and keeps what it has; others go on.
pub async fn a_paused_member_gets_nothing_new(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut one = scene.subscribe().await;
    scene.publish_all("", 0..1).await;
    let held = scene.next(&mut one).await;
    one.seat().pause();
    scene.publish_all("", 1..3).await;
    scene.silent(&mut one).await;
    let mut two = scene.subscribe().await;
    assert_eq!(scene.take(&mut two, 2).await, [1, 2]);
    held.ack().await.expect("it kept its lease");
    two.seat().pause();
    scene.publish_all("", 3..5).await;
    scene.silent(&mut two).await;
    one.seat().resume();
    assert_eq!(scene.take(&mut one, 2).await, [3, 4]);
}

/// A paused group delivers nothing to anybody, keeps its leases, and goes on when it is resumed.
pub async fn a_paused_group_rests(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    scene.publish_all("", 0..1).await;
    let held = scene.next(&mut subscription).await;
    let name = group(BILLING);
    scene.bus.pause_group(&name).await.expect("the group is there");
    scene.publish_all("", 1..3).await;
    scene.silent(&mut subscription).await;
    let mut other = scene.subscribe().await;
    scene.silent(&mut other).await;
    held.ack().await.expect("acks count");
    assert_eq!(scene.cursor().await, 1);
    drop(other);
    scene.bus.resume_group(&name).await.expect("the group is there");
    assert_eq!(scene.take(&mut subscription, 2).await, [1, 2]);
}

/// Pitfall 48: nothing goes out without credit, and nothing is lost by that.
pub async fn credits_are_not_exceeded(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let options = MemberOptions { credits: Some(3), ..MemberOptions::default() };
    let name = group(BILLING);
    let join = scene.bus.join(&name, settings(&[ORDERS]), Start::Earliest, options);
    let mut member = join.await.expect("one can join");
    scene.publish_all("", 0..10).await;
    let mut got = Vec::new();
    for (credit, total) in [(0, 3), (2, 5), (5, 10)] {
        member.seat().credit(credit);
        while got.len() < total {
            for leased in scene.batch(&mut member).await.into_events() {
                got.push(leased_number(&leased));
                // Acks make no credit.
                let target = AckTarget::Token(leased.token());
                member.seat().ack(&[target]).all().await.expect("it can be acked");
            }
        }
        assert_eq!(got.len(), total, "not more than the credit");
        let more = tokio::time::timeout(scene.pace.quiet, member.next()).await;
        assert!(more.is_err(), "{more:?}");
    }
    got.sort_unstable();
    assert_eq!(got, (0..10).collect::<Vec<_>>());
}

/// Not more is out than was asked for, in events, in one batch, and in bytes.
pub async fn in_flight_limits_hold(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let name = group(BILLING);
    let options = MemberOptions { max_in_flight: 7, batch_size: 3, ..MemberOptions::default() };
    let join = scene.bus.join(&name, settings(&[ORDERS]), Start::Earliest, options);
    let mut member = join.await.expect("one can join");
    scene.publish_all("", 0..40).await;
    let mut out: Vec<AckTarget> = Vec::new();
    let mut got = 0;
    while got < 40 {
        while out.len() < 7 && got + out.len() < 40 {
            let batch = scene.batch(&mut member).await;
            assert!(batch.len() <= 3, "a batch of {}", batch.len());
            out.extend(batch.into_events().map(|leased| AckTarget::Token(leased.token())));
        }
        let more = tokio::time::timeout(scene.pace.quiet, member.next()).await;
        assert!(out.len() <= 7 && more.is_err(), "{} are out, and {more:?}", out.len());
        got += out.len();
        member.seat().ack(&out).all().await.expect("they can be acked");
        out.clear();
    }
}

/// Bytes out are bounded too; one event always fits.
pub async fn bytes_in_flight_are_bounded(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let name = group(BILLING);
    let options = MemberOptions { max_bytes_in_flight: 10, ..MemberOptions::default() };
    let join = scene.bus.join(&name, settings(&[ORDERS]), Start::Earliest, options);
    let mut member = join.await.expect("one can join");
    let text = Payload::of(&"x".repeat(1_000)).expect("it has a JSON form");
    let events = (0..3).map(|turn| NewEvent { payload: text.clone(), ..event(ORDERS, "", turn) });
    scene.bus.publish_batch(events.collect()).await.expect("the batch is good");
    for _ in 0..3 {
        let batch: Vec<_> = scene.batch(&mut member).await.into_events().collect();
        assert_eq!(batch.len(), 1);
        let more = tokio::time::timeout(scene.pace.quiet, member.next()).await;
        assert!(more.is_err(), "{more:?}");
        let target = AckTarget::Token(batch[0].token());
        member.seat().ack(&[target]).all().await.expect("it can be acked");
    }
}

/// Events that wait in a consumer for their handler do not lose their leases to it.
pub async fn waiting_for_a_handler_costs_no_lease(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let seen: Arc<Mutex<BTreeMap<u64, Vec<u16>>>> = Arc::default();
    let log = Arc::clone(&seen);
    let work = scene.ticks(3);
    let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
    let consumer = builder.ack_timeout(scene.ticks(15)).handle(move |delivered| {
        let log = Arc::clone(&log);
        async move {
            let number = number(delivered.event());
            log.lock().expect("sound").entry(number).or_default().push(delivered.attempt());
            tokio::time::sleep(work).await;
            Ok(())
        }
    });
    let consumer = consumer.await.expect("one can subscribe");
    // Four leases long altogether.
    scene.publish_all("", 0..20).await;
    let name = group(BILLING);
    scene.within("all is handled", scene.bus.caught_up(&name)).await.expect("it goes on");
    consumer.stop().await.expect("it stops");
    let seen = seen.lock().expect("sound");
    assert_eq!(seen.len(), 20);
    assert!(seen.values().all(|attempts| *attempts == [1]), "{seen:?}");
}

/// So many handlers at once, and not more.
pub async fn concurrency_is_kept(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let (running, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let counts = (Arc::clone(&running), Arc::clone(&most));
    let work = scene.ticks(1);
    let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
    let consumer = builder.concurrency(4).handle(move |_| {
        let (running, most) = (Arc::clone(&counts.0), Arc::clone(&counts.1));
        async move {
            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(work).await;
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }
    });
    let consumer = consumer.await.expect("one can subscribe");
    scene.publish_all("", 0..24).await;
    let name = group(BILLING);
    scene.within("all is handled", scene.bus.caught_up(&name)).await.expect("it goes on");
    assert_eq!(consumer.handled(), 24);
    consumer.stop().await.expect("it stops");
    assert_eq!(most.load(Ordering::SeqCst), 4);
}
