//! Members agree on what their group is; what makes no sense is refused.

use std::time::Duration;

use promethean::{GroupError, Mode, Ordered, SettingsError, Start};

use super::factory::BusFactory;
use super::scene::{BILLING, ORDERS, Scene, group};

/// Other settings while the group is in use are refused, and say what is other; the same ones are
/// welcome, and new ones when its members have left.
pub async fn members_agree_on_their_group(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let builder = || scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
    let member = builder().max_attempts(3).stream().await.expect("one can subscribe");
    let others = [
        ("max_attempts", builder()),
        ("ordered", builder().max_attempts(3).ordered(Ordered::None)),
        ("mode", builder().max_attempts(3).mode(Mode::Partitioned)),
        ("ack_timeout", builder().max_attempts(3).ack_timeout(Duration::from_secs(7))),
        ("hold", builder().max_attempts(3).hold()),
    ];
    for (what, other) in others {
        match other.stream().await {
            Err(GroupError::OtherSettings { group: name, differences }) => {
                assert_eq!(name, group(BILLING));
                assert!(differences.contains(what), "{what}: {differences}");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
    let topics = scene.bus.subscribe_to([ORDERS, "more"], BILLING).max_attempts(3).stream().await;
    assert!(matches!(topics, Err(GroupError::OtherSettings { .. })));
    // What concerns the member alone may differ.
    let alone = builder().max_attempts(3).batch_size(1).max_in_flight(1).from(Start::Latest);
    drop(alone.stream().await.expect("the same settings"));
    drop(member);
    let member = builder().max_attempts(9).stream().await.expect("nobody is there to mind");
    let settings = scene.bus.group_settings(&group(BILLING)).await.expect("it is there");
    assert_eq!(settings.max_attempts, 9);
    drop(member);
}

/// Changed settings keep the cursor; topics that are added are read.
pub async fn a_change_of_settings_keeps_the_cursor(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut member = scene.subscribe().await;
    scene.publish_all("k", 0..3).await;
    assert_eq!(scene.take(&mut member, 2).await, [0, 1]);
    drop(member);
    scene.publish("more", "k", 10).await;
    let builder = scene.bus.subscribe_to([ORDERS, "more"], BILLING).from(Start::Earliest);
    let builder = builder.ordered(Ordered::None).max_attempts(2);
    let mut member = builder.stream().await.expect("nobody is there to mind");
    let mut got = scene.take(&mut member, 2).await;
    got.sort_unstable();
    assert_eq!(got, [2, 10]);
    scene.silent(&mut member).await;
}

/// Zero, nonsense and eternity.
pub async fn nonsense_is_refused(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let builder = || scene.bus.subscribe_to([ORDERS], BILLING);
    let eternity = Duration::from_secs(u64::MAX);
    let wrong = [
        builder().max_attempts(0),
        builder().max_attempts(u16::MAX),
        builder().ack_timeout(Duration::ZERO),
        builder().ack_timeout(eternity),
        builder().backoff(Duration::ZERO, eternity),
        builder().drain(eternity),
    ];
    for (turn, builder) in wrong.into_iter().enumerate() {
        let refused = builder.stream().await;
        match refused {
            Err(GroupError::Settings(error)) => {
                assert!(error.to_string().contains("choose"), "says what to do: {error}");
                let _: SettingsError = error;
            }
            other => panic!("{turn}: {other:?}"),
        }
    }
    assert_eq!(scene.bus.groups().await.expect("they are listed"), [], "no group was made");
}

/// A member that could never get anything is refused; no handler at all means one.
pub async fn a_member_without_room_is_refused(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    scene.publish(ORDERS, "k", 0).await;
    let builder = || scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
    for builder in [builder().max_in_flight(0), builder().batch_size(0)] {
        let refused = builder.stream().await;
        assert!(matches!(refused, Err(GroupError::Settings(SettingsError::NoRoom(_)))));
    }
    let consumer = builder().concurrency(0).handle(|_| async { Ok(()) });
    let consumer = consumer.await.expect("one can subscribe");
    scene.cursor_comes_to(1).await;
    consumer.stop().await.expect("it stops");
}

/// A group is removed when nobody is in it; its name is free then, and it begins anew.
pub async fn a_group_can_be_removed(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let name = group(BILLING);
    let mut member = scene.subscribe().await;
    scene.publish_all("k", 0..3).await;
    assert_eq!(scene.take(&mut member, 2).await, [0, 1]);
    match scene.bus.remove_group(&name).await {
        Err(GroupError::InUse { members, .. }) => assert_eq!(members, 1),
        other => panic!("{other:?}"),
    }
    drop(member);
    scene.bus.remove_group(&name).await.expect("nobody is in it");
    assert_eq!(scene.bus.groups().await.expect("they are listed"), []);
    assert!(matches!(scene.bus.cursors(&name).await, Err(GroupError::Unknown(_))));
    assert!(matches!(scene.bus.remove_group(&name).await, Err(GroupError::Unknown(_))));
    let mut member = scene.subscribe().await;
    assert_eq!(scene.take(&mut member, 3).await, [0, 1, 2], "from the beginning");
}

/// Members that come at the same time make one group.
pub async fn a_group_is_made_once(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
        tasks.spawn(async move { builder.stream().await.expect("one can subscribe") });
    }
    let members = tasks.join_all().await;
    scene.publish_all("", 0..10).await;
    let name = group(BILLING);
    let lag = scene.bus.lag(&name).await.expect("it is there");
    assert_eq!((lag.members, lag.events()), (16, 10));
    assert_eq!(scene.bus.groups().await.expect("they are listed").len(), 1);
    scene
        .eventually("all are out, each once", async || {
            scene.bus.lag(&name).await.expect("it is there").partitions[0].out == 10
        })
        .await;
    drop(members);
}
