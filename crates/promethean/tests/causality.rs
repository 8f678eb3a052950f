//! Which event gave rise to which.

use promethean::Bus;
use promethean::causality::{Causes, TraceWish};
use promethean::event::{EventId, NewEvent, Payload, Timestamp, Topic};
use promethean::store::TopicDefinition;

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

/// Rows of the file, where nothing of what they speak of may be left.
fn rows(folder: &std::path::Path, table: &str) -> u64 {
    let connection = rusqlite::Connection::open(folder.join("causes.db")).unwrap();
    let sql = format!("SELECT count(*) FROM {table}");
    connection.query_row(&sql, [], |row| row.get::<_, u32>(0)).unwrap().into()
}

/// The index would otherwise grow for ever beside a log that does not.
#[tokio::test]
async fn effects_that_were_cleaned_or_whose_topic_was_removed_are_forgotten() {
    let folder = tempfile::TempDir::new().unwrap();
    let bus = Bus::memory();
    let causes = Causes::open(&bus, folder.path().join("causes.db")).await.unwrap();
    let mut kept_short = TopicDefinition::new(Topic::new("short").unwrap());
    bus.define(kept_short.clone()).await.unwrap();
    let cause = publish(&bus, "cause", &[]).await;
    for _ in 0..3 {
        publish(&bus, "short", &[cause]).await;
        publish(&bus, "gone", &[cause]).await;
    }
    let stays = publish(&bus, "stays", &[cause]).await;
    causes.catch_up().await.unwrap();
    assert_eq!((rows(folder.path(), "effects"), rows(folder.path(), "cursors")), (7, 4));

    // Nothing of it may be as old as it is, and its newest event is the one that stays.
    kept_short.cleaning.bytes_max = Some(1);
    bus.define(kept_short).await.unwrap();
    bus.store().clean(Vec::new()).await.unwrap();
    let short = bus.topics().get(&Topic::new("short").unwrap()).unwrap().clone();
    let mut left = 0;
    for lane in short.lanes() {
        let bounds = bus.store().bounds(lane).await.unwrap();
        left += bounds.next.get() - bounds.start.get();
    }
    assert!(left < 3, "cleaning has left {left}");
    bus.remove_topic(&Topic::new("gone").unwrap()).await.unwrap();
    causes.catch_up().await.unwrap();
    assert_eq!((rows(folder.path(), "effects"), rows(folder.path(), "cursors")), (left + 1, 3));
    let all = |_: &Topic| true;
    let trace = causes.trace(cause, ALL, &all).await.unwrap().unwrap();
    assert_eq!(trace.nodes.len() as u64, 2 + left);
    assert!(trace.nodes.iter().any(|node| node.id == stays));

    // A process that comes later finds the same, and a topic of the same name begins anew.
    drop(causes);
    let causes = Causes::open(&bus, folder.path().join("causes.db")).await.unwrap();
    let again = publish(&bus, "gone", &[cause]).await;
    let trace = causes.trace(cause, ALL, &all).await.unwrap().unwrap();
    assert_eq!(trace.nodes.len() as u64, 3 + left);
    assert!(trace.nodes.iter().any(|node| node.id == again));
}
