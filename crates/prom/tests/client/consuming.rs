use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use promethean_client::event::{GroupName, NewEvent};
use promethean_client::{AckError, Bus, Delivered, Start, Tailed};
use tokio::sync::mpsc;

use super::relay::Relay;
use super::{connected, event, free_port, serving, serving_at};

#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct Beat {
    n: u32,
}
promethean_client::topic! { Beat => "beat", version = 1, key = |beat| (beat.n % 7).to_string() }

/// Connections are cut while events are consumed: each is handled, in the order of its key.
#[tokio::test]
async fn every_event_is_handled_over_connections_that_are_cut() {
    const EVENTS: u32 = 200;
    let server = serving();
    let relay = Relay::to(&server.at).await;
    let bus = Bus::connect(&relay.url()).await.unwrap();
    let (told, mut handled) = mpsc::unbounded_channel();
    let consumer = bus
        .subscribe::<Beat>("ops")
        .from(Start::Earliest)
        .max_attempts(100)
        .concurrency(4)
        .max_in_flight(20)
        .handle(move |delivered| {
            let told = told.clone();
            async move {
                let n = delivered.payload()?.n;
                // Longer than no time, so that some are under way when the connection is cut.
                tokio::task::yield_now().await;
                told.send(n)?;
                Ok(())
            }
        })
        .await
        .unwrap();
    for n in 0..EVENTS {
        bus.publish(&Beat { n }).await.unwrap();
    }
    let mut last: BTreeMap<u32, u32> = BTreeMap::new();
    let mut counted = BTreeMap::new();
    let mut cuts = 0;
    while counted.len() < EVENTS as usize {
        let n = handled.recv().await.unwrap();
        let times = counted.entry(n).or_insert(0_u32);
        *times += 1;
        if *times == 1 {
            // A first time comes in the order of the key; one that came before may come again.
            let before = last.insert(n % 7, n);
            assert!(before.is_none_or(|before| before < n), "{n} after {before:?}");
        }
        if counted.len() as u32 / 30 > cuts {
            cuts += 1;
            relay.cut();
        }
    }
    assert!(cuts >= 5);
    let group: GroupName = "ops".parse().unwrap();
    connected(&server).await.caught_up(&group).await.unwrap();
    consumer.stop().await.unwrap();
    let lag = bus.lag(&group).await.unwrap();
    assert_eq!((lag.events(), lag.members), (0, 0));
}

#[tokio::test]
async fn a_stream_goes_on_over_a_restart_of_the_server() {
    let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
    let server = serving_at(port, folder.path());
    let bus = Bus::connect(&server.url()).await.unwrap();
    let mut stream = bus.subscribe::<Beat>("ops").from(Start::Earliest).stream().await.unwrap();
    bus.publish_batch(beats(0..2)).await.unwrap();
    let first = stream.next().await.unwrap().unwrap();
    let second = stream.next().await.unwrap().unwrap();
    assert_eq!((first.payload().unwrap().n, second.payload().unwrap().n), (0, 1));
    first.ack().await.unwrap();
    drop(server); // Killed, without a word.
    second.lost().await;
    assert_eq!(second.ack().await, Err(AckError::LeaseLost));
    let _server = serving_at(port, folder.path());
    let again = stream.next().await.unwrap().unwrap();
    assert_eq!((again.payload().unwrap().n, again.attempt()), (1, 2), "attempts are counted");
    again.ack().await.unwrap();
    bus.publish(&Beat { n: 2 }).await.unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap().payload().unwrap().n, 2);
}

fn beats(numbers: std::ops::Range<u32>) -> Vec<NewEvent> {
    let beat = |n: u32| {
        let mut event = event("beat", &format!("{{\"n\":{n}}}"));
        event.key = Some((n % 7).to_string().parse().unwrap());
        event
    };
    numbers.map(beat).collect()
}

#[tokio::test]
async fn what_is_dropped_is_not_acked_and_comes_again() {
    let server = serving();
    let bus = connected(&server).await;
    bus.publish(&Beat { n: 1 }).await.unwrap();
    let mut stream = bus
        .subscribe::<Beat>("ops")
        .from(Start::Earliest)
        .ack_timeout(Duration::from_millis(300))
        .backoff(Duration::from_millis(1), Duration::from_millis(1))
        .stream()
        .await
        .unwrap();
    drop(stream.next().await.unwrap().unwrap());
    let again = stream.next().await.unwrap().unwrap();
    assert_eq!(again.attempt(), 2);
    again.ack().await.unwrap();
    assert_eq!(bus.lag(&"ops".parse().unwrap()).await.unwrap().events(), 0);
}

/// A handler that takes five times as long as a lease keeps its event.
#[tokio::test]
async fn the_lease_is_renewed_while_a_handler_runs() {
    let server = serving();
    let bus = connected(&server).await;
    let attempts = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&attempts);
    let consumer = bus
        .subscribe::<Beat>("slow")
        .from(Start::Earliest)
        .ack_timeout(Duration::from_millis(300))
        .handle(move |delivered: Delivered<Beat>| {
            let seen = Arc::clone(&seen);
            async move {
                seen.lock().unwrap().push(delivered.attempt());
                tokio::time::sleep(Duration::from_millis(1_500)).await;
                Ok(())
            }
        })
        .await
        .unwrap();
    bus.publish(&Beat { n: 1 }).await.unwrap();
    bus.caught_up(consumer.group()).await.unwrap();
    assert_eq!(*attempts.lock().unwrap(), [1]);
    assert_eq!(consumer.handled(), 1);
}

/// One that hangs loses its event after the time that work may take.
#[tokio::test]
async fn a_handler_that_hangs_is_given_up() {
    let server = serving();
    let bus = connected(&server).await;
    let (told, mut attempts) = mpsc::unbounded_channel();
    let consumer = bus
        .subscribe::<Beat>("hung")
        .from(Start::Earliest)
        .ack_timeout(Duration::from_millis(300))
        .max_processing(Duration::from_millis(600))
        .backoff(Duration::from_millis(1), Duration::from_millis(1))
        .handle(move |delivered: Delivered<Beat>| {
            let told = told.clone();
            async move {
                told.send(delivered.attempt())?;
                if delivered.attempt() == 1 {
                    std::future::pending::<()>().await;
                }
                Ok(())
            }
        })
        .await
        .unwrap();
    bus.publish(&Beat { n: 1 }).await.unwrap();
    assert_eq!(attempts.recv().await, Some(1));
    assert_eq!(attempts.recv().await, Some(2));
    bus.caught_up(consumer.group()).await.unwrap();
}

#[tokio::test]
async fn what_is_not_of_its_type_is_a_dead_letter() {
    let server = serving();
    let bus = connected(&server).await;
    bus.publish(event("beat", r#"{"n":"one"}"#)).await.unwrap();
    bus.publish(&Beat { n: 1 }).await.unwrap();
    let mut stream = bus.subscribe::<Beat>("ops").from(Start::Earliest).stream().await.unwrap();
    let good = stream.next().await.unwrap().unwrap();
    assert_eq!(good.payload().unwrap(), Beat { n: 1 });
    good.ack().await.unwrap();
    bus.caught_up(&"ops".parse().unwrap()).await.unwrap();
    let letters = bus.dead_letters(&Default::default()).await.unwrap();
    assert_eq!(letters.len(), 1);
    assert!(letters[0].letter.err.contains("invalid type: string"), "{letters:?}");
}

#[tokio::test]
async fn a_tail_goes_on_where_it_was() {
    let server = serving();
    let relay = Relay::to(&server.at).await;
    let bus = Bus::connect(&relay.url()).await.unwrap();
    let other = connected(&server).await;
    let mut tail = bus.tail(["a.*"]).from(Start::Earliest).stream().await.unwrap();
    other.publish(event("a.b", "1")).await.unwrap();
    assert!(matches!(tail.next().await, Some(Ok(Tailed::Event(e))) if e.payload.as_str() == "1"));
    relay.cut();
    other.publish(event("a.b", "2")).await.unwrap();
    other.publish(event("a.c", "3")).await.unwrap();
    let mut texts = Vec::new();
    let mut resumed = None;
    while texts.len() < 2 {
        match tail.next().await.unwrap().unwrap() {
            Tailed::Event(event) => texts.push(event.payload.as_str().to_owned()),
            Tailed::Resumed { recovered } => resumed = Some(recovered),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((texts.as_slice(), resumed), (["2".into(), "3".into()].as_slice(), Some(true)));
}

/// A server that comes back with another store has lost what was: the tail is told.
#[tokio::test]
async fn a_tail_is_told_what_is_gone() {
    let port = free_port();
    let port_text = port.to_string();
    let server = crate::server::Server::start(&["dev", "--port", &port_text]);
    let bus = connected(&server).await;
    let mut tail = bus.tail(["a"]).from(Start::Earliest).stream().await.unwrap();
    bus.publish(event("a", "1")).await.unwrap();
    assert!(matches!(tail.next().await, Some(Ok(Tailed::Event(_)))));
    drop(server);
    let _server = crate::server::Server::start(&["dev", "--port", &port_text]);
    let gap = match tail.next().await.unwrap().unwrap() {
        Tailed::Missing(gap) => gap,
        other => panic!("{other:?}"),
    };
    assert_eq!((gap.topic.as_str(), gap.from.get(), &*gap.reason), ("a", 1, "epoch"));
    assert_eq!(tail.next().await.unwrap().unwrap(), Tailed::Resumed { recovered: false });
    bus.publish(event("a", "2")).await.unwrap();
    assert!(matches!(tail.next().await, Some(Ok(Tailed::Event(e))) if e.payload.as_str() == "2"));
}
