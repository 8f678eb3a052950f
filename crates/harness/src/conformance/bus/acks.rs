//! Answers to deliveries: what counts, what does not, and that it is said.

use promethean::event::Offset;
use promethean::member::{AckTarget, MemberOptions, Span};
use promethean::store::Lane;
use promethean::{AckError, Start};

use super::factory::BusFactory;
use super::scene::{BILLING, ORDERS, Scene, group, number, settings, topic};

/// Pitfall 1, P18: acks out of order are kept; the cursor stops at what is not acked.
pub async fn the_cursor_waits_for_the_first(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    scene.publish_all("", 0..6).await;
    let mut held = scene.hold(&mut subscription, 6).await;
    held.sort_by_key(|delivered| number(delivered.event()));
    let mut held = held.into_iter();
    let (zero, one) = (held.next().expect("six"), held.next().expect("six"));
    for delivered in held {
        delivered.ack().await.expect("it can be acked");
        assert_eq!(scene.cursor().await, 0);
    }
    let lag = scene.bus.lag(&group(BILLING)).await.expect("the group is there");
    let lag = &lag.partitions[0];
    assert_eq!((lag.events, lag.out, lag.holes, lag.end.get()), (2, 2, 4, 6));
    zero.ack().await.expect("it can be acked");
    assert_eq!(scene.cursor().await, 1);
    one.ack().await.expect("it can be acked");
    assert_eq!(scene.cursor().await, 6);
}

/// Pitfall 1 to the end: the event that was not acked comes again although later ones were.
pub async fn what_was_not_acked_comes_again(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    scene.publish_all("", 0..5).await;
    for delivered in scene.hold(&mut subscription, 5).await {
        if number(delivered.event()) > 0 {
            delivered.ack().await.expect("it can be acked");
        } else {
            delivered.retry("the first time").await.expect("it is ours");
        }
    }
    let again = scene.next(&mut subscription).await;
    assert_eq!((number(again.event()), again.attempt()), (0, 2));
    again.ack().await.expect("it can be acked");
    assert_eq!(scene.cursor().await, 5);
    scene.silent(&mut subscription).await;
}

/// Pitfall 2: an ack twice is said to be one.
pub async fn a_second_ack_says_so(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    scene.publish_all("k", 0..2).await;
    let delivered = scene.next(&mut subscription).await;
    let target = AckTarget::Token(delivered.token());
    delivered.ack().await.expect("it can be acked");
    let seat = subscription.seat().clone();
    assert_eq!(seat.ack(&[target]).all().await, Err(AckError::AlreadyDone));
    assert_eq!(seat.extend(target, 1_000).all().await, Err(AckError::AlreadyDone));
    assert_eq!(scene.cursor().await, 1);
    // Twice in one breath is once.
    let delivered = scene.next(&mut subscription).await;
    let target = AckTarget::Token(delivered.token());
    let reply = seat.ack(&[target, target]).await.expect("the group goes on");
    assert_eq!((reply.accepted, reply.refused.len()), (1, 1));
    assert_eq!(scene.cursor().await, 2);
}

/// Pitfalls 50, 51, P20: an ack after the lease ran out is refused, before and after the event
/// has come again, and changes nothing.
pub async fn a_late_ack_is_refused(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let lease = scene.ticks(2);
    let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
    let builder = builder.ack_timeout(lease).backoff(scene.ticks(3), scene.ticks(3));
    let mut subscription = builder.max_attempts(100).stream().await.expect("one can subscribe");
    scene.publish(ORDERS, "k", 0).await;
    let first = scene.next(&mut subscription).await;
    let target = AckTarget::Token(first.token());
    let seat = subscription.seat().clone();
    scene
        .eventually("the lease is over", async || {
            let lag = scene.bus.lag(&group(BILLING)).await.expect("the group is there");
            lag.partitions[0].out == 0
        })
        .await;
    assert_eq!(seat.ack(&[target]).all().await, Err(AckError::LeaseLost));
    let second = scene.next(&mut subscription).await;
    assert_eq!(second.attempt(), 2);
    assert_eq!(first.ack().await, Err(AckError::LeaseLost));
    assert_eq!(scene.cursor().await, 0);
    // The second may have run out by now on a slow machine; in the end one is in time.
    let mut current = second;
    while current.ack().await.is_err() {
        current = scene.next(&mut subscription).await;
    }
    assert_eq!(scene.cursor().await, 1);
}

/// Only who holds an event can answer for it.
pub async fn a_foreign_member_cannot_ack(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut one = scene.subscribe().await;
    scene.publish(ORDERS, "k", 0).await;
    let held = scene.next(&mut one).await;
    let two = scene.subscribe().await;
    let token = held.token();
    for target in [
        AckTarget::Token(token),
        AckTarget::Offset { lane: token.lane, offset: token.offset },
        AckTarget::Range { lane: token.lane, epoch: token.epoch, span: Span { from: 0, to: 10 } },
    ] {
        let reply = two.seat().ack(&[target]).await.expect("the group goes on");
        assert_eq!(reply.accepted, 0, "{target:?}");
        let extended = two.seat().extend(target, 1_000).await.expect("the group goes on");
        assert_eq!(extended.accepted, 0, "{target:?}");
    }
    let by_token = two.seat().ack(&[AckTarget::Token(token)]).all().await;
    assert!(by_token.is_err(), "it is said");
    assert_eq!(scene.cursor().await, 0);
    held.ack().await.expect("the holder can");
    assert_eq!(scene.cursor().await, 1);
}

/// Pitfall 25: acks of deliveries from before a seek are void.
pub async fn an_ack_from_before_a_seek_is_void(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    scene.publish_all("", 0..4).await;
    let mut held = scene.hold(&mut subscription, 4).await;
    held.sort_by_key(|delivered| number(delivered.event()));
    let cursor =
        promethean::event::Cursor { next: Offset::new(1), ..scene.cursors().await.remove(0) };
    scene.bus.set_cursor(&group(BILLING), &cursor).await.expect("the group can be moved");
    assert_eq!(scene.cursor().await, 1);
    for old in held {
        assert_eq!(old.ack().await, Err(AckError::Fenced));
    }
    assert_eq!(scene.cursor().await, 1);
    let mut again = scene.take(&mut subscription, 3).await;
    again.sort_unstable();
    assert_eq!(again, [1, 2, 3]);
    assert_eq!(scene.cursor().await, 4);
}

/// Many acks at once: each is judged for itself.
pub async fn a_batch_of_acks_is_judged_one_by_one(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    scene.publish_all("", 0..5).await;
    let held = scene.hold(&mut subscription, 5).await;
    let mut targets: Vec<_> = held.iter().map(|held| AckTarget::Token(held.token())).collect();
    let token = held[0].token();
    let never = promethean::member::AckTarget::Offset { lane: token.lane, offset: 77 };
    let nowhere = Lane {
        topic: promethean::store::TopicId::new(9_999),
        partition: promethean::event::Partition::ZERO,
    };
    let elsewhere = AckTarget::Offset { lane: nowhere.id(), offset: 0 };
    targets.extend([never, elsewhere]);
    let reply = subscription.seat().ack(&targets).await.expect("the group goes on");
    assert_eq!(reply.accepted, 5);
    assert_eq!(reply.refused.len(), 2, "{reply:?}");
    assert_eq!(scene.cursor().await, 5);
}

/// A range acks what the member holds of it, and no more; an absurd one costs nothing.
pub async fn a_range_acks_what_the_member_holds(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let options = MemberOptions { max_in_flight: 4, batch_size: 4, ..MemberOptions::default() };
    let name = group(BILLING);
    let wish = settings(&[ORDERS]);
    let join = || scene.bus.join(&name, wish.clone(), Start::Earliest, options.clone());
    let mut one = join().await.expect("one can join");
    scene.publish_all("", 0..8).await;
    let first = scene.batch(&mut one).await;
    let (lane, epoch) = (first.lane().id(), first.epoch());
    assert_eq!(first.len(), 4);
    let mut two = join().await.expect("two can join");
    let second: Vec<_> = scene.batch(&mut two).await.into_events().collect();
    assert_eq!(second.len(), 4);
    let span = Span { from: 0, to: u64::MAX };
    let reply =
        one.seat().ack(&[AckTarget::Range { lane, epoch, span }]).await.expect("it goes on");
    assert_eq!(reply.accepted, 4, "its own, and not the other's");
    assert_eq!(scene.cursor().await, 4);
    let wrong_epoch = AckTarget::Range { lane, epoch: epoch + 1, span };
    let reply = two.seat().ack(&[wrong_epoch]).await.expect("it goes on");
    assert_eq!(reply.accepted, 0);
    let backward = AckTarget::Range { lane, epoch, span: Span { from: 7, to: 2 } };
    let reply = two.seat().ack(&[backward]).await.expect("it goes on");
    assert_eq!(reply.accepted, 0);
    let some = AckTarget::Range { lane, epoch, span: Span { from: 5, to: 7 } };
    let reply = two.seat().ack(&[some]).await.expect("it goes on");
    assert_eq!(reply.accepted, 2);
    assert_eq!(scene.cursor().await, 4);
    for leased in [&second[0], &second[3]] {
        let offset = leased.token().offset;
        two.seat().ack(&[AckTarget::Offset { lane, offset }]).all().await.expect("it is its own");
    }
    assert_eq!(scene.cursor().await, 8);
}

/// Pitfall 24, P26: who has left can answer for nothing, and what it had goes on at once.
pub async fn an_ack_after_leaving_is_void(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let builder = || {
        let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
        // Longer than anybody waits here: only leaving can set it free.
        builder.ack_timeout(scene.pace.patience * 10)
    };
    let mut one = builder().stream().await.expect("one can subscribe");
    scene.publish(ORDERS, "k", 0).await;
    let held = scene.next(&mut one).await;
    drop(one);
    let mut two = builder().stream().await.expect("two can subscribe");
    let again = scene.next(&mut two).await;
    assert_eq!(again.event().id, held.event().id);
    assert!(held.ack().await.is_err());
    assert_eq!(scene.cursor().await, 0);
    again.ack().await.expect("the new holder can");
    assert_eq!(scene.cursor().await, 1);
}

/// A delivery that is dropped without a word is not acked.
pub async fn a_dropped_delivery_is_not_acked(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
    let builder = builder.ack_timeout(scene.ticks(2)).max_attempts(100);
    let mut subscription = builder.stream().await.expect("one can subscribe");
    scene.publish(ORDERS, "k", 0).await;
    drop(scene.next(&mut subscription).await);
    assert_eq!(scene.cursor().await, 0);
    let again = scene.next(&mut subscription).await;
    assert!(again.attempt() > 1);
    assert_eq!(
        scene.bus.get_cursor(&topic(ORDERS), &group(BILLING)).await.expect("it reads it").len(),
        1
    );
}

/// Skipped is done, and no dead letter.
pub async fn skipped_is_done(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    scene.publish_all("k", 0..2).await;
    let unwanted = scene.next(&mut subscription).await;
    unwanted.skip().await.expect("it is ours");
    assert_eq!(scene.cursor().await, 1);
    assert_eq!(scene.take(&mut subscription, 1).await, [1]);
    assert_eq!(scene.letters().await.len(), 0);
}
