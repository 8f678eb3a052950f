use std::any::Any;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_core::future::BoxFuture;
use futures_util::FutureExt;
use mongodb::ClientSession;
use promethean::projection::view_store::{Batch, DatabaseError};
use promethean::projection::{Carried, Delegated, Views};
use promethean::store::Stored;
use promethean_event::{Event, Failure};

use super::{MongoViews, Started, refused};
use crate::clock::{Deadline, Stopwatch};
use crate::fault::{Fault, describe, is_of_what_was_asked};
use crate::limits::{HANDLING_TIME, HANDLING_TIME_MAX};
use crate::transaction::{Attempt, Step, transact};

/// Why the handling of an event did not go. `?` makes it of errors of the driver and of failures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandlingError {
    /// The database. What is refused for what is written (a duplicate key, a document that a rule
    /// refuses) makes the event a dead letter. Everything else is tried again, with the whole
    /// transaction, for as long as it is so: an outage, a role that is missing, a time that was too
    /// short. The state of the projection says what it is.
    #[error(transparent)]
    Database(#[from] mongodb::error::Error),
    /// The handler's own: tried again, left out, or a dead letter, as it says.
    #[error("{0:?}")]
    Failure(Failure),
}

impl From<Failure> for HandlingError {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

/// What the handling of an event comes to.
pub type Handled<'a> = BoxFuture<'a, Result<(), HandlingError>>;

type Handler = Arc<dyn for<'a> Fn(&'a mut ClientSession, &'a Event) -> Handled<'a> + Send + Sync>;

/// A projection whose code writes by a session of MongoDB: all that it writes with it, in whatever
/// collections, and how far the projection has come are one transaction (majority writes, snapshot
/// reads). So every event counts once, also where `$inc` is used.
///
/// What is done without the session (a mail, another database) may happen several times. To publish
/// events, add them to an outbox with the session.
///
/// A changefeed of a collection that the handler writes would make events of what was made from
/// events, and go round for ever where they come back to the same topic. Documents with a field
/// `_origin` that begins with `promethean` (say `promethean:NAME`) are left out by changefeeds.
/// Their deletes are known only where the collection keeps pre-images.
#[derive(Debug, Clone)]
#[must_use = "a projection runs once it is started"]
pub struct SessionProjection {
    projection: Delegated,
}

impl SessionProjection {
    /// A projection without topics yet. Its name is also that of the group of its dead letters.
    pub fn new(name: impl Into<String>) -> Self {
        Self { projection: Delegated::new(name) }
    }

    /// Reads a topic. Partitions have no order among each other.
    pub fn topic(self, topic: impl Into<String>) -> Self {
        Self { projection: self.projection.topic(topic) }
    }

    /// Events that are committed together. Default: 100.
    pub fn batch(self, events: usize) -> Self {
        Self { projection: self.projection.batch(events) }
    }

    /// Starts it; it goes on where it was, and with several hubs one of them runs it.
    ///
    /// The handler is given the session of an open transaction, and neither commits nor aborts it.
    /// It may be called again for the same event, after everything that it wrote was taken back.
    pub async fn start(
        self,
        views: &Views,
        store: &MongoViews,
        handler: impl for<'a> Fn(&'a mut ClientSession, &'a Event) -> Handled<'a>
        + Send
        + Sync
        + 'static,
    ) -> Started {
        let (store, handler): (_, Handler) = (store.by_handlers(), Arc::new(handler));
        let carry = Arc::new(move |batch: Batch, events: Vec<Stored>| {
            let carrying =
                Carrying { views: store.clone(), handler: Arc::clone(&handler), batch, events };
            let views = store.clone();
            store.to_its_end(async move {
                let deadline = Deadline::after(HANDLING_TIME_MAX.min(views.cluster.patience() * 5));
                transact(&views.cluster, deadline, carrying).await.map_err(refused)?
            }) as BoxFuture<'static, _>
        });
        views.delegated(self.projection.carried(carry)).await
    }
}

/// The transaction of some events.
struct Carrying {
    views: MongoViews,
    handler: Handler,
    batch: Batch,
    events: Vec<Stored>,
}

impl fmt::Debug for Carrying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carrying").field("of", &self.batch.of).finish_non_exhaustive()
    }
}

type Outcome = Result<Carried, DatabaseError>;

impl Attempt for Carrying {
    type Outcome = Outcome;

    fn run<'a>(
        &'a mut self,
        session: &'a mut ClientSession,
    ) -> BoxFuture<'a, Result<Step<Outcome>, Fault>> {
        Box::pin(self.carry(session))
    }
}

impl Carrying {
    async fn carry(&self, session: &mut ClientSession) -> Result<Step<Outcome>, Fault> {
        // First, so that one who is not the keeper any more does nothing at all.
        if let Err(error) = self.views.advance(session, &self.batch, 0).await? {
            return Ok(Step::Abandon(Err(error)));
        }
        let begun = Stopwatch::start();
        for (at, stored) in self.events.iter().enumerate() {
            let failed = |failure| Ok(Step::Abandon(Ok(Carried::Failed { at, failure })));
            if at > 0 && begun.elapsed() > HANDLING_TIME {
                // Those before it are done once more, as a transaction of their own.
                return failed(Failure::retry("the events before it took their time"));
            }
            let handling = AssertUnwindSafe((self.handler)(session, &stored.event));
            match handling.catch_unwind().await {
                Ok(Ok(())) => {}
                Ok(Err(HandlingError::Failure(failure))) => return failed(failure),
                Ok(Err(HandlingError::Database(error))) => {
                    if is_of_what_was_asked(&error) {
                        return failed(Failure::park(describe(&error)));
                    }
                    // Of this event it says nothing: nobody may write, say, or there was no time. What
                    // does not go by itself is shown, and holds the projection up.
                    return Err(error.into());
                }
                Err(panic) => return failed(Failure::park(panicked(&*panic))),
            }
        }
        Ok(Step::Commit(Ok(Carried::Committed)))
    }
}

fn panicked(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("panicked: {}", text.unwrap_or_default())
}
