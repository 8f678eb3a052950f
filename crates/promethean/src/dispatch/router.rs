//! One task for all groups waits for the store to grow, and wakes those whose lanes did.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::active::ActiveGroup;
use super::registry::Groups;
use crate::store::{Growth, Lane, Store};

/// Which groups read which lanes.
#[derive(Debug, Default)]
pub(crate) struct Router {
    readers: Mutex<HashMap<Lane, Vec<Weak<ActiveGroup>>>>,
}

impl Router {
    pub(super) fn add(&self, lane: Lane, group: &Arc<ActiveGroup>) {
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        let groups = readers.entry(lane).or_default();
        groups.retain(|known| known.strong_count() > 0);
        if !groups.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(group))) {
            groups.push(Arc::downgrade(group));
        }
    }

    pub(super) fn remove(&self, group: &Arc<ActiveGroup>) {
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        for groups in readers.values_mut() {
            groups.retain(|known| !std::ptr::eq(known.as_ptr(), Arc::as_ptr(group)));
        }
        readers.retain(|_, groups| !groups.is_empty());
    }

    fn of(&self, lane: Lane) -> Vec<Arc<ActiveGroup>> {
        let readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        let groups = readers.get(&lane).map(Vec::as_slice).unwrap_or_default();
        groups.iter().filter_map(Weak::upgrade).collect()
    }

    fn lanes(&self) -> Vec<Lane> {
        let readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        readers.keys().copied().collect()
    }
}

/// Runs until the store is closed or the bus is gone.
pub(crate) async fn run(store: Arc<dyn Store>, groups: Weak<Groups>) {
    let mut mark = 0;
    loop {
        let growth = store.grown(mark).await;
        mark = growth.mark;
        let Some(groups) = groups.upgrade() else {
            return;
        };
        if growth.closed {
            return;
        }
        if growth.hubs_changed
            && let Some(hub) = &groups.site().hub
        {
            hub.ring();
            groups.site().schemas.news().notify_one();
        }
        if growth.topics_changed {
            groups.follow_topics().await;
        }
        spread(&*store, &groups, growth).await;
        // Nothing of this need ever wait: on one thread, a consumer that publishes what it
        // consumes would otherwise keep all others from their turn.
        tokio::task::yield_now().await;
    }
}

async fn spread(store: &dyn Store, groups: &Groups, growth: Growth) {
    let router = &groups.site().router;
    let lanes = match growth.lanes {
        Some(lanes) => lanes,
        None => {
            let mut all = Vec::new();
            for lane in router.lanes() {
                match store.bounds(lane).await {
                    Ok(bounds) => all.push((lane, bounds.next)),
                    Err(error) => tracing::debug!(?lane, %error, "a lane has gone"),
                }
            }
            all
        }
    };
    for (lane, next) in lanes {
        let readers = router.of(lane);
        let Some((last, others)) = readers.split_last() else {
            continue;
        };
        // The first reads and decodes; the others find its page.
        for group in others {
            group.appended(lane, next);
        }
        last.appended(lane, next);
    }
}
