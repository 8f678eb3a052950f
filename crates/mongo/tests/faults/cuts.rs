//! A hub that is cut off from MongoDB for longer than its lease, while it runs: others take over, and
//! nothing that it confirms afterwards counts.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use promethean::store::{Append, AppendError, Put, Store, TopicDefinition};
use promethean::{Bus, BusOptions, Start};
use promethean_event::{
    EventId, GroupName, Key, NewEvent, PartitionCount, Payload, Timestamp, Topic,
};
use promethean_harness::stopwatch::Stopwatch;
use promethean_mongo::{MongoOptions, MongoStore};
use tokio::task::JoinHandle;

use super::set::rounds;
use crate::conformance::wait_for;
use crate::hubs::history::{History, Seen};
use crate::hubs::{until, until_all};
use crate::replica_set::{database, drop_database, url};
use crate::verdict::must_hold;

/// A gate that those who carry bytes wait at.
#[derive(Default)]
struct Gate {
    is_shut: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn shut(&self) {
        *self.is_shut.lock().unwrap() = true;
    }

    fn open(&self) {
        *self.is_shut.lock().unwrap() = false;
        self.opened.notify_all();
    }

    fn pass(&self) {
        drop(self.opened.wait_while(self.is_shut.lock().unwrap(), |is_shut| *is_shut).unwrap());
    }
}

/// The way of one hub to MongoDB. While it is cut, bytes are held back and connections are not made: as
/// if a cable had been pulled.
struct Way {
    address: SocketAddr,
    gate: Arc<Gate>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Way {
    fn to(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (gate, open) = (Arc::new(Gate::default()), Arc::new(Mutex::new(Vec::new())));
        let way = Self { address, gate: Arc::clone(&gate), open: Arc::clone(&open) };
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(&target) else { continue };
                let mut open = open.lock().unwrap();
                open.extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                let pairs = [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)];
                for (from, to) in pairs {
                    let gate = Arc::clone(&gate);
                    std::thread::spawn(move || carry(from, to, &gate));
                }
            }
        });
        way
    }

    fn cut(&self) {
        self.gate.shut();
    }

    /// Connections of before are gone, as they are after a long silence.
    fn mend(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            // One that is closed already is as good.
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.gate.open();
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, gate: &Gate) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        gate.pass();
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// The address of the one member, and the connection string with another one in its place.
fn through(way: Option<&Way>, database: &str) -> (String, String) {
    let url = url();
    let hosts = url.strip_prefix("mongodb://").unwrap().split('/').next().unwrap().to_owned();
    let member = hosts.split(',').next().unwrap().to_owned();
    let place = way.map_or(member.clone(), |way| way.address.to_string());
    // Directly: the set would tell the driver the member's own address.
    (member, format!("mongodb://{place}/{database}?directConnection=true"))
}

async fn hub(url: &str, lease: Duration) -> Bus {
    let options = MongoOptions { deadline: Duration::from_secs(2), ..MongoOptions::default() };
    let store = MongoStore::open(url, options).await.unwrap();
    Bus::with_store(Arc::new(store), BusOptions::default().hub_lease(lease))
}

fn consume(bus: &Bus, hub: usize, history: &History) -> JoinHandle<()> {
    let (bus, history) = (bus.clone(), history.clone());
    tokio::spawn(async move {
        let subscribe = bus.subscribe_to(["orders"], "g").from(Start::Earliest);
        let mut stream = subscribe.stream().await.unwrap();
        while let Some(Ok(delivered)) = stream.next().await {
            let number: u64 = delivered.event().payload.decode().unwrap();
            let key = delivered.event().key.as_ref().unwrap().as_str().to_owned();
            history.note(Seen::Delivered { hub, key: key.clone(), number });
            match delivered.ack().await {
                Ok(()) => history.note(Seen::Confirmed { hub, key, number }),
                Err(_) => history.note(Seen::Refused { hub, key, number }),
            }
        }
    })
}

async fn publish(bus: &Bus, numbers: std::ops::Range<u64>) -> Vec<(String, u64)> {
    let mut published = Vec::new();
    for number in numbers {
        let key = format!("key-{}", number % 20);
        let (ts, topic) = (Timestamp::from_millis(1), Topic::new("orders").unwrap());
        let payload = Payload::of(&(number + 1)).unwrap();
        let event = NewEvent::new(EventId::generate(), ts, topic, payload);
        bus.publish(event.with_key(Key::new(key.as_str()).unwrap())).await.unwrap();
        published.push((key, number + 1));
    }
    published
}

#[test]
fn a_hub_that_is_cut_off_confirms_nothing_that_is_anothers() {
    let name = database();
    wait_for(async {
        let lease = Duration::from_secs(1);
        let (member, direct) = through(None, &name);
        let way = Way::to(member);
        let (a, b) = (hub(&through(Some(&way), &name).1, lease).await, hub(&direct, lease).await);
        let mut definition = TopicDefinition::new(Topic::new("orders").unwrap());
        definition.partitions = PartitionCount::new(4).unwrap();
        a.define(definition).await.unwrap();
        let history = History::default();
        let consumers = [consume(&a, 0, &history), consume(&b, 1, &history)];
        let group = GroupName::new("g").unwrap();
        let shares = async || {
            let claims = b.store().claims().unwrap().holders(group.clone()).await.unwrap();
            let hubs: std::collections::BTreeSet<_> =
                claims.iter().map(|claim| claim.hub).collect();
            (claims.len(), hubs.len())
        };
        until("both deliver", async || shares().await == (4, 2)).await;
        let mut published = publish(&b, 0..100).await;
        for round in 0..rounds() {
            until("both have confirmed", async || {
                history.confirmed_at(0) > 0 && history.confirmed_at(1) > 0
            })
            .await;
            way.cut();
            let from = 100 + round * 200;
            published.extend(publish(&b, from..from + 100).await);
            until("the other takes over", async || shares().await == (4, 1)).await;
            published.extend(publish(&b, from + 100..from + 200).await);
            way.mend();
            until("it comes back", async || shares().await == (4, 2)).await;
        }
        until_all("everything is done", async || {
            history.confirmed() + history.unknown(Some(0)) >= published.len()
        })
        .await;
        b.caught_up(&group).await.unwrap();
        must_hold(&history.violations_but(&published, Some(0)));
        consumers.iter().for_each(JoinHandle::abort);
        b.close().await;
        a.close().await;
        drop_database(&name).await;
    });
}

/// A publish used to get its whole time only when everything before it had used up its own: behind
/// eight entries that MongoDB did not take, it was answered after nine deadlines.
#[test]
fn a_publish_behind_others_that_are_stuck_is_answered_in_its_own_time() {
    const STUCK: u32 = 8;
    let name = database();
    wait_for(async {
        let (member, direct) = through(None, &name);
        let way = Way::to(member);
        let deadline = Duration::from_secs(2);
        let options = || MongoOptions { deadline, ..MongoOptions::default() };
        let store = MongoStore::open(&through(Some(&way), &name).1, options()).await.unwrap();
        let topic = Topic::new("orders").unwrap();
        let id = store.define(TopicDefinition::new(topic.clone())).await.unwrap();
        let event = || {
            let (ts, payload) = (Timestamp::from_millis(1), Payload::of(&1).unwrap());
            NewEvent::new(EventId::generate(), ts, topic.clone(), payload)
        };
        let append =
            |event: NewEvent| store.append(Append { events: vec![event], ..Append::default() });
        append(event()).await.unwrap();
        way.cut();
        let put = |number: u32| {
            let key = Key::new(format!("entry-{number}").as_str()).unwrap();
            store.put(vec![Put { space: "test", key, value: Some(Payload::null()), expect: None }])
        };
        let stuck: Vec<_> = (0..STUCK).map(put).collect();
        let last = event();
        let begun = Stopwatch::start();
        let answer = append(last.clone()).await;
        let deadlines = begun.elapsed().as_secs_f64() / deadline.as_secs_f64();
        println!("answered after {deadlines:.2} deadlines: {answer:?}");
        // Certain, because it was not begun.
        assert!(matches!(answer, Err(AppendError::Unavailable(_))), "{answer:?}");
        assert!(deadlines < f64::from(STUCK) / 2.0, "answered after {deadlines:.2} deadlines");
        for stuck in stuck {
            assert!(stuck.await.is_err(), "nothing gets through");
        }
        way.mend();
        until("publishing goes on", async || append(event()).await.is_ok()).await;
        let other = MongoStore::open(&direct, options()).await.unwrap();
        assert_eq!(other.find(id, last.id).await.unwrap(), None, "it was refused");
        other.close().await;
        store.close().await;
        drop_database(&name).await;
    });
}
