use promethean_client::event::{Cursor, GroupName, Key, Offset, Partition, Pattern};
use promethean_client::{
    DeadLetterQuery, DeadLetterState, Durability, Failure, ReplayDeadLetters, Start,
};

use super::{connected, event, serving};

#[tokio::test]
async fn a_group_is_moved() {
    let server = serving();
    let bus = connected(&server).await;
    for n in 0..5 {
        bus.publish(event("a", &n.to_string())).await.unwrap();
    }
    let group: GroupName = "g".parse().unwrap();
    let mut stream = bus.subscribe_to(["a"], "g").from(Start::Latest).stream().await.unwrap();
    let topic = "a".parse().unwrap();
    let cursor = Cursor { topic, partition: Partition::new(0), next: Offset::new(3) };
    let moved = bus.set_cursor(&group, &cursor).await.unwrap();
    assert_eq!((moved.from.get(), moved.to.get(), moved.again()), (5, 3, 2));
    assert_eq!(bus.get_cursor(&cursor.topic, &group).await.unwrap(), [cursor]);
    for n in ["3", "4"] {
        let delivered = stream.next().await.unwrap().unwrap();
        assert_eq!(delivered.json().as_str(), n);
        delivered.ack().await.unwrap();
    }
    let every = Pattern::new("**").unwrap();
    let planned = bus.plan_seek(&group, &every, Start::Earliest).await.unwrap();
    assert_eq!(planned[0].again(), 5);
    assert_eq!(bus.lag(&group).await.unwrap().events(), 0, "only planned");
    bus.seek(&group, &every, Start::Earliest).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap().json().as_str(), "0");
    assert_eq!(bus.groups().await.unwrap(), std::slice::from_ref(&group));
    stream.leave().await;
    bus.remove_group(&group).await.unwrap();
    assert_eq!(bus.groups().await.unwrap(), []);
}

/// More than one answer has room for.
#[tokio::test]
async fn the_newest_of_many_keys_are_all_found() {
    let server = serving();
    let bus = connected(&server).await;
    let keys: Vec<Key> = (0..12).map(|n| format!("k{n}").parse().unwrap()).collect();
    let payload = format!("\"{}\"", "x".repeat(1_000_000));
    for key in &keys {
        let mut large = event("a", &payload);
        large.key = Some(key.clone());
        let published = bus.publish_batch(vec![large]).await.unwrap();
        assert_eq!(published[0].durability, Durability::Synced);
    }
    let asked = [vec!["never".parse().unwrap()], keys].concat();
    let found = bus.latest_by_key(&"a".parse().unwrap(), asked.clone()).await.unwrap();
    let found = found.iter().map(|event| event.as_ref().and_then(|event| event.key.clone()));
    let wanted = asked.into_iter().map(|key| Some(key).filter(|key| key.as_str() != "never"));
    assert!(found.eq(wanted));
}

#[tokio::test]
async fn dead_letters_are_given_back_or_up() {
    let server = serving();
    let bus = connected(&server).await;
    for n in 0..2 {
        bus.publish(event("a", &n.to_string())).await.unwrap();
    }
    let mut stream = bus.subscribe_to(["a"], "g").from(Start::Earliest).stream().await.unwrap();
    for _ in 0..2 {
        let delivered = stream.next().await.unwrap().unwrap();
        delivered.park(Failure::park("no good").error()).await.unwrap();
    }
    let waiting = bus.dead_letters(&DeadLetterQuery::waiting()).await.unwrap();
    assert_eq!(waiting.len(), 2);
    assert_eq!((&*waiting[0].letter.err, waiting[0].letter.attempts), ("no good", 1));
    bus.discard_dead_letter(waiting[0].id).await.unwrap();
    let query = DeadLetterQuery::waiting().group("g".parse().unwrap());
    let report = bus.replay_dead_letters(&ReplayDeadLetters::new(query)).await.unwrap();
    assert_eq!((report.replayed, report.left.len()), (vec![waiting[1].id], 0));
    let again = stream.next().await.unwrap().unwrap();
    assert_eq!(again.json().as_str(), "1");
    again.ack().await.unwrap();
    let states: Vec<_> = bus
        .dead_letters(&DeadLetterQuery::default())
        .await
        .unwrap()
        .iter()
        .map(|entry| entry.state)
        .collect();
    assert_eq!(states, [DeadLetterState::Discarded, DeadLetterState::Replayed]);
}
