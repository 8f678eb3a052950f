//! What the outbox promises, from the outside. Time is virtual: a wait costs nothing and is exact.

mod script;

mod adding;

mod draining;

mod failing;

mod racing;

mod steps;

mod store_target;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use promethean_event::{EventId, Key, NewEvent, Payload, Timestamp};
use promethean_log::Clock;
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{DrainCounters, DrainMeter, DrainOptions, Drainer, Outbox, OutboxStats};
use script::ScriptedStore;

/// The wall clock goes with tokio's, which a test has paused.
#[derive(Debug)]
struct PausedClock(Instant);

fn instant() -> Instant {
    tokio::time::sleep(Duration::ZERO).deadline()
}

impl Clock for PausedClock {
    fn now(&self) -> Timestamp {
        let millis = instant().duration_since(self.0).as_millis() as u64;
        Timestamp::from_millis(1_700_000_000_000 + millis)
    }
}

/// An application with its database.
struct Application {
    connection: Connection,
    path: PathBuf,
    outbox: Outbox,
    _folder: TempDir,
}

impl Application {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.db");
        let connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        connection.busy_timeout(Duration::from_secs(30)).unwrap();
        connection.execute_batch("CREATE TABLE business (number INTEGER)").unwrap();
        let clock = Arc::new(PausedClock(instant()));
        let outbox = Outbox::with_clock(&connection, clock).unwrap();
        Self { connection, path, outbox, _folder: folder }
    }

    /// Commits events in one transaction, with a write of the application's own.
    fn add(&mut self, events: &[NewEvent]) {
        let tx = self.connection.transaction().unwrap();
        for event in events {
            tx.execute("INSERT INTO business VALUES (1)", []).unwrap();
            self.outbox.add(&tx, event).unwrap();
        }
        self.outbox.commit(tx).unwrap();
    }

    fn stats(&self) -> OutboxStats {
        self.outbox.stats(&self.connection).unwrap()
    }

    fn drainer(&self, target: &ScriptedStore, options: DrainOptions) -> Drainer {
        Drainer::new(&self.outbox, self.path.as_path(), target.clone(), options).unwrap()
    }

    fn start(&self, target: &ScriptedStore, options: DrainOptions) -> Running {
        let drainer = self.drainer(target, options);
        let meter = drainer.meter();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(drainer.run(async { drop(stopped.await) }));
        Running { stop, task, meter }
    }

    fn text(&self, sql: &str) -> Option<String> {
        self.connection.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    fn number(&self, sql: &str) -> i64 {
        self.connection.query_row(sql, [], |row| row.get(0)).unwrap()
    }
}

struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<DrainCounters>,
    meter: DrainMeter,
}

impl Running {
    async fn stop(self) -> DrainCounters {
        drop(self.stop);
        self.task.await.unwrap()
    }

    /// As if the process had ended.
    async fn crash(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

/// Options with which virtual hours are not needed.
fn quick() -> DrainOptions {
    DrainOptions {
        lease: Duration::from_secs(3),
        publish_timeout: Duration::from_secs(10),
        backoff_min: Duration::from_millis(10),
        backoff_max: Duration::from_millis(200),
        ..DrainOptions::default()
    }
}

/// Event number `n`, with a key or without.
fn event(n: u32, key: &str) -> NewEvent {
    let mut random = [7; 10];
    random[6..].copy_from_slice(&n.to_be_bytes());
    let event = NewEvent::new(
        EventId::v7(1_700_000_000_000, random),
        Timestamp::from_millis(u64::from(n)),
        "order.placed".parse().unwrap(),
        Payload::of(&n).unwrap(),
    );
    if key.is_empty() { event } else { event.with_key(Key::new(key).unwrap()) }
}

fn number(event: &NewEvent) -> u32 {
    event.payload.decode().unwrap()
}

/// Lets virtual time go on until something holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for looks in 0..20_000 {
        if holds() {
            return;
        }
        // Fine steps for what comes at once, and few for what takes an hour.
        tokio::time::sleep(Duration::from_millis((looks / 20).clamp(1, 500))).await;
    }
    panic!("never: {what}");
}
