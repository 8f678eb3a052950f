use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_core::future::BoxFuture;
use promethean::outbox::{OutboxTarget, PublishError};
use promethean::store::{AppendError, Lane, Receipt, TopicId};
use promethean_event::{EventId, NewEvent, Offset, Partition};
use tokio::sync::Notify;

use crate::conformance::check::Check;

/// What becomes of one publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Stored,
    /// Nothing is stored.
    Refused,
    /// Stored, and answered with an error.
    StoredUnsure,
    /// Stored, and never answered.
    StoredSilently,
    /// Stored, and answered when [`Target::let_go`] says so.
    Held,
}

/// A store that keeps every id once, and otherwise does as it was told.
#[derive(Debug, Clone, Default)]
pub(super) struct Target(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    kept: Mutex<Kept>,
    go: Notify,
}

#[derive(Debug, Default)]
struct Kept {
    events: Vec<NewEvent>,
    ids: HashSet<EventId>,
    calls: usize,
    fates: VecDeque<Fate>,
}

impl Target {
    /// These fates first, one for each call, and then a healthy store.
    pub(super) fn after(fates: impl IntoIterator<Item = Fate>) -> Self {
        let target = Self::default();
        target.lock().fates.extend(fates);
        target
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn calls(&self) -> usize {
        self.lock().calls
    }

    pub(super) fn let_go(&self) {
        self.0.go.notify_waiters();
    }

    /// The numbers of what is stored of a key, in order.
    pub(super) fn numbers(&self, key: &str) -> Check<Vec<u32>> {
        let of_key = |event: &&NewEvent| event.key.as_ref().map_or("", |key| key.as_str()) == key;
        let kept = self.lock();
        Ok(kept
            .events
            .iter()
            .filter(of_key)
            .map(|event| event.payload.decode::<u32>())
            .collect::<Result<_, _>>()?)
    }

    fn store(&self, events: Vec<NewEvent>) -> Vec<Receipt> {
        let mut kept = self.lock();
        let lane = Lane { topic: TopicId::new(0), partition: Partition::ZERO };
        let mut receipts = Vec::new();
        for event in events {
            let duplicate = !kept.ids.insert(event.id);
            if !duplicate {
                kept.events.push(event);
            }
            receipts.push(Receipt { lane, offset: Offset::new(0), duplicate });
        }
        receipts
    }
}

impl OutboxTarget for Target {
    fn publish(
        &self,
        events: Vec<NewEvent>,
    ) -> BoxFuture<'static, Result<Vec<Receipt>, PublishError>> {
        let fate = {
            let mut kept = self.lock();
            kept.calls += 1;
            kept.fates.pop_front().unwrap_or(Fate::Stored)
        };
        let target = self.clone();
        Box::pin(async move {
            if fate == Fate::Refused {
                return Err(AppendError::Unavailable("away".into()).into());
            }
            let go = target.0.go.notified();
            let receipts = target.store(events);
            match fate {
                Fate::StoredUnsure => Err(AppendError::Indeterminate("cut off".into()).into()),
                Fate::StoredSilently => std::future::pending().await,
                Fate::Held => {
                    go.await;
                    Ok(receipts)
                }
                Fate::Stored | Fate::Refused => Ok(receipts),
            }
        })
    }
}
