//! Which event gave rise to which.

use promethean::Bus;
use promethean::causality::{Causes, TraceWish};
use promethean::event::{EventId, NewEvent, Payload, Timestamp, Topic};

const ALL: TraceWish = TraceWish { up: true, down: true, depth: 100, events: 1_000 };

async fn publish(bus: &Bus, topic: &str, causes: &[EventId]) -> EventId {
    let topic = Topic::new(topic).unwrap();
    let payload = Payload::of(&1).unwrap();
    let mut event = NewEvent::new(EventId::generate(), Timestamp::from_millis(1), topic, payload);
    event.caused_by = causes.to_vec();
    bus.publish(event).await.unwrap().id
}

/// a -> b -> d, a -> c -> d (a diamond), d -> e.
#[tokio::test]
async fn causes_and_effects_are_found_in_both_directions() {
    let folder = tempfile::TempDir::new().unwrap();
    let bus = Bus::memory();
    let causes = Causes::open(&bus, folder.path().join("causes.db")).await.unwrap();
    let a = publish(&bus, "one", &[]).await;
    let b = publish(&bus, "two", &[a]).await;
    let c = publish(&bus, "three", &[a]).await;
    let d = publish(&bus, "two", &[b, c]).await;
    let e = publish(&bus, "one", &[d]).await;
    let all = |_: &Topic| true;
    let depths = async |id, wish, may_read: &(dyn Fn(&Topic) -> bool + Send + Sync)| {
        let trace = causes.trace(id, wish, may_read).await.unwrap().unwrap();
        let mut seen: Vec<(EventId, i64)> =
            trace.nodes.iter().map(|node| (node.id, node.depth)).collect();
        seen.sort_by_key(|(id, depth)| (*depth, *id));
        (seen, trace.is_cut)
    };
    let mut expected = vec![(d, 0), (e, 1), (b, -1), (c, -1), (a, -2)];
    expected.sort_by_key(|(id, depth)| (*depth, *id));
    assert_eq!(depths(d, ALL, &all).await, (expected, false));
    let (from_a, _) = depths(a, ALL, &all).await;
    assert_eq!(from_a.len(), 5);
    let (near, is_cut) = depths(a, TraceWish { depth: 1, ..ALL }, &all).await;
    assert!(near.len() == 3 && is_cut);
    let (few, is_cut) = depths(a, TraceWish { events: 2, ..ALL }, &all).await;
    assert!(few.len() == 2 && is_cut);
    // What may not be read is not there, and its effects are not told by it.
    let (seen, _) = depths(d, ALL, &|topic: &Topic| topic.as_str() == "two").await;
    assert_eq!(seen.iter().filter(|(id, _)| *id == e).count(), 0);
    assert!(causes.trace(EventId::generate(), ALL, &all).await.unwrap().is_none());

    // After a restart it goes on where it was.
    drop(causes);
    let causes = Causes::open(&bus, folder.path().join("causes.db")).await.unwrap();
    let f = publish(&bus, "three", &[e]).await;
    let trace = causes.trace(a, ALL, &all).await.unwrap().unwrap();
    assert_eq!(trace.nodes.last().map(|node| (node.id, node.depth)), Some((f, 4)));
}
