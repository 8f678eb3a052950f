//! Changefeeds from a real replica set into a bus of another kind.

mod again;

mod elsewhere;

mod zombie;

mod images;

mod large;

mod replaced;

mod gaps;

mod preflight;

mod standing;

mod stopping;

use std::collections::BTreeMap;
use std::time::Duration;

use mongodb::bson::{Bson, Document, doc};
use mongodb::{Client, Collection, Database};
use promethean::changefeed::{Definition, Feeds, FeedsError, Phase, Recovery, Status};
use promethean::store::{KeyQuery, Lane, PageLimit, Read};
use promethean::{Bus, PayloadPolicy, Registration, TopicPolicy};
use promethean_event::{Event, Offset, Partition, Topic};
use promethean_mongo::changefeed::{
    Changefeed, FeedEnd, FeedOptions, HEADER_CLUSTER_TIME, HEADER_DOCUMENT, HEADER_OP,
};
use promethean_mongo::outbox::MongoOutbox;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::conformance::wait_for;
use crate::replica_set::{database, drop_database, url};

/// A collection, a bus, and a feed between them.
struct Stage {
    database: Database,
    items: Collection<Document>,
    bus: Bus,
    feeds: Feeds,
}

struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<FeedEnd>,
}

impl Running {
    async fn stop(self) {
        drop(self.stop);
        assert_eq!(self.task.await.unwrap(), FeedEnd::Stopped);
    }

    /// As if the process had ended.
    async fn crash(self) {
        self.task.abort();
        drop(self.task.await);
    }
}

fn options() -> FeedOptions {
    FeedOptions {
        batch: 20,
        save_every: Duration::from_millis(20),
        lease: Duration::from_secs(3600),
        alone: true,
    }
}

impl Stage {
    async fn new() -> Self {
        let client = Client::with_uri_str(url()).await.unwrap();
        let database = client.database(&database());
        let bus = Bus::memory();
        let feeds = Feeds::new(bus.store());
        Self { items: database.collection("items"), database, bus, feeds }
    }

    async fn declare(&self, change: impl FnOnce(&mut Definition)) {
        let mut definition = Definition {
            url: url(),
            collection: format!("{}.items", self.database.name()),
            topic: "items.changed".into(),
            key: None,
            filter: None,
            map: None,
            snapshot: true,
        };
        change(&mut definition);
        self.feeds.add("items", definition).await.unwrap();
    }

    fn start(&self, options: FeedOptions) -> Running {
        let feed = Changefeed::new("items", &self.bus, options);
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(feed.run(async { drop(stopped.await) }));
        Running { stop, task }
    }

    async fn status(&self) -> Option<Status> {
        self.feeds.list().await.unwrap().pop().and_then(|feed| feed.status)
    }

    async fn events(&self) -> Vec<Event> {
        let topic = Topic::new("items.changed").unwrap();
        let Some(entry) = self.bus.topics().get(&topic).cloned() else { return Vec::new() };
        let lane = Lane { topic: entry.id, partition: Partition::ZERO };
        let (mut events, mut from) = (Vec::new(), Offset::new(0));
        loop {
            let limit = PageLimit::default();
            let page = self.bus.store().read(Read::From { lane, from, limit }).await.unwrap();
            if page.events.is_empty() {
                return events;
            }
            events.extend(page.events.into_iter().map(|stored| stored.event));
            from = Offset::new(events.last().unwrap().offset.get() + 1);
        }
    }

    /// The newest payload of each key that is not a tombstone.
    async fn newest(&self) -> BTreeMap<String, String> {
        let mut newest = BTreeMap::new();
        for event in self.events().await {
            let key = event.key.unwrap().as_str().to_owned();
            if event.payload.is_tombstone() {
                newest.remove(&key);
            } else {
                newest.insert(key, event.payload.as_str().to_owned());
            }
        }
        newest
    }

    async fn until(&self, what: &str, mut holds: impl AsyncFnMut() -> bool) {
        for _ in 0..3_000 {
            if holds().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("never: {what}; the feed: {:?}", self.status().await);
    }

    async fn until_streaming(&self) {
        let is_streaming = async || {
            matches!(self.status().await, Some(Status { phase: Phase::Stream { .. }, .. }))
        };
        self.until("it streams", is_streaming).await;
    }

    async fn until_events(&self, count: usize) -> Vec<Event> {
        self.until(&format!("{count} events"), async || self.events().await.len() >= count).await;
        let events = self.events().await;
        assert_eq!(events.len(), count, "{events:#?}");
        events
    }

    async fn keep_images(&self, enabled: bool) {
        let images = doc! { "enabled": enabled };
        let command = doc! { "collMod": "items", "changeStreamPreAndPostImages": images };
        self.database.run_command(command).await.unwrap();
    }

    async fn end(self, running: Running) {
        running.stop().await;
        drop_database(self.database.name()).await;
    }
}

/// Pitfalls 115, 119, 121, 123: what is there comes first; then changes; deletes are tombstones.
#[test]
fn what_is_there_and_what_changes() {
    wait_for(async {
        let stage = Stage::new().await;
        let compound = doc! { "region": "eu", "n": 1 };
        stage.items.insert_one(doc! { "_id": compound.clone(), "a": 1 }).await.unwrap();
        stage.items.insert_one(doc! { "_id": "two", "a": 2 }).await.unwrap();
        stage.declare(|_| {}).await;
        let running = stage.start(options());
        stage.until_events(2).await;
        stage.until_streaming().await;
        stage.items.delete_one(doc! { "_id": compound }).await.unwrap();
        stage.items.update_one(doc! { "_id": "two" }, doc! { "$set": { "a": 3 } }).await.unwrap();
        let price: mongodb::bson::Decimal128 = "1.10".parse().unwrap();
        stage.items.insert_one(doc! { "_id": 3, "price": price }).await.unwrap();
        let events = stage.until_events(5).await;
        let told: Vec<_> = events
            .iter()
            .map(|event| {
                let op = event.headers.get(HEADER_OP).unwrap();
                (op, event.key.as_ref().unwrap().as_str(), event.payload.as_str())
            })
            .collect();
        assert_eq!(
            told,
            [
                ("snapshot", "two", r#"{"_id":"two","a":2}"#),
                ("snapshot", r#"{"region":"eu","n":1}"#, r#"{"_id":{"region":"eu","n":1},"a":1}"#),
                ("delete", r#"{"region":"eu","n":1}"#, "null"),
                ("update", "two", r#"{"_id":"two","a":3}"#),
                ("insert", "3", r#"{"_id":3,"price":{"$numberDecimal":"1.10"}}"#),
            ]
        );
        assert_eq!(events[3].headers.get(HEADER_DOCUMENT), Some("looked-up"));
        assert!(events[4].headers.get(HEADER_CLUSTER_TIME).unwrap().contains('.'));
        stage.end(running).await;
    });
}

/// Pitfall 119: writes during the snapshot. Pitfall 120: crashes add nothing that would not end
/// right.
#[test]
fn a_snapshot_under_writes_and_crashes_ends_right() {
    wait_for(async {
        let stage = Stage::new().await;
        let documents: Vec<_> = (0..400).map(|n| doc! { "_id": n, "v": 0 }).collect();
        stage.items.insert_many(documents).await.unwrap();
        stage.declare(|_| {}).await;
        let items = stage.items.clone();
        let writing = tokio::spawn(async move {
            for n in 0..300_i32 {
                let id = n * 37 % 450;
                match n % 3 {
                    0 => drop(items.delete_one(doc! { "_id": id }).await.unwrap()),
                    1 => drop(
                        items
                            .update_one(doc! { "_id": id }, doc! { "$inc": { "v": 1 } })
                            .upsert(true)
                            .await
                            .unwrap(),
                    ),
                    _ => drop(
                        items
                            .replace_one(doc! { "_id": id }, doc! { "v": n })
                            .upsert(true)
                            .await
                            .unwrap(),
                    ),
                }
            }
        });
        // Killed again and again, at whatever it is doing; each time a little further.
        for events in [30, 90, 200, 320, 450] {
            let running = stage.start(FeedOptions { batch: 7, ..options() });
            let enough = async || stage.events().await.len() >= events || writing.is_finished();
            stage.until("some events", enough).await;
            running.crash().await;
        }
        let running = stage.start(options());
        writing.await.unwrap();
        let mut expected = BTreeMap::new();
        let mut cursor = stage.items.find(doc! {}).await.unwrap();
        while cursor.advance().await.unwrap() {
            let found = cursor.deserialize_current().unwrap();
            let (id, v) = (found.get_i32("_id").unwrap(), found.get_i32("v").unwrap());
            expected.insert(id.to_string(), format!(r#"{{"_id":{id},"v":{v}}}"#));
        }
        stage
            .until("the topic ends as the collection", async || stage.newest().await == expected)
            .await;
        stage.end(running).await;
    });
}

/// Pitfall 120: what was published before a crash and not noted is published again, for nothing.
#[test]
fn replays_add_nothing() {
    wait_for(async {
        let stage = Stage::new().await;
        stage.items.insert_one(doc! { "_id": 0 }).await.unwrap();
        stage.declare(|_| {}).await;
        // Never saves by itself once it streams, so that every start begins there again.
        let hour = Duration::from_secs(3600);
        let running = stage.start(options());
        stage.until_streaming().await;
        running.crash().await;
        for round in 1..=4 {
            let running = stage.start(FeedOptions { save_every: hour, ..options() });
            let new: Vec<_> = (0..50).map(|n| doc! { "_id": round * 100 + n }).collect();
            stage.items.insert_many(new).await.unwrap();
            stage.until_events(1 + 50 * usize::try_from(round).unwrap()).await;
            running.crash().await;
        }
        let running = stage.start(options());
        stage.items.insert_one(doc! { "_id": "last" }).await.unwrap();
        stage.until_events(202).await;
        let reached = async || stage.status().await.unwrap().published >= 202;
        stage.until("it has noted all", reached).await;
        assert_eq!(stage.events().await.len(), 202);
        stage.end(running).await;
    });
}

/// Pitfall 118: a feed that lets nothing through still comes forward.
#[test]
fn progress_is_saved_when_all_is_filtered() {
    wait_for(async {
        let stage = Stage::new().await;
        stage.items.insert_one(doc! { "_id": 0, "n": 0 }).await.unwrap();
        stage.declare(|feed| feed.filter = Some("document.n > 1000".into())).await;
        let running = stage.start(options());
        stage.until_streaming().await;
        let token = async || match stage.status().await.map(|status| status.phase) {
            Some(Phase::Stream { token, .. }) => token,
            _ => None,
        };
        stage.until("a token", async || token().await.is_some()).await;
        let first = token().await;
        // In another collection: the feed is sent nothing at all.
        stage.database.collection("other").insert_one(doc! {}).await.unwrap();
        stage.until("the next token", async || token().await > first).await;
        stage.items.insert_one(doc! { "_id": 1, "n": 1 }).await.unwrap();
        let passed = async || stage.status().await.unwrap().left_out == 2;
        stage.until("the change is passed", passed).await;
        assert!(stage.events().await.is_empty());
        let headroom = async || stage.status().await.unwrap().oplog_headroom_seconds.is_some();
        stage.until("the headroom is told", headroom).await;
        stage.end(running).await;
    });
}

/// Pitfall 116: with images every update is itself; and keys of deletes are known.
#[test]
fn images_are_used_where_they_are_kept() {
    wait_for(async {
        let stage = Stage::new().await;
        stage.items.insert_one(doc! { "_id": 1, "who": "ann", "v": 0 }).await.unwrap();
        stage.keep_images(true).await;
        stage.declare(|feed| feed.key = Some("document.who".into())).await;
        let running = stage.start(options());
        stage.until_events(1).await;
        stage.until_streaming().await;
        running.crash().await;
        // Nobody reads meanwhile, so that looking up would find only the last one, or none.
        for _ in 0..3 {
            stage.items.update_one(doc! { "_id": 1 }, doc! { "$inc": { "v": 1 } }).await.unwrap();
        }
        stage.items.delete_one(doc! { "_id": 1 }).await.unwrap();
        let running = stage.start(options());
        let events = stage.until_events(5).await;
        let payloads: Vec<_> = events[1..].iter().map(|event| event.payload.as_str()).collect();
        let version = |v| format!(r#"{{"_id":1,"who":"ann","v":{v}}}"#);
        assert_eq!(payloads, [&*version(1), &*version(2), &*version(3), "null"]);
        assert!(events.iter().all(|event| event.key.as_ref().unwrap().as_str() == "ann"));
        assert!(events.iter().all(|event| event.headers.get(HEADER_DOCUMENT).is_none()));
        stage.end(running).await;
    });
}

/// Has the server say that it has forgotten, whenever this collection's stream is opened.
async fn forget(stage: &Stage, mode: Bson) {
    let namespace = format!("{}.items", stage.database.name());
    let fault = doc! { "failCommands": ["aggregate"], "errorCode": 286, "namespace": namespace };
    let command = doc! { "configureFailPoint": "failCommand", "mode": mode, "data": fault };
    let admin = stage.database.client().database("admin");
    admin.run_command(command).await.expect("the server must take test commands");
}

#[test]
fn lost_history_stops_a_feed_until_it_is_told_how_to_go_on() {
    wait_for(async {
        for (recovery, expected) in [
            (Recovery::Resnapshot, vec!["1", "2"]),
            (Recovery::AcceptGap, vec!["2"]),
            (Recovery::FromTime(u32::MAX), vec![]),
        ] {
            let stage = Stage::new().await;
            stage.items.insert_one(doc! { "_id": 1 }).await.unwrap();
            stage.declare(|feed| feed.snapshot = false).await;
            let running = stage.start(options());
            stage.until_streaming().await;
            running.crash().await;
            forget(&stage, "alwaysOn".into()).await;
            let running = stage.start(options());
            let is_lost =
                async || matches!(stage.status().await.unwrap().phase, Phase::Lost { .. });
            stage.until("it is lost", is_lost).await;
            let Phase::Lost { gap, .. } = stage.status().await.unwrap().phase else { panic!() };
            assert!(gap.from.unwrap().seconds > 0);
            forget(&stage, "off".into()).await;
            // What happens now is passed over, if it is not read anew.
            stage.database.collection("other").insert_one(doc! {}).await.unwrap();
            assert!(stage.events().await.is_empty(), "it went on");
            let refused = stage.feeds.resume("items", None).await;
            assert!(matches!(refused, Err(FeedsError::Lost(_))), "{refused:?}");
            let recovery = match recovery {
                // From the beginning of this very second on: nothing is left out.
                Recovery::FromTime(_) => Recovery::FromTime(now(&stage).await),
                other => other,
            };
            stage.feeds.resume("items", Some(recovery)).await.unwrap();
            stage.until_streaming().await;
            // From the second in which it was lost on there may be none.
            let is_from_time = matches!(recovery, Recovery::FromTime(_));
            let has_gap = stage.status().await.unwrap().gap.is_some();
            assert!(has_gap || is_from_time, "the gap is stated");
            stage.items.insert_one(doc! { "_id": 2 }).await.unwrap();
            let is_there = async || stage.newest().await.contains_key("2");
            stage.until("the change after it", is_there).await;
            if !expected.is_empty() {
                assert_eq!(stage.newest().await.into_keys().collect::<Vec<_>>(), expected);
            }
            assert_eq!(stage.status().await.unwrap().epoch, 2, "the next owner");
            stage.end(running).await;
        }
    });
}

async fn now(stage: &Stage) -> u32 {
    let hello = stage.database.run_command(doc! { "hello": 1 }).await.unwrap();
    hello.get_timestamp("operationTime").unwrap().time
}

/// Pitfall 123: two instances. One works; the other takes over when it is gone; the one that comes
/// back can save nothing.
#[test]
fn one_instance_at_a_time() {
    wait_for(async {
        let stage = Stage::new().await;
        stage.items.insert_one(doc! { "_id": 0 }).await.unwrap();
        stage.declare(|_| {}).await;
        let options = FeedOptions { alone: false, lease: Duration::from_millis(700), ..options() };
        let one = stage.start(options.clone());
        stage.until_streaming().await;
        let owner = stage.status().await.unwrap().owner;
        let two = stage.start(options.clone());
        for n in 1..=20 {
            stage.items.insert_one(doc! { "_id": n }).await.unwrap();
        }
        stage.until_events(21).await;
        let status = stage.status().await.unwrap();
        assert_eq!((status.owner.clone(), status.epoch), (owner, 1), "the other one waits");
        one.crash().await;
        let taken = async || stage.status().await.unwrap().epoch == 2;
        stage.until("the other takes over", taken).await;
        stage.items.insert_one(doc! { "_id": 21 }).await.unwrap();
        stage.until_events(22).await;
        // A third takes it from under the second one's hands, as after a long sleep.
        let three = stage.start(FeedOptions { alone: true, ..options });
        let taken = async || stage.status().await.unwrap().epoch >= 3;
        stage.until("the third takes over", taken).await;
        stage.items.insert_one(doc! { "_id": 22 }).await.unwrap();
        stage.until_events(23).await;
        two.crash().await;
        stage.end(three).await;
    });
}

/// Pitfall 122.
#[test]
fn what_we_write_ourselves_is_not_fed() {
    wait_for(async {
        let stage = Stage::new().await;
        MongoOutbox::install(&stage.database).await.unwrap();
        let outbox = format!("{}.outbox", stage.database.name());
        stage.declare(|feed| feed.collection = outbox).await;
        let running = stage.start(options());
        let is_stopped = async || match stage.status().await.map(|status| status.phase) {
            Some(Phase::Stopped { reason, .. }) => reason.contains("itself"),
            _ => false,
        };
        stage.until("it is refused", is_stopped).await;
        stage.end(running).await;
    });
}

/// What was read with a change that the bus refuses is not passed over when the feed goes on.
#[test]
fn a_feed_that_stops_goes_on_with_what_it_had_not_published() {
    wait_for(async {
        let stage = Stage::new().await;
        let topic = Topic::new("items.changed").unwrap();
        let numbers = json!({ "properties": { "a": { "type": "number" } } });
        let registration = Registration::new(numbers.to_string());
        stage.bus.schemas().register(&topic, registration).await.unwrap();
        stage.declare(|_| {}).await;
        let running = stage.start(options());
        stage.until_streaming().await;
        // One transaction, so that they are read together.
        let mut session = stage.database.client().start_session().await.unwrap();
        stage.database.create_collection("items").await.unwrap();
        session.start_transaction().await.unwrap();
        let items = [doc! { "_id": 1, "a": 1 }, doc! { "_id": 2, "a": "two" }, doc! { "_id": 3 }];
        stage.items.insert_many(items).session(&mut session).await.unwrap();
        session.commit_transaction().await.unwrap();
        let is_stopped =
            async || matches!(stage.status().await.unwrap().phase, Phase::Stopped { .. });
        stage.until("it is refused", is_stopped).await;
        let lenient = TopicPolicy { payload: PayloadPolicy::Warn, ..TopicPolicy::default() };
        stage.bus.schemas().set_policy(&topic, lenient).await.unwrap();
        stage.feeds.resume("items", None).await.unwrap();
        let events = stage.until_events(3).await;
        let keys: Vec<_> =
            events.iter().map(|event| event.key.as_ref().unwrap().as_str()).collect();
        assert_eq!(keys, ["1", "2", "3"]);
        stage.end(running).await;
    });
}

/// `_id`s of all types, read by pages that are smaller than any of their kinds.
#[test]
fn a_snapshot_has_ids_of_every_type() {
    wait_for(async {
        let stage = Stage::new().await;
        let ids: Vec<Bson> = (0..9).map(Bson::Int32).collect();
        let texts = (0..9).map(|n| Bson::String(format!("id {n}")));
        let objects = (0..9).map(|n| Bson::Document(doc! { "n": n }));
        let times = (0..9).map(|n| Bson::DateTime(mongodb::bson::DateTime::from_millis(n)));
        let ids: Vec<_> = ids.into_iter().chain(texts).chain(objects).chain(times).collect();
        let documents: Vec<_> = ids.iter().map(|id| doc! { "_id": id.clone() }).collect();
        stage.items.insert_many(documents).await.unwrap();
        stage.declare(|_| {}).await;
        let running = stage.start(FeedOptions { batch: 4, ..options() });
        stage.until_streaming().await;
        stage.until_events(36).await;
        let topic = stage.bus.topics().get(&Topic::new("items.changed").unwrap()).unwrap().id;
        let query = KeyQuery { topic, prefix: "".into(), after: None, max: 100 };
        assert_eq!(stage.bus.store().keys(query).await.unwrap().events.len(), 36);
        stage.end(running).await;
    });
}
