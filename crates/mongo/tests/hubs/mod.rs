//! Several hubs on one store: buses of their own, each on a runtime of its own, so that one can be
//! dropped without a word, or stopped for a while and let go on. In memory and on a replica set.

pub(crate) mod history;

pub(crate) mod hub;

mod operating;

mod sharing;

use std::future::Future;
use std::time::Duration;

/// Long enough for anything that happens at all.
const PATIENCE: Duration = Duration::from_secs(120);

/// Asks again until something holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "not so within {PATIENCE:?}: {what}");
}

/// The same scenario on every store that several hubs can use.
macro_rules! on_every_store {
    ($($scenario:ident),+ $(,)?) => {
        mod in_memory {
            $(#[test] fn $scenario() {
                crate::conformance::wait_for(super::$scenario(super::Place::memory()));
            })+
        }
        mod on_mongodb {
            $(#[test] fn $scenario() {
                crate::conformance::wait_for(super::$scenario(super::Place::mongodb()));
            })+
        }
    };
}
use on_every_store;
