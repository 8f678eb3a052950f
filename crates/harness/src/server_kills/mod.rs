//! The real server, killed again and again with SIGKILL while clients publish and consume over
//! WebSocket and HTTP.
//!
//! Clients live on. They write down what they do before they rely on it, and after each kill they
//! do what a client has to: connect again, and publish again, with the same id, what was not
//! answered. Afterwards the checker of [`kills`](crate::kills), which knows nothing of the bus, goes
//! through what they have written.

#![expect(clippy::indexing_slicing, reason = "a JSON value answers null to what it has not")]

mod process;

mod socket;

mod http;

mod publisher;

mod consumer;

mod course;

pub use course::{ServerKillOptions, run};

/// Where everything happens.
const TOPIC: &str = "killed.work";
const GROUP: &str = "workers";
const KEYS: u64 = 6;

/// What a client cannot go on with. The end of a connection is none: that is what kills are for.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A server that was reached.
#[derive(Debug, Clone)]
struct Place {
    at: String,
    token: String,
}

/// What an event says.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
struct Work {
    publisher: u32,
    number: u64,
    key: u32,
}

impl Work {
    fn of(publisher: u32, number: u64) -> Self {
        Self { publisher, number, key: (number % KEYS) as u32 }
    }
}
