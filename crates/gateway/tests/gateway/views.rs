//! Views over a real socket: snapshots, conditions, lists, the past.

use std::time::Duration;

use promethean::Bus;
use promethean::causality::Causes;
use promethean::event::{EventId, Key, NewEvent, Payload, Timestamp, Topic};
use promethean::projection::{Changelog, Field, ProjectionState, Transactional, View, Views};
use promethean_gateway::{Access, Shelf};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::server::{Answer, TestServer, tokens};

const TOPIC: &str = "process.state";
const LAST: &str = "process.state/0/1";

struct Scene {
    server: TestServer,
    folder: TempDir,
    views: Views,
}

impl Scene {
    async fn new() -> Self {
        Self::with(Access::Anonymous).await
    }

    async fn with(access: Access) -> Self {
        let bus = Bus::memory();
        let folder = TempDir::new().unwrap();
        let views = Views::open(&bus, folder.path().join("state.db")).await.unwrap();
        let processes = View::new("processes")
            .field(Field::text("host"))
            .field(Field::integer("pid"))
            .field(Field::bool("busy"))
            .index(["host"]);
        views.changelog(Changelog::new(processes, TOPIC)).await.unwrap();
        let counts = Transactional::new("counts").topic(TOPIC).view(View::new("counts"));
        let counts = counts.apply(|tx, event| {
            let document: serde_json::Value = event.payload.decode().unwrap_or_default();
            let host = document.get("host").and_then(|host| host.as_str()).unwrap_or("none");
            let seen: u64 = tx.read("counts", host)?.unwrap_or(0);
            tx.put("counts", host, &(seen + 1))?;
            Ok(())
        });
        views.transactional(counts).await.unwrap();
        let causes = Causes::open(&bus, folder.path().join("causes.db")).await.unwrap();
        let shelf = Shelf {
            views: Some(views.clone()),
            default_view: Some("processes".into()),
            cache_control: [("counts".to_owned(), "no-cache".parse().unwrap())].into(),
            causes: Some(causes),
            jobs: Some(Shelf::jobs_of(&bus)),
        };
        let server = TestServer::over(bus, access, |s| s.shelf = shelf).await;
        Self { server, folder, views }
    }

    /// Publishes, and waits until it is in the views; answers where it stands.
    async fn publish(&self, key: &str, payload: &str) -> String {
        let payload = Payload::parse(payload.to_owned()).unwrap();
        let topic = Topic::new(TOPIC).unwrap();
        let event = NewEvent::new(EventId::generate(), Timestamp::from_millis(5), topic, payload);
        let published = event.with_key(Key::new(key).unwrap());
        let published = self.server.bus.publish(published).await.unwrap();
        for projection in self.views.keepers() {
            projection.caught_up().await.unwrap();
        }
        format!("{TOPIC}/{}/{}", published.partition, published.offset)
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.server.send("GET", path, headers, b"").await
    }
}

fn header(answer: &Answer, name: &str) -> String {
    let line = answer.head.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    line.unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_has_a_tag_and_conditions_are_kept() {
    let scene = Scene::new().await;
    scene.publish("dev:1", r#"{"host":"dev","pid":1}"#).await;
    let path = "/views/processes/snap/dev%3A1";
    let first = scene.get(path, &[]).await;
    assert_eq!(first.status, 200);
    let document = r#"{"_key":"dev:1","_ts":5,"_pos":"process.state/0/0","host":"dev","pid":1}"#;
    assert_eq!(first.body, document);
    let tag = header(&first, "etag");
    assert!(tag.starts_with('"') && tag.ends_with('"'), "{tag}");
    assert_eq!(header(&first, "cache-control"), "private, max-age=5");
    assert!(header(&first, "vary").contains("accept-encoding"));

    let head = scene.server.send("HEAD", path, &[], b"").await;
    assert_eq!((head.status, header(&head, "etag"), head.body.as_str()), (200, tag.clone(), ""));
    assert_eq!(header(&head, "content-length"), document.len().to_string());
    let by_default = scene.get("/snap/dev:1", &[]).await;
    assert_eq!((header(&by_default, "etag"), by_default.body), (tag.clone(), first.body.clone()));

    let weak = format!("W/{tag}");
    let listed = format!("\"other\", {weak}");
    // How fresh it is: what came for others counts (pitfall 149).
    assert_eq!(header(&first, "x-position"), "process.state/0/0");
    scene.publish("dev:2", r#"{"host":"dev","pid":2}"#).await;
    let fresh = scene.get(path, &[]).await;
    assert_eq!((header(&fresh, "etag"), header(&fresh, "x-position")), (tag.clone(), LAST.into()));
    let list = scene.get("/views/processes/list", &[]).await;
    assert_eq!(header(&list, "x-position"), LAST);
    assert!(header(&list, "vary").contains("authorization"));

    for known in [tag.as_str(), &weak, &listed, "*"] {
        for method in ["GET", "HEAD"] {
            let same = scene.server.send(method, path, &[("if-none-match", known)], b"").await;
            assert_eq!((same.status, same.body.as_str()), (304, ""), "{method} {known}");
            assert_eq!(header(&same, "etag"), tag);
            assert_eq!(header(&same, "cache-control"), "private, max-age=5");
            assert!(!header(&same, "vary").is_empty());
            assert_eq!(header(&same, "x-position"), LAST);
        }
    }
    assert_eq!(scene.get(path, &[("if-none-match", "\"other\"")]).await.status, 200);
    assert_eq!(scene.get(path, &[("if-match", &tag)]).await.status, 200);
    for not in [weak.as_str(), "\"other\""] {
        let refused = scene.get(path, &[("if-match", not)]).await;
        assert_eq!((refused.status, refused.code().as_str()), (412, "precondition_failed"));
    }
    let gone = "/views/processes/snap/nobody";
    assert_eq!(scene.get(gone, &[]).await.status, 404);
    // What would be refused without conditions is refused as that (RFC 9110, 13.2.1).
    for condition in ["if-match", "if-none-match"] {
        for tags in ["*", tag.as_str()] {
            let missing = scene.get(gone, &[(condition, tags)]).await;
            assert_eq!(missing.status, 404, "{condition}: {tags}");
        }
    }

    scene.publish("dev:1", r#"{"host":"dev","pid":2}"#).await;
    let second = scene.get(path, &[("if-none-match", &tag)]).await;
    assert_eq!(second.status, 200);
    assert_ne!(header(&second, "etag"), tag);
    let counted = scene.get("/views/counts/snap/dev", &[]).await;
    assert!(counted.body.ends_with("\"value\":3}"), "{}", counted.body);
    assert_eq!(header(&counted, "cache-control"), "no-cache");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_documents_are_compressed_for_those_who_ask() {
    let scene = Scene::new().await;
    let text = "x".repeat(5_000);
    scene.publish("big", &format!(r#"{{"host":"{text}"}}"#)).await;
    let path = "/views/processes/snap/big";
    let plain = scene.get(path, &[]).await;
    let packed = scene.get(path, &[("accept-encoding", "br, gzip")]).await;
    assert_eq!(header(&packed, "content-encoding"), "gzip");
    let length: usize = header(&packed, "content-length").parse().unwrap();
    assert!(length < 500, "{length}");
    let (tag, packed_tag) = (header(&plain, "etag"), header(&packed, "etag"));
    assert_ne!(tag, packed_tag, "another representation");
    let again = [("accept-encoding", "gzip"), ("if-none-match", packed_tag.as_str())];
    assert_eq!(scene.get(path, &again).await.status, 304);
    assert_eq!(header(&scene.get(path, &[("accept-encoding", "gzip;q=0")]).await, "etag"), tag);
}

/// Everything that makes no sense is refused, with what would.
#[tokio::test(flavor = "multi_thread")]
async fn bad_questions_are_refused_with_what_is_allowed() {
    let scene = Scene::new().await;
    scene.publish("a", r#"{"host":"dev","pid":1}"#).await;
    let other = NewEvent::new(
        EventId::generate(),
        Timestamp::from_millis(1),
        Topic::new("other").unwrap(),
        Payload::of(&1).unwrap(),
    );
    scene.server.bus.publish(other).await.unwrap();
    for (path, allowed) in [
        ("/views/nothing/snap/a", "processes"),
        ("/views/nothing/list", "counts"),
        ("/views/$where/snap/a", "processes"),
        ("/views/processes/list?nothing=1", "host, pid, busy"),
        ("/views/processes/list?$where=1", "host, pid, busy"),
        ("/views/processes/list?host[$ne]=1", "host, pid, busy"),
        ("/views/processes/list?pid.$gt=1", "eq, ne, lt, le, gt, ge"),
        ("/views/processes/list?pid.like=1", "eq, ne, lt, le, gt, ge"),
        ("/views/processes/list?pid=abc", "a whole number"),
        ("/views/processes/list?pid=1.5", "a whole number"),
        ("/views/processes/list?busy=yes", "true or false"),
        ("/views/processes/list?sort=nothing", "host, pid, busy"),
        ("/views/processes/list?limit=0", "1 to 1000"),
        ("/views/processes/list?limit=1001", "1 to 1000"),
        ("/views/processes/list?page=nonsense", "begin with the first page"),
        ("/views/processes/snap/a?at=soon", "yesterday 14:00"),
        ("/views/processes/snap/a?at=a/b/c", "topic/partition/offset"),
        ("/views/processes/snap/a?at=other/0/1", "process.state"),
        ("/views/processes/snap/a?at=process.state/7/1", "partition 0"),
        ("/views/processes/snap/a?by=guess&at=now", "append"),
        ("/views/processes/snap/a?version=x", "version"),
        ("/views/processes/snap/a?min_position=x", "topic/partition/offset"),
        ("/views/processes/snap/a?min_position=none/0/0", "no topic none"),
        ("/views/processes/snap/a?min_position=other/0/0", "does not read other/0/0"),
        ("/views/processes/snap/a?min_position=process.state/7/0", "does not read"),
        ("/views/processes/list?min_position=other/0/0", "does not read other/0/0"),
        ("/views/processes/at?at=process.state/0/0", "of one key also a position"),
        ("/views/processes/snap/a?wait_ms=99999999", "30000"),
        ("/views/processes/snap/a?watch=0", "1 to 60"),
        ("/views/processes/snap/a?at=now&watch=1", "at or watch"),
        ("/views/processes/snap/a?$gt=1", "at, by"),
        ("/views/processes/diff/a", "from"),
        ("/views/processes/diff/a?from=never", "epoch seconds or milliseconds"),
        ("/views/processes/why/a?pointer=status", "/status"),
        ("/views/processes/at/a?reduce=paylod.n", "state, payload"),
        ("/views/counts/history/dev", "keys of their events"),
        ("/views/processes/at?at=x", "15m"),
        ("/trace/nonsense", "UUID"),
    ] {
        let path = path.replace('$', "%24").replace('[', "%5B").replace(']', "%5D");
        let refused = scene.get(&path, &[]).await;
        assert_eq!(refused.status, 400, "{path}: {}", refused.body);
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(allowed), "{path}: {detail}");
    }
    // A form that is not there is not made up.
    let unknown = scene.get("/views/processes/snap/a?version=7", &[]).await;
    assert_eq!(unknown.status, 404, "{}", unknown.body);
    assert!(unknown.body.contains("process.state has no schemas"), "{}", unknown.body);
    let long = format!("/views/processes/list?host={}", "x".repeat(2_000));
    assert_eq!(scene.get(&long, &[]).await.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_filtered_sorted_and_paged() {
    let scene = Scene::new().await;
    for n in 0..25 {
        let host = ["a", "b"][n % 2];
        let payload = format!(r#"{{"host":"{host}","pid":{n},"busy":{}}}"#, n > 20);
        scene.publish(&format!("k{n:02}"), &payload).await;
    }
    let keys = |answer: &Answer| -> Vec<String> {
        let page = answer.json();
        let documents = page["documents"].as_array().unwrap();
        documents.iter().map(|d| d["_key"].as_str().unwrap().to_owned()).collect()
    };
    let found = scene.get("/views/processes/list?host=a&pid.ge=10&sort=-pid&limit=4", &[]).await;
    assert_eq!(keys(&found), ["k24", "k22", "k20", "k18"]);
    let next = found.json()["next"].as_str().unwrap().to_owned();
    let path = format!("/views/processes/list?host=a&pid.ge=10&sort=-pid&limit=4&page={next}");
    let rest = scene.get(&path, &[]).await;
    assert_eq!(keys(&rest), ["k16", "k14", "k12", "k10"]);
    assert!(rest.json()["next"].is_null());
    let other = format!("/views/processes/list?host=b&page={next}");
    assert_eq!(scene.get(&other, &[]).await.status, 400, "the token of another query");
    assert_eq!(keys(&scene.get("/views/processes/list?busy=true", &[]).await).len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_past_of_a_key() {
    let scene = Scene::new().await;
    scene.publish("a", r#"{"host":"dev","pid":1,"status":"up"}"#).await;
    let second = scene.publish("a", r#"{"host":"dev","pid":1,"status":"down"}"#).await;
    scene.publish("b", r#"{"host":"dev"}"#).await;
    let third = scene.publish("a", "null").await;
    let at = |position: &str| format!("/views/processes/snap/a?at={position}");
    let then = scene.get(&at(&second), &[]).await;
    assert_eq!((then.status, then.json()["status"].as_str()), (200, Some("down")));
    assert!(!header(&then, "etag").is_empty());
    let gone = scene.get(&at(&third), &[]).await;
    assert_eq!((gone.status, gone.json()["past"]["outcome"].as_str()), (404, Some("deleted")));
    let never = scene.get("/views/processes/snap/c?at=now", &[]).await;
    assert_eq!(never.json()["past"]["outcome"], "never_existed");
    let explained = scene.get("/views/processes/at/a?at=now", &[]).await.json();
    assert_eq!(explained["outcome"], "deleted");
    assert_eq!(explained["events"][0]["position"], third);

    // Times as people write them, as `prom at` takes them.
    for earlier in ["1h%20ago", "-15m", "yesterday%2000:00"] {
        let earlier = scene.get(&at(earlier), &[]).await;
        assert_eq!(earlier.json()["past"]["outcome"], "never_existed", "{}", earlier.body);
    }
    let diff = "/views/processes/diff/b?from=1%20hour%20ago&to=now";
    assert_eq!(scene.get(diff, &[]).await.json()["patch"][0]["value"]["host"], "dev");
    let past = scene.get("/views/processes/at?at=1h%20ago", &[]).await;
    assert!(past.body.starts_with(r#"{"end":"#), "{}", past.body);

    let path = "/views/processes/diff/a?from=process.state/0/0&to=process.state/0/1";
    let diff = scene.get(path, &[]).await.json();
    assert_eq!(diff["patch"][0]["path"], "/status");
    assert_eq!(
        (&diff["patch"][0]["was"], &diff["patch"][0]["value"]),
        (&json!("up"), &json!("down"))
    );
    assert_eq!(diff["patch"][0]["event"]["position"], second);
    let why = format!("/views/processes/why/a?pointer=/status&at={second}");
    let why = scene.get(&why, &[]).await.json();
    assert_eq!(why["members"][0]["event"]["position"], second);
    let history = scene.get("/views/processes/history/a", &[]).await.json();
    let effects: Vec<&str> = history["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| step["effect"].as_str().unwrap())
        .collect();
    assert_eq!(effects, ["delete", "put", "put"]);
    let reduced = "/views/processes/at/b?reduce=payload.host%2B%27!%27";
    let reduced = scene.get(reduced, &[]).await.json();
    assert_eq!((&reduced["document"], &reduced["folded"]), (&json!("dev!"), &json!(1)));
    // All that it was folded from is told.
    let counted = "/views/processes/at/a?at=process.state/0/1&reduce=state%3D%3Dnull?1:state%2B1";
    let counted = scene.get(counted, &[]).await.json();
    assert_eq!((&counted["document"], &counted["folded"]), (&json!(2), &json!(2)));
    assert_eq!(counted["events"][1]["position"], second);

    let all = scene.get("/views/processes/at?at=now", &[]).await;
    let lines: Vec<&str> = all.body.lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].contains("\"_key\":\"b\""));
    assert_eq!(lines[1], r#"{"end":{"before_history":0,"complete":true,"documents":1}}"#);
    // A view in Rust is folded from the log.
    let counts = scene.get("/views/counts/at?at=now", &[]).await;
    assert!(counts.body.contains("\"_key\":\"dev\"") && counts.body.contains("\"value\":3"));
    let one = scene.get("/views/counts/snap/dev?at=now", &[]).await;
    assert!(one.body.ends_with("\"value\":3}"), "{}", one.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_reads_ones_own_writes_and_waits_for_others() {
    let scene = Scene::new().await;
    let position = scene.publish("a", r#"{"pid":1}"#).await;
    let path = format!("/views/processes/snap/a?min_position={position}");
    let tag = header(&scene.get(&path, &[]).await, "etag");
    let later = "/views/processes/snap/a?min_position=process.state/0/9&wait_ms=50";
    let behind = scene.get(later, &[]).await;
    assert_eq!((behind.status, behind.code().as_str()), (503, "not_ready"));

    let unchanged = scene.get("/views/processes/snap/a?watch=1", &[("if-none-match", &tag)]).await;
    assert_eq!(unchanged.status, 304);
    let known = [("if-none-match", tag.as_str())];
    let waiting = scene.get("/views/processes/snap/a?watch=30", &known);
    let changing = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        scene.publish("a", r#"{"pid":2}"#).await;
    };
    let (changed, ()) = tokio::join!(waiting, changing);
    assert_eq!((changed.status, changed.json()["pid"].as_u64()), (200, Some(2)));

    let mut stream = tokio::net::TcpStream::connect(scene.server.at).await.unwrap();
    let request = format!(
        "GET /views/processes/snap/a HTTP/1.1\r\nhost: {}\r\naccept: text/event-stream\r\n\r\n",
        scene.server.at
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut heard = String::new();
    let mut until = async |wanted: &str| {
        let reading = async {
            while !heard.contains(wanted) {
                let mut piece = [0; 4096];
                let read = stream.read(&mut piece).await.unwrap();
                assert!(read > 0, "{heard}");
                heard.push_str(&String::from_utf8_lossy(&piece[..read]));
            }
        };
        tokio::time::timeout(Duration::from_secs(20), reading).await.unwrap();
    };
    until("\"pid\":2}").await;
    scene.publish("a", r#"{"pid":3}"#).await;
    until("\"pid\":3}").await;
    scene.publish("a", "null").await;
    until("event: deleted").await;

    // One who comes back is not told again what he knows.
    let mut stream = tokio::net::TcpStream::connect(scene.server.at).await.unwrap();
    let again = request.replacen("accept:", "last-event-id: none\r\naccept:", 1);
    stream.write_all(again.as_bytes()).await.unwrap();
    let mut heard = String::new();
    while !heard.contains("\"pid\":4}") {
        if heard.contains("\r\n\r\n") && !heard.contains("event:") {
            scene.publish("a", r#"{"pid":4}"#).await;
        }
        let mut piece = [0; 4096];
        let reading = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut piece));
        let read = reading.await.unwrap().unwrap();
        assert!(read > 0, "{heard}");
        heard.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
    assert!(!heard.contains("deleted"), "{heard}");
}

#[tokio::test(flavor = "multi_thread")]
async fn views_are_shown_built_anew_and_checked() {
    let scene = Scene::new().await;
    scene.publish("a", r#"{"host":"h","pid":1}"#).await;
    let all = scene.get("/views", &[]).await.json();
    let names: Vec<&str> =
        all["views"].as_array().unwrap().iter().map(|v| v["view"].as_str().unwrap()).collect();
    assert_eq!(names, ["counts", "processes"]);
    let one = scene.get("/views/processes", &[]).await.json();
    assert_eq!(
        (&one["state"], &one["lag"], &one["events"]),
        (&json!("running"), &json!(0), &json!(1))
    );
    for verb in ["rebuild", "verify", "warm", "resume"] {
        let done = scene.server.post(&format!("/views/processes/{verb}"), "").await;
        assert_eq!(done.status, 200, "{verb}: {}", done.body);
        if verb == "verify" {
            assert_eq!(
                (&done.json()["documents"], &done.json()["different"]),
                (&json!(1), &json!(0))
            );
        }
    }
    let metrics = scene.get("/metrics", &[]).await.body;
    assert!(metrics.contains("promethean_projection_failed{projection=\"processes\"} 0"));
    assert!(metrics.contains("promethean_projection_lag_events{projection=\"counts\"} 0"));
    assert!(metrics.contains("promethean_projection_events_total{projection=\"counts\"} 1"));
}

/// A projection that fails stops itself alone, visibly, and goes on after a fix.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_view_is_seen_and_goes_on_after_a_fix() {
    let scene = Scene::new().await;
    scene.publish("a", r#"{"host":"h","pid":1}"#).await;
    // Somebody has moved its table away.
    let tool = rusqlite::Connection::open(scene.folder.path().join("state.db")).unwrap();
    tool.busy_timeout(Duration::from_secs(5)).unwrap();
    tool.execute_batch("ALTER TABLE processes RENAME TO moved").unwrap();
    let payload = Payload::of(&json!({"host": "h", "pid": 2})).unwrap();
    let topic = Topic::new(TOPIC).unwrap();
    let event = NewEvent::new(EventId::generate(), Timestamp::from_millis(1), topic, payload);
    scene.server.bus.publish(event.with_key(Key::new("b").unwrap())).await.unwrap();
    let until = async |state: &str| {
        let looking = async {
            loop {
                let one = scene.get("/views/processes", &[]).await.json();
                if one["state"] == state {
                    return one;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), looking).await.unwrap()
    };
    let failed = until("failed").await;
    assert!(failed["error"].as_str().unwrap().contains("processes"), "{failed}");
    let ready = scene.get("/readyz?verbose", &[]).await;
    assert_eq!(ready.status, 200, "the rest goes on");
    assert_eq!(ready.json()["failed_views"][0]["projection"], "processes");
    let metrics = scene.get("/metrics", &[]).await.body;
    assert!(metrics.contains("promethean_projection_failed{projection=\"processes\"} 1"));
    let counts = scene.views.keeper("counts").unwrap();
    counts.caught_up().await.unwrap();
    assert!(scene.get("/views/counts/snap/h", &[]).await.body.ends_with("\"value\":2}"));

    tool.execute_batch("ALTER TABLE moved RENAME TO processes").unwrap();
    assert_eq!(scene.server.post("/views/processes/resume", "").await.status, 200);
    until("running").await;
    scene.views.keeper("processes").unwrap().caught_up().await.unwrap();
    assert_eq!(scene.get("/views/processes/snap/b", &[]).await.json()["pid"], 2);
    assert_eq!(scene.server.post("/views/processes/verify", "").await.json()["different"], 0);
}

/// A topic is removed under a view: that view has failed, and is shown as that among the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_view_whose_topic_is_gone_is_shown_as_failed() {
    let scene = Scene::new().await;
    scene.publish("a", r#"{"host":"h","pid":1}"#).await;
    scene.server.bus.remove_topic(&Topic::new(TOPIC).unwrap()).await.unwrap();
    let shown = scene.get("/views", &[]).await;
    assert_eq!(shown.status, 200, "{}", shown.body);
    // Another topic of the same name is not what the view was made of, and it says so.
    let payload = Payload::of(&json!({"host": "h", "pid": 2})).unwrap();
    let topic = Topic::new(TOPIC).unwrap();
    let event = NewEvent::new(EventId::generate(), Timestamp::from_millis(1), topic, payload);
    scene.server.bus.publish(event.with_key(Key::new("a").unwrap())).await.unwrap();
    let projection = scene.views.keeper("processes").unwrap();
    let mut progress = projection.watch();
    let failing = progress.wait_for(|p| matches!(p.state, ProjectionState::Failed { .. }));
    tokio::time::timeout(Duration::from_secs(20), failing).await.unwrap().unwrap();
    let shown = scene.get("/views", &[]).await;
    assert_eq!(shown.status, 200, "{}", shown.body);
    let one = scene.get("/views/processes", &[]).await.json();
    assert_eq!(one["state"], "failed");
    assert!(one["error"].as_str().unwrap().contains("build them anew"), "{one}");
    let metrics = scene.get("/metrics", &[]).await.body;
    assert!(metrics.contains("promethean_projection_failed{projection=\"processes\"} 1"));
    let rebuilt = scene.server.post("/views/processes/rebuild", "").await;
    assert_eq!(rebuilt.status, 200, "{}", rebuilt.body);
    assert_eq!(scene.get("/views/processes/snap/a", &[]).await.json()["pid"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn causes_are_followed_in_both_directions() {
    let scene = Scene::new().await;
    let bus = &scene.server.bus;
    let publish = async |topic: &str, causes: Vec<EventId>| {
        let topic = Topic::new(topic).unwrap();
        let mut event = NewEvent::new(
            EventId::generate(),
            Timestamp::from_millis(1),
            topic,
            Payload::of(&1).unwrap(),
        );
        event.caused_by = causes;
        bus.publish(event).await.unwrap().id
    };
    let a = publish("one", vec![]).await;
    let b = publish("two", vec![a]).await;
    let c = publish("three", vec![b]).await;
    let trace = scene.get(&format!("/trace/{b}"), &[]).await.json();
    let seen: Vec<(String, i64)> = trace["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| (e["id"].as_str().unwrap().to_owned(), e["depth"].as_i64().unwrap()))
        .collect();
    assert_eq!(seen, [(a.to_string(), -1), (b.to_string(), 0), (c.to_string(), 1)]);
    let up = scene.get(&format!("/trace/{b}?direction=up"), &[]).await.json();
    assert_eq!(up["events"].as_array().unwrap().len(), 2);
    assert_eq!(scene.get(&format!("/trace/{}", EventId::generate()), &[]).await.status, 404);
}

/// Who may not read a view's topics may not read the view, nor learn that it is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_view_is_for_those_who_may_read_its_topics() {
    let (access, secrets) =
        tokens(&[&["subscribe:process.*"], &["subscribe:other"], &["admin:ops"]]);
    let scene = Scene::with(access).await;
    scene.publish("a", r#"{"host":"h","pid":1}"#).await;
    let get = async |path: &str, who: usize| {
        let bearer = format!("Bearer {}", secrets[who]);
        scene.get(path, &[("authorization", &bearer)]).await
    };
    for path in [
        "/views/processes",
        "/views/processes/snap/a",
        "/snap/a",
        "/views/processes/list",
        "/views/processes/at/a",
        "/views/processes/at",
        "/views/processes/history/a",
        "/views/processes/diff/a?from=0",
        "/views/processes/why/a",
    ] {
        assert_eq!(scene.get(path, &[]).await.status, 401, "{path}");
        assert_eq!(get(path, 0).await.status, 200, "{path}");
        for who in [1, 2] {
            assert_eq!(get(path, who).await.code(), "forbidden", "{path}");
        }
    }
    assert_eq!(get("/views", 1).await.json()["views"], json!([]));
    assert!(!get("/views/nothing", 1).await.body.contains("processes"));
    for verb in ["rebuild", "verify", "warm", "resume"] {
        let path = format!("/views/processes/{verb}");
        let bearer = format!("Bearer {}", secrets[0]);
        let headers = [("authorization", bearer.as_str())];
        assert_eq!(scene.server.send("POST", &path, &headers, b"").await.code(), "forbidden");
    }
}
