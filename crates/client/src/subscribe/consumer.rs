use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use promethean_event::{Failure, FromEvent, GroupName};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::delivered::{Claim, Delivered};
use super::stream::Subscription;
use crate::bus::Handle;
use crate::error::GroupFailure;
use crate::limits::STOP_MS;
use crate::link::Command;
use crate::machine::{Flow, Reply, SubKey};

/// A handler at work. Dropping it stops it; what was not handled goes to others.
pub struct Consumer {
    group: GroupName,
    link: Handle,
    key: SubKey,
    stop: watch::Sender<bool>,
    handled: Arc<AtomicU64>,
    run: Option<JoinHandle<Option<GroupFailure>>>,
}

/// What every handler needs.
struct Desk<F> {
    handler: F,
    processing: Duration,
    handled: Arc<AtomicU64>,
    places: Semaphore,
    concurrency: u32,
}

impl Consumer {
    pub(super) fn start<T, F, Fut>(
        subscription: Subscription<T>,
        concurrency: usize,
        processing: Duration,
        handler: F,
    ) -> Self
    where
        T: FromEvent,
        F: Fn(Delivered<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let concurrency = concurrency.min(Semaphore::MAX_PERMITS);
        let (stop, stopped) = watch::channel(false);
        let handled = Arc::new(AtomicU64::new(0));
        let (group, (link, key)) = (subscription.group().clone(), subscription.way());
        let desk = Arc::new(Desk {
            handler,
            processing,
            handled: Arc::clone(&handled),
            places: Semaphore::new(concurrency),
            concurrency: u32::try_from(concurrency).unwrap_or(u32::MAX),
        });
        let run = Some(tokio::spawn(run(subscription, desk, stopped)));
        Self { group, link, key, stop, handled, run }
    }

    /// The group.
    pub const fn group(&self) -> &GroupName {
        &self.group
    }

    /// Nothing new, until resumed.
    pub fn pause(&self) {
        self.link.say(Command::Flow(self.key, Flow::Paused));
    }

    /// New events again.
    pub fn resume(&self) {
        self.link.say(Command::Flow(self.key, Flow::Running));
    }

    /// Events that the handler has finished with, one way or the other.
    pub fn handled(&self) -> u64 {
        self.handled.load(Ordering::Relaxed)
    }

    /// Stops: what is under way is finished, what waits goes to others. An error if the
    /// subscription had ended by itself.
    pub async fn stop(mut self) -> Result<(), GroupFailure> {
        self.stop.send_replace(true);
        self.finished().await
    }

    /// Waits until the subscription has ended by itself, or the bus is closed.
    pub async fn ended(mut self) -> Result<(), GroupFailure> {
        self.finished().await
    }

    async fn finished(&mut self) -> Result<(), GroupFailure> {
        match self.run.take() {
            // Handlers that panic are caught; the runtime may be going down.
            Some(run) => run.await.ok().flatten().map_or(Ok(()), Err),
            None => Ok(()),
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

async fn run<T, F, Fut>(
    mut subscription: Subscription<T>,
    desk: Arc<Desk<F>>,
    mut stop: watch::Receiver<bool>,
) -> Option<GroupFailure>
where
    T: FromEvent,
    F: Fn(Delivered<T>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let mut has_place = false;
    let failure = loop {
        if !has_place {
            // A place first: what nobody can work on stays where its lease is renewed.
            let place = tokio::select! {
                // An error is a handle that is gone, which stops as well.
                _ = stop.wait_for(|stop| *stop) => break None,
                place = desk.places.acquire() => place,
            };
            place.map(tokio::sync::SemaphorePermit::forget).ok();
            has_place = true;
        }
        let next = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => break None,
            next = subscription.next() => next,
        };
        match next {
            Some(Ok(delivered)) => {
                has_place = false;
                let desk = Arc::clone(&desk);
                tokio::spawn(async move {
                    desk.work(delivered).await;
                    desk.places.add_permits(1);
                });
            }
            Some(Err(failure)) => break Some(failure),
            None => break None,
        }
    };
    // Those that run may end what they do.
    let others = desk.concurrency - u32::from(has_place);
    let finishing = desk.places.acquire_many(others);
    let _ = timeout(Duration::from_millis(STOP_MS), finishing).await;
    subscription.left().await;
    failure
}

impl<F> Desk<F> {
    async fn work<T, Fut>(&self, delivered: Delivered<T>)
    where
        T: FromEvent,
        F: Fn(Delivered<T>) -> Fut,
        Fut: Future<Output = Result<(), Failure>>,
    {
        let (delivered, claim) = delivered.handled();
        let running = AssertUnwindSafe(async { (self.handler)(delivered).await }).catch_unwind();
        let result = tokio::select! {
            result = timeout(self.processing, running) => result,
            // Another one has the event now: whatever this one would still do is one too many.
            () = claim.cell.lost() => return,
        };
        self.handled.fetch_add(1, Ordering::Relaxed);
        let failure = match result {
            Ok(Ok(Ok(()))) => return claim.quietly(Reply::Ack),
            Ok(Ok(Err(failure))) => failure,
            Ok(Err(panic)) => Failure::retry(format!("handler panicked: {}", panic_text(&*panic))),
            Err(_) => Failure::retry("the handler took longer than it may"),
        };
        fail(&claim, failure);
    }
}

/// The answer is the next delivery, or the dead letter.
fn fail(claim: &Claim, failure: Failure) {
    claim.quietly(Reply::Nack(failure));
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("group", &self.group).finish_non_exhaustive()
    }
}
