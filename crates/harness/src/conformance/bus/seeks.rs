//! Groups that are moved while they work.

use promethean::event::{Cursor, EventId, Offset, Partition, Timestamp};
use promethean::{GroupError, Start};

use super::factory::BusFactory;
use super::scene::{BILLING, ORDERS, Scene, group, number, pattern, topic};

fn at(offset: u64) -> Cursor {
    Cursor { topic: topic(ORDERS), partition: Partition::ZERO, next: Offset::new(offset) }
}

/// Pitfalls 20 and 25: back to the beginning with members at work, in the order of the key.
pub async fn a_rewind_brings_everything_again(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    scene.publish_all("k", 0..6).await;
    assert_eq!(scene.take(&mut subscription, 3).await, [0, 1, 2]);
    let held = scene.next(&mut subscription).await;
    let moves = scene.bus.seek(&group(BILLING), &pattern("**"), Start::Earliest).await;
    let moves = moves.expect("the group can be moved");
    assert_eq!(moves.len(), 1);
    assert_eq!((moves[0].from.get(), moves[0].to.get(), moves[0].again()), (3, 0, 3));
    assert!(held.ack().await.is_err(), "from before the move");
    for expected in 0..6 {
        let delivered = scene.next(&mut subscription).await;
        assert_eq!(number(delivered.event()), expected);
        assert_eq!(delivered.attempt(), 1, "counted anew");
        delivered.ack().await.expect("it can be acked");
    }
    assert_eq!(scene.cursor().await, 6);
    scene.silent(&mut subscription).await;
}

/// Forward: what is passed over does not come, the rest does.
pub async fn a_move_forward_passes_over(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    scene.publish_all("k", 0..10).await;
    let first = scene.next(&mut subscription).await;
    scene.bus.set_cursor(&group(BILLING), &at(7)).await.expect("the group can be moved");
    assert!(first.ack().await.is_err());
    assert_eq!(scene.take(&mut subscription, 3).await, [7, 8, 9]);
    scene.bus.set_cursor(&group(BILLING), &at(10)).await.expect("the end is a place");
    scene.publish_all("k", 10..11).await;
    assert_eq!(scene.take(&mut subscription, 1).await, [10]);
}

/// A place that is not there yet is refused, and nothing moves.
pub async fn beyond_the_end_is_refused(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    scene.publish_all("k", 0..2).await;
    assert_eq!(scene.take(&mut subscription, 1).await, [0]);
    for wrong in [3, u64::MAX] {
        match scene.bus.set_cursor(&group(BILLING), &at(wrong)).await {
            Err(GroupError::BeyondEnd { wanted, next }) => {
                assert_eq!((wanted.get(), next.get()), (wrong, 2));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(scene.cursor().await, 1);
    assert_eq!(scene.take(&mut subscription, 1).await, [1]);
}

/// Who is not there cannot be moved.
pub async fn unknown_groups_and_topics_are_named(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let unknown = scene.bus.set_cursor(&group("nobody"), &at(0)).await;
    assert!(matches!(unknown, Err(GroupError::Unknown(name)) if name == group("nobody")));
    assert!(matches!(scene.bus.lag(&group("nobody")).await, Err(GroupError::Unknown(_))));
    assert!(matches!(scene.bus.caught_up(&group("nobody")).await, Err(GroupError::Unknown(_))));
    assert!(matches!(scene.bus.pause_group(&group("nobody")).await, Err(GroupError::Unknown(_))));
    let _member = scene.subscribe().await;
    scene.publish("elsewhere", "k", 0).await;
    let cursor = Cursor { topic: topic("elsewhere"), ..at(0) };
    let other = scene.bus.set_cursor(&group(BILLING), &cursor).await;
    assert!(matches!(other, Err(GroupError::NotRead { .. })));
    let cursor = Cursor { partition: Partition::new(3), ..at(0) };
    assert!(scene.bus.set_cursor(&group(BILLING), &cursor).await.is_err());
}

/// A plan says what a seek would do, and does nothing.
pub async fn a_plan_moves_nothing(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let builder = scene.bus.subscribe_to(["a", "b"], BILLING).from(Start::Earliest);
    let mut subscription = builder.stream().await.expect("one can subscribe");
    for turn in 0..4 {
        scene.publish("a", "", turn).await;
        scene.publish("b", "", turn).await;
    }
    let mut got = scene.take(&mut subscription, 8).await;
    got.sort_unstable();
    assert_eq!(got, [0, 0, 1, 1, 2, 2, 3, 3]);
    let name = group(BILLING);
    let plan = scene.bus.plan_seek(&name, &pattern("a"), Start::Earliest).await;
    let plan = plan.expect("it can be planned");
    assert_eq!(plan.len(), 1);
    assert_eq!((&plan[0].topic, plan[0].again()), (&topic("a"), 4));
    scene.silent(&mut subscription).await;
    let done = scene.bus.seek(&name, &pattern("a"), Start::Earliest).await.expect("it moves");
    assert_eq!(done, plan);
    assert_eq!(scene.take(&mut subscription, 4).await, [0, 1, 2, 3], "one topic only");
    scene.silent(&mut subscription).await;
}

/// To a time and behind an event; to one that is nowhere: an error, and nothing moves.
pub async fn seeks_take_all_kinds_of_places(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    let mut published = Vec::new();
    for turn in 0..5 {
        published.push(scene.publish(ORDERS, "k", turn).await);
        tokio::time::sleep(std::time::Duration::from_millis(3)).await;
    }
    assert_eq!(scene.take(&mut subscription, 5).await, [0, 1, 2, 3, 4]);
    let name = group(BILLING);
    let seek = async |to| scene.bus.seek(&name, &pattern(ORDERS), to).await;
    seek(Start::AfterId(published[2].id)).await.expect("it is there");
    assert_eq!(scene.take(&mut subscription, 2).await, [3, 4]);
    let time = published[3].appended_at;
    let first = published.iter().position(|one| one.appended_at >= time).expect("it is one");
    seek(Start::At(time)).await.expect("any time");
    let expected: Vec<_> = (first as u64..5).collect();
    assert_eq!(scene.take(&mut subscription, expected.len()).await, expected);
    seek(Start::At(Timestamp::from_millis(0))).await.expect("any time");
    assert_eq!(scene.take(&mut subscription, 5).await, [0, 1, 2, 3, 4]);
    assert!(matches!(
        seek(Start::AfterId(EventId::generate())).await,
        Err(GroupError::UnknownEvent(_))
    ));
    seek(Start::Latest).await.expect("the end is a place");
    scene.silent(&mut subscription).await;
    assert_eq!(scene.cursor().await, 5);
}

/// Again and again while publishers and members are at work: nothing after the last move is lost.
pub async fn seeks_under_load_lose_nothing(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    scene.publish_all("k", 0..20).await;
    for round in 0..10 {
        let delivered = scene.next(&mut subscription).await;
        let offset = (round * 7) % 19;
        let moving = scene.bus.clone();
        let name = group(BILLING);
        let moved = tokio::spawn(async move { moving.set_cursor(&name, &at(offset)).await });
        drop(delivered.acked());
        moved.await.expect("it ends").expect("the group can be moved");
        scene.publish_all("k", 20 + round..21 + round).await;
    }
    scene.bus.set_cursor(&group(BILLING), &at(4)).await.expect("the group can be moved");
    let mut got = Vec::new();
    // Deliveries from before the last move may still be on their way; their acks are void.
    while got.last() != Some(&29) {
        let delivered = scene.next(&mut subscription).await;
        let number = number(delivered.event());
        if delivered.ack().await.is_ok() {
            got.push(number);
        }
    }
    assert_eq!(got, (4..30).collect::<Vec<_>>());
    assert_eq!(scene.cursor().await, 30);
}
