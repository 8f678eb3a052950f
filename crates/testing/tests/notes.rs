//! The two bus tests of the notes, and the test of their harness.

use promethean::{Failure, Start};
use promethean_event::{GroupName, Key, Topic};
use promethean_testing::Harness;

use super::{Beat, beat, witness};

/// Events come in order, and the cursor follows.
#[tokio::test]
async fn publish_subscribe_ack_advances_the_cursor() {
    let harness = Harness::start();
    let (_consumer, seen) = witness(harness.bus(), "ops").await;
    for pid in 1..=2 {
        harness.bus().publish(&beat(pid)).await.unwrap();
    }
    harness.settled().await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [(1, 1), (2, 1)]);
    let (topic, group) = (Topic::new(TOPIC).unwrap(), GroupName::new("ops").unwrap());
    let cursors = harness.bus().get_cursor(&topic, &group).await.unwrap();
    assert_eq!(cursors[0].next.get(), 2);
}

const TOPIC: &str = "heartbeat.received";

/// What failed comes again, until it is done.
#[tokio::test]
async fn nack_causes_a_retry() {
    let harness = Harness::start();
    let mut events =
        harness.bus().subscribe::<Beat>("ops").from(Start::Earliest).stream().await.unwrap();
    harness.bus().publish(&beat(1)).await.unwrap();
    for attempt in 1..=3 {
        let delivered = events.next().await.unwrap().unwrap();
        assert_eq!(delivered.attempt(), attempt);
        match attempt {
            3 => delivered.ack().await.unwrap(),
            _ => delivered.retry("not yet").await.unwrap(),
        }
    }
    harness.settled().await.unwrap();
}

#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct ProcessState {
    process: String,
    status: String,
}
promethean::topic! { ProcessState => "process.state", key = |state| state.process.clone() }

/// Pitfall 157: a heartbeat becomes a state. What is asserted is the event that the projector
/// published, not a cursor of a topic that it does not read.
#[tokio::test]
async fn harness_end_to_end() {
    let harness = Harness::start();
    let bus = harness.bus().clone();
    let _projector = harness
        .bus()
        .subscribe::<Beat>("process-projector")
        .handle(move |delivered| {
            let bus = bus.clone();
            async move {
                let beat = delivered.payload()?;
                let key = Key::from_parts([&*beat.host, &*beat.name, &beat.pid.to_string()])?;
                let state =
                    ProcessState { process: key.as_str().to_owned(), status: "alive".into() };
                bus.publish(&state).caused_by(delivered.event().id).await?;
                Ok::<(), Failure>(())
            }
        })
        .await
        .unwrap();
    let cause = harness.bus().publish(&beat(1)).await.unwrap().id;
    harness.settled().await.unwrap();
    let topic = Topic::new("process.state").unwrap();
    let key = Key::from_parts(["local", "stt", "1"]).unwrap();
    let found = harness.bus().latest_by_key(&topic, vec![key.clone()]).await.unwrap();
    let state = found[0].as_ref().unwrap();
    assert_eq!(state.caused_by, [cause]);
    let expected = ProcessState { process: key.as_str().to_owned(), status: "alive".into() };
    assert_eq!(state.payload.decode::<ProcessState>().unwrap(), expected);
}
