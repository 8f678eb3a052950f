use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_core::future::BoxFuture;
use promethean_event::{EventId, NewEvent, Offset, Partition};

use super::super::target::{OutboxTarget, PublishError};
use crate::store::{AppendError, Lane, Receipt, TopicId};

/// What the store does with one publish.
#[derive(Debug, Clone)]
pub(super) enum Fate {
    Stored,
    /// Nothing is stored.
    Refused(AppendError),
    /// Stored, and answered with an error.
    StoredUnsure,
    /// Not stored, and no answer.
    Lost,
    /// Stored, and no answer.
    StoredSilently,
    /// Stored after a while, whether or not anybody waits, and answered then.
    Late(Duration),
    Panic,
}

/// A store that keeps every id once, and otherwise does as the script says.
#[derive(Clone)]
pub(super) struct ScriptedStore(Arc<Mutex<State>>);

type Script = dyn FnMut(&[NewEvent]) -> Fate + Send;

struct State {
    events: Vec<NewEvent>,
    ids: HashSet<EventId>,
    calls: Vec<Vec<EventId>>,
    script: Box<Script>,
}

impl fmt::Debug for ScriptedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScriptedStore")
    }
}

impl ScriptedStore {
    pub(super) fn new(script: impl FnMut(&[NewEvent]) -> Fate + Send + 'static) -> Self {
        let (events, ids, calls) = (Vec::new(), HashSet::new(), Vec::new());
        Self(Arc::new(Mutex::new(State { events, ids, calls, script: Box::new(script) })))
    }

    pub(super) fn healthy() -> Self {
        Self::new(|_| Fate::Stored)
    }

    /// These fates first, one for each call, and then a healthy store.
    pub(super) fn after(fates: impl IntoIterator<Item = Fate>) -> Self {
        let mut fates: Vec<_> = fates.into_iter().collect();
        fates.reverse();
        Self::new(move |_| fates.pop().unwrap_or(Fate::Stored))
    }

    pub(super) fn follow(&self, script: impl FnMut(&[NewEvent]) -> Fate + Send + 'static) {
        self.0.lock().unwrap().script = Box::new(script);
    }

    pub(super) fn events(&self) -> Vec<NewEvent> {
        self.0.lock().unwrap().events.clone()
    }

    /// The numbers of what is stored, in order.
    pub(super) fn numbers(&self) -> Vec<u32> {
        self.events().iter().map(super::number).collect()
    }

    pub(super) fn calls(&self) -> Vec<Vec<EventId>> {
        self.0.lock().unwrap().calls.clone()
    }

    fn store(&self, events: Vec<NewEvent>) -> Vec<Receipt> {
        let mut state = self.0.lock().unwrap();
        let lane = Lane { topic: TopicId::new(0), partition: Partition::new(0) };
        let mut receipts = Vec::new();
        for event in events {
            let duplicate = !state.ids.insert(event.id);
            if !duplicate {
                state.events.push(event);
            }
            receipts.push(Receipt { lane, offset: Offset::new(0), duplicate });
        }
        receipts
    }
}

impl OutboxTarget for ScriptedStore {
    fn publish(
        &self,
        events: Vec<NewEvent>,
    ) -> BoxFuture<'static, Result<Vec<Receipt>, PublishError>> {
        let fate = {
            let mut state = self.0.lock().unwrap();
            state.calls.push(events.iter().map(|event| event.id).collect());
            (state.script)(&events)
        };
        match fate {
            Fate::Stored => {
                let receipts = self.store(events);
                Box::pin(async { Ok(receipts) })
            }
            Fate::Refused(error) => Box::pin(async { Err(error.into()) }),
            Fate::StoredUnsure => {
                self.store(events);
                Box::pin(async { Err(AppendError::Indeterminate("cut off".into()).into()) })
            }
            Fate::Lost => Box::pin(std::future::pending()),
            Fate::StoredSilently => {
                self.store(events);
                Box::pin(std::future::pending())
            }
            Fate::Late(wait) => {
                let store = self.clone();
                let task = tokio::spawn(async move {
                    tokio::time::sleep(wait).await;
                    store.store(events)
                });
                Box::pin(async { Ok(task.await.unwrap()) })
            }
            Fate::Panic => panic!("scripted"),
        }
    }
}
