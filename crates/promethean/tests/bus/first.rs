//! The two tests of the notes, in their right form.

use std::sync::Arc;
use std::sync::Mutex;

use promethean::{Bus, Failure, Start};
use tokio::sync::mpsc;

#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
struct Beat {
    name: String,
}

promethean::topic! { Beat => "heartbeat.received", key = |beat| beat.name.clone() }

fn beat(name: &str) -> Beat {
    Beat { name: name.into() }
}

/// Deliver in order and advance the cursor.
#[tokio::test]
async fn events_come_in_order_and_the_cursor_follows() {
    let bus = Bus::memory();
    let (sender, mut received) = mpsc::channel(10);
    let consumer = bus
        .subscribe::<Beat>("ops")
        .from(Start::Earliest)
        .handle(move |delivered| {
            let sender = sender.clone();
            async move {
                sender.send(delivered.payload()?.name).await?;
                Ok(())
            }
        })
        .await
        .unwrap();
    for name in ["one", "two", "three"] {
        bus.publish(&beat(name)).await.unwrap();
    }
    for name in ["one", "two", "three"] {
        assert_eq!(received.recv().await.unwrap(), name);
    }
    consumer.stop().await.unwrap();
    assert!(received.try_recv().is_err(), "nothing came twice");
}

/// A failed event is retried, with its attempt counted, and nothing overtakes it in its key.
#[tokio::test(start_paused = true)]
async fn a_failed_event_is_retried() {
    let bus = Bus::memory();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (done, mut ended) = mpsc::channel(10);
    let log = Arc::clone(&seen);
    let consumer = bus
        .subscribe::<Beat>("ops")
        .from(Start::Earliest)
        .handle(move |delivered| {
            let (log, done) = (Arc::clone(&log), done.clone());
            async move {
                let offset = delivered.event().offset.get();
                log.lock().unwrap().push((offset, delivered.attempt()));
                if offset == 0 && delivered.attempt() < 3 {
                    return Err(Failure::retry("not yet"));
                }
                done.send(offset).await?;
                Ok(())
            }
        })
        .await
        .unwrap();
    for _ in 0..2 {
        bus.publish(&beat("one")).await.unwrap();
    }
    assert_eq!(ended.recv().await.unwrap(), 0);
    assert_eq!(ended.recv().await.unwrap(), 1);
    consumer.stop().await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [(0, 1), (0, 2), (0, 3), (1, 1)]);
}
