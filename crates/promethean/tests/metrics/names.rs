use std::collections::{BTreeMap, BTreeSet};

use promethean::{Bus, Naming};

use super::text::Scrape;
use super::{bus_with, event, scrape};

const DOCUMENT: &str = include_str!("../../../../docs/metrics.md");

/// Pitfall 45: names in milliseconds with reserved suffixes. The reader refuses both; a bus that
/// has done nothing shows all names that the document lists, and no other.
#[tokio::test]
async fn an_idle_bus_shows_what_the_document_lists() {
    let bus = Bus::memory();
    let shown = scrape(&bus).await;
    let mut listed = BTreeMap::new();
    for row in DOCUMENT.lines().filter(|line| line.starts_with("| `promethean_")) {
        let cells: Vec<_> = row.split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        let name = cells[1].strip_suffix("_total").unwrap_or(cells[1]);
        listed.insert(name.to_owned(), (cells[2].to_owned(), cells[4].to_owned()));
    }
    let families = shown.families.iter();
    let shown: BTreeMap<_, _> =
        families.map(|(name, f)| (name.clone(), (f.kind.clone(), f.help.clone()))).collect();
    assert_eq!(shown, listed);
}

/// Pitfall 46: the second scrape failed, and counters without a group had a group's label.
#[tokio::test]
async fn every_scrape_works_and_labels_are_those_of_the_metric() {
    let bus = Bus::memory();
    bus.publish(event("orders")).await.unwrap();
    let mut stream = bus.subscribe_to(["orders"], "billing").stream().await.unwrap();
    bus.publish(event("orders")).await.unwrap();
    stream.next().await.unwrap().unwrap().ack().await.unwrap();
    let first = bus.metrics().encode().await;
    let names = |text: &str| {
        let families = Scrape::parse(text).families;
        families.into_iter().map(|(name, f)| (name, f.labels)).collect::<BTreeMap<_, _>>()
    };
    let second = bus.clone().metrics().encode().await;
    assert_eq!(names(&first), names(&second));
    let labels = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<BTreeSet<_>>();
    let labelled = names(&second);
    assert_eq!(labelled["promethean_events_published"], labels(&["topic"]));
    assert_eq!(labelled["promethean_events_acked"], labels(&["topic", "group"]));
    assert_eq!(labelled["promethean_poll_duration_seconds"], labels(&["group"]));
    assert_eq!(labelled["promethean_publish_errors"], labels(&["kind"]));
}

#[tokio::test]
async fn older_names_stand_beside_the_others_if_asked_for() {
    let bus = bus_with("orders").await;
    let consumer = bus.subscribe_to(["orders"], "billing").handle(async |_| Ok(())).await.unwrap();
    bus.publish(event("orders")).await.unwrap();
    bus.caught_up(consumer.group()).await.unwrap();
    let older = [
        "events_published_total",
        "events_delivered_total",
        "events_acked_total",
        "events_nacked_total",
        "events_inflight",
        "subscribe_poll_duration_seconds_count",
    ];
    let plain = scrape(&bus).await;
    let metrics = bus.metrics().naming(Naming::WithOlder);
    let both = Scrape::parse(&metrics.encode().await);
    for name in older {
        assert!(!plain.has(name) && both.has(name), "{name}");
    }
    assert_eq!(
        both.get("events_acked_total", &[("topic", "orders"), ("group", "billing")]),
        Some(1.0)
    );
    assert!(!metrics.encode_open().await.contains("# EOF"));
}
