use std::sync::Arc;
use std::time::Duration;

use promethean::event::{GroupName, Topic};
use promethean::memory::MemoryStore;
use promethean::store::Store;
use promethean::{Bus, BusOptions, Delivered, Failure, Metering, Ordered, Start, Subscription};

use super::text::Scrape;
use super::{event, scrape};

const PAIR: [(&str, &str); 2] = [("topic", "orders"), ("group", "billing")];

fn counted(scrape: &Scrape, name: &str) -> u64 {
    scrape.get(name, &PAIR).unwrap_or_else(|| panic!("no {name}")) as u64
}

async fn subscription(bus: &Bus) -> Subscription {
    let subscribe = bus.subscribe_to(["orders"], "billing").from(Start::Earliest);
    let subscribe = subscribe.ordered(Ordered::None).max_attempts(2);
    subscribe.ack_timeout(Duration::from_secs(30)).stream().await.unwrap()
}

async fn take(stream: &mut Subscription, count: usize) -> Vec<Delivered> {
    let mut taken = Vec::new();
    for _ in 0..count {
        taken.push(stream.next().await.unwrap().unwrap());
    }
    taken.sort_by_key(|delivered| delivered.event().offset);
    taken
}

/// Pitfall 47: lag, oldest unacked age, redeliveries, expired leases and holes, through a whole
/// life: published, delivered, refused, tried again, expired, given up.
#[tokio::test(start_paused = true)]
async fn a_scripted_run_is_counted() {
    let bus = Bus::memory();
    let mut stream = subscription(&bus).await;
    let events: Vec<_> = (0..4).map(|_| event("orders")).collect();
    let again = events[0].clone();
    bus.publish_batch(events).await.unwrap();
    assert!(bus.publish(again).await.unwrap().duplicate);
    let mut system = event("orders");
    system.topic = Topic::system("$groups").unwrap();
    assert!(bus.publish(system).await.is_err());
    assert!(bus.publish_batch(Vec::new()).await.is_err());

    // Four are out, the last is done first.
    let mut out = take(&mut stream, 4).await;
    out.pop().unwrap().ack().await.unwrap();
    tokio::time::advance(Duration::from_secs(10)).await;
    let shown = scrape(&bus).await;
    assert_eq!(counted(&shown, "events_inflight"), 3);
    assert_eq!(counted(&shown, "group_ack_holes_events"), 1);
    assert_eq!(counted(&shown, "group_lag_events"), 3);
    let age = shown.get("group_oldest_unacked_age_seconds", &PAIR).unwrap();
    // The store goes by the wall clock, which does not stand still.
    assert!((5.0..=11.0).contains(&age), "{age}");
    assert!(shown.get("group_lag_seconds", &PAIR).unwrap() < 5.0, "published together");
    assert_eq!(shown.get("group_members", &[("group", "billing")]), Some(1.0));

    // The first is refused for good, the second twice, the third is left alone until it expires.
    let third = out.pop().unwrap();
    out.pop().unwrap().retry("no").await.unwrap();
    out.pop().unwrap().park("never").await.unwrap();
    take(&mut stream, 1).await.pop().unwrap().retry("still no").await.unwrap();
    let expired = take(&mut stream, 1).await.pop().unwrap();
    assert_eq!((expired.event().offset, expired.attempt()), (third.event().offset, 2));
    assert!(third.ack().await.is_err(), "too late");
    expired.ack().await.unwrap();
    bus.caught_up(stream.seat().group()).await.unwrap();

    let shown = scrape(&bus).await;
    assert_eq!(shown.get("events_published_total", &[("topic", "orders")]), Some(4.0));
    assert_eq!(shown.get("events_duplicate_total", &[("topic", "orders")]), Some(1.0));
    assert_eq!(shown.get("publish_errors_total", &[("kind", "system_topic")]), Some(1.0));
    assert_eq!(shown.get("publish_errors_total", &[("kind", "empty")]), Some(1.0));
    assert_eq!(shown.get("publish_duration_seconds_count", &[]), Some(2.0));
    assert_eq!(counted(&shown, "events_delivered_total"), 6);
    assert_eq!(counted(&shown, "group_redeliveries_total"), 2);
    assert_eq!(counted(&shown, "events_acked_total"), 2);
    assert_eq!(counted(&shown, "events_nacked_total"), 3);
    assert_eq!(counted(&shown, "leases_expired_total"), 1);
    assert_eq!(counted(&shown, "dead_letters_total"), 2);
    assert_eq!(shown.get("dlq_added_total", &[("reason", "refused")]), Some(1.0));
    assert_eq!(shown.get("dlq_added_total", &[("reason", "permanent")]), Some(1.0));
    for gauge in ["events_inflight", "group_ack_holes_events", "group_lag_events"] {
        assert_eq!(counted(&shown, gauge), 0, "{gauge}");
    }
    assert_eq!(shown.get("group_oldest_unacked_age_seconds", &PAIR), Some(0.0));
    let latency = shown.get("delivery_latency_seconds_count", &[("group", "billing")]);
    assert_eq!(latency, Some(4.0), "first deliveries only");
    assert!(shown.get("poll_duration_seconds_count", &[("group", "billing")]).unwrap() >= 1.0);
    assert_eq!(shown.get("store_failed", &[]), Some(0.0));
    assert_eq!(shown.get("scrape_errors_total", &[]), Some(0.0));
}

/// Those that fail and those that panic take time as well.
#[tokio::test(start_paused = true)]
async fn handlers_are_timed() {
    let bus = Bus::memory();
    let subscribe = bus.subscribe_to(["orders"], "billing").from(Start::Earliest);
    let consumer = subscribe
        .max_attempts(1)
        .handle(async |delivered: Delivered| {
            tokio::time::sleep(Duration::from_secs(2)).await;
            match delivered.event().offset.get() {
                0 => panic!("on purpose"),
                1 => Err(Failure::retry("on purpose")),
                _ => Ok(()),
            }
        })
        .await
        .unwrap();
    bus.publish_batch((0..3).map(|_| event("orders")).collect()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    bus.caught_up(consumer.group()).await.unwrap();
    let shown = scrape(&bus).await;
    let group = [("group", "billing")];
    assert_eq!(shown.get("handler_duration_seconds_count", &group), Some(3.0));
    assert!(shown.get("handler_duration_seconds_sum", &group).unwrap() >= 6.0);
    let second = [("group", "billing"), ("le", "1.0")];
    assert_eq!(shown.get("handler_duration_seconds_bucket", &second), Some(0.0));
    assert_eq!(counted(&shown, "events_acked_total"), 1);
    assert_eq!(counted(&shown, "dead_letters_total"), 2);
}

/// Counters do not go back when a group is taken up with other settings.
#[tokio::test]
async fn counters_go_on_when_settings_change() {
    let bus = Bus::memory();
    for attempts in [2, 3] {
        let subscribe = bus.subscribe_to(["orders"], "billing").from(Start::Earliest);
        let mut stream = subscribe.max_attempts(attempts).stream().await.unwrap();
        bus.publish(event("orders")).await.unwrap();
        take(&mut stream, 1).await.pop().unwrap().ack().await.unwrap();
        drop(stream);
        let shown = scrape(&bus).await;
        assert_eq!(counted(&shown, "events_acked_total"), u64::from(attempts) - 1);
    }
}

/// A group that nobody has come back to is the one to be told of.
#[tokio::test]
async fn groups_without_members_show_their_lag() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let first = Bus::with_store(Arc::clone(&store), BusOptions::default());
    let mut stream = subscription(&first).await;
    first.publish_batch((0..5).map(|_| event("orders")).collect()).await.unwrap();
    // Done beyond the cursor: neither lag nor at the cursor.
    let done = take(&mut stream, 5).await.remove(3);
    done.ack().await.unwrap();
    drop((stream, first));

    let second = Bus::with_store(store, BusOptions::default().metering(Metering::Off));
    let shown = scrape(&second).await;
    assert_eq!(counted(&shown, "group_lag_events"), 4);
    assert_eq!(counted(&shown, "group_ack_holes_events"), 1);
    assert_eq!(shown.get("group_members", &[("group", "billing")]), Some(0.0));
    second.publish(event("orders")).await.unwrap();
    let shown = scrape(&second).await;
    assert_eq!(counted(&shown, "group_lag_events"), 5);
    assert_eq!(shown.sum("events_published_total"), (0, 0.0), "not measured");

    second.remove_group(&GroupName::new("billing").unwrap()).await.unwrap();
    assert_eq!(scrape(&second).await.get("group_lag_events", &PAIR), None);
}
