//! Where the stores of a suite come from.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_core::future::BoxFuture;
use promethean::embedded::{EmbeddedOptions, EmbeddedStore};
use promethean::memory::MemoryStore;
use promethean::store::Store;
use promethean_log::Options;

use super::check::Check;
use crate::log_simulation::{CrashStyle, NameFate, SimClock, SimDisk};

/// Makes stores, one place for each factory.
pub trait StoreFactory: fmt::Debug + Send + Sync {
    /// A new, empty store.
    fn open(&self) -> BoxFuture<'_, Check<Arc<dyn Store>>>;

    /// The same store after it ended; `None` if this kind of store does not survive that.
    fn reopen(
        &self,
        store: Arc<dyn Store>,
        ending: Ending,
    ) -> BoxFuture<'_, Check<Option<Arc<dyn Store>>>>;

    /// Another way to the same store, as a further hub has it. Only for stores that several can use.
    fn beside(&self, store: &Arc<dyn Store>) -> BoxFuture<'_, Check<Arc<dyn Store>>> {
        Box::pin(std::future::ready(Ok(Arc::clone(store))))
    }

    /// Waits until a time has passed for hubs, which is that of the store.
    fn wait(&self, time: Duration) -> BoxFuture<'_, ()> {
        self.pass(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        Box::pin(std::future::ready(()))
    }

    /// Lets time pass for the stores; false if it cannot.
    fn pass(&self, millis: u64) -> bool;
}

/// How a store ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It is closed.
    Closed,
    /// The power goes.
    Crashed,
}

/// When the clocks of all stores start.
const START_MS: u64 = 1_700_000_000_000;

/// Stores in memory.
#[derive(Debug)]
pub struct MemoryFactory(SimClock);

impl Default for MemoryFactory {
    fn default() -> Self {
        Self(SimClock::at(START_MS))
    }
}

impl StoreFactory for MemoryFactory {
    fn open(&self) -> BoxFuture<'_, Check<Arc<dyn Store>>> {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::shared(Arc::new(self.0.clone())));
        Box::pin(std::future::ready(Ok(store)))
    }

    fn reopen(
        &self,
        _store: Arc<dyn Store>,
        _ending: Ending,
    ) -> BoxFuture<'_, Check<Option<Arc<dyn Store>>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn pass(&self, millis: u64) -> bool {
        self.0.advance(millis);
        true
    }
}

/// Embedded stores on a simulated disk, which can lose its power. Segments are small, so that
/// little is enough to fill several, and checkpoints are frequent.
#[derive(Debug)]
pub struct EmbeddedFactory {
    clock: SimClock,
    disk: Mutex<SimDisk>,
    seed: u64,
    checkpoint_records: u64,
}

impl EmbeddedFactory {
    /// With a disk whose luck comes from a seed.
    pub fn new(seed: u64) -> Self {
        let disk = Mutex::new(SimDisk::new(seed));
        Self { clock: SimClock::at(START_MS), disk, seed, checkpoint_records: 1 + seed % 7 }
    }

    /// The disk.
    pub fn disk(&self) -> SimDisk {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn start(&self, disk: &SimDisk) -> Check<Arc<dyn Store>> {
        let log = Options {
            segment_bytes_min: 4096,
            segment_bytes_max: 16 * 1024,
            tail_bytes: 16 * 1024,
            free_bytes_min: 0,
            clock: Arc::new(self.clock.clone()),
            ..Options::default()
        };
        let checkpoint_records = self.checkpoint_records;
        let options = EmbeddedOptions { log, checkpoint_records, ..EmbeddedOptions::default() };
        let (store, _) = EmbeddedStore::open_on(Arc::new(disk.attach()), options)?;
        Ok(Arc::new(store))
    }
}

impl StoreFactory for EmbeddedFactory {
    fn open(&self) -> BoxFuture<'_, Check<Arc<dyn Store>>> {
        let disk = SimDisk::new(self.seed);
        let store = self.start(&disk);
        *self.disk.lock().unwrap_or_else(PoisonError::into_inner) = disk;
        Box::pin(std::future::ready(store))
    }

    fn reopen(
        &self,
        store: Arc<dyn Store>,
        ending: Ending,
    ) -> BoxFuture<'_, Check<Option<Arc<dyn Store>>>> {
        Box::pin(async move {
            let disk = self.disk();
            match ending {
                Ending::Closed => store.close().await,
                Ending::Crashed => {
                    let style = CrashStyle { kept: 500, odd: 0, names: NameFate::Prefix };
                    disk.crash(style, self.seed);
                }
            }
            drop(store);
            self.start(&disk).map(Some)
        })
    }

    fn pass(&self, millis: u64) -> bool {
        self.clock.advance(millis);
        true
    }
}
