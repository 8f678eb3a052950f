use std::collections::BTreeSet;
use std::time::Duration;

use promethean_client::event::{EventId, Pattern};
use promethean_client::{Bus, Connect, Replay, Replayed, State};

use super::relay::Relay;
use super::{connected, event, free_port, serving, serving_at};

async fn stored(bus: &Bus) -> Vec<EventId> {
    let mut replaying = bus.replay(Replay::of(Pattern::new("**").unwrap())).await.unwrap();
    let mut ids = Vec::new();
    while let Some(step) = replaying.next().await.unwrap() {
        match step {
            Replayed::Event(event) => ids.push(event.id),
            other => panic!("{other:?}"),
        }
    }
    ids
}

#[tokio::test]
async fn the_same_id_adds_nothing() {
    let server = serving();
    let bus = connected(&server).await;
    let event = event("a", r#"{"n":1.50}"#);
    let first = bus.publish(event.clone()).await.unwrap();
    let again = bus.publish(event.clone()).await.unwrap();
    assert_eq!((first.offset, first.duplicate), (again.offset, false));
    assert!(again.duplicate);
    let found = bus.find(&"a".parse().unwrap(), first.id).await.unwrap().unwrap();
    assert_eq!(found.payload.as_str(), r#"{"n":1.50}"#, "as it was spelled");
    assert_eq!(bus.find(&"a".parse().unwrap(), EventId::generate()).await.unwrap(), None);
}

/// Connections are cut again and again while events are published: each is stored once.
#[tokio::test]
async fn nothing_is_lost_or_doubled_over_connections_that_are_cut() {
    const EVENTS: usize = 400;
    let server = serving();
    let relay = Relay::to(&server.at).await;
    let bus = Bus::connect(&relay.url()).await.unwrap();
    let mut publishing = tokio::task::JoinSet::new();
    let mut ids = BTreeSet::new();
    for n in 0..EVENTS {
        let (bus, event) = (bus.clone(), event("a.b", &n.to_string()));
        ids.insert(event.id);
        publishing.spawn(async move { bus.publish(event).await.unwrap() });
        if n % 40 == 39 {
            // Some are answered, some are under way, some are not sent.
            publishing.join_next().await.unwrap().unwrap();
            relay.cut();
        }
    }
    while let Some(published) = publishing.join_next().await {
        published.unwrap();
    }
    let stored = stored(&connected(&server).await).await;
    assert_eq!(stored.len(), EVENTS);
    assert_eq!(stored.into_iter().collect::<BTreeSet<_>>(), ids);
}

#[tokio::test]
async fn publishing_goes_on_over_a_restart_of_the_server() {
    let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
    let server = serving_at(port, folder.path());
    let bus = Connect::new(&server.url()).connect().await.unwrap();
    let mut ids = vec![bus.publish(event("a", "1")).await.unwrap().id];
    let mut state = bus.state();
    assert_eq!(server.stop(), Some(0));
    state.wait_for(|state| matches!(state, State::Waiting { .. })).await.unwrap();
    // Published while there is no server: it waits for the next one.
    let while_gone = tokio::spawn({
        let bus = bus.clone();
        async move { bus.publish(event("a", "2")).await }
    });
    let server = serving_at(port, folder.path());
    ids.push(while_gone.await.unwrap().unwrap().id);
    ids.push(bus.publish(event("a", "3")).await.unwrap().id);
    assert_eq!(stored(&connected(&server).await).await, ids);
    bus.close().await;
}

#[tokio::test]
async fn a_batch_is_stored_as_a_whole_or_not_at_all() {
    let server = serving();
    let bus = connected(&server).await;
    let good = vec![event("a", "1"), event("b", "2")];
    let published = bus.publish_batch(good).await.unwrap();
    assert_eq!(published.iter().map(|one| one.topic.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let taken = published[0].id;
    let mut bad = vec![event("a", "3"), event("a", "4")];
    bad[1].id = taken;
    assert!(bus.publish_batch(bad).await.is_err());
    assert_eq!(stored(&bus).await.len(), 2);
}

#[tokio::test]
async fn a_publish_that_cannot_be_sent_says_so_in_time() {
    let server = serving();
    let relay = Relay::to(&server.at).await;
    let connect = Connect::new(&relay.url()).publish_timeout(Duration::from_millis(300));
    let bus = connect.connect().await.unwrap();
    let mut state = bus.state();
    drop(server);
    state.wait_for(|state| !matches!(state, State::Connected)).await.unwrap();
    let error = bus.publish(event("a", "1")).await.unwrap_err();
    assert_eq!(error, promethean_client::PublishError::NotSent);
}
