//! The end: of a consumer, and of the bus.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;
use promethean::store::AppendError;
use promethean::{PublishError, Start};
use tokio::sync::Notify;

use super::factory::BusFactory;
use super::scene::{BILLING, ORDERS, Scene, event, group};

/// Who waits is told, who publishes is refused, and nobody hangs.
pub async fn a_closed_bus_says_so(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    let builder = scene.bus.subscribe_to([ORDERS], "handlers").from(Start::Earliest);
    let consumer = builder.handle(|_| async { Ok(()) }).await.expect("one can subscribe");
    scene.publish_all("", 0..2).await;
    let held = scene.next(&mut subscription).await;
    let kept = scene.next(&mut subscription).await;
    held.ack().await.expect("it can be acked");
    scene.within("it closes", scene.bus.close()).await;
    let refused = scene.bus.publish(event(ORDERS, "k", 9)).await;
    assert!(matches!(refused, Err(PublishError::Append(AppendError::Closed))), "{refused:?}");
    let late = scene.within("an answer", kept.ack()).await;
    assert!(late.is_err(), "it cannot become durable any more");
    let next = scene.within("the stream ends", subscription.next()).await;
    assert!(next.is_none() || next.is_some_and(|next| next.is_err()));
    scene.within("the consumer ends", consumer.ended()).await.ok();
    let builder = scene.bus.subscribe_to([ORDERS], "late");
    assert!(scene.within("an answer", builder.stream()).await.is_err());
    scene.within("closing again is fine", scene.bus.close()).await;
}

/// What was decided is durable when close returns, also if nobody waited for it.
pub async fn close_waits_for_what_was_decided(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    scene.publish_all("", 0..100).await;
    for delivered in scene.hold(&mut subscription, 100).await {
        drop(delivered.acked());
    }
    scene.within("it closes", scene.bus.close()).await;
    let record = scene.bus.store().group(group(BILLING)).await.expect("it can be read");
    let record = record.expect("the group is there");
    assert_eq!(record.lanes[0].1.floor, 100);
}

/// Pitfall 24: a consumer that is stopped finishes what it does, acks it, and gives back the rest.
pub async fn a_stopped_consumer_finishes_its_event(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let handled = Arc::new(AtomicU64::new(0));
    let parts = (Arc::clone(&begun), Arc::clone(&go), Arc::clone(&handled));
    let builder = || {
        let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
        builder.ack_timeout(scene.pace.patience * 10)
    };
    let consumer = builder().handle(move |_| {
        let (begun, go, handled) =
            (Arc::clone(&parts.0), Arc::clone(&parts.1), Arc::clone(&parts.2));
        async move {
            begun.notify_one();
            go.notified().await;
            handled.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    });
    let consumer = consumer.await.expect("one can subscribe");
    scene.publish_all("", 0..10).await;
    scene.within("a handler begins", begun.notified()).await;
    let mut stopping = pin!(consumer.stop());
    // Asked once by hand, so that it has been told to stop before the handler may end.
    let early = (&mut stopping).now_or_never();
    assert!(early.is_none(), "it waits for the handler");
    go.notify_one();
    scene.within("it stops", stopping).await.expect("in good health");
    assert_eq!(handled.load(Ordering::SeqCst), 1, "no further one was begun");
    let mut other = builder().stream().await.expect("one can subscribe");
    assert_eq!(scene.take(&mut other, 9).await.len(), 9, "at once, not when leases end");
    scene.silent(&mut other).await;
    assert_eq!(scene.cursor().await, 10);
}

/// A consumer that is dropped gives back what it has, at once.
pub async fn a_dropped_consumer_gives_back(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let builder = || {
        let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
        builder.ack_timeout(scene.ticks(4)).max_attempts(100)
    };
    let consumer = builder().handle(|_| std::future::pending()).await.expect("one can subscribe");
    scene.publish_all("", 0..5).await;
    scene
        .eventually("all are out", async || {
            scene.bus.lag(&group(BILLING)).await.expect("it is there").partitions[0].out == 5
        })
        .await;
    drop(consumer);
    let mut other = builder().stream().await.expect("one can subscribe");
    let mut got = scene.take(&mut other, 5).await;
    got.sort_unstable();
    assert_eq!(got, [0, 1, 2, 3, 4]);
}

/// A handler that never ends does not keep the bus from closing, nor its consumer from stopping.
pub async fn a_hung_handler_keeps_nobody(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let builder = scene.bus.subscribe_to([ORDERS], BILLING).from(Start::Earliest);
    let begun = Arc::new(Notify::new());
    let tell = Arc::clone(&begun);
    let consumer = builder.ack_timeout(scene.ticks(4)).handle(move |_| {
        tell.notify_one();
        std::future::pending()
    });
    let consumer = consumer.await.expect("one can subscribe");
    scene.publish(ORDERS, "k", 0).await;
    scene.within("the handler begins", begun.notified()).await;
    scene.within("the consumer stops", consumer.stop()).await.expect("in good health");
    scene.within("the bus closes", scene.bus.close()).await;
}

/// The last handle of a bus closes it: who waits for deliveries is told.
pub async fn the_last_handle_closes(factory: &dyn BusFactory) {
    let scene = Scene::open(factory).await;
    let mut subscription = scene.subscribe().await;
    let (pace, store) = (scene.pace, Arc::clone(scene.bus.store()));
    drop(scene);
    let next = tokio::time::timeout(pace.patience, subscription.next()).await;
    assert!(next.is_ok_and(|next| next.is_none_or(|next| next.is_err())), "the stream ends");
    drop(store);
}
