//! A handler at work. Most handlers are done at once: they are run one after the other without
//! anything that only those need that wait.

use std::any::Any;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use futures_util::FutureExt;
use promethean_delivery::{Ack, Token};
use promethean_event::{Failure, FromEvent};
use tracing::Instrument;
use tracing::instrument::Instrumented;

use super::consumer::{Desk, Waiting};
use super::delivered::{Delivered, fail, lost_ack};
use super::pace::Pace;
use super::worker::WorkerState;
use crate::member::Leased;

/// Runs a handler on events.
pub(super) struct Runner<'a, T, F, Fut> {
    desk: &'a Desk,
    state: &'a WorkerState,
    handler: &'a F,
    /// The handler that runs. One place for all, so that one that waits is where it was begun.
    running: Pin<Box<Option<Instrumented<Fut>>>>,
    /// The delivery that the last handler was begun with.
    token: Option<Token>,
    pub(super) pace: Pace,
    payload: PhantomData<fn() -> T>,
}

/// Why the next event has to wait.
pub(super) enum Stop {
    /// This one has waited here for long.
    Late(Leased),
    /// The handler waits for something.
    Waits,
    /// The handler did not succeed.
    Failed(Failure),
}

impl<'a, T, F, Fut> Runner<'a, T, F, Fut>
where
    T: FromEvent,
    F: Fn(Delivered<T>) -> Fut,
    Fut: Future<Output = Result<(), Failure>>,
{
    pub(super) fn new(desk: &'a Desk, state: &'a WorkerState, handler: &'a F) -> Self {
        let (running, pace) = (Box::pin(None), Pace::new(desk));
        Self { desk, state, handler, running, token: None, pace, payload: PhantomData }
    }

    /// Whether no further handler is to be begun.
    pub(super) fn is_over(&self) -> bool {
        self.state.replaced.load(Ordering::Acquire) || self.desk.is_closed()
    }

    /// Runs the handler on events of a batch for as long as it is done at once. `None` when no
    /// event is left, or no further handler is to be begun.
    pub(super) fn run(&mut self, waiting: &Waiting) -> Option<Stop> {
        let mut handled = 0;
        let is_unread = waiting.is_sound && T::version().is_none();
        let ran = self.catch(|runner| {
            while !runner.is_over() {
                let leased = waiting.take()?;
                if runner.pace.now_ms >= leased.deadline_ms() {
                    return Some(Stop::Late(leased));
                }
                runner.token = Some(leased.token());
                let delivered = match is_unread {
                    true => Some(Delivered::unread(leased)),
                    false => Delivered::of(leased),
                };
                let stop = delivered.and_then(|delivered| runner.begin(delivered));
                if stop.is_some() {
                    return stop;
                }
                handled += 1;
            }
            None
        });
        self.desk.handled.fetch_add(handled, Ordering::Relaxed);
        ran
    }

    /// Does what takes time, until the next event may be handled.
    pub(super) async fn go_on(&mut self, stop: Stop) {
        let mut next = Some(stop);
        while let Some(stop) = next.take() {
            next = match stop {
                Stop::Late(leased) => self.begin_late(leased).await,
                Stop::Waits => self.wait().await,
                Stop::Failed(failure) => {
                    self.pace.flush(self.desk);
                    // The answer is the next delivery, or the dead letter.
                    let failed = self.token.map(|token| fail(&self.desk.seat, token, &failure));
                    drop(failed);
                    None
                }
            };
        }
        self.desk.handled.fetch_add(1, Ordering::Relaxed);
    }

    /// A handler that panics has failed.
    fn catch(&mut self, work: impl FnOnce(&mut Self) -> Option<Stop>) -> Option<Stop> {
        catch_unwind(AssertUnwindSafe(|| work(self))).unwrap_or_else(|panic| {
            self.running.set(None);
            Some(Stop::Failed(panicked(&*panic)))
        })
    }

    /// Begins a handler. `None` if it was done at once.
    fn begin(&mut self, delivered: Delivered<T>) -> Option<Stop> {
        let span = delivered.span();
        let running = span.in_scope(|| (self.handler)(delivered)).instrument(span);
        self.running.set(Some(running));
        let running = self.running.as_mut().as_pin_mut()?;
        match running.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => Some(Stop::Waits),
            Poll::Ready(result) => {
                self.running.set(None);
                self.pace.times.one_ended();
                self.ended(result)
            }
        }
    }

    /// One that has waited here for long has gone to another, if its lease was not prolonged.
    async fn begin_late(&mut self, leased: Leased) -> Option<Stop> {
        self.pace.flush(self.desk);
        let (token, timeout) = (leased.token(), self.desk.options.ack_timeout_ms);
        self.desk.seat.extend(Ack::Token(token), timeout).all().await.ok()?;
        self.pace.begin(self.desk);
        self.token = Some(token);
        let delivered = Delivered::of(leased)?;
        self.catch(|runner| runner.begin(delivered))
    }

    /// Waits for the handler that runs, for as long as it may take.
    async fn wait(&mut self) -> Option<Stop> {
        let Self { desk, state, .. } = *self;
        self.pace.flush(desk);
        let due = desk.clock.now_ms() + u64::from(desk.options.ack_timeout_ms);
        state.due_ms.store(due, Ordering::Release);
        let running = AssertUnwindSafe(self.running.as_mut().as_pin_mut()?).catch_unwind();
        let timed = tokio::time::timeout_at(desk.clock.instant_of(due), running).await;
        self.running.set(None);
        state.due_ms.store(0, Ordering::Release);
        self.pace.now_ms = desk.clock.now_ms();
        self.pace.times.one_ended();
        self.pace.times.end_run();
        self.ended(match timed {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => Err(panicked(&*panic)),
            Err(_) => Err(Failure::retry("the handler took longer than the ack timeout")),
        })
    }

    fn ended(&mut self, result: Result<(), Failure>) -> Option<Stop> {
        match result {
            Ok(()) if self.desk.seat.loses_ack() => Some(Stop::Failed(lost_ack())),
            Ok(()) => {
                self.token.inspect(|token| self.pace.add_ack(self.desk, *token));
                None
            }
            Err(failure) => Some(Stop::Failed(failure)),
        }
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Failure::retry(format!("handler panicked: {}", text.unwrap_or("no message")))
}
