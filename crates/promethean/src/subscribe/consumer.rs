use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use promethean_delivery::Ack;
use promethean_event::{Failure, FromEvent, GroupName};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::delivered::Delivered;
use super::worker::{self, Worker};
use crate::bus::Bus;
use crate::clock::Clock;
use crate::dispatch::GroupFailure;
use crate::member::{Batch, Leased, Member, Seat, Told};

/// How a handler is run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConsumerOptions {
    pub(crate) concurrency: usize,
    pub(crate) ack_timeout_ms: u32,
}

/// A handler at work. Dropping it stops it; what was not handled goes to others.
pub struct Consumer {
    desk: Arc<Desk>,
    stop: watch::Sender<bool>,
    run: Option<JoinHandle<Option<GroupFailure>>>,
}

/// What the workers of a consumer have in common.
pub(super) struct Desk {
    pub(super) seat: Seat,
    pub(super) clock: Clock,
    pub(super) options: ConsumerOptions,
    /// Batches with events that no worker has begun.
    waiting: Mutex<VecDeque<Arc<Waiting>>>,
    /// Whoever has nothing to do waits here for more; gone when the consumer has stopped.
    intake: tokio::sync::Mutex<Option<Member>>,
    closed: AtomicBool,
    /// Rung when nothing more is to be handled.
    closing: Notify,
    /// Rung when the group has ended by itself.
    ended: Notify,
    /// Events handled, for tests and those who wait for quiet.
    pub(super) handled: AtomicU64,
    /// Whether it is measured how long handlers take.
    pub(super) is_metered: bool,
}

/// A batch that workers take events from.
pub(super) struct Waiting {
    batch: Batch,
    /// Whether all of it can be read for sure.
    pub(super) is_sound: bool,
    /// The number of the next event; beyond the last when all are taken.
    next: AtomicUsize,
}

impl Waiting {
    pub(super) fn take(&self) -> Option<Leased> {
        self.batch.get(self.next.fetch_add(1, Ordering::Relaxed))
    }

    fn left(&self) -> impl Iterator<Item = Leased> {
        let next = self.next.load(Ordering::Relaxed);
        (next..self.batch.len()).filter_map(|number| self.batch.get(number))
    }
}

impl Consumer {
    pub(crate) fn start<T, F, Fut>(
        bus: &Bus,
        member: Member,
        options: ConsumerOptions,
        handler: F,
    ) -> Self
    where
        T: FromEvent,
        F: Fn(Delivered<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let desk = Arc::new(Desk {
            seat: member.seat().clone(),
            clock: bus.inner.groups.site().clock,
            options,
            waiting: Mutex::default(),
            intake: tokio::sync::Mutex::new(Some(member)),
            closed: AtomicBool::new(false),
            closing: Notify::new(),
            ended: Notify::new(),
            handled: AtomicU64::new(0),
            is_metered: bus.inner.groups.site().meters.is_on(),
        });
        let (stop, stopped) = watch::channel(false);
        let handler = Arc::new(handler);
        let hire = {
            let desk = Arc::clone(&desk);
            move || Worker::start(&desk, &handler)
        };
        let run = run(Arc::clone(&desk), stopped, hire);
        Self { desk, stop, run: Some(bus.inner.runtime.spawn(run)) }
    }

    /// The group.
    pub fn group(&self) -> &GroupName {
        self.desk.seat.group()
    }

    /// Nothing new, until resumed; what is under way goes on.
    pub fn pause(&self) {
        self.desk.seat.pause();
    }

    /// New events again.
    pub fn resume(&self) {
        self.desk.seat.resume();
    }

    /// Events that the handler has finished with, one way or the other.
    pub fn handled(&self) -> u64 {
        self.desk.handled.load(Ordering::Relaxed)
    }

    /// Stops: what is under way is finished, what waits goes to others. An error if the group had
    /// stopped by itself.
    pub async fn stop(mut self) -> Result<(), GroupFailure> {
        self.halt();
        let ended = match self.run.take() {
            Some(run) => run.await,
            None => return Ok(()),
        };
        match ended {
            Ok(Some(failure)) => Err(failure),
            // Handlers that panic are caught; the runtime may be going down.
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Closes the desk at once, rather than when the one who looks after it wakes up: no handler is
    /// begun after this.
    fn halt(&self) {
        self.desk.close();
        self.stop.send_replace(true);
    }

    /// Waits until the group has stopped by itself, or the bus is closed.
    pub async fn ended(mut self) -> Result<(), GroupFailure> {
        match self.run.take() {
            Some(run) => run.await.ok().flatten().map_or(Ok(()), Err),
            None => Ok(()),
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.halt();
    }
}

/// Looks after the workers until they are not needed any more.
async fn run(
    desk: Arc<Desk>,
    mut stop: watch::Receiver<bool>,
    hire: impl Fn() -> Worker,
) -> Option<GroupFailure> {
    let mut workers: Vec<Worker> = (0..desk.options.concurrency).map(|_| hire()).collect();
    let period = Duration::from_millis(u64::from(desk.options.ack_timeout_ms / 3).max(1));
    let mut round = tokio::time::interval_at(desk.clock.instant() + period, period);
    round.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = round.tick() => {
                desk.keep_leases();
                worker::replace_stuck(&mut workers, &desk, &hire);
            }
            () = desk.ended.notified() => break,
            // An error is a handle that is gone, which stops as well.
            _ = stop.wait_for(|stop| *stop) => break,
        }
    }
    desk.close();
    for worker in workers {
        worker.finished(&desk).await;
    }
    let member = desk.intake.lock().await.take();
    member.and_then(|member| member.failure())
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<Waiting>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// A batch with something left to do, if there is one already.
    pub(super) fn waiting(&self) -> Option<Arc<Waiting>> {
        self.begun().or_else(|| {
            // Whoever holds the intake brings what comes.
            let mut intake = self.intake.try_lock().ok()?;
            let member = intake.as_mut()?;
            while let Some(told) = member.try_next() {
                if let Told::Events(batch) = told {
                    self.add(batch);
                }
            }
            self.begun()
        })
    }

    /// A batch that was received and has something left to do.
    fn begun(&self) -> Option<Arc<Waiting>> {
        let mut waiting = self.lock();
        loop {
            let first = waiting.front()?;
            if first.next.load(Ordering::Relaxed) < first.batch.len() {
                return Some(Arc::clone(first));
            }
            waiting.pop_front();
        }
    }

    /// Waits until there may be something to do; `false` if there never will be.
    pub(super) async fn wait(&self) -> bool {
        let closing = self.closing.notified();
        if self.is_closed() {
            return false;
        }
        tokio::select! {
            () = closing => false,
            received = self.receive() => received,
        }
    }

    async fn receive(&self) -> bool {
        let mut intake = self.intake.lock().await;
        // Another one may have brought something meanwhile.
        if self.begun().is_some() {
            return true;
        }
        let Some(member) = intake.as_mut() else {
            return false;
        };
        match member.next().await {
            Some(Told::Events(batch)) => self.add(batch),
            Some(_) => {}
            None => {
                self.ended.notify_one();
                return false;
            }
        }
        true
    }

    fn add(&self, batch: Batch) {
        let is_sound = batch.is_sound() && !self.seat.is_faulty();
        let next = AtomicUsize::new(0);
        self.lock().push_back(Arc::new(Waiting { batch, is_sound, next }));
    }

    /// What waits here keeps its lease: its time begins when its handler does.
    fn keep_leases(&self) {
        let batches: Vec<_> = self.lock().iter().cloned().collect();
        for leased in batches.iter().flat_map(|waiting| waiting.left()) {
            // One that has had its longest time runs out, and comes again.
            drop(self.seat.extend(Ack::Token(leased.token()), self.options.ack_timeout_ms));
        }
    }

    /// Nothing more is handled; what waits goes back with the member.
    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.lock().clear();
        self.closing.notify_waiters();
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("seat", &self.desk.seat).finish_non_exhaustive()
    }
}
