use promethean::{AckError, DeadLetterQuery, Start};
use promethean_testing::Harness;

use super::{Beat, beat, witness};

#[tokio::test]
async fn deliveries_fail_and_are_tried_again() {
    let harness = Harness::start();
    let (_consumer, seen) = witness(harness.bus(), "ops").await;
    let (_other, untouched) = witness(harness.bus(), "others").await;
    harness.fail("ops", 2);
    harness.bus().publish(&beat(1)).await.unwrap();
    harness.settled().await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [(1, 3)], "the third one got through");
    assert_eq!(*untouched.lock().unwrap(), [(1, 1)]);
}

#[tokio::test]
async fn what_always_fails_is_a_dead_letter() {
    let harness = Harness::start();
    let (_consumer, seen) = witness(harness.bus(), "ops").await;
    harness.fail("ops", 5);
    harness.bus().publish(&beat(1)).await.unwrap();
    harness.bus().publish(&beat(2)).await.unwrap();
    harness.settled().await.unwrap();
    let letters = harness.bus().dead_letters(&DeadLetterQuery::waiting()).await.unwrap();
    let handled = seen.lock().unwrap().len();
    assert_eq!(letters.len() + handled, 2, "each is handled or a dead letter");
    assert!(letters.iter().all(|entry| entry.letter.err == "failed on purpose"));
}

#[tokio::test]
async fn acks_get_lost_and_events_come_twice() {
    let harness = Harness::start();
    let (_consumer, seen) = witness(harness.bus(), "ops").await;
    harness.duplicate("ops", 1);
    harness.bus().publish(&beat(1)).await.unwrap();
    harness.settled().await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [(1, 1), (1, 2)]);
}

#[tokio::test]
async fn a_lost_ack_of_a_stream_is_not_noticed() {
    let harness = Harness::start();
    let mut events =
        harness.bus().subscribe::<Beat>("ops").from(Start::Earliest).stream().await.unwrap();
    harness.duplicate("ops", 1);
    harness.bus().publish(&beat(1)).await.unwrap();
    events.next().await.unwrap().unwrap().ack().await.unwrap();
    let again = events.next().await.unwrap().unwrap();
    assert_eq!(again.attempt(), 2);
    again.ack().await.unwrap();
    harness.settled().await.unwrap();
}

#[tokio::test]
async fn what_is_out_when_connections_drop_comes_again() {
    let harness = Harness::start();
    let mut events =
        harness.bus().subscribe::<Beat>("ops").from(Start::Earliest).stream().await.unwrap();
    harness.bus().publish(&beat(1)).await.unwrap();
    let held = events.next().await.unwrap().unwrap();
    harness.drop_connections().await.unwrap();
    assert_eq!(held.ack().await, Err(AckError::Fenced));
    let again = events.next().await.unwrap().unwrap();
    assert_eq!(again.payload().unwrap(), beat(1));
    again.ack().await.unwrap();
    harness.settled().await.unwrap();
}

#[tokio::test]
async fn nothing_is_lost_or_doubled_by_a_rebalance() {
    let harness = Harness::start();
    let (_consumer, seen) = witness(harness.bus(), "ops").await;
    for pid in 0..20 {
        harness.bus().publish(&beat(pid)).await.unwrap();
        if pid % 5 == 0 {
            harness.rebalance("ops").await.unwrap();
        }
    }
    harness.settled().await.unwrap();
    let mut pids: Vec<u32> = seen.lock().unwrap().iter().map(|(pid, _)| *pid).collect();
    pids.sort_unstable();
    assert_eq!(pids, (0..20).collect::<Vec<_>>());
}
