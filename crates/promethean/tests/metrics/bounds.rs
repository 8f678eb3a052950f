use promethean::event::{GroupName, Topic};
use promethean::limits::{METRIC_PAIRS_MAX, METRIC_TOPICS_MAX};
use promethean::{Bus, Start};

use super::{event, scrape};

const OTHERS: [(&str, &str); 2] = [("topic", "other"), ("group", "other")];

/// Pitfall 46: names that anybody may choose made the registry grow.
#[tokio::test]
async fn names_that_others_choose_do_not_make_it_grow() {
    let bus = Bus::memory();
    let topics = METRIC_TOPICS_MAX + 100;
    let events: Vec<_> = (0..topics).map(|number| event(&format!("t{number}"))).collect();
    for some in events.chunks(100) {
        bus.publish_batch(some.to_vec()).await.unwrap();
    }
    let mut groups = Vec::new();
    for name in ["one", "two"] {
        let consumer =
            bus.subscribe_to(["**"], name).from(Start::Earliest).handle(async |_| Ok(())).await;
        let consumer = consumer.unwrap();
        bus.caught_up(consumer.group()).await.unwrap();
        groups.push(consumer);
    }
    let shown = scrape(&bus).await;
    let (series, published) = shown.sum("events_published_total");
    assert_eq!((series, published as usize), (METRIC_TOPICS_MAX + 1, topics));
    assert_eq!(shown.get("events_published_total", &[("topic", "other")]), Some(100.0));
    let (series, acked) = shown.sum("events_acked_total");
    assert_eq!((series, acked as usize), (METRIC_PAIRS_MAX + 1, 2 * topics));
    let others = (2 * topics - METRIC_PAIRS_MAX) as f64;
    assert_eq!(shown.get("events_acked_total", &OTHERS), Some(others));

    // What goes frees its series; what all others have counted stays.
    let first = Topic::new("t0").unwrap();
    bus.remove_topic(&first).await.unwrap();
    for consumer in groups {
        consumer.stop().await.unwrap();
    }
    bus.remove_group(&GroupName::new("two").unwrap()).await.unwrap();
    let shown = scrape(&bus).await;
    assert_eq!(shown.get("events_published_total", &[("topic", "t0")]), None);
    assert_eq!(shown.sum("events_published_total").0, METRIC_TOPICS_MAX);
    assert_eq!(shown.get("events_acked_total", &[("topic", "t0"), ("group", "one")]), None);
    assert_eq!(shown.get("events_acked_total", &OTHERS), Some(others));
    assert_eq!(shown.get("group_members", &[("group", "two")]), None);
    assert_eq!(shown.get("events_acked_total", &[("topic", "t1"), ("group", "two")]), None);
    assert_eq!(shown.get("events_acked_total", &[("topic", "t1"), ("group", "one")]), Some(1.0));
    bus.publish(event("new")).await.unwrap();
    let shown = scrape(&bus).await;
    assert_eq!(shown.get("events_published_total", &[("topic", "new")]), Some(1.0));
}
