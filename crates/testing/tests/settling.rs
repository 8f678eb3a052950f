use std::sync::Arc;
use std::time::Duration;

use promethean::projection::{Changelog, View, Views};
use promethean::{DeadLetterQuery, ReplayDeadLetters, Start};
use promethean_event::Timestamp;
use promethean_testing::{Harness, Unsettled};
use tokio::time::Instant;

use super::{Beat, beat, witness};

/// A lease of half a minute, a retry, a handler that takes an hour: no time at all.
#[tokio::test]
async fn the_clock_jumps() {
    let harness = Harness::start();
    let consumer = harness
        .bus()
        .subscribe::<Beat>("ops")
        .from(Start::Earliest)
        .ack_timeout(Duration::from_secs(2 * 60 * 60))
        .handle(|_beat| async {
            tokio::time::sleep(Duration::from_secs(60 * 60)).await;
            Ok(())
        })
        .await
        .unwrap();
    let before = Instant::now();
    harness.bus().publish(&beat(1)).await.unwrap();
    harness.settled().await.unwrap();
    assert_eq!(consumer.handled(), 1);
    assert!(before.elapsed() >= Duration::from_secs(60 * 60));
}

#[tokio::test]
async fn a_lease_that_nobody_answers_ends_in_its_time() {
    let harness = Harness::start();
    let mut events =
        harness.bus().subscribe::<Beat>("ops").from(Start::Earliest).stream().await.unwrap();
    harness.bus().publish(&beat(1)).await.unwrap();
    drop(events.next().await.unwrap().unwrap());
    let dropped = Instant::now();
    let again = events.next().await.unwrap().unwrap();
    assert!((29..=31).contains(&dropped.elapsed().as_secs()), "{:?}", dropped.elapsed());
    again.ack().await.unwrap();
    harness.settled().await.unwrap();
}

#[tokio::test]
async fn time_that_goes_by_is_the_time_of_events() {
    let harness = Harness::start();
    let at = |published: promethean::Published| published.appended_at;
    let first: Timestamp = at(harness.bus().publish(&beat(1)).await.unwrap());
    harness.advance(Duration::from_secs(3_600)).await;
    let second = at(harness.bus().publish(&beat(1)).await.unwrap());
    assert!(second.millis_since(first) >= 3_600_000);
}

#[tokio::test]
async fn what_nobody_handles_is_named() {
    let harness = Harness::start();
    let (consumer, _) = witness(harness.bus(), "ops").await;
    consumer.stop().await.unwrap();
    harness.bus().publish(&beat(1)).await.unwrap();
    let error = harness.settled().await.unwrap_err();
    assert!(matches!(&error, Unsettled::NoMember { events: 1, .. }), "{error}");
}

/// Whoever holds an event without end is a poison consumer: its event is given up in time.
#[tokio::test]
async fn what_is_held_for_ever_is_given_up() {
    let harness = Harness::start();
    let mut events =
        harness.bus().subscribe::<Beat>("ops").from(Start::Earliest).stream().await.unwrap();
    harness.bus().publish(&beat(1)).await.unwrap();
    let _held = events.next().await.unwrap().unwrap();
    harness.settled().await.unwrap();
    let letters = harness.bus().dead_letters(&Default::default()).await.unwrap();
    assert_eq!((&*letters[0].letter.reason, letters[0].letter.attempts), ("lease_expired", 5));
}

#[tokio::test]
async fn what_is_given_back_from_the_dead_letters_is_waited_for() {
    let harness = Harness::start();
    let (_consumer, seen) = witness(harness.bus(), "ops").await;
    harness.fail("ops", 5);
    harness.bus().publish(&beat(1)).await.unwrap();
    harness.settled().await.unwrap();
    assert!(seen.lock().unwrap().is_empty(), "it is a dead letter");
    harness.fail("ops", 2);
    let all = ReplayDeadLetters::new(DeadLetterQuery::waiting());
    let report = harness.bus().replay_dead_letters(&all).await.unwrap();
    assert_eq!(report.replayed.len(), 1);
    harness.settled().await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [(1, 3)]);
}

/// Pitfall of one thread: nothing of it ever waits, so that only what yields lets others look.
#[tokio::test]
async fn a_consumer_that_feeds_itself_is_named() {
    let harness = Harness::start();
    let bus = harness.bus().clone();
    let _consumer = harness
        .bus()
        .subscribe::<Beat>("ops")
        .from(Start::Earliest)
        .handle(move |delivered| {
            let bus = bus.clone();
            async move {
                let beat: Beat = delivered.payload()?;
                bus.publish(&beat).await?;
                Ok(())
            }
        })
        .await
        .unwrap();
    harness.bus().publish(&beat(1)).await.unwrap();
    let error = harness.settled().await.unwrap_err();
    assert!(matches!(&error, Unsettled::Restless { .. }), "{error}");
    assert!(error.to_string().contains("ops"), "{error}");
}

/// What a consumer publishes is in the views when all is settled; nobody waits for time.
#[tokio::test]
async fn views_are_waited_for() {
    let harness = Harness::start();
    let folder = tempfile::tempdir().unwrap();
    let views = Views::open(harness.bus(), folder.path().join("views.db")).await.unwrap();
    harness.attend(&views);
    harness.bus().publish(&beat(0)).await.unwrap();
    let beats = Changelog::new(View::new("beats"), "heartbeat.received");
    let projection = views.changelog(beats).await.unwrap();
    let bus = Arc::new(harness.bus().clone());
    let _consumer = harness
        .bus()
        .subscribe::<Beat>("ops")
        .from(Start::Earliest)
        .handle(move |delivered| {
            let bus = Arc::clone(&bus);
            async move {
                let beat: Beat = delivered.payload()?;
                if beat.pid < 20 {
                    bus.publish(&Beat { pid: beat.pid + 1, ..beat }).await?;
                }
                Ok(())
            }
        })
        .await
        .unwrap();
    harness.settled().await.unwrap();
    for pid in 0..=20 {
        let key = format!("local:stt:{pid}");
        assert!(projection.get("beats", &key).await.unwrap().is_some(), "{key}");
    }
    projection.stop().await;
    harness.settled().await.unwrap();
}
