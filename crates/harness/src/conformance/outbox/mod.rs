//! What every table of an outbox promises to a drainer, and what drainers over it promise: checks
//! against the seam alone. A table joins by writing an [`OutboxPlace`].

mod target;

mod claims;

mod drainers;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_core::future::{BoxFuture, LocalBoxFuture};
use promethean::outbox::{AddError, FailedEvent, OutboxTable, ReviveError};
use promethean_event::{EventId, Key, NewEvent, Payload, Timestamp};

use super::check::Check;

/// An outbox that is new, and what a test does to it.
pub trait OutboxPlace: fmt::Debug + Send + Sync {
    /// The table, for a drainer.
    fn table(&self) -> Arc<dyn OutboxTable>;

    /// Adds events in one transaction, and commits it or not.
    fn add(
        &self,
        events: Vec<NewEvent>,
        ending: Ending,
    ) -> BoxFuture<'_, Check<Result<(), AddError>>>;

    /// The events that were given up.
    fn dead(&self) -> BoxFuture<'_, Check<Vec<FailedEvent>>>;

    /// Has one of them tried again.
    fn retry(&self, id: EventId) -> BoxFuture<'_, Result<(), ReviveError>>;

    /// Drops one of them.
    fn discard(&self, id: EventId) -> BoxFuture<'_, Result<(), ReviveError>>;

    /// Makes a row something that is not an event.
    fn spoil(&self, id: EventId) -> BoxFuture<'_, Check>;

    /// Lets time pass.
    fn pass(&self, time: Duration) -> BoxFuture<'_, Check>;
}

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It is committed.
    Commit,
    /// It is taken back.
    Rollback,
}

/// Makes new outboxes.
pub type NewPlace<'a> = &'a (dyn Fn() -> BoxFuture<'a, Check<Box<dyn OutboxPlace>>> + Sync);

/// A check with its name, which is the promise.
struct NamedCheck {
    name: &'static str,
    run: for<'a> fn(&'a dyn OutboxPlace) -> LocalBoxFuture<'a, Check>,
}

/// The checks of a module.
macro_rules! outbox_checks {
    ($($name:ident),+ $(,)?) => {
        pub(super) const CHECKS: &[super::NamedCheck] = &[$(super::NamedCheck {
            name: stringify!($name),
            run: |place| Box::pin($name(place)),
        }),+];
    };
}
use outbox_checks;

/// Runs all checks, each with an outbox of its own. Gives every violation.
pub async fn run(place: NewPlace<'_>) -> Vec<String> {
    let mut violations = Vec::new();
    for check in claims::CHECKS.iter().chain(drainers::CHECKS) {
        let result = match place().await {
            Ok(place) => (check.run)(&*place).await,
            Err(error) => Err(error),
        };
        if let Err(violation) = result {
            violations.push(format!("{}: {violation}", check.name));
        }
    }
    violations
}

/// Event number `n`, with a key or without.
fn event(n: u32, key: &str) -> Check<NewEvent> {
    let mut random = [7; 10];
    if let Some(last) = random.last_chunk_mut::<4>() {
        *last = n.to_be_bytes();
    }
    let event = NewEvent::new(
        EventId::v7(1_700_000_000_000, random),
        Timestamp::from_millis(u64::from(n)),
        "order.placed".parse()?,
        Payload::of(&n)?,
    );
    Ok(if key.is_empty() { event } else { event.with_key(Key::new(key)?) })
}

async fn add(place: &dyn OutboxPlace, events: &[(u32, &str)]) -> Check {
    let events: Vec<_> = events.iter().map(|(n, key)| event(*n, key)).collect::<Check<_>>()?;
    Ok(place.add(events, Ending::Commit).await??)
}
