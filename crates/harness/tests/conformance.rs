//! The suite for stores, run for those that are here; that it can fail; and random calls on two
//! stores, compared.

use std::future::Future;

use promethean_harness::conformance::comparison::compare;
use promethean_harness::conformance::factory::{EmbeddedFactory, MemoryFactory};
use promethean_harness::conformance::faulty::{Fault, FaultyFactory};
use promethean_harness::conformance::{StoreFactory, run};

#[expect(clippy::unwrap_used, reason = "without a runtime there is nothing to test")]
pub(crate) fn wait_for<T>(future: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_time().build().unwrap().block_on(future)
}

fn memory() -> Box<dyn StoreFactory> {
    Box::new(MemoryFactory::default())
}

fn embedded() -> Box<dyn StoreFactory> {
    Box::new(EmbeddedFactory::new(3))
}

fn hold(concern: &str, factory: fn() -> Box<dyn StoreFactory>) {
    let violation = wait_for(run(concern, factory));
    assert!(violation.is_none(), "{}", violation.unwrap_or_default());
}

/// One test for each concern and store.
macro_rules! suite {
    ($($concern:ident),+) => {
        mod memory_store {
            $(#[test] fn $concern() { super::hold(stringify!($concern), super::memory); })+
        }
        mod embedded_store {
            $(#[test] fn $concern() { super::hold(stringify!($concern), super::embedded); })+
        }
    };
}

promethean_harness::for_each_concern!(suite);

#[test]
fn wrong_stores_are_caught() {
    for (fault, concern) in Fault::ALL {
        let faulty = || -> Box<dyn StoreFactory> { Box::new(FaultyFactory::new(memory(), *fault)) };
        let violation = wait_for(run(concern, faulty));
        assert!(violation.is_some(), "nobody noticed {fault:?}");
        println!("{fault:?}: {}", violation.unwrap_or_default());
    }
}

#[test]
fn the_embedded_store_answers_as_the_model_does() {
    let share = std::env::var("PROM_SIM_SHARE").ok().and_then(|text| text.parse().ok());
    wait_for(async {
        for seed in 0..30 * share.unwrap_or(1) {
            let (subject, model) = (EmbeddedFactory::new(seed), MemoryFactory::default());
            compare(&subject, &model, seed, 300).await.unwrap();
        }
    });
}

#[test]
fn a_folder_is_open_once_and_opens_again() {
    use promethean::embedded::{EmbeddedOptions, EmbeddedStore, OpenError};
    use promethean::store::{Store, TopicDefinition};
    use promethean_event::Topic;

    let folder = tempfile::tempdir().unwrap();
    let open = || EmbeddedStore::open(folder.path(), EmbeddedOptions::default());
    let topic = Topic::new("orders").unwrap();
    wait_for(async {
        let (store, _) = open().unwrap();
        store.define(TopicDefinition::new(topic.clone())).await.unwrap();
        let refused = open().unwrap_err();
        assert!(matches!(refused, OpenError::Log(promethean_log::OpenError::Locked { .. })));
        // Neither closing nor just letting go keeps the folder locked.
        store.close().await;
        let (again, _) = open().unwrap();
        assert!(again.topics().get(&topic).is_some());
        drop((store, again));
        let (again, report) = open().unwrap();
        assert!(again.topics().get(&topic).is_some());
        assert_eq!((report.groups, report.saves_replayed), (0, 0));
    });
}
