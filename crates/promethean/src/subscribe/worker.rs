use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures_util::FutureExt;
use promethean_delivery::{Ack, Token};
use tokio::task::JoinHandle;
use tracing::Instrument;

use super::ack_ranges::AckRanges;
use super::consumer::Desk;
use super::delivered::{Delivered, fail, lost_ack};
use super::times::HandlerTimes;
use crate::clock::Stopwatch;
use crate::dispatch::Sender;
use crate::member::Leased;
use promethean_event::{Failure, FromEvent};

/// Acks that are held back for company while handlers do not wait.
const QUIET_ACKS_MAX: usize = 256;

/// One of the tasks that run a handler.
pub(super) struct Worker {
    state: Arc<WorkerState>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct WorkerState {
    /// When the handler that runs should have ended, in epoch milliseconds; 0 if none runs.
    due_ms: AtomicU64,
    /// Another one has taken its place: it ends when its handler returns.
    replaced: AtomicBool,
}

impl Worker {
    pub(super) fn start<T, F, Fut>(desk: &Arc<Desk>, handler: &Arc<F>) -> Self
    where
        T: FromEvent,
        F: Fn(Delivered<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let state = Arc::new(WorkerState::default());
        let work = work(Arc::clone(desk), Arc::clone(&state), Arc::clone(handler));
        Self { state, task: tokio::spawn(work) }
    }

    /// Waits for the handler that runs, unless it hangs: then it is let go.
    pub(super) async fn finished(self, desk: &Desk) {
        let due = self.state.due_ms.load(Ordering::Acquire);
        let until = desk.clock.instant_of(due.max(desk.clock.now_ms() + 1));
        let abort = self.task.abort_handle();
        if tokio::time::timeout_at(until, self.task).await.is_err() {
            abort.abort();
        }
    }
}

/// A handler that blocks its thread cannot be stopped. Its event goes to another when the lease is
/// over; here another worker takes its place, so that the rest goes on.
pub(super) fn replace_stuck(workers: &mut [Worker], desk: &Desk, hire: &impl Fn() -> Worker) {
    let now = desk.clock.now_ms();
    for worker in workers {
        let due = worker.state.due_ms.load(Ordering::Acquire);
        if due != 0 && now > due + u64::from(desk.options.ack_timeout_ms / 3) {
            tracing::error!(group = %desk.seat.group(), "a handler blocks its thread");
            worker.state.replaced.store(true, Ordering::Release);
            *worker = hire();
        }
    }
}

async fn work<T, F, Fut>(desk: Arc<Desk>, state: Arc<WorkerState>, handler: Arc<F>)
where
    T: FromEvent,
    F: Fn(Delivered<T>) -> Fut,
    Fut: Future<Output = Result<(), Failure>>,
{
    let mut pace = Pace::new(&desk);
    while !state.replaced.load(Ordering::Acquire) && !desk.is_closed() {
        // Where there is always more to do, others get their turn nevertheless.
        tokio::task::coop::consume_budget().await;
        let Some(waiting) = desk.waiting() else {
            pace.flush(&desk);
            if !desk.wait().await {
                break;
            }
            pace.begin(&desk);
            continue;
        };
        while let Some(leased) = waiting.take() {
            handle_one(&desk, &state, &*handler, leased, &mut pace).await;
            desk.handled.fetch_add(1, Ordering::Relaxed);
            if state.replaced.load(Ordering::Acquire) || desk.is_closed() {
                break;
            }
        }
    }
    pace.flush(&desk);
}

/// What a worker carries from event to event.
struct Pace {
    /// The time, as of the last handler that took any.
    now_ms: u64,
    /// Acks of handlers that did not wait, held back for company.
    acks: AckRanges,
    times: HandlerTimes,
}

async fn handle_one<T, F, Fut>(
    desk: &Desk,
    state: &WorkerState,
    handler: &F,
    leased: Leased,
    pace: &mut Pace,
) where
    T: FromEvent,
    F: Fn(Delivered<T>) -> Fut,
    Fut: Future<Output = Result<(), Failure>>,
{
    let token = leased.token();
    if pace.now_ms >= leased.deadline_ms() {
        // It has waited here for long: if its lease was not prolonged it has gone to another.
        pace.flush(desk);
        let timeout = desk.options.ack_timeout_ms;
        if desk.seat.extend(Ack::Token(token), timeout).all().await.is_err() {
            return;
        }
        pace.begin(desk);
    }
    let Some(delivered) = Delivered::<T>::of(leased) else {
        return;
    };
    let span = delivered.span();
    let running = async { handler(delivered).await }.instrument(span);
    let running = AssertUnwindSafe(running).catch_unwind();
    tokio::pin!(running);
    // Most handlers are done at once, and need neither a deadline nor their own ack.
    let result = match running.as_mut().now_or_never() {
        Some(result) => {
            pace.times.one_ended();
            Some(result)
        }
        None => {
            pace.flush(desk);
            let due = desk.clock.now_ms() + u64::from(desk.options.ack_timeout_ms);
            state.due_ms.store(due, Ordering::Release);
            let timed = tokio::time::timeout_at(desk.clock.instant_of(due), running).await;
            state.due_ms.store(0, Ordering::Release);
            pace.now_ms = desk.clock.now_ms();
            pace.times.one_ended();
            pace.times.end_run();
            timed.ok()
        }
    };
    let failure = match result {
        Some(Ok(Ok(()))) if desk.seat.loses_ack() => lost_ack(),
        Some(Ok(Ok(()))) => return pace.add_ack(desk, token),
        Some(Ok(Err(failure))) => failure,
        Some(Err(panic)) => Failure::retry(format!("handler panicked: {}", panic_text(&*panic))),
        None => Failure::retry("the handler took longer than the ack timeout"),
    };
    pace.flush(desk);
    // The answer is the next delivery, or the dead letter.
    drop(fail(&desk.seat, token, &failure));
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

impl Pace {
    fn new(desk: &Desk) -> Self {
        let mut pace = Self { now_ms: 0, acks: AckRanges::default(), times: HandlerTimes::new() };
        pace.begin(desk);
        pace
    }

    /// Looks at the clock, after a time without work.
    fn begin(&mut self, desk: &Desk) {
        let watch = Stopwatch::start();
        self.now_ms = desk.clock.ms_at(watch);
        self.times.begin(desk.is_metered.then_some(watch));
    }

    fn flush(&mut self, desk: &Desk) {
        self.times.flush(desk.seat.meters());
        self.post_acks(desk, Sender::Idle);
    }

    fn post_acks(&mut self, desk: &Desk, sender: Sender) {
        let acks = self.acks.take();
        if !acks.is_empty() {
            desk.seat.ack_quietly(acks, sender);
        }
    }

    fn add_ack(&mut self, desk: &Desk, token: Token) {
        if self.acks.add(token) >= QUIET_ACKS_MAX {
            self.times.flush(desk.seat.meters());
            self.post_acks(desk, Sender::Busy);
            self.now_ms = desk.clock.now_ms();
        }
    }
}
