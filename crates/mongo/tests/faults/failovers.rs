//! Three members of which some fail, under load: nothing that was acknowledged is lost, and nothing is
//! said to be stored that is not; a view, code with a session, an outbox and a feed count every event once.
//! `scripts/faults` makes as many rounds as one likes, with elections as
//! slow as they are by default; without it one round is made, with quick ones.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use promethean::store::{AppendError, Store, TopicDefinition};
use promethean::{Bus, BusOptions, PublishError, Start};
use promethean_event::{EventId, GroupName, Key, NewEvent, Payload, Timestamp, Topic};

use super::kept::Kept;
use super::pulse::{Pulse, Silence, Silences, beat_by_driver};
use super::set::{Set, rounds};
use crate::conformance::wait_for;
use crate::hubs::history::{History, Seen};
use crate::hubs::{until, until_all};
use crate::verdict::must_hold;

/// So seldom that there is time for everything else.
const SHIPS_EVERY: Duration = Duration::from_millis(100);

fn event(number: u64) -> NewEvent {
    let topic = Topic::new("orders").unwrap();
    let payload = Payload::of(&number).unwrap();
    let event = NewEvent::new(EventId::generate(), Timestamp::from_millis(1), topic, payload);
    event.with_key(Key::new(key(number)).unwrap())
}

fn key(number: u64) -> String {
    format!("key-{}", number % 7)
}

/// What was acknowledged, and when the last one was.
#[derive(Debug, Default)]
struct Acknowledged {
    events: Mutex<Vec<(String, u64)>>,
    pulse: Pulse,
}

/// Publishes one event after the other, each until it is acknowledged, until told to stop.
async fn publish(bus: Bus, acknowledged: Arc<Acknowledged>, stop: Arc<AtomicBool>) {
    let mut number = 0;
    while !stop.load(Ordering::SeqCst) {
        number += 1;
        let event = event(number);
        while let Err(error) = bus.publish(event.clone()).await {
            assert!(is_honest(&error), "event {number}: {error}");
        }
        acknowledged.pulse.beat();
        acknowledged.events.lock().unwrap().push((key(number), number));
    }
}

/// Says that nothing was stored, or that nobody knows.
pub(super) fn is_honest(error: &PublishError) -> bool {
    matches!(
        error,
        PublishError::Append(
            AppendError::Unavailable(_) | AppendError::Indeterminate(_) | AppendError::Busy(_)
        ) | PublishError::Schemas(_)
    )
}

async fn consume(bus: Bus, history: History, pulse: Arc<Pulse>) {
    let subscribe = bus.subscribe_to(["orders"], "g").from(Start::Earliest);
    let mut stream = subscribe.stream().await.unwrap();
    while let Some(delivered) = stream.next().await {
        // A group that ends by a fault of the database never goes on.
        let delivered = delivered.unwrap();
        let number = delivered.event().payload.decode().unwrap();
        history.note(Seen::Delivered { hub: 0, key: key(number), number });
        let (hub, key) = (0, key(number));
        match delivered.ack().await {
            Ok(()) => {
                pulse.beat();
                history.note(Seen::Confirmed { hub, key, number });
            }
            Err(_) => history.note(Seen::Refused { hub, key, number }),
        }
    }
}

/// What was acknowledged came, and was confirmed once, in order.
async fn all_is_well(bus: &Bus, history: &History, acknowledged: &Acknowledged) {
    let published = acknowledged.events.lock().unwrap().clone();
    until_all("everything is done", async || {
        history.confirmed() + history.unknown(None) >= published.len()
    })
    .await;
    bus.caught_up(&GroupName::new("g").unwrap()).await.unwrap();
    must_hold(&history.violations(&published));
}

/// What can happen to the members, one after the other.
async fn everything_happens(set: &mut Set, goes_on: &mut impl AsyncFnMut(&'static str)) {
    let primary = set.primary().await;
    assert_eq!(set.order(&format!("kill {primary}")), "ok");
    goes_on("the primary is killed").await;
    assert_eq!(set.order(&format!("start {primary}")), "ok");
    set.whole().await;
    set.step_down().await;
    goes_on("the primary steps down").await;
    set.whole().await;
    let primary = set.primary().await;
    assert_eq!(set.order(&format!("freeze {primary}")), "ok");
    goes_on("the primary is frozen").await;
    assert_eq!(set.order(&format!("thaw {primary}")), "ok");
    goes_on("it goes on").await;
    set.whole().await;
    // Nobody reaches it any more; what is under way hangs, as behind a cable that was pulled.
    let primary = set.primary().await;
    assert_eq!(set.order(&format!("cut {primary}")), "ok");
    goes_on("the primary is cut off").await;
    assert_eq!(set.order(&format!("mend {primary}")), "ok");
    goes_on("it is reached again").await;
    set.whole().await;
    let other = (set.primary().await + 1) % 3;
    assert_eq!(set.order(&format!("freeze {other}")), "ok");
    goes_on("another one is frozen").await;
    assert_eq!(set.order(&format!("thaw {other}")), "ok");
    set.whole().await;
    assert_eq!(set.order(&format!("wipe {other}")), "ok");
    goes_on("another one loses its files").await;
    set.whole().await;
}

#[test]
fn nothing_acknowledged_is_lost_over_failovers() {
    let mut set = Set::start(&["--members", "3", "--proxied"]);
    wait_for(async {
        let (a, store) = (set.bus().await, set.store().await);
        let b = Bus::with_store(Arc::clone(&store) as Arc<dyn Store>, BusOptions::default());
        a.define(TopicDefinition::new(Topic::new("orders").unwrap())).await.unwrap();
        let history = History::default();
        let confirming = Arc::new(Pulse::default());
        let consumer = consume(b.clone(), history.clone(), Arc::clone(&confirming));
        let consumer = tokio::spawn(consumer);
        let (acknowledged, stop) =
            (Arc::new(Acknowledged::default()), Arc::new(AtomicBool::default()));
        let publisher = publish(a.clone(), Arc::clone(&acknowledged), Arc::clone(&stop));
        let publisher = tokio::spawn(publisher);
        let kept = Kept::start(&set.url, &b, &store).await;
        let (shop, until_then) = (kept.shop.clone(), Arc::clone(&stop));
        let shipping = tokio::spawn(async move {
            let mut shipped = 0;
            while !until_then.load(Ordering::SeqCst) {
                shipped += 1;
                shop.ship(shipped).await;
                tokio::time::sleep(SHIPS_EVERY).await;
            }
            shipped
        });
        let driver = Arc::new(Pulse::default());
        let beating = tokio::spawn(beat_by_driver(set.url.clone(), Arc::clone(&driver)));
        let mut silences = Silences::default();
        // Both go on, well after what happened.
        let mut goes_on = async |what: &'static str| {
            let published = acknowledged.events.lock().unwrap().len();
            let (confirmed, beats) = (history.confirmed(), driver.count());
            let (publishing, consuming) = (
                async || acknowledged.events.lock().unwrap().len() > published + 20,
                async || history.confirmed() > confirmed + 20,
            );
            until(&format!("{what}: publishing goes on"), publishing).await;
            until(&format!("{what}: consuming goes on"), consuming).await;
            until(&format!("{what}: the driver goes on"), async || driver.count() > beats + 1)
                .await;
            let (publishing, consuming) = (acknowledged.pulse.longest(), confirming.longest());
            silences.note(what, Silence { publishing, consuming, driver: driver.longest() });
        };
        goes_on("at the beginning").await;
        for _ in 0..rounds() {
            everything_happens(&mut set, &mut goes_on).await;
        }
        stop.store(true, Ordering::SeqCst);
        publisher.await.unwrap();
        let shipped = shipping.await.unwrap();
        all_is_well(&b, &history, &acknowledged).await;
        println!("{}", kept.all_is_well(shipped.unsigned_abs()).await);
        let published = acknowledged.events.lock().unwrap().len();
        println!("{published} acknowledged, {} confirmed", history.confirmed());
        consumer.abort();
        beating.abort();
        println!("{}", silences.told());
        silences.hold();
    });
}

/// Two of three are down: refused or unknown, never said to be stored. Afterwards it is there once.
#[test]
fn without_a_majority_nothing_is_acknowledged() {
    let mut set = Set::start(&["--members", "3"]);
    wait_for(async {
        let bus = set.bus().await;
        bus.define(TopicDefinition::new(Topic::new("orders").unwrap())).await.unwrap();
        bus.publish(event(1)).await.unwrap();
        let primary = set.primary().await;
        let others: Vec<usize> = (0..3).filter(|member| *member != primary).collect();
        for member in &others {
            assert_eq!(set.order(&format!("kill {member}")), "ok");
        }
        let second = event(2);
        let refused = bus.publish(second.clone()).await;
        assert!(refused.as_ref().is_err_and(is_honest), "{refused:?}");
        for member in &others {
            assert_eq!(set.order(&format!("start {member}")), "ok");
        }
        until("it is stored", async || bus.publish(second.clone()).await.is_ok()).await;
        let again = bus.publish(second).await.unwrap();
        assert_eq!(again.offset.get(), 1);
        assert!(again.duplicate);
    });
}
