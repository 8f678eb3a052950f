use std::time::Duration;

use futures_core::future::BoxFuture;
use promethean::{Bus, BusOptions};

/// Makes the buses that the cases try. One factory serves one case.
pub trait BusFactory: Send + Sync {
    /// A new bus over an empty store.
    fn open(&self, options: BusOptions) -> BoxFuture<'_, Bus>;

    /// What is left after the process of the bus that was opened last went down without a word:
    /// what had not become durable is gone, and the old bus can do nothing any more.
    fn reopen(&self, bus: Bus) -> BoxFuture<'_, Bus>;

    /// Whether `reopen` finds what was durable. Cases about restarts are passed over otherwise.
    fn survives_restart(&self) -> bool;

    /// Whether cleaning takes out at once what it may. A store may do so in its own good time.
    fn cleans_at_once(&self) -> bool;

    /// How time goes for this bus.
    fn pace(&self) -> Pace;
}

/// How time goes: virtual time costs nothing and may be generous, real time has to be short.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// The unit of every time in the cases.
    pub tick: Duration,
    /// How long to listen before silence is taken for silence.
    pub quiet: Duration,
    /// How long to wait for what must come.
    pub patience: Duration,
}

impl Pace {
    /// For a bus on tokio's paused clock.
    pub const VIRTUAL: Self = Self {
        tick: Duration::from_secs(1),
        quiet: Duration::from_millis(500),
        patience: Duration::from_secs(3_000),
    };

    /// For a bus that works with threads and files, whose time nobody owns.
    pub const REAL: Self = Self {
        tick: Duration::from_millis(40),
        quiet: Duration::from_millis(20),
        patience: Duration::from_secs(25),
    };

    /// For a bus over a server, where every write is a round trip and more.
    pub const REMOTE: Self = Self {
        tick: Duration::from_millis(600),
        quiet: Duration::from_millis(300),
        patience: Duration::from_secs(120),
    };
}
