//! Three members of which some fail, under load: nothing that was acknowledged is lost, and nothing
//! is said to be stored that is not. `PROM_FAILOVERS` sets how many rounds are made, with elections as
//! slow as they are by default; without it one round is made, with quick ones.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mongodb::Client;
use mongodb::bson::doc;
use promethean::store::{AppendError, TopicDefinition};
use promethean::{Bus, BusOptions, PublishError, Start};
use promethean_event::{EventId, GroupName, Key, NewEvent, Payload, Timestamp, Topic};
use promethean_harness::stopwatch::Stopwatch;
use promethean_mongo::{MongoOptions, MongoStore};

use crate::conformance::wait_for;
use crate::hubs::history::{History, Seen};
use crate::hubs::until;

/// A replica set of three, which takes orders.
struct Set {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    url: String,
}

impl Set {
    fn start() -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/mongod");
        let mut command = Command::new(script);
        command.args(["--members", "3", "--in-memory"]);
        if std::env::var_os("PROM_FAILOVERS").is_none() {
            command.args(["--election-ms", "2000"]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let orders = child.stdin.take();
        let mut answers = BufReader::new(child.stdout.take().unwrap());
        let mut url = String::new();
        answers.read_line(&mut url).unwrap();
        assert!(url.starts_with("mongodb://"), "no replica set: {url}");
        Self { child, orders, answers, url: url.trim().to_owned() }
    }

    fn order(&mut self, order: &str) -> String {
        writeln!(self.orders.as_mut().unwrap(), "{order}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        answer.trim().to_owned()
    }

    /// The number of the primary; there may be none for a while.
    async fn primary(&mut self) -> usize {
        loop {
            if let Ok(number) = self.order("primary").parse() {
                return number;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn bus(&self) -> Bus {
        let url = self.url.replacen("/?", "/faults?", 1);
        let store = MongoStore::open(&url, MongoOptions::default()).await.unwrap();
        Bus::with_store(Arc::new(store), BusOptions::default())
    }

    async fn step_down(&self) {
        let client = Client::with_uri_str(&self.url).await.unwrap();
        let command = doc! { "replSetStepDown": 10, "force": true };
        // The connection may be cut before the answer.
        let _ = client.database("admin").run_command(command).await;
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        // The end of its input ends it, with its members.
        drop(self.orders.take());
        let _ = self.child.wait();
    }
}

fn event(number: u64) -> NewEvent {
    let topic = Topic::new("orders").unwrap();
    let payload = Payload::of(&number).unwrap();
    let event = NewEvent::new(EventId::generate(), Timestamp::from_millis(1), topic, payload);
    event.with_key(Key::new(key(number)).unwrap())
}

fn key(number: u64) -> String {
    format!("key-{}", number % 7)
}

/// What was acknowledged, and the longest time that passed between two of them.
#[derive(Debug, Default)]
struct Acknowledged {
    events: Mutex<Vec<(String, u64)>>,
    gap_ms: AtomicU64,
}

/// Publishes one event after the other, each until it is acknowledged, until told to stop.
async fn publish(bus: Bus, acknowledged: Arc<Acknowledged>, stop: Arc<AtomicBool>) {
    let (mut number, mut last) = (0, Stopwatch::start());
    while !stop.load(Ordering::SeqCst) {
        number += 1;
        let event = event(number);
        while let Err(error) = bus.publish(event.clone()).await {
            assert!(is_honest(&error), "event {number}: {error}");
        }
        let gap = u64::try_from(last.elapsed().as_millis()).unwrap();
        acknowledged.gap_ms.fetch_max(gap, Ordering::SeqCst);
        last = Stopwatch::start();
        acknowledged.events.lock().unwrap().push((key(number), number));
    }
}

/// Says that nothing was stored, or that nobody knows.
fn is_honest(error: &PublishError) -> bool {
    matches!(
        error,
        PublishError::Append(
            AppendError::Unavailable(_) | AppendError::Indeterminate(_) | AppendError::Busy(_)
        ) | PublishError::Schemas(_)
    )
}

async fn consume(bus: Bus, history: History) {
    let subscribe = bus.subscribe_to(["orders"], "g").from(Start::Earliest);
    let mut stream = subscribe.stream().await.unwrap();
    while let Some(Ok(delivered)) = stream.next().await {
        let number = delivered.event().payload.decode().unwrap();
        history.note(Seen::Delivered { hub: 0, key: key(number), number });
        let (hub, key) = (0, key(number));
        match delivered.ack().await {
            Ok(()) => history.note(Seen::Confirmed { hub, key, number }),
            Err(_) => history.note(Seen::Refused { hub, key, number }),
        }
    }
}

fn rounds() -> u64 {
    std::env::var("PROM_FAILOVERS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

#[test]
fn nothing_acknowledged_is_lost_over_failovers() {
    let mut set = Set::start();
    wait_for(async {
        let (a, b) = (set.bus().await, set.bus().await);
        a.define(TopicDefinition::new(Topic::new("orders").unwrap())).await.unwrap();
        let history = History::default();
        let consumer = tokio::spawn(consume(b.clone(), history.clone()));
        let (acknowledged, stop) = (Arc::new(Acknowledged::default()), Arc::default());
        let publisher = publish(a.clone(), Arc::clone(&acknowledged), Arc::clone(&stop));
        let publisher = tokio::spawn(publisher);
        // Both go on, well after what happened.
        let goes_on = async || {
            let published = acknowledged.events.lock().unwrap().len();
            let confirmed = history.confirmed();
            until("publishing and consuming go on", async || {
                acknowledged.events.lock().unwrap().len() > published + 20
                    && history.confirmed() > confirmed + 20
            })
            .await;
        };
        goes_on().await;
        for _ in 0..rounds() {
            let primary = set.primary().await;
            assert_eq!(set.order(&format!("kill {primary}")), "ok");
            goes_on().await;
            assert_eq!(set.order(&format!("start {primary}")), "ok");
            set.step_down().await;
            goes_on().await;
            let primary = set.primary().await;
            assert_eq!(set.order(&format!("freeze {primary}")), "ok");
            goes_on().await;
            assert_eq!(set.order(&format!("thaw {primary}")), "ok");
            goes_on().await;
        }
        stop.store(true, Ordering::SeqCst);
        publisher.await.unwrap();
        let published = acknowledged.events.lock().unwrap().clone();
        until("everything is done", async || {
            history.confirmed() + history.unknown(None) >= published.len()
        })
        .await;
        b.caught_up(&GroupName::new("g").unwrap()).await.unwrap();
        let gap = acknowledged.gap_ms.load(Ordering::SeqCst);
        println!("{} acknowledged, longest silence {gap} ms", published.len());
        assert_eq!(history.violations(&published), Vec::<String>::new());
        consumer.abort();
    });
}

/// Two of three are down: refused or unknown, never said to be stored. Afterwards it is there once.
#[test]
fn without_a_majority_nothing_is_acknowledged() {
    let mut set = Set::start();
    wait_for(async {
        let bus = set.bus().await;
        bus.define(TopicDefinition::new(Topic::new("orders").unwrap())).await.unwrap();
        bus.publish(event(1)).await.unwrap();
        let primary = set.primary().await;
        let others: Vec<usize> = (0..3).filter(|member| *member != primary).collect();
        for member in &others {
            assert_eq!(set.order(&format!("kill {member}")), "ok");
        }
        let second = event(2);
        let refused = bus.publish(second.clone()).await;
        assert!(refused.as_ref().is_err_and(is_honest), "{refused:?}");
        for member in &others {
            assert_eq!(set.order(&format!("start {member}")), "ok");
        }
        until("it is stored", async || bus.publish(second.clone()).await.is_ok()).await;
        let again = bus.publish(second).await.unwrap();
        assert_eq!(again.offset.get(), 1);
        assert!(again.duplicate);
    });
}
