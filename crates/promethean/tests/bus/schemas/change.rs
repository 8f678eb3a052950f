//! A change from one version to the next, and how it ends.

use promethean::{
    Bus, CutOver, CutOverError, EvolutionError, Reads, RegistryPolicy, StartEvolution, TopicPolicy,
    Unversioned,
};
use serde_json::json;

use super::{down, first, heartbeat, operations, register, schema, second, up};

/// What a change sets goes with it, whichever way it ends.
#[tokio::test]
async fn a_topic_without_a_policy_follows_the_registrys_again() {
    for is_taken_back in [false, true] {
        let (bus, topic) = (Bus::memory(), heartbeat());
        let schemas = bus.schemas();
        let topics = TopicPolicy { unversioned: Unversioned::Refuse, ..TopicPolicy::default() };
        let policy = RegistryPolicy { topics, ..RegistryPolicy::default() };
        schemas.set_registry_policy(policy).await.unwrap();
        register(&bus, schema(&first())).await;
        let wish = schema(&second()).up(up()).down(down());
        schemas.start_evolution(&topic, wish, StartEvolution::default()).await.unwrap();
        assert!(schemas.own_policy(&topic).await.unwrap().is_some());
        if is_taken_back {
            schemas.roll_back(&topic, None).await.unwrap();
        } else {
            bus.cut_over(&topic, &CutOver::default()).await.unwrap();
        }
        assert_eq!(schemas.own_policy(&topic).await.unwrap(), None);
        assert_eq!(schemas.policy(&topic).await.unwrap().unversioned, Unversioned::Refuse);
    }
}

/// That a later version has a caster back says nothing of those that the change is about.
#[tokio::test]
async fn the_way_back_is_looked_for_between_the_versions_of_the_change() {
    let (bus, topic) = (Bus::memory(), heartbeat());
    let schemas = bus.schemas();
    register(&bus, schema(&first())).await;
    let wish = schema(&second()).up(up());
    schemas.start_evolution(&topic, wish, StartEvolution::default()).await.unwrap();
    let old = bus.subscribe_to(["heartbeat.*"], "old").reads(Reads::Version(1));
    let _stream = old.stream().await.unwrap();
    let mut third = second();
    third["properties"]["cpu"] = json!({"type": "number"});
    let nothing = || operations(&json!([]));
    let third = schema(&third).up(nothing()).down(nothing()).force("the old group goes");
    register(&bus, third).await;
    let error = bus.cut_over(&topic, &CutOver::default()).await.unwrap_err();
    let CutOverError::Evolution(EvolutionError::Objections(objections)) = &error else {
        panic!("{error}");
    };
    assert_eq!(objections.len(), 1, "{objections:?}");
    assert!(objections[0].contains("group old reads version 1"), "{objections:?}");
}
