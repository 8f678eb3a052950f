//! A collection of MongoDB, fed by a server that is killed in the middle. Needs a replica set:
//! `scripts/mongod -- cargo nextest run -p prom`.

use std::collections::HashSet;

use promethean::changefeed::{Feeds, Gap, Phase};
use promethean_mongo::mongodb::Client;
use promethean_mongo::mongodb::bson::{Document, doc};
use serde_json::Value;
use tempfile::TempDir;

use super::server::Server;
use super::{eventually, json_lines, prom, stderr, stdout};

fn mongo_url() -> String {
    let run = "scripts/mongod -- cargo nextest run -p prom changefeeds";
    std::env::var("PROM_MONGO_URL")
        .unwrap_or_else(|_| panic!("PROM_MONGO_URL is not set: run it as {run}"))
}

fn start(folder: &TempDir) -> Server {
    let manifest = folder.path().join("prom.toml");
    let data = folder.path().join("data");
    Server::start(&[
        "serve",
        "--config",
        manifest.to_str().unwrap(),
        "--data",
        data.to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
        "--insecure-no-auth",
    ])
}

fn feed(server: &Server) -> Value {
    let listed = prom(&["changefeed", "ls", "--json", "--url", &server.url()]);
    assert!(listed.status.success(), "{}", stderr(&listed));
    serde_json::from_str::<Value>(&stdout(&listed)).unwrap()["changefeeds"][0].clone()
}

fn events(server: &Server) -> Vec<Value> {
    json_lines(&["export", "processes.changed", "--url", &server.url()])
}

fn insert(runtime: &tokio::runtime::Runtime, database: &str, numbers: std::ops::Range<i32>) {
    runtime.block_on(async {
        let client = Client::with_uri_str(mongo_url()).await.unwrap();
        let processes = client.database(database).collection::<Document>("processes");
        processes.insert_many(numbers.map(|n| doc! { "_id": n, "host": "dev" })).await.unwrap();
    });
}

/// A server without a manifest, on a folder.
fn start_bare(folder: &TempDir) -> Server {
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    Server::start(&["serve", "--data", data, "--listen", "127.0.0.1:0", "--insecure-no-auth"])
}

fn drop_database(runtime: &tokio::runtime::Runtime, database: &str) {
    runtime.block_on(async {
        Client::with_uri_str(mongo_url()).await.unwrap().database(database).drop().await.unwrap();
    });
}

/// Has the feed of a stopped server be as one whose history is lost. A server that is as young as
/// this one has forgotten nothing yet.
fn lose(runtime: &tokio::runtime::Runtime, folder: &TempDir) {
    runtime.block_on(async {
        let bus = promethean::Bus::open(folder.path().join("data")).await.unwrap();
        let feeds = Feeds::new(bus.store());
        let mut status = feeds.status("processes").await.unwrap().unwrap();
        let gap = Gap { from: status.value.reached, to: None };
        status.value.phase = Phase::Lost { gap, run: 0 };
        feeds.save("processes", &status.value, status.version).await.unwrap();
        bus.close().await;
    });
}

/// Lost history, from the command that adds the feed to the one that says how to go on.
#[test]
fn a_feed_is_added_lost_and_recovered_by_command() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let database = format!("test-{}", promethean_event::EventId::generate());
    let (folder, url) = (tempfile::tempdir().unwrap(), mongo_url());
    let collection = format!("{database}.processes");
    insert(&runtime, &database, 0..3);
    let server = start_bare(&folder);
    let run = |server: &Server, arguments: &[&str]| {
        prom(&[arguments, &["--url", &server.url()]].concat())
    };
    let to = ["--collection", &collection, "--topic", "processes.changed"];
    let add = [&["changefeed", "add", "processes", "--mongo", &url], &to[..]].concat();
    let added = run(&server, &add);
    assert!(added.status.success(), "{}", stderr(&added));
    eventually(|| feed(&server)["status"]["phase"]["phase"] == "stream");
    assert_eq!(events(&server).len(), 3);

    // What is not lost is not recovered, whoever asks.
    let recover = ["changefeed", "resume", "processes", "--recover", "accept-gap"];
    let refused = run(&server, &recover);
    assert_eq!(refused.status.code(), Some(6), "{}", stdout(&refused));
    assert!(stderr(&refused).contains("not lost"), "{}", stderr(&refused));
    let refused = server.post("/changefeeds/processes/resume?recover=accept-gap", "none", "");
    assert!(refused.starts_with("HTTP/1.1 409") && refused.contains("not lost"), "{refused}");

    assert_eq!(server.stop(), Some(0));
    lose(&runtime, &folder);
    // This is what will be missing: where nothing has happened there is no gap.
    insert(&runtime, &database, 3..4);
    let server = start_bare(&folder);
    assert_eq!(feed(&server)["status"]["phase"]["phase"], "lost");
    assert!(stdout(&run(&server, &["changefeed", "ls", "--text"])).contains("history lost"));
    let refused = run(&server, &["changefeed", "resume", "processes"]);
    assert_eq!(refused.status.code(), Some(6), "{}", stdout(&refused));
    assert!(stderr(&refused).contains("--recover"), "{}", stderr(&refused));
    let recovered = run(&server, &recover);
    assert!(recovered.status.success(), "{}", stderr(&recovered));
    eventually(|| feed(&server)["status"]["phase"]["phase"] == "stream");
    assert!(feed(&server)["status"]["gap"].is_object(), "the gap is stated");
    insert(&runtime, &database, 4..5);
    eventually(|| events(&server).len() == 4);
    assert_eq!(server.stop(), Some(0));
    drop_database(&runtime, &database);
}

/// It was `new` for ever, and only the log knew why.
#[test]
fn a_feed_that_is_refused_says_so_in_the_list() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_bare(&folder);
    let stranger = mongo_url().replacen("mongodb://", "mongodb://nobody:wrong@", 1);
    let at = server.url();
    let of = ["--collection", "shop.processes", "--topic", "processes.changed", "--url", &at];
    let add = [&["changefeed", "add", "processes", "--mongo", &stranger], &of[..]].concat();
    assert!(prom(&add).status.success());
    let listed = || stdout(&prom(&["changefeed", "ls", "--text", "--url", &at]));
    eventually(|| listed().contains("waiting (new)"));
    assert!(listed().to_lowercase().contains("auth"), "{}", listed());
    assert_eq!(server.stop(), Some(0));
}

/// Everything once more, by command; and what can never work is refused before it is added.
#[test]
fn a_feed_is_examined_and_publishes_everything_once_more_by_command() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let database = format!("test-{}", promethean_event::EventId::generate());
    let (folder, url) = (tempfile::tempdir().unwrap(), mongo_url());
    insert(&runtime, &database, 0..3);
    let server = start_bare(&folder);
    let at = server.url();
    let add = |name: &str, collection: &str| {
        let collection = format!("{database}.{collection}");
        let from = ["changefeed", "add", name, "--mongo", &url, "--collection", &collection];
        let to = ["--topic", "processes.changed", "--json", "--url", &at];
        prom(&[&from[..], &to].concat())
    };
    let added = add("processes", "processes");
    assert!(added.status.success(), "{}", stderr(&added));
    let added: Value = serde_json::from_str(&stdout(&added)).unwrap();
    // The replica set is as young as this test.
    assert_eq!(added["warnings"][0]["check"], "oplog", "{added}");
    eventually(|| feed(&server)["status"]["phase"]["phase"] == "stream");
    assert_eq!(events(&server).len(), 3);
    let resume = ["changefeed", "resume", "processes", "--recover", "resnapshot", "--url", &at];
    let resumed = prom(&resume);
    assert!(resumed.status.success(), "{}", stderr(&resumed));
    eventually(|| events(&server).len() == 6);
    // A collection of Promethean's own.
    runtime.block_on(async {
        let client = Client::with_uri_str(mongo_url()).await.unwrap();
        promethean_mongo::outbox::MongoOutbox::install(&client.database(&database)).await.unwrap();
    });
    let refused = add("own", "outbox");
    assert!(!refused.status.success(), "{}", stdout(&refused));
    assert!(stderr(&refused).contains("would never end"), "{}", stderr(&refused));
    assert_eq!(prom(&["changefeed", "pause", "own", "--url", &at]).status.code(), Some(4));
    assert_eq!(server.stop(), Some(0));
    drop_database(&runtime, &database);
}

/// Ids of others are no UUIDs: what they caused still names them.
#[test]
fn a_collection_of_events_is_imported_with_its_causes() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let database = format!("test-{}", promethean_event::EventId::generate());
    runtime.block_on(async {
        let client = Client::with_uri_str(mongo_url()).await.unwrap();
        let events = client.database(&database).collection::<Document>("events");
        let old = [
            doc! { "id": "e-2", "ts": 2_i64, "topic": "shop.orders", "caused_by": ["e-1"],
            "sid": "s-1", "headers": { "x-attempt": 3 }, "payload": { "n": 2 } },
            doc! { "id": "e-1", "ts": 1_i64, "topic": "shop.carts", "payload": { "n": 1 } },
        ];
        events.insert_many(old).await.unwrap();
    });
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (data, url) = (data.to_str().unwrap(), mongo_url());
    let collection = format!("{database}.events");
    let import = ["import", &url, "--collection", &collection, "--data", data];
    let imported = json_lines(&import);
    assert_eq!((&imported[0]["added"], &imported[0]["duplicates"]), (&2.into(), &0.into()));
    let again = json_lines(&import);
    assert_eq!((&again[0]["added"], &again[0]["duplicates"]), (&0.into(), &2.into()));
    let carts = json_lines(&["export", "shop.carts", "--data", data]);
    let orders = json_lines(&["export", "shop.orders", "--data", data]);
    assert_eq!(orders[0]["caused_by"][0], carts[0]["id"]);
    assert_eq!(orders[0]["headers"]["x-attempt"], "3");
    assert!(orders[0]["sid"].is_string());
    assert_eq!(orders[0]["payload"]["n"], 2);
    drop_database(&runtime, &database);
}

#[test]
fn a_collection_is_fed_through_a_kill_and_the_counts_are_right() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let database = format!("test-{}", promethean_event::EventId::generate());
    let folder = tempfile::tempdir().unwrap();
    let manifest = format!(
        "version = 1\n[changefeeds.processes]\nurl = \"{}\"\ncollection = \"{database}.processes\"\n\
         topic = \"processes.changed\"\n",
        mongo_url()
    );
    std::fs::write(folder.path().join("prom.toml"), manifest).unwrap();
    insert(&runtime, &database, 0..200);
    let server = start(&folder);
    eventually(|| feed(&server)["status"]["phase"]["phase"] == "stream");
    insert(&runtime, &database, 200..2_000);
    // Killed while they come.
    eventually(|| events(&server).len() > 200);
    drop(server);
    insert(&runtime, &database, 2_000..2_100);
    let server = start(&folder);
    eventually(|| events(&server).len() >= 2_100);
    let all = events(&server);
    let keys: HashSet<_> = all.iter().map(|event| event["key"].to_string()).collect();
    assert_eq!((all.len(), keys.len()), (2_100, 2_100), "each document once");

    let at = ["--url", &server.url()];
    let run = |arguments: &[&str]| prom(&[arguments, &at].concat());
    assert!(run(&["changefeed", "pause", "processes"]).status.success());
    assert_eq!(feed(&server)["paused"], true);
    assert!(run(&["changefeed", "resume", "processes"]).status.success());
    assert!(stdout(&run(&["changefeed", "ls", "--text"])).contains("processes.changed"));
    assert_eq!(run(&["changefeed", "pause", "nobody"]).status.code(), Some(4));
    assert!(run(&["changefeed", "rm", "processes"]).status.success());
    assert_eq!(server.stop(), Some(0));
    drop_database(&runtime, &database);
}

/// One document stops a feed: the list says why and how to go on, and the command goes on past it.
#[test]
fn a_feed_that_one_change_has_stopped_goes_on_past_it_by_command() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let database = format!("test-{}", promethean_event::EventId::generate());
    let (folder, url) = (tempfile::tempdir().unwrap(), mongo_url());
    let collection = format!("{database}.processes");
    insert(&runtime, &database, 0..3);
    let server = start_bare(&folder);
    let at = server.url();
    // Nothing can be divided by zero.
    let how = ["--map", "{'n': 6 / document._id}", "--topic", "processes.changed", "--url", &at];
    let of = ["changefeed", "add", "processes", "--mongo", &url, "--collection", &collection];
    let added = prom(&[&of[..], &how].concat());
    assert!(added.status.success(), "{}", stderr(&added));
    let listed = || stdout(&prom(&["changefeed", "ls", "--text", "--url", &at]));
    let skip = "prom changefeed resume processes --recover skip";
    eventually(|| listed().contains(skip));
    assert!(listed().contains("stopped"), "{}", listed());
    let resume = ["changefeed", "resume", "processes", "--recover", "skip", "--url", &at];
    let resumed = prom(&resume);
    assert!(resumed.status.success(), "{}", stderr(&resumed));
    eventually(|| feed(&server)["status"]["phase"]["phase"] == "stream");
    assert_eq!(events(&server).len(), 2);
    assert!(listed().contains("passed over, as ordered"), "{}", listed());
    let refused = prom(&resume);
    assert_eq!(refused.status.code(), Some(6), "{}", stdout(&refused));
    assert!(stderr(&refused).contains("none to pass over"), "{}", stderr(&refused));
    assert_eq!(server.stop(), Some(0));
    drop_database(&runtime, &database);
}
