//! Who delivers what, and what becomes of it when hubs come and go.

use std::sync::Arc;
use std::time::Duration;

use promethean::Start;
use promethean_event::GroupName;
use promethean_harness::stopwatch::Stopwatch;

use super::history::History;
use super::hub::{Hub, Place, define, publish};
use super::{on_every_store, until, until_all};
use crate::verdict::must_hold;

on_every_store!(
    lanes_are_shared_out_and_every_key_is_in_order,
    a_hub_that_dies_is_taken_over_from,
    a_hub_that_leaves_is_taken_over_from_at_once,
    a_hub_that_slept_confirms_nothing_that_is_anothers,
    where_there_is_one_partition_the_others_stand_by,
    members_that_come_and_go_are_one_attempt_each,
);

/// So short that others take over within the test.
const SHORT: Duration = Duration::from_secs(1);
/// Leases until another hub has what one that died held, where nobody says how long it may take: machines
/// that tests run on stand still.
const TAKEOVER_LEASES_MAX: u32 = 8;
/// So long that nobody takes over because of it.
const LONG: Duration = Duration::from_secs(600);

/// What is promised is the lease and a second. `scripts/faults` holds to it, by `PROM_FAULT_TAKEOVER_S`: how
/// many seconds after the end of the lease.
fn takeover_max() -> Duration {
    let told = std::env::var("PROM_FAULT_TAKEOVER_S").ok().and_then(|text| text.parse().ok());
    told.map_or(SHORT * TAKEOVER_LEASES_MAX, |after| SHORT + Duration::from_secs_f64(after))
}

async fn shared(hub: &Hub, sizes: &[usize]) {
    until(&format!("shares {sizes:?}"), async || hub.shares("g").await == sizes).await;
}

async fn all_confirmed(history: &History, count: usize) {
    all_done(history, count, None).await;
}

/// Everything is confirmed, but for what nobody can know of.
async fn all_done(history: &History, count: usize, dead: Option<usize>) {
    let done = async || history.confirmed() + history.unknown(dead) >= count;
    until_all(&format!("{count} confirmed"), done).await;
}

async fn lanes_are_shared_out_and_every_key_is_in_order(place: Place) {
    let (place, history) = (Arc::new(place), History::default());
    let a = Hub::start(&place, 0, LONG).await;
    define(&a, 8).await;
    a.consume("g", &history).await;
    shared(&a, &[8]).await;
    let mut published = publish(&a, 0..100).await;
    let b = Hub::start(&place, 1, LONG).await;
    b.consume("g", &history).await;
    shared(&a, &[4, 4]).await;
    published.extend(publish(&b, 100..200).await);
    let c = Hub::start(&place, 2, LONG).await;
    c.consume("g", &history).await;
    shared(&b, &[3, 3, 2]).await;
    published.extend(publish(&c, 200..300).await);
    all_confirmed(&history, published.len()).await;
    must_hold(&history.violations(&published));
    for number in 0..3 {
        assert!(history.confirmed_at(number) > 0, "hub {number} did nothing");
    }
    drop((a, b, c));
    Arc::into_inner(place).unwrap().end().await;
}

async fn a_hub_that_dies_is_taken_over_from(place: Place) {
    let (place, history) = (Arc::new(place), History::default());
    let (a, b) = (Hub::start(&place, 0, SHORT).await, Hub::start(&place, 1, SHORT).await);
    define(&a, 4).await;
    a.consume("g", &history).await;
    b.consume("g", &history).await;
    shared(&a, &[2, 2]).await;
    let mut published = publish(&b, 0..200).await;
    until("something confirmed at both", async || {
        history.confirmed_at(0) > 0 && history.confirmed_at(1) > 0
    })
    .await;
    a.die();
    let died = Stopwatch::start();
    let taking_over = async {
        shared(&b, &[4]).await;
        died.elapsed()
    };
    let (more, taken_over) = tokio::join!(publish(&b, 200..400), taking_over);
    published.extend(more);
    assert!(taken_over <= takeover_max(), "{taken_over:.2?}; {:?} are allowed", takeover_max());
    all_done(&history, published.len(), Some(0)).await;
    b.bus.caught_up(&GroupName::new("g").unwrap()).await.unwrap();
    // What was out at the one that died comes again; nothing else does.
    must_hold(&history.violations(&published));
    drop(b);
    Arc::into_inner(place).unwrap().end().await;
}

async fn a_hub_that_leaves_is_taken_over_from_at_once(place: Place) {
    if matches!(place, Place::Memory(_)) {
        // A bus that is closed closes its store, which is the other's too.
        return;
    }
    let (place, history) = (Arc::new(place), History::default());
    let (a, b) = (Hub::start(&place, 0, LONG).await, Hub::start(&place, 1, LONG).await);
    define(&a, 4).await;
    a.consume("g", &history).await;
    b.consume("g", &history).await;
    shared(&a, &[2, 2]).await;
    let published = publish(&b, 0..100).await;
    a.leave().await;
    shared(&b, &[4]).await;
    all_confirmed(&history, published.len()).await;
    must_hold(&history.violations(&published));
    drop(b);
    Arc::into_inner(place).unwrap().end().await;
}

/// A zombie: it has events out, sleeps beyond its lease, and goes on as if nothing had been.
async fn a_hub_that_slept_confirms_nothing_that_is_anothers(place: Place) {
    let (place, history) = (Arc::new(place), History::default());
    let (a, b) = (Hub::start(&place, 0, SHORT).await, Hub::start(&place, 1, SHORT).await);
    define(&a, 4).await;
    a.consume("g", &history).await;
    b.consume("g", &history).await;
    shared(&b, &[2, 2]).await;
    let mut published = publish(&b, 0..200).await;
    until("something confirmed at both", async || {
        history.confirmed_at(0) > 0 && history.confirmed_at(1) > 0
    })
    .await;
    for round in 0..2 {
        let thaw = a.freeze().await;
        let from = 200 + round * 200;
        published.extend(publish(&b, from..from + 200).await);
        shared(&b, &[4]).await;
        drop(thaw);
        // It finds out, and takes part again.
        shared(&b, &[2, 2]).await;
    }
    published.extend(publish(&b, 600..700).await);
    all_confirmed(&history, published.len()).await;
    must_hold(&history.violations_but(&published, Some(0)));
    drop((a, b));
    Arc::into_inner(place).unwrap().end().await;
}

async fn where_there_is_one_partition_the_others_stand_by(place: Place) {
    let (place, history) = (Arc::new(place), History::default());
    let (a, b) = (Hub::start(&place, 0, LONG).await, Hub::start(&place, 1, LONG).await);
    define(&a, 1).await;
    a.consume("g", &history).await;
    shared(&b, &[1]).await;
    b.consume("g", &history).await;
    let mut published = publish(&b, 0..50).await;
    all_confirmed(&history, 50).await;
    assert_eq!((history.delivered_at(0), history.delivered_at(1)), (50, 0));
    // A topic that is made now is read as well, by whoever has it.
    assert_eq!(a.shares("g").await, [1]);
    published.extend(publish(&a, 50..100).await);
    all_confirmed(&history, 100).await;
    must_hold(&history.violations(&published));
    assert_eq!(history.delivered_at(1), 0);
    drop((a, b));
    Arc::into_inner(place).unwrap().end().await;
}

/// A hub gave back the lanes of a group whose last member had gone though another had come meanwhile;
/// what that one had just been given counted as an attempt that failed.
async fn members_that_come_and_go_are_one_attempt_each(place: Place) {
    let place = Arc::new(place);
    let hub = Hub::start(&place, 0, LONG).await;
    define(&hub, 1).await;
    publish(&hub, 0..1).await;
    for attempt in 1..=40 {
        let subscribe = hub.bus.subscribe_to(["orders"], "g").from(Start::Earliest);
        let mut stream = subscribe.max_attempts(1_000).stream().await.unwrap();
        let next = tokio::time::timeout(super::PATIENCE, stream.next()).await.unwrap();
        assert_eq!(next.unwrap().unwrap().attempt(), attempt);
    }
    drop(hub);
    Arc::into_inner(place).unwrap().end().await;
}
