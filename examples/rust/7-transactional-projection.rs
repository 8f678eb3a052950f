//! Part 7: Transactional projections: what has happened becomes state, exactly once. One event changes
//! two views and may emit another event; all of it and the cursor are one transaction, so that a counter
//! counts each event once, whatever is stopped or crashes when.
//!
//! `cargo run --example 7-transactional-projection`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use promethean::projection::{Field, Transactional, TransactionalProjection, View, Views};
use promethean::{Bus, Failure, topic};
use serde::{Deserialize, Serialize};

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// A process, as it is now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct ProcessState {
    host: String,
    pid: u32,
    status: String,
}
topic! { ProcessState => "process.state", key = |state| format!("{}:{}", state.host, state.pid) }

/// What is known of a host.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct HostStats {
    seen: u64,
    last_ts: u64,
}

/// Every second event of a host is worth an event of its own.
#[derive(Debug, Serialize, Deserialize)]
struct HostMilestone {
    host: String,
    seen: u64,
}
topic! { HostMilestone => "host.milestone", key = |milestone| milestone.host.clone() }

fn statistics() -> TransactionalProjection {
    Transactional::new("processes-txn")
        .topic("process.state")
        .view(View::new("processes").field(Field::text("status")))
        .view(View::new("host_stats").field(Field::integer("seen")))
        .apply(|tx, event| {
            let Some(key) = event.key.as_ref().map(|key| key.as_str()) else {
                return Err(Failure::park("a process state without a key"));
            };
            // A tombstone says that the process is gone. What cannot be read will never be readable:
            // it becomes a dead letter. Everything else that fails (`?`) is tried again.
            if event.payload.is_tombstone() {
                tx.delete("processes", key)?;
                return Ok(());
            }
            let state: ProcessState = event.payload.decode().map_err(Failure::park)?;
            tx.put("processes", key, &state)?;
            let mut stats: HostStats = tx.read("host_stats", &state.host)?.unwrap_or_default();
            stats.seen += 1;
            stats.last_ts = event.ts.millis();
            tx.put("host_stats", &state.host, &stats)?;
            if stats.seen.is_multiple_of(2) {
                // Its id is made of where the event stands: done again, it adds nothing.
                tx.emit(&HostMilestone { host: state.host, seen: stats.seen })?;
            }
            Ok(())
        })
}

#[tokio::main]
async fn main() -> Outcome {
    run().await
}

pub(crate) async fn run() -> Outcome {
    let folder = tempfile::tempdir()?;
    let bus = Bus::open(folder.path()).await?;
    let state = |pid: u32, status: &str| ProcessState {
        host: "dev".to_owned(),
        pid,
        status: status.to_owned(),
    };

    let views = Views::open(&bus, folder.path().join("state.db")).await?;
    let projection = views.transactional(statistics()).await?;
    bus.publish(&state(1, "alive")).await?;
    bus.publish(&state(2, "alive")).await?;
    projection.caught_up().await?;
    // Stopped here, or killed: what was committed is there, with the cursor that belongs to it.
    views.stop().await;
    drop(views);
    bus.publish(&state(2, "stale")).await?;
    bus.publish(&state(1, "stale")).await?;

    let views = Views::open(&bus, folder.path().join("state.db")).await?;
    let projection = views.transactional(statistics()).await?;
    projection.caught_up().await?;
    let stats = views.get("host_stats", "dev").await?.ok_or("no statistics of dev")?;
    println!("{}", stats.to_json());
    assert_eq!(stats.decode::<HostStats>()?.seen, 4, "each event once");
    let process = views.get("processes", "dev:2").await?.ok_or("no process dev:2")?;
    println!("{}", process.to_json());
    assert_eq!(process.decode::<ProcessState>()?, state(2, "stale"));

    let milestones = bus.history(&"host.milestone".parse()?, "dev".parse()?, 10).await?;
    println!("{} milestones", milestones.len());
    assert_eq!(milestones.len(), 2, "at 2 and at 4, once each");

    // The views are what a fold of the log says, byte for byte, and so are they built anew.
    projection.rebuild().await?;
    assert_eq!(projection.verify().await?.different, 0);
    views.stop().await;
    bus.close().await;
    Ok(())
}
