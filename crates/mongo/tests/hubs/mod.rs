//! Several hubs on one store: buses of their own, each on a runtime of its own, so that one can be
//! dropped without a word, or stopped for a while and let go on. In memory and on a replica set.

pub(crate) mod history;

pub(crate) mod hub;

mod operating;

mod registering;

mod sharing;

use std::future::Future;
use std::time::Duration;

use crate::verdict::must_hold;

/// Long enough for anything that happens at all.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Asks again until something holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, holds: impl FnMut() -> F) {
    assert!(comes_to_hold(holds).await, "not so within {PATIENCE:?}: {what}");
}

/// The same for what shows that nothing was lost: if it does not come, no other try makes it good.
pub(crate) async fn until_all<F: Future<Output = bool>>(what: &str, holds: impl FnMut() -> F) {
    if !comes_to_hold(holds).await {
        must_hold(&[format!("not so within {PATIENCE:?}: {what}")]);
    }
}

async fn comes_to_hold<F: Future<Output = bool>>(mut holds: impl FnMut() -> F) -> bool {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.is_ok()
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
