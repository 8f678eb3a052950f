//! What operators do, from a hub that does not deliver.

use std::sync::Arc;
use std::time::Duration;

use promethean::{DeadLetterQuery, GroupError, ReplayDeadLetters, Start};
use promethean_event::{Failure, GroupName, Pattern, Topic};

use super::history::History;
use super::hub::{Hub, Place, define, publish};
use super::{on_every_store, until, until_all};
use crate::verdict::must_hold;

on_every_store!(
    a_group_is_moved_from_any_hub,
    a_group_is_moved_where_nobody_delivers_it,
    a_group_is_paused_and_removed_from_any_hub,
    dead_letters_are_replayed_from_any_hub,
    topics_are_seen_by_all,
);

const LONG: Duration = Duration::from_secs(600);

fn name() -> GroupName {
    GroupName::new("g").unwrap()
}

fn orders() -> Pattern {
    Pattern::new("orders").unwrap()
}

async fn a_group_is_moved_from_any_hub(place: Place) {
    let (place, history) = (Arc::new(place), History::default());
    let (a, b) = (Hub::start(&place, 0, LONG).await, Hub::start(&place, 1, LONG).await);
    define(&a, 1).await;
    a.consume("g", &history).await;
    publish(&b, 0..20).await;
    until("all confirmed", async || history.confirmed() == 20).await;
    b.bus.caught_up(&name()).await.unwrap();
    let lag = b.bus.lag(&name()).await.unwrap();
    assert_eq!((lag.events(), lag.partitions[0].cursor.get()), (0, 20));
    let moves = b.bus.seek(&name(), &orders(), Start::Earliest).await.unwrap();
    assert_eq!((moves[0].from.get(), moves[0].to.get()), (20, 0));
    until("all come again", async || history.confirmed() == 40).await;
    assert_eq!(history.delivered_at(1), 0, "the hub that was asked has no members");
    b.bus.caught_up(&name()).await.unwrap();
    drop((a, b));
    Arc::into_inner(place).unwrap().end().await;
}

async fn a_group_is_moved_where_nobody_delivers_it(place: Place) {
    let (place, history) = (Arc::new(place), History::default());
    let a = Hub::start(&place, 0, LONG).await;
    define(&a, 2).await;
    a.consume("g", &history).await;
    publish(&a, 0..20).await;
    until("all confirmed", async || history.confirmed() == 20).await;
    a.bus.caught_up(&name()).await.unwrap();
    let b = Hub::start(&place, 1, Duration::from_secs(1)).await;
    // It dies; the one that is left takes its lanes only for as long as it moves the group.
    let claims_of_nobody = async || b.shares("g").await.is_empty();
    let claims = b.bus.store().claims().unwrap();
    let held = claims.holders(name()).await.unwrap();
    a.die();
    claims.depart(held[0].hub).await.unwrap();
    until("nobody delivers", claims_of_nobody).await;
    let moves = b.bus.seek(&name(), &orders(), Start::Earliest).await.unwrap();
    assert_eq!(moves.len(), 2);
    assert_eq!(b.bus.lag(&name()).await.unwrap().events(), 20);
    until("the lanes are given back", claims_of_nobody).await;
    b.consume("g", &history).await;
    until("all come again", async || history.confirmed() == 40).await;
    drop(b);
    Arc::into_inner(place).unwrap().end().await;
}

async fn a_group_is_paused_and_removed_from_any_hub(place: Place) {
    let (place, history) = (Arc::new(place), History::default());
    let (a, b) = (Hub::start(&place, 0, LONG).await, Hub::start(&place, 1, LONG).await);
    define(&a, 1).await;
    a.consume("g", &history).await;
    publish(&b, 0..10).await;
    until("all confirmed", async || history.confirmed() == 10).await;
    b.bus.pause_group(&name()).await.unwrap();
    // By and by the other hears of it, and what is published then stays where it is.
    let mut published = 10;
    let is_delivered = async |count: usize| {
        let wait = async { until("delivered", async || history.confirmed() == count).await };
        tokio::time::timeout(Duration::from_secs(1), wait).await.is_ok()
    };
    loop {
        publish(&b, published..published + 1).await;
        published += 1;
        if !is_delivered(published as usize).await {
            break;
        }
        assert!(published < 60, "the pause was not heard of");
    }
    assert_eq!(b.bus.lag(&name()).await.unwrap().events(), 1);
    b.bus.resume_group(&name()).await.unwrap();
    until("the rest is confirmed", async || history.confirmed() == published as usize).await;
    until("the hub hears of the members", async || {
        matches!(b.bus.remove_group(&name()).await, Err(GroupError::InUseElsewhere { .. }))
    })
    .await;
    drop((a, b));
    Arc::into_inner(place).unwrap().end().await;
}

async fn dead_letters_are_replayed_from_any_hub(place: Place) {
    let place = Arc::new(place);
    let (a, b) = (Hub::start(&place, 0, LONG).await, Hub::start(&place, 1, LONG).await);
    define(&a, 1).await;
    let (tries, counted) = (Arc::new(std::sync::atomic::AtomicU64::new(0)), History::default());
    let (counting, confirming) = (Arc::clone(&tries), counted.clone());
    let subscribe = a.bus.subscribe_to(["orders"], "g").from(Start::Earliest).max_attempts(1);
    let consumer = subscribe
        .handle(move |_event| {
            let (counting, confirming) = (Arc::clone(&counting), confirming.clone());
            async move {
                let number = counting.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                if number == 0 {
                    return Err(Failure::retry("not today"));
                }
                let key = "any".to_owned();
                confirming.note(super::history::Seen::Confirmed { hub: 0, key, number });
                Ok(())
            }
        })
        .await
        .unwrap();
    publish(&b, 0..1).await;
    let letters = async || {
        b.bus.dead_letters(&DeadLetterQuery::default()).await.map_or(0, |found| found.len())
    };
    until("a dead letter", async || letters().await == 1).await;
    let replay = ReplayDeadLetters::new(DeadLetterQuery::default());
    let report = b.bus.replay_dead_letters(&replay).await.unwrap();
    assert_eq!(report.replayed.len(), 1, "{report:?}");
    until("it came again", async || counted.confirmed() == 1).await;
    drop(consumer);
    drop((a, b));
    Arc::into_inner(place).unwrap().end().await;
}

async fn topics_are_seen_by_all(place: Place) {
    let (place, history) = (Arc::new(place), History::default());
    let (a, b) = (Hub::start(&place, 0, LONG).await, Hub::start(&place, 1, LONG).await);
    // The group is there before its topic.
    b.consume("g", &history).await;
    define(&a, 2).await;
    let orders = Topic::new("orders").unwrap();
    until("the topic is known", async || b.bus.topics().get(&orders).is_some()).await;
    let published = publish(&a, 0..20).await;
    until_all("all confirmed", async || history.confirmed() == 20).await;
    must_hold(&history.violations(&published));
    a.bus.remove_topic(&orders).await.unwrap();
    until("the topic is gone", async || b.bus.topics().get(&orders).is_none()).await;
    drop((a, b));
    Arc::into_inner(place).unwrap().end().await;
}
