use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use promethean_event::{Failure, FromEvent};
use tokio::task::JoinHandle;

use super::consumer::Desk;
use super::delivered::Delivered;
use super::runner::Runner;

/// One of the tasks that run a handler.
pub(super) struct Worker {
    state: Arc<WorkerState>,
    task: JoinHandle<()>,
}

#[derive(Default)]
pub(super) struct WorkerState {
    /// When the handler that runs should have ended, in epoch milliseconds; 0 if none runs.
    pub(super) due_ms: AtomicU64,
    /// Another one has taken its place: it ends when its handler returns.
    pub(super) replaced: AtomicBool,
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
    let mut runner = Runner::new(&desk, &state, &*handler);
    while !runner.is_over() {
        // Where there is always more to do, others get their turn nevertheless.
        tokio::task::coop::consume_budget().await;
        let Some(waiting) = desk.waiting() else {
            runner.pace.flush(&desk);
            if !desk.wait().await {
                break;
            }
            runner.pace.begin(&desk);
            continue;
        };
        while let Some(stop) = runner.run(&waiting) {
            runner.go_on(stop).await;
        }
    }
    runner.pace.flush(&desk);
}
