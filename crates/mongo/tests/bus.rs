//! The suite of the bus, over a real replica set.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_core::future::BoxFuture;
use mongodb::Client;
use mongodb::bson::{Document, doc};
use promethean::migration::{Mark, Role, Stage};
use promethean::store::{Put, Store};
use promethean::{Bus, BusOptions};
use promethean_event::{EventId, Key, Payload};
use promethean_harness::conformance::bus::{self, BusFactory, FragileStore, Pace};
use promethean_mongo::{IfMoved, MongoOptions, MongoStore, OpenError};
use tokio::runtime::Runtime;

use crate::conformance::wait_for;
use crate::replica_set::{database, drop_databases, url, url_of};
use crate::verdict::must_hold;

/// Buses over databases of their own. Each store works on a runtime of its own, which ends with
/// everything that is under way in it when the process of the bus goes down.
#[derive(Debug, Default)]
struct MongoBuses {
    current: Mutex<Current>,
}

#[derive(Debug, Default)]
struct Current {
    databases: Vec<String>,
    runtimes: Vec<Runtime>,
    store: Option<Arc<FragileStore>>,
}

/// So long that no hub is forgotten because the machine stands still.
const LONG: Duration = Duration::from_secs(600);

impl MongoBuses {
    async fn over(&self, database: String, options: BusOptions) -> Bus {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let opened = runtime.spawn(async move {
            MongoStore::open(&url_of(&database), MongoOptions::default()).await
        });
        let store = Arc::new(FragileStore::new(Arc::new(opened.await.unwrap().unwrap())));
        let mut current = self.current.lock().unwrap();
        current.runtimes.push(runtime);
        current.store = Some(Arc::clone(&store));
        Bus::with_store(store, options.hub_lease(LONG))
    }
}

impl Drop for MongoBuses {
    fn drop(&mut self) {
        let Current { databases, runtimes, .. } =
            std::mem::take(&mut *self.current.lock().unwrap());
        runtimes.into_iter().for_each(Runtime::shutdown_background);
        drop_databases(databases);
    }
}

impl BusFactory for MongoBuses {
    fn open(&self, options: BusOptions) -> BoxFuture<'_, Bus> {
        let name = database();
        self.current.lock().unwrap().databases.push(name.clone());
        Box::pin(self.over(name, options))
    }

    fn reopen(&self, bus: Bus) -> BoxFuture<'_, Bus> {
        let (name, store, runtime) = {
            let mut current = self.current.lock().unwrap();
            let name = current.databases.last().cloned().unwrap();
            (name, current.store.take(), current.runtimes.pop())
        };
        store.into_iter().for_each(|store| store.cut());
        runtime.into_iter().for_each(Runtime::shutdown_background);
        drop(bus);
        Box::pin(async move {
            // As if its lease had run out; how soon others take over is no matter of this suite.
            let client = Client::with_uri_str(url()).await.unwrap();
            let hubs = client.database(&name).collection::<Document>("hubs");
            hubs.delete_many(doc! {}).await.unwrap();
            self.over(name, BusOptions::default()).await
        })
    }

    fn survives_restart(&self) -> bool {
        true
    }

    fn cleans_at_once(&self) -> bool {
        true
    }

    fn pace(&self) -> Pace {
        Pace::REMOTE
    }
}

macro_rules! on_mongodb {
    ($($area:ident { $($case:ident,)* })*) => {
        mod suite {
            $(mod $area {
                use promethean_harness::conformance::bus;
                $(#[test]
                fn $case() {
                    let buses = super::super::MongoBuses::default();
                    crate::conformance::wait_for(bus::$area::$case(&buses));
                })*
            })*
        }
    };
}

promethean_harness::bus_cases!(on_mongodb);

/// Random runs: nothing lost, nothing twice on lease, no key out of order, no cursor past what is
/// open, no attempt too many, no stale ack taken.
#[test]
fn random_runs() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, count) = (number("PROM_BUS_SEED").unwrap_or(1), number("PROM_BUS_SEEDS"));
    let mut crashes = 0;
    for seed in first..first + count.unwrap_or(4) {
        let report = wait_for(bus::run_random(&MongoBuses::default(), seed, 120));
        if !report.violations.is_empty() {
            must_hold(&[format!("PROM_BUS_SEED={seed}: {report:#?}")]);
        }
        crashes += report.crashes;
    }
    println!("{crashes} crashes");
    must_hold(&[]);
}

/// A program that opened the store itself went on writing to a database that had been moved: only `prom`
/// looked for the mark.
#[test]
fn a_database_that_was_moved_is_not_opened() {
    wait_for(async {
        let name = database();
        let store = MongoStore::open(&url_of(&name), MongoOptions::default()).await.unwrap();
        let mark = Mark {
            id: EventId::generate(),
            role: Role::Source,
            stage: Stage::Moved,
            other: "/srv/bus".to_owned(),
        };
        let (key, value) = (Key::new("source").unwrap(), Some(Payload::of(&mark).unwrap()));
        let put = Put { space: "migration", key, value, expect: None };
        store.put(vec![put]).await.unwrap();
        store.close().await;
        let refused = MongoStore::open(&url_of(&name), MongoOptions::default()).await.unwrap_err();
        assert!(matches!(&refused, OpenError::Moved(found) if *found == mark), "{refused}");
        assert!(refused.to_string().contains("/srv/bus"), "{refused}");
        let options = || MongoOptions { if_moved: IfMoved::Open, ..MongoOptions::default() };
        let store = MongoStore::open(&url_of(&name), options()).await.unwrap();
        assert!(promethean::migration::abandon(&store).await.unwrap());
        store.close().await;
        let store = MongoStore::open(&url_of(&name), MongoOptions::default()).await.unwrap();
        store.close().await;
        drop_databases(vec![name]);
    });
}
