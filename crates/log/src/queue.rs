use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use promethean_event::Offset;

use crate::batch::{Appended, Batch, BatchSize};
use crate::catalog::LaneState;
use crate::error::AppendError;
use crate::limits::{FRAME_BYTES_TARGET, SHARED_BYTES_MAX};
use crate::ticket::{Answers, Tickets};
use crate::topic::{Lane, TopicDefinition, TopicId};

pub(crate) type AppendAnswers = Answers<Result<Appended, AppendError>>;
pub(crate) type AppendTickets = Tickets<Result<Appended, AppendError>>;

/// Something for the writer to do.
#[derive(Debug)]
pub(crate) enum Request {
    /// One ticket for each part of the batch.
    Append {
        batch: Batch,
        answers: AppendAnswers,
    },
    Define {
        definition: TopicDefinition,
        answer: Answers<Result<TopicId, AppendError>>,
    },
    Remove {
        topic: TopicId,
        answer: Answers<Result<(), AppendError>>,
    },
    Trim {
        starts: Vec<(Lane, Offset)>,
        answer: Answers<Result<(), AppendError>>,
    },
    Place {
        lanes: Vec<(Lane, LaneState)>,
        answer: Answers<Result<(), AppendError>>,
    },
    Sync {
        answer: Answers<Result<(), AppendError>>,
    },
}

impl Request {
    pub(crate) fn refuse(self, error: &AppendError) {
        match self {
            Self::Append { answers, .. } => answers.give_each(|_| Some(Err(error.clone()))),
            Self::Define { answer, .. } => answer.give(Err(error.clone())),
            Self::Remove { answer, .. }
            | Self::Trim { answer, .. }
            | Self::Place { answer, .. }
            | Self::Sync { answer } => answer.give(Err(error.clone())),
        }
    }

    /// How many there are who wait for it.
    const fn publishers(&self) -> usize {
        match self {
            Self::Append { batch, .. } => batch.parts.len(),
            Self::Define { .. }
            | Self::Remove { .. }
            | Self::Trim { .. }
            | Self::Place { .. }
            | Self::Sync { .. } => 1,
        }
    }

    const fn bytes(&self) -> usize {
        match self {
            Self::Append { batch, .. } => batch.bytes.len(),
            Self::Define { .. }
            | Self::Remove { .. }
            | Self::Trim { .. }
            | Self::Place { .. }
            | Self::Sync { .. } => 0,
        }
    }
}

/// How long nothing must happen before the log leaves word that everything is synced.
const IDLE: Duration = Duration::from_millis(10);

/// A frame of so few publishers is synced while the next one is written and its sync begun beside it,
/// so that nobody waits for the end of a sync that was begun just before he came. Where there are more,
/// the disk has enough to do, and two syncs at once take twice as long and twice the processor time;
/// those who come meanwhile share the next frame.
const BESIDE_PUBLISHERS_MAX: usize = 16;

/// What a writing thread is to do. It has the turn then, and gives it back by [`Queue::pass`], or
/// when it waits again.
#[derive(Debug)]
pub(crate) enum Turn {
    Write(Vec<Request>),
    /// Nothing happens: everything that was written is to be synced, and word left of it.
    LeaveWord,
    /// The log is closed, and nothing is left to write.
    Stop,
}

/// Whether a writing thread is woken for what is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    Now,
    /// More is about to follow, and then [`Queue::call_writer`].
    Later,
}

/// Requests on their way to the log, bounded, and the turn to write them.
#[derive(Debug)]
pub(crate) struct Queue {
    inner: Mutex<Waiting>,
    arrived: Condvar,
    /// Publishers and bytes: with so many, no more are taken.
    bounds: (usize, usize),
}

#[derive(Debug, Default)]
struct Waiting {
    requests: Vec<Request>,
    closed: bool,
    bytes: usize,
    /// Those who wait for an answer.
    publishers: usize,
    /// The size of the shared batch that was taken last: the next one will be about as large.
    shared_last: BatchSize,
    /// A thread has the turn.
    turn: bool,
    /// A thread is woken for it: another call would be of no use.
    called: bool,
    /// Threads that sleep.
    idle: usize,
    /// Those of them that wake by themselves, to leave word.
    resting: usize,
    /// Frames that are being synced by threads that do not have the turn.
    syncing: usize,
    /// Word was left since something was written.
    told: bool,
    /// How often the turn was taken.
    turns: u64,
}

impl Waiting {
    /// Whether there is something to write. What waits while a frame is synced goes into the next one:
    /// the sync itself is the window of the group commit, and no timer is needed.
    const fn ready(&self) -> bool {
        self.closed || self.publishers > 0
    }

    /// Whether to wake a thread.
    fn calls(&mut self) -> bool {
        let calls = !self.turn && !self.called && self.idle > 0 && self.ready();
        self.called |= calls;
        calls
    }

    /// Somebody writes.
    fn take_turn(&mut self) -> Vec<Request> {
        (self.turn, self.turns) = (true, self.turns + 1);
        self.take_frame()
    }

    /// A thread is awake again that lay down after so many turns; gives whether nothing has happened: who
    /// writes by his own thread wakes nobody. Nobody counts as called any more, also if it woke by itself:
    /// a call that came just then has found nobody else, and a call too many costs less than one that is
    /// never made.
    fn woken(&mut self, turns: u64) -> bool {
        self.idle -= 1;
        self.called = false;
        !self.turn && self.syncing == 0 && !self.ready() && self.turns == turns
    }

    fn take_frame(&mut self) -> Vec<Request> {
        let taken = take_frame(&mut self.requests);
        self.bytes -= taken.iter().map(Request::bytes).sum::<usize>();
        self.publishers -= taken.iter().map(Request::publishers).sum::<usize>();
        let mut shared = taken.iter().filter_map(|request| match request {
            Request::Append { batch, .. } if batch.shared => Some(batch.size()),
            _ => None,
        });
        self.shared_last = shared.next_back().unwrap_or(self.shared_last);
        taken
    }

    /// Why a request cannot be taken.
    fn refusal(&self, (publishers_max, bytes_max): (usize, usize)) -> Option<AppendError> {
        if self.closed {
            return Some(AppendError::Closed);
        }
        let full = self.publishers >= publishers_max || self.bytes >= bytes_max;
        full.then_some(AppendError::Busy(self.publishers))
    }

    /// Adds a small batch to the shared one at the end of the queue; to a new one, if something is
    /// there that must not be overtaken, one that is large enough, or one for which other room is kept.
    fn share(&mut self, small: &Batch) -> AppendTickets {
        let parts = small.parts.len();
        self.publishers += parts;
        if let Some(Request::Append { batch, answers }) = self.requests.last_mut()
            && batch.shared
            && batch.system == small.system
            && batch.bytes.len() + small.bytes.len() <= SHARED_BYTES_MAX
        {
            let before = batch.bytes.len();
            batch.add(small);
            self.bytes += batch.bytes.len() - before;
            return answers.tickets(parts);
        }
        let mut batch = Batch::to_share(self.shared_last);
        let mut answers = Answers::with_capacity(self.shared_last.parts);
        batch.add(small);
        self.bytes += batch.bytes.len();
        let tickets = answers.tickets(parts);
        self.requests.push(Request::Append { batch, answers });
        tickets
    }
}

impl Queue {
    pub(crate) fn new(publishers_max: usize, bytes_max: usize) -> Self {
        let bounds = (publishers_max, bytes_max);
        Self { inner: Mutex::default(), arrived: Condvar::new(), bounds }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request, or refuses it at once.
    pub(crate) fn push(&self, request: Request) {
        self.add(request, Call::Now);
    }

    /// The same, when the writer is to be woken later.
    pub(crate) fn add(&self, request: Request, call: Call) {
        let mut waiting = self.lock();
        if let Some(error) = waiting.refusal(self.bounds) {
            drop(waiting);
            return request.refuse(&error);
        }
        waiting.bytes += request.bytes();
        waiting.publishers += request.publishers();
        waiting.requests.push(request);
        if call == Call::Now {
            self.call(waiting);
        }
    }

    /// Adds a batch that is small enough to be copied, behind others like it. A ticket for each part.
    pub(crate) fn push_small(&self, batch: &Batch, call: Call) -> AppendTickets {
        let mut waiting = self.lock();
        if let Some(error) = waiting.refusal(self.bounds) {
            return Tickets::answered(vec![Err(error); batch.parts.len()]);
        }
        let tickets = waiting.share(batch);
        if call == Call::Now {
            self.call(waiting);
        }
        tickets
    }

    /// Wakes a thread for what was added before, if there is something to do for it.
    pub(crate) fn call_writer(&self) {
        self.call(self.lock());
    }

    /// Lets the queue go, and wakes a thread if there is something to do for it.
    fn call(&self, mut waiting: MutexGuard<'_, Waiting>) {
        let calls = waiting.calls();
        drop(waiting);
        if calls {
            self.arrived.notify_one();
        }
    }

    /// What is waiting now, up to about one frame.
    pub(crate) fn take(&self) -> Vec<Request> {
        self.lock().take_frame()
    }

    /// Waits for the turn to write, and for something to write. Whoever has the turn still takes it
    /// again, if there is something.
    pub(crate) fn wait(&self, has_turn: bool) -> Turn {
        let mut waiting = self.lock();
        if has_turn {
            waiting.turn = false;
        }
        loop {
            if !waiting.turn && waiting.ready() {
                let requests = waiting.take_turn();
                if requests.is_empty() {
                    waiting.turn = false;
                    // The other one may have gone to sleep because the turn was taken.
                    self.arrived.notify_all();
                    return Turn::Stop;
                }
                waiting.told = false;
                return Turn::Write(requests);
            }
            let word_is_due;
            (waiting, word_is_due) = self.sleep(waiting);
            if word_is_due {
                (waiting.told, waiting.turn) = (true, true);
                return Turn::LeaveWord;
            }
        }
    }

    /// Sleeps until something happens, or until nothing has happened for long enough to say so.
    fn sleep<'a>(&self, mut waiting: MutexGuard<'a, Waiting>) -> (MutexGuard<'a, Waiting>, bool) {
        waiting.idle += 1;
        let turns = waiting.turns;
        let quiet = !waiting.told && !waiting.turn && waiting.syncing == 0;
        let timed_out;
        if quiet {
            waiting.resting += 1;
            let slept = self.arrived.wait_timeout(waiting, IDLE);
            let timeout;
            (waiting, timeout) = slept.unwrap_or_else(PoisonError::into_inner);
            timed_out = timeout.timed_out();
            waiting.resting -= 1;
        } else {
            waiting = self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            timed_out = false;
        }
        let quiet = waiting.woken(turns);
        (waiting, timed_out && quiet)
    }

    /// Takes the turn and what waits, if nobody writes or syncs and it is not too much, for one who
    /// leaves word himself. Given back by [`Queue::give_turn`].
    pub(crate) fn take_turn(&self, bytes_max: usize) -> Option<Vec<Request>> {
        let mut waiting = self.lock();
        if waiting.turn
            || waiting.syncing > 0
            || waiting.requests.is_empty()
            || waiting.bytes > bytes_max
        {
            return None;
        }
        Some(waiting.take_turn())
    }

    /// Gives the turn back, with nothing on its way; `behind` if something is left to be synced when
    /// nothing happens for a while.
    pub(crate) fn give_turn(&self, behind: bool) {
        let mut waiting = self.lock();
        waiting.turn = false;
        waiting.told &= !behind;
        let wakes = behind && waiting.resting == 0 && waiting.idle > 0;
        if waiting.closed {
            // Those who have gone to sleep because the turn was taken, and are to stop.
            drop(waiting);
            self.arrived.notify_all();
        } else if wakes {
            drop(waiting);
            self.arrived.notify_one();
        } else {
            self.call(waiting);
        }
    }

    /// Gives the turn back while a frame of so many publishers is synced, if another one may be written
    /// and synced beside it; true if so.
    pub(crate) fn pass(&self, publishers: usize) -> bool {
        if publishers > BESIDE_PUBLISHERS_MAX {
            return false;
        }
        let mut waiting = self.lock();
        waiting.turn = false;
        waiting.syncing += 1;
        self.call(waiting);
        true
    }

    /// A frame is synced for which the turn was given back.
    pub(crate) fn synced(&self) {
        self.lock().syncing -= 1;
    }

    /// No more requests; those that wait are still served.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_all();
    }
}

fn take_frame(requests: &mut Vec<Request>) -> Vec<Request> {
    let mut bytes = 0;
    let fits = |request: &Request| {
        bytes += request.bytes();
        bytes <= FRAME_BYTES_TARGET
    };
    let count = requests.iter().take_while({
        let mut fits = fits;
        move |request| fits(request)
    });
    // One at least, however large.
    let count = count.count().max(1).min(requests.len());
    if count == requests.len() {
        // Room for as many, so that publishers need not make it while others wait for them.
        return std::mem::replace(requests, Vec::with_capacity(count));
    }
    let rest = requests.split_off(count);
    std::mem::replace(requests, rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ticket::Ticket;

    /// The thread's rest ends by itself in the moment in which it is called: the call wakes nobody.
    #[test]
    fn a_call_that_meets_the_end_of_a_rest_is_not_the_last() {
        let (_ticket, answer) = Ticket::new();
        let mut waiting = Waiting { idle: 1, told: true, ..Waiting::default() };
        waiting.requests.push(Request::Sync { answer });
        waiting.publishers = 1;
        assert!(waiting.calls(), "somebody sleeps, and there is something to do");
        assert!(!waiting.calls(), "one call is enough");
        assert!(!waiting.woken(0), "it finds what it was called for");
        drop(waiting.take_frame());

        waiting.idle = 1;
        let (_ticket, answer) = Ticket::new();
        waiting.requests.push(Request::Sync { answer });
        waiting.publishers = 1;
        assert!(waiting.calls(), "it sleeps again, without an end, and has to be called");
    }

    /// A thread that leaves word when nothing happens slept while callers wrote by themselves: a stream of
    /// events that nobody wanted synced was synced every 10 ms.
    #[test]
    fn nothing_has_happened_only_if_nobody_has_written() {
        let mut waiting = Waiting { idle: 2, ..Waiting::default() };
        let turns = waiting.turns;
        drop(waiting.take_turn());
        waiting.turn = false;
        assert!(!waiting.woken(turns), "somebody wrote while it slept");
        let turns = waiting.turns;
        assert!(waiting.woken(turns), "and nobody since it lay down again");
    }

    /// A few publishers of large batches filled the memory.
    #[test]
    fn what_waits_is_bounded_in_bytes() {
        let queue = Queue::new(8, 1000);
        let batch = Batch { bytes: vec![0; 600], parts: vec![0], ..Batch::default() };
        let push = || queue.push_small(&batch, Call::Later).one().try_take();
        assert!(push().is_none());
        assert!(push().is_none(), "what is taken may lead beyond it");
        assert!(matches!(push(), Some(Err(AppendError::Busy(2)))));
        drop(queue.take());
        assert!(push().is_none());
    }

    /// One thread sleeps because the other one has the turn; nobody calls it when that one stops.
    #[test]
    fn both_threads_stop() {
        let queue = std::sync::Arc::new(Queue::new(8, usize::MAX));
        let (_ticket, answer) = Ticket::new();
        queue.push(Request::Sync { answer });
        assert!(matches!(queue.wait(false), Turn::Write(_)));
        queue.close();
        let other = std::sync::Arc::clone(&queue);
        let other = std::thread::spawn(move || other.wait(false));
        while queue.lock().idle == 0 {
            std::thread::yield_now();
        }
        assert!(matches!(queue.wait(true), Turn::Stop));
        assert!(matches!(other.join(), Ok(Turn::Stop)));
    }
}
