//! Events that fail: when they come again, how often, and what becomes of them.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use promethean::{Failure, Start, Subscribe};
use tokio::time::Instant;

use super::factory::BusFactory;
use super::scene::{BILLING, ORDERS, Scene, group, number};

type Log = Arc<Mutex<Vec<(u64, u16)>>>;

fn billing(scene: &Scene<'_>) -> Subscribe {
    let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
    builder.backoff(scene.ticks(1) / 10, scene.ticks(1) / 5)
}

async fn caught_up(scene: &Scene<'_>) {
    let name = group(BILLING);
    let caught_up = scene.bus.caught_up(&name);
    scene.within("the group has finished", caught_up).await.expect("the group goes on");
}

/// Pitfalls 4 and 106: exactly as many attempts as the group says, counted from 1; then a dead
/// letter, and the next event of the key.
pub async fn attempts_are_exact(factory: &dyn BusFactory) {
    for most in [1, 2, 5] {
        let scene = Scene::open(factory).await;
        let seen: Log = Arc::default();
        let log = Arc::clone(&seen);
        let consumer = billing(&scene).max_attempts(most).handle(move |delivered| {
            let event = number(delivered.event());
            log.lock().expect("sound").push((event, delivered.attempt()));
            async move { if event == 0 { Err(Failure::retry("never")) } else { Ok(()) } }
        });
        let consumer = consumer.await.expect("one can subscribe");
        scene.publish_all("k", 0..2).await;
        caught_up(&scene).await;
        consumer.stop().await.expect("it stops");
        let mut expected: Vec<_> = (1..=most).map(|attempt| (0, attempt)).collect();
        expected.push((1, 1));
        assert_eq!(*seen.lock().expect("sound"), expected);
        let letters = scene.letters().await;
        assert_eq!(letters.len(), 1);
        assert_eq!(letters[0].letter.attempts, most);
        assert_eq!(letters[0].letter.reason, "refused");
    }
}

/// Pitfall 4: a failed event does not come back at once, and later each time.
pub async fn delays_grow(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let first = scene.ticks(2);
    let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
    let builder = builder.backoff(first, scene.ticks(1_000)).max_attempts(5);
    let mut subscription = builder.stream().await.expect("one can subscribe");
    scene.publish(ORDERS, "k", 0).await;
    for attempt in 1..=4 {
        let delivered = scene.next(&mut subscription).await;
        assert_eq!(delivered.attempt(), attempt);
        let failed = Instant::now();
        delivered.retry("again").await.expect("it is ours");
        if attempt < 4 {
            let whole = first * 2_u32.pow(u32::from(attempt) - 1);
            let early = tokio::time::timeout_at(
                failed + whole / 2 - Duration::from_millis(2),
                subscription.next(),
            );
            assert!(early.await.is_err(), "jitter takes half at most of {whole:?}");
        }
    }
}

/// A delay of the consumer's goes before the group's.
pub async fn a_delay_of_the_consumers_counts(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let hour = Duration::from_secs(3_600);
    let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
    let mut subscription = builder.backoff(hour, hour).stream().await.expect("one can subscribe");
    scene.publish_all("", 0..2).await;
    let first = scene.next(&mut subscription).await;
    let failed = Instant::now();
    first.retry_after(scene.ticks(5), "busy").await.expect("it is ours");
    let second = scene.next(&mut subscription).await;
    second.retry_after(Duration::ZERO, "now").await.expect("it is ours");
    // Both come, an hour before the group's own delay; the second one first.
    let again = scene.next(&mut subscription).await;
    assert_eq!((number(again.event()), again.attempt()), (1, 2));
    let again = scene.next(&mut subscription).await;
    assert_eq!((number(again.event()), again.attempt()), (0, 2));
    assert!(failed.elapsed() >= scene.ticks(5), "not before its time");
    let forever = again.retry_after(Duration::MAX, "never").await;
    assert!(forever.is_ok(), "an absurd delay is a long one");
}

/// Pitfall 110: what can never succeed is a dead letter at the first attempt.
pub async fn permanent_errors_are_not_retried(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let seen: Log = Arc::default();
    let log = Arc::clone(&seen);
    let consumer = billing(&scene).handle(move |delivered| {
        let event = number(delivered.event());
        log.lock().expect("sound").push((event, delivered.attempt()));
        async move {
            match event {
                0 => Err(Failure::park("malformed")),
                1 => Err(Failure::skip()),
                _ => Ok(()),
            }
        }
    });
    let consumer = consumer.await.expect("one can subscribe");
    scene.publish_all("k", 0..3).await;
    caught_up(&scene).await;
    consumer.stop().await.expect("it stops");
    assert_eq!(*seen.lock().expect("sound"), [(0, 1), (1, 1), (2, 1)]);
    let letters = scene.letters().await;
    assert_eq!(letters.len(), 1, "what is skipped is no dead letter");
    let letter = &letters[0].letter;
    assert_eq!((letter.offset.get(), letter.attempts), (0, 1));
    assert_eq!((letter.reason.as_str(), letter.err.as_str()), ("permanent", "malformed"));
}

/// A handler that panics has failed; the consumer goes on.
pub async fn a_panic_is_a_failure(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let consumer = billing(&scene).max_attempts(3).handle(|delivered| {
        let event = number(delivered.event());
        // Once before there is a future, and once inside of it.
        assert!(event != 0, "boom outside");
        async move {
            tokio::task::yield_now().await;
            assert!(event != 1, "boom inside");
            Ok(())
        }
    });
    let consumer = consumer.await.expect("one can subscribe");
    scene.publish_all("", 0..10).await;
    caught_up(&scene).await;
    consumer.stop().await.expect("it stops in good health");
    let mut letters = scene.letters().await;
    letters.sort_by_key(|entry| entry.letter.offset);
    assert_eq!(letters.len(), 2);
    for (entry, text) in letters.iter().zip(["boom outside", "boom inside"]) {
        assert_eq!(entry.letter.attempts, 3);
        assert!(entry.letter.err.contains(text), "{}", entry.letter.err);
    }
}

/// Pitfall 5: a handler that never ends loses its event, is counted, and holds up nobody.
pub async fn a_handler_that_hangs_is_given_up(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let seen: Log = Arc::default();
    let log = Arc::clone(&seen);
    let builder = billing(&scene).max_attempts(2).ack_timeout(scene.ticks(4));
    let consumer = builder.handle(move |delivered| {
        let event = number(delivered.event());
        log.lock().expect("sound").push((event, delivered.attempt()));
        async move {
            if event == 0 {
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    });
    let consumer = consumer.await.expect("one can subscribe");
    scene.publish_all("", 0..5).await;
    caught_up(&scene).await;
    let letters = scene.letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].letter.offset.get(), letters[0].letter.attempts), (0, 2));
    let seen = seen.lock().expect("sound").clone();
    assert_eq!(seen.iter().filter(|(event, _)| *event == 0).count(), 2, "{seen:?}");
    for event in 1..5 {
        assert_eq!(seen.iter().filter(|(number, _)| *number == event).count(), 1, "{seen:?}");
    }
    consumer.stop().await.expect("it stops");
}

/// P20, promise 6: leases that run out count, and end in a dead letter.
pub async fn expired_leases_count_as_attempts(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let builder = billing(&scene).max_attempts(3).ack_timeout(scene.ticks(2));
    let mut subscription = builder.stream().await.expect("one can subscribe");
    scene.publish_all("k", 0..2).await;
    for attempt in 1..=3 {
        let delivered = scene.next(&mut subscription).await;
        assert_eq!((number(delivered.event()), delivered.attempt()), (0, attempt));
    }
    let letters = scene.letters_come_to(1).await;
    assert_eq!(letters[0].letter.reason, "lease_expired");
    assert_eq!(letters[0].letter.attempts, 3);
    let next = scene.next(&mut subscription).await;
    assert_eq!(number(next.event()), 1, "the key goes on");
}

/// Promise 6: a poison event that takes its consumer along each time is given up.
pub async fn lost_members_count_as_attempts(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    scene.publish(ORDERS, "k", 0).await;
    for attempt in 1..=3 {
        let mut subscription = billing(&scene).max_attempts(3).stream().await.expect("one can");
        let delivered = scene.next(&mut subscription).await;
        assert_eq!(delivered.attempt(), attempt);
        drop(subscription);
    }
    let letters = scene.letters_come_to(1).await;
    assert_eq!(letters[0].letter.reason, "member_lost");
    assert_eq!(scene.cursor().await, 1);
}

#[derive(Debug)]
struct Outer(std::num::ParseIntError);

impl fmt::Display for Outer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the order has no number")
    }
}

impl std::error::Error for Outer {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// An error of any kind, by `?`, is a failure that tells its causes.
pub async fn errors_tell_their_causes(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let consumer = billing(&scene).max_attempts(1).handle(|_| async {
        let number: Result<u64, _> = "seven".parse::<u64>().map_err(Outer);
        number?;
        Ok(())
    });
    let consumer = consumer.await.expect("one can subscribe");
    scene.publish(ORDERS, "k", 0).await;
    let letters = scene.letters_come_to(1).await;
    let text = &letters[0].letter.err;
    assert!(text.contains("no number") && text.contains("invalid digit"), "{text}");
    consumer.stop().await.expect("it stops");
}

/// Nothing is tried again that was answered: a nack of an old delivery changes nothing.
pub async fn a_stale_nack_is_refused(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = billing(&scene).stream().await.expect("one can subscribe");
    scene.publish_all("k", 0..2).await;
    let first = scene.next(&mut subscription).await;
    let target = promethean::member::AckTarget::Token(first.token());
    let seat = subscription.seat().clone();
    first.ack().await.expect("it can be acked");
    let park = promethean_delivery::Verdict::Park { error: b"late", fingerprint: 1 };
    assert!(seat.nack(target, park).all().await.is_err());
    assert_eq!(scene.letters().await.len(), 0);
    let second = scene.next(&mut subscription).await;
    let target = promethean::member::AckTarget::Token(second.token());
    second.retry("again").await.expect("it is ours");
    let third = scene.next(&mut subscription).await;
    assert_eq!(third.attempt(), 2);
    assert!(seat.nack(target, park).all().await.is_err(), "the token is of the attempt before");
    assert_eq!(scene.letters().await.len(), 0);
    third.ack().await.expect("it is as it was");
}
