//! The suite that every store is held to.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_core::future::BoxFuture;
use promethean::store::Store;
use promethean_harness::conformance::{Check, Ending, StoreFactory, run};
use promethean_harness::log_simulation::SimClock;
use promethean_mongo::{MongoOptions, MongoStore};
use tokio::runtime::Runtime;

use crate::replica_set::{database, drop_databases, url_of};

/// Stores in databases of their own. Each works on a runtime of its own, which ends at once, with
/// everything that is under way in it, when the store crashes.
#[derive(Debug)]
struct MongoFactory {
    clock: SimClock,
    place: Mutex<Place>,
}

#[derive(Debug, Default)]
struct Place {
    databases: Vec<String>,
    runtime: Option<Runtime>,
}

impl MongoFactory {
    fn new() -> Self {
        Self { clock: SimClock::at(1_700_000_000_000), place: Mutex::default() }
    }

    async fn start(&self, database: &str) -> Check<Arc<dyn Store>> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build()?;
        let clock = Arc::new(self.clock.clone());
        let options = MongoOptions { clock, ..MongoOptions::default() };
        let url = url_of(database);
        let opened = runtime.spawn(async move { MongoStore::open(&url, options).await });
        let before = self.place.lock().unwrap().runtime.replace(runtime);
        before.into_iter().for_each(Runtime::shutdown_background);
        Ok(Arc::new(opened.await??))
    }
}

impl Drop for MongoFactory {
    fn drop(&mut self) {
        let Place { databases, runtime } = std::mem::take(&mut *self.place.lock().unwrap());
        runtime.into_iter().for_each(Runtime::shutdown_background);
        drop_databases(databases);
    }
}

impl StoreFactory for MongoFactory {
    fn open(&self) -> BoxFuture<'_, Check<Arc<dyn Store>>> {
        let name = database();
        self.place.lock().unwrap().databases.push(name.clone());
        Box::pin(async move { self.start(&name).await })
    }

    fn reopen(
        &self,
        store: Arc<dyn Store>,
        ending: Ending,
    ) -> BoxFuture<'_, Check<Option<Arc<dyn Store>>>> {
        Box::pin(async move {
            match ending {
                Ending::Closed => store.close().await,
                Ending::Crashed => {
                    let runtime = self.place.lock().unwrap().runtime.take();
                    runtime.into_iter().for_each(Runtime::shutdown_background);
                }
            }
            drop(store);
            let name = self.place.lock().unwrap().databases.last().cloned().unwrap();
            self.start(&name).await.map(Some)
        })
    }

    fn beside(&self, _store: &Arc<dyn Store>) -> BoxFuture<'_, Check<Arc<dyn Store>>> {
        let name = self.place.lock().unwrap().databases.last().cloned().unwrap();
        Box::pin(async move {
            let clock = Arc::new(self.clock.clone());
            let options = MongoOptions { clock, ..MongoOptions::default() };
            let store: Arc<dyn Store> = Arc::new(MongoStore::open(&url_of(&name), options).await?);
            Ok(store)
        })
    }

    /// The time of hubs is the server's.
    fn wait(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }

    fn pass(&self, millis: u64) -> bool {
        self.clock.advance(millis);
        true
    }
}

pub(crate) fn wait_for<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().build().unwrap().block_on(future)
}

fn hold(concern: &str) {
    let violation = wait_for(run(concern, || Box::new(MongoFactory::new())));
    assert!(violation.is_none(), "{}", violation.unwrap_or_default());
}

macro_rules! suite {
    ($($concern:ident),+) => {
        mod suite {
            $(#[test] fn $concern() { super::hold(stringify!($concern)); })+
        }
    };
}

promethean_harness::for_each_concern!(suite);
