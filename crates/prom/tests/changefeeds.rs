//! A collection of MongoDB, fed by a server that is killed in the middle. Needs a replica set:
//! `scripts/mongod -- cargo nextest run -p prom`.

use std::collections::HashSet;

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
    runtime.block_on(async {
        Client::with_uri_str(mongo_url()).await.unwrap().database(&database).drop().await.unwrap();
    });
}
