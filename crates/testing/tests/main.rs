//! The tests of the notes in their right form, and what can go wrong on purpose.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets what it did not expect should stop there"
)]

mod faults;
mod notes;
mod settling;

use std::sync::{Arc, Mutex};

use promethean::{Bus, Consumer, Start};

#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
struct Beat {
    pid: u32,
    name: String,
    host: String,
}
promethean::topic! {
    Beat => "heartbeat.received",
    key = |beat| format!("{}:{}:{}", beat.host, beat.name, beat.pid)
}

fn beat(pid: u32) -> Beat {
    Beat { pid, name: "stt".into(), host: "local".into() }
}

/// What a consumer has seen: pid and attempt.
type Seen = Arc<Mutex<Vec<(u32, u16)>>>;

/// A consumer that says yes to everything, and remembers.
async fn witness(bus: &Bus, group: &str) -> (Consumer, Seen) {
    let seen = Seen::default();
    let log = Arc::clone(&seen);
    let consumer = bus
        .subscribe::<Beat>(group)
        .from(Start::Earliest)
        .handle(move |delivered| {
            let log = Arc::clone(&log);
            async move {
                log.lock().unwrap().push((delivered.payload()?.pid, delivered.attempt()));
                Ok(())
            }
        })
        .await
        .unwrap();
    (consumer, seen)
}
