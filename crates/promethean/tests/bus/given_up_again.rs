//! A group that was moved back gives up the same event once more.

use promethean::event::{Cursor, EventId, NewEvent, Offset, Partition, Payload, Timestamp, Topic};
use promethean::{Bus, DeadLetterQuery, Failure, Start};

/// The second dead letter once had the id of the first and other content: the store refused it, and
/// with it every later save of the group.
#[tokio::test(start_paused = true)]
async fn an_event_that_is_given_up_again_after_a_seek_is_another_dead_letter() {
    let bus = Bus::memory();
    let topic = Topic::new("a").unwrap();
    let consumer = bus
        .subscribe_to(["a"], "g")
        .from(Start::Earliest)
        .max_attempts(1)
        .handle(|_| std::future::ready(Err(Failure::retry("no"))))
        .await
        .unwrap();
    let now = Timestamp::from_millis(0);
    let event = NewEvent::new(EventId::generate(), now, topic.clone(), Payload::null());
    bus.publish(event).await.unwrap();
    let group = "g".parse().unwrap();
    bus.caught_up(&group).await.unwrap();
    let cursor = Cursor { topic, partition: Partition::new(0), next: Offset::new(0) };
    tokio::time::advance(std::time::Duration::from_millis(7)).await;
    bus.set_cursor(&group, &cursor).await.unwrap();
    bus.caught_up(&group).await.unwrap();
    let dead = bus.dead_letters(&DeadLetterQuery::waiting()).await.unwrap();
    assert_eq!(dead.len(), 2);
    assert_ne!(dead[0].id, dead[1].id);
    consumer.stop().await.unwrap();
}
