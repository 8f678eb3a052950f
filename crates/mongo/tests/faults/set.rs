//! Replica sets that fail on demand: `scripts/mongod`, told by lines.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use mongodb::Client;
use mongodb::bson::{Bson, Document, doc};
use promethean::{Bus, BusOptions};
use promethean_mongo::{MongoOptions, MongoStore};

/// How often everything is gone through.
pub(crate) fn rounds() -> u64 {
    std::env::var("PROM_FAULT_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Whether it is `scripts/faults` that goes through it.
fn is_full() -> bool {
    std::env::var_os("PROM_FAULT_ROUNDS").is_some()
}

/// A replica set of its own, which takes orders.
pub(crate) struct Set {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    pub(crate) url: String,
}

impl Set {
    /// For what is not about its members: of three where everything is gone through in full, of one
    /// otherwise.
    pub(crate) fn for_commands() -> Self {
        Self::start(&["--members", if is_full() { "3" } else { "1" }])
    }

    pub(crate) fn start(arguments: &[&str]) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/mongod");
        let mut command = Command::new(script);
        command.args(arguments).arg("--in-memory");
        if !is_full() && !arguments.contains(&"--election-ms") {
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

    pub(crate) fn order(&mut self, order: &str) -> String {
        writeln!(self.orders.as_mut().unwrap(), "{order}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        answer.trim().to_owned()
    }

    /// The number of the primary; there may be none for a while.
    pub(crate) async fn primary(&mut self) -> usize {
        loop {
            if let Ok(number) = self.order("primary").parse() {
                return number;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until nothing of what was done to it before is left.
    pub(crate) async fn whole(&mut self) {
        while self.order("whole") != "yes" {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Connection strings of its members, each by itself.
    pub(crate) fn members(&self) -> Vec<String> {
        let hosts = self.url.strip_prefix("mongodb://").unwrap().split('/').next().unwrap();
        hosts.split(',').map(|host| format!("mongodb://{host}/?directConnection=true")).collect()
    }

    pub(crate) async fn store(&self) -> Arc<MongoStore> {
        let url = self.url.replacen("/?", "/faults?", 1);
        Arc::new(MongoStore::open(&url, MongoOptions::default()).await.unwrap())
    }

    pub(crate) async fn bus(&self) -> Bus {
        Bus::with_store(self.store().await, BusOptions::default())
    }

    /// Lets a command fail, so often, in some way: by the server's fail point.
    pub(crate) async fn fail(&self, command: &str, mode: impl Into<Bson>, how: Document) {
        let mut data = doc! { "failCommands": [command] };
        data.extend(how);
        let order = doc! { "configureFailPoint": "failCommand", "mode": mode.into(), "data": data };
        let client = Client::with_uri_str(&self.url).await.unwrap();
        client.database("admin").run_command(order).await.unwrap();
    }

    pub(crate) async fn step_down(&self) {
        let client = Client::with_uri_str(&self.url).await.unwrap();
        // For no longer than it takes: the next fault needs every member again.
        let command = doc! { "replSetStepDown": 2, "secondaryCatchUpPeriodSecs": 1, "force": true };
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
