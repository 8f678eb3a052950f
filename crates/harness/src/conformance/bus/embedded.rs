//! The bus in a folder, with real threads, files and time.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use futures_core::future::BoxFuture;
use promethean::embedded::{EmbeddedOptions, EmbeddedStore};
use promethean::{Bus, BusOptions};

use super::factory::{BusFactory, Pace};
use super::fragile::FragileStore;

/// Makes buses in folders below one.
#[derive(Debug)]
pub struct EmbeddedBuses {
    folder: PathBuf,
    current: Mutex<Current>,
}

#[derive(Debug, Default)]
struct Current {
    number: usize,
    store: Option<Arc<FragileStore>>,
}

impl EmbeddedBuses {
    /// In folders below this one.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), current: Mutex::default() }
    }

    fn over(&self, store: EmbeddedStore, options: BusOptions) -> Bus {
        let store = Arc::new(FragileStore::new(Arc::new(store)));
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.store = Some(Arc::clone(&store));
        Bus::with_store(store, options)
    }

    fn path(&self) -> PathBuf {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        self.folder.join(format!("bus-{}", current.number))
    }

    /// The folder of the bus that went down is free when its last task has noticed.
    async fn open_when_free(&self) -> EmbeddedStore {
        let path = self.path();
        let opened = async {
            loop {
                match open(path.clone()).await {
                    Ok(store) => return store,
                    Err(error) if error.contains("in use") => {
                        tokio::time::sleep(Pace::REAL.tick / 10).await;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        };
        let opened = tokio::time::timeout(Pace::REAL.patience, opened).await;
        opened.expect("a bus that is gone lets go of its folder")
    }
}

async fn open(path: PathBuf) -> Result<EmbeddedStore, String> {
    // Few, so that the cases see checkpoints too.
    let options = EmbeddedOptions { checkpoint_records: 8, ..EmbeddedOptions::default() };
    let opening = tokio::task::spawn_blocking(move || EmbeddedStore::open(&path, options));
    match opening.await.expect("opening does not panic") {
        Ok((store, _)) => Ok(store),
        Err(error) => Err(error.to_string()),
    }
}

impl BusFactory for EmbeddedBuses {
    fn open(&self, options: BusOptions) -> BoxFuture<'_, Bus> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).number += 1;
        Box::pin(async {
            let store = open(self.path()).await.expect("an empty folder can be opened");
            self.over(store, options)
        })
    }

    fn reopen(&self, bus: Bus) -> BoxFuture<'_, Bus> {
        let store = self.current.lock().unwrap_or_else(PoisonError::into_inner).store.take();
        if let Some(store) = store {
            store.cut();
        }
        drop(bus);
        Box::pin(async { self.over(self.open_when_free().await, BusOptions::default()) })
    }

    fn survives_restart(&self) -> bool {
        true
    }

    fn cleans_at_once(&self) -> bool {
        false
    }

    fn pace(&self) -> Pace {
        Pace::REAL
    }
}
