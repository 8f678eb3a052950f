//! The bus in memory, on tokio's clock.

use std::sync::{Arc, Mutex, PoisonError};

use futures_core::future::BoxFuture;
use promethean::event::Timestamp;
use promethean::memory::MemoryStore;
use promethean::store::Store;
use promethean::{Bus, BusOptions};
use promethean_log::{Clock, SystemClock};
use tokio::time::Instant;

use super::factory::{BusFactory, Pace};
use super::fragile::FragileStore;

/// Makes buses in memory. What a bus "on disk" would find after a crash is what its store holds
/// when the bus is cut off from it.
#[derive(Debug, Default)]
pub struct MemoryBuses {
    current: Mutex<Option<Arc<FragileStore>>>,
}

impl MemoryBuses {
    fn over(&self, inner: Arc<dyn Store>, options: BusOptions) -> Bus {
        let store = Arc::new(FragileStore::lasting(inner));
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Some(Arc::clone(&store));
        Bus::with_store(store, options)
    }
}

impl BusFactory for MemoryBuses {
    fn open(&self, options: BusOptions) -> BoxFuture<'_, Bus> {
        let store = MemoryStore::with_clock(Arc::new(VirtualClock::start()));
        let bus = self.over(Arc::new(store), options);
        Box::pin(async { bus })
    }

    fn reopen(&self, bus: Bus) -> BoxFuture<'_, Bus> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner).take();
        let inner = match current {
            Some(store) => {
                store.cut();
                store.inner()
            }
            None => Arc::clone(bus.store()),
        };
        drop(bus);
        let bus = self.over(inner, BusOptions::default());
        Box::pin(async { bus })
    }

    fn survives_restart(&self) -> bool {
        true
    }

    fn cleans_at_once(&self) -> bool {
        true
    }

    fn pace(&self) -> Pace {
        Pace::VIRTUAL
    }
}

/// Append times by tokio's clock, which a test with paused time owns.
#[derive(Debug)]
struct VirtualClock {
    began: Timestamp,
    started: Instant,
}

impl VirtualClock {
    fn start() -> Self {
        Self { began: SystemClock.now(), started: Instant::now() }
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        let elapsed = self.started.elapsed().as_millis();
        self.began.plus_millis(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }
}
