//! Views, what they were, what led to what, and a topic followed from its snapshot on.

use std::collections::BTreeMap;
use std::time::Duration;

use promethean_client::event::{Key, Position, Timestamp};
use promethean_client::{Bus, Followed, Moment, Past, Published, TraceWish, Wanted};
use serde_json::json;

use super::{connected, event, free_port};
use crate::server::Server;

const MANIFEST: &str = r#"
[topic."process.state"]
partitions = 2
snapshot = true
snapshot_every = "20ms"

[views.processes]
topic = "process.state"
fields = { host = "text", pid = "integer" }
"#;

/// A server with a topic that has a snapshot, and a view.
struct Scene {
    folder: tempfile::TempDir,
    server: Option<Server>,
    port: u16,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("prom.toml"), MANIFEST).unwrap();
        let mut scene = Self { folder, server: None, port: free_port() };
        scene.start();
        scene
    }

    fn start(&mut self) {
        let text = |name: &str| self.folder.path().join(name).to_str().unwrap().to_owned();
        let (config, data, port) = (text("prom.toml"), text("data"), self.port.to_string());
        let arguments = ["dev", "--port", &port, "--data", &data, "--config", &config];
        self.server = Some(Server::start(&arguments));
    }

    async fn connected(&self) -> Bus {
        connected(self.server.as_ref().unwrap()).await
    }
}

async fn publish(bus: &Bus, key: &str, payload: &str) -> Published {
    let event = event("process.state", payload).with_key(Key::new(key).unwrap());
    bus.publish(event).await.unwrap()
}

fn position(published: &Published) -> Position {
    let Published { topic, partition, offset, .. } = published.clone();
    Position { topic, partition, offset }
}

#[tokio::test]
async fn views_are_read_and_looked_back_at() {
    let scene = Scene::new();
    let bus = scene.connected().await;
    let views = bus.views();
    let first = publish(&bus, "k", r#"{"host":"a","pid":1}"#).await;
    let second = publish(&bus, "k", r#"{"host":"a","pid":2}"#).await;
    let gone = publish(&bus, "gone", r#"{"host":"a","pid":9}"#).await;
    let deleted = publish(&bus, "gone", "null").await;

    let wanted = Wanted::default().after(position(&second));
    let now = views.get_with("processes", "k", &wanted).await.unwrap().unwrap();
    assert_eq!((now.key.as_str(), &now.position), ("k", &position(&second)));
    assert_eq!(now.decode::<serde_json::Value>().unwrap(), json!({ "host": "a", "pid": 2 }));
    let wanted = Wanted::default().after(position(&deleted));
    assert_eq!(views.get_with("processes", "gone", &wanted).await.unwrap(), None);
    let query = [("host", "a"), ("pid.ge", "2"), ("limit", "1")];
    let page = views.list("processes", &query).await.unwrap();
    assert_eq!((page.documents, page.next), (vec![now], None));
    let refused = views.list("processes", &[("nothing", "1")]).await.unwrap_err();
    assert!(refused.to_string().contains("host, pid"), "{refused}");

    let at = |published: &Published| Moment::Position(position(published));
    let at_last = Moment::Appended(Timestamp::from_millis(u64::from(u32::MAX) * 1_000));
    let then = views.at("processes", "k", &at(&first)).await.unwrap();
    let Past::Document { document, events, is_complete: true } = then else {
        panic!("{then:?}");
    };
    assert_eq!((&document.members["pid"], events[0].id), (&json!(1), first.id));
    let past = views.at("processes", "gone", &at(&deleted)).await.unwrap();
    assert!(
        matches!(&past, Past::Deleted { events, .. } if events[0].id == deleted.id),
        "{past:?}"
    );
    let never = views.at("processes", "nobody", &at_last).await;
    assert_eq!(never.unwrap(), Past::NeverExisted);
    let happened = Moment::Happened(Timestamp::from_millis(1));
    let past = views.at("processes", "gone", &happened).await.unwrap();
    assert!(matches!(past, Past::Deleted { .. }), "{past:?}");
    let sum = "state == null ? payload.pid : state + payload.pid";
    let sum = views.reduce::<u64>("processes", "k", &at(&second), sum).await.unwrap();
    let Past::Document { document, events, .. } = sum else {
        panic!("{sum:?}");
    };
    assert_eq!((*document, events.len()), (3, 2));

    let changes = views.diff("processes", "k", &at(&first), &at(&second)).await.unwrap();
    assert_eq!((changes.len(), changes[0].path.as_str()), (1, "/pid"));
    assert_eq!((&changes[0].was, &changes[0].value), (&Some(json!(1)), &Some(json!(2))));
    assert_eq!(changes[0].event.as_ref().unwrap().id, second.id);
    let mixed = views.diff("processes", "k", &happened, &at_last).await;
    assert!(mixed.unwrap_err().to_string().contains("different times"));
    let why = views.why("processes", "k", Some("/pid")).await.unwrap();
    assert_eq!(why[0].event.as_ref().unwrap().id, second.id);
    assert_eq!(views.why("processes", "k", None).await.unwrap().len(), 2);
    let history = views.history("processes", "gone", 10).await.unwrap();
    let effects: Vec<_> = history.steps.iter().map(|step| step.effect.as_str()).collect();
    assert_eq!((effects, history.is_complete), (vec!["delete", "put"], true));
    assert_eq!(history.steps[1].event.position, position(&gone));

    // A member that is called like the last line of the answer.
    publish(&bus, "meeting", r#"{"host":"c","end":{"error":"no"}}"#).await;
    let mut all = views.at_all("processes", &at_last).await.unwrap();
    let mut keys = Vec::new();
    while let Some(document) = all.next().await.unwrap() {
        keys.push(document.key);
    }
    keys.sort();
    assert_eq!((keys, all.unknown()), (vec!["k".to_owned(), "meeting".to_owned()], 0));
    let refused = views.at_all("nothing", &at_last).await.unwrap_err();
    assert!(refused.to_string().contains("processes"), "{refused}");
}

#[tokio::test]
async fn what_led_to_what_is_told() {
    let scene = Scene::new();
    let bus = scene.connected().await;
    let cause = bus.publish(event("beat", "{}")).await.unwrap();
    let mut effect = event("alert.raised", "{}");
    effect.caused_by = vec![cause.id];
    let effect = bus.publish(effect).await.unwrap();
    let trace = bus.trace(effect.id, TraceWish::Both).await.unwrap();
    let ids: Vec<_> = trace.nodes.iter().map(|node| (node.id, node.depth)).collect();
    assert_eq!((ids, trace.is_complete), (vec![(cause.id, -1), (effect.id, 0)], true));
    assert_eq!(trace.nodes[1].event.as_ref().unwrap().topic.as_str(), "alert.raised");
    let down = bus.trace(cause.id, TraceWish::Down).await.unwrap();
    assert_eq!(down.nodes[0].effects, [effect.id]);
}

/// What one who follows knows.
#[derive(Default)]
struct Known {
    values: BTreeMap<String, Vec<i64>>,
    states: usize,
}

impl Known {
    fn take(&mut self, followed: &Followed) {
        let event = match followed {
            Followed::State { event, .. } => {
                self.states += 1;
                event
            }
            Followed::Event(event) => event,
            _ => return,
        };
        let n = event.payload.decode::<serde_json::Value>().unwrap()["n"].as_i64().unwrap_or(-1);
        let key = event.key.as_ref().unwrap().as_str().to_owned();
        self.values.entry(key).or_default().push(n);
    }

    fn last(&self, key: &str) -> Option<i64> {
        self.values.get(key)?.last().copied()
    }
}

/// Nothing is missed and nothing comes twice, also while events arrive, the snapshot grows, and the
/// server is started again.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_is_followed_from_its_snapshot_on() {
    let mut scene = Scene::new();
    let bus = scene.connected().await;
    for n in 0..50 {
        publish(&bus, &format!("k{}", n % 10), &format!(r#"{{"n":{n}}}"#)).await;
    }
    publish(&bus, "k3", "null").await;
    let topic = "process.state".parse().unwrap();
    // Until the snapshot has been made.
    let until_made = async {
        loop {
            let mut following = bus.follow(&topic).await.unwrap();
            let mut states = 0;
            while let Followed::State { .. } = following.next().await.unwrap().unwrap() {
                states += 1;
            }
            if states == 9 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), until_made).await.unwrap();

    let mut following = bus.follow(&topic).await.unwrap();
    let mut known = Known::default();
    let mut published = 50;
    let is_done =
        |known: &Known| (0..10).all(|k| known.last(&format!("k{k}")).is_some_and(|n| n >= 90));
    while !is_done(&known) {
        let next = tokio::time::timeout(Duration::from_secs(30), following.next()).await.unwrap();
        let followed = next.unwrap().unwrap();
        if followed == Followed::Live {
            drop(scene.server.take());
            scene.start();
        }
        known.take(&followed);
        while published < 100 && (followed == Followed::Live || published < 60) {
            let payload = format!(r#"{{"n":{published}}}"#);
            publish(&bus, &format!("k{}", published % 10), &payload).await;
            published += 1;
        }
    }
    assert_eq!(known.states, 9, "k3 was deleted");
    for (key, values) in &known.values {
        assert!(values.is_sorted_by(|a, b| a < b), "{key}: {values:?}");
    }
    let unknown = bus.follow(&"nothing.there".parse().unwrap()).await;
    assert!(unknown.is_err(), "{unknown:?}");
}
