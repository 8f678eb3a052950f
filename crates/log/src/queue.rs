use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use promethean_event::Offset;

use crate::batch::{Appended, Batch};
use crate::catalog::LaneState;
use crate::error::AppendError;
use crate::limits::{FRAME_BYTES_TARGET, FRAME_BYTES_WORTHWHILE};
use crate::ticket::Answer;
use crate::topic::{Lane, TopicDefinition, TopicId};

/// Something for the writer to do.
#[derive(Debug)]
pub(crate) enum Request {
    Append { batch: Batch, answer: Answer<Result<Appended, AppendError>> },
    Define { definition: TopicDefinition, answer: Answer<Result<TopicId, AppendError>> },
    Remove { topic: TopicId, answer: Answer<Result<(), AppendError>> },
    Trim { starts: Vec<(Lane, Offset)>, answer: Answer<Result<(), AppendError>> },
    Place { lanes: Vec<(Lane, LaneState)>, answer: Answer<Result<(), AppendError>> },
    Sync { answer: Answer<Result<(), AppendError>> },
}

impl Request {
    pub(crate) fn refuse(self, error: &AppendError) {
        match self {
            Self::Append { answer, .. } => answer.give(Err(error.clone())),
            Self::Define { answer, .. } => answer.give(Err(error.clone())),
            Self::Remove { answer, .. }
            | Self::Trim { answer, .. }
            | Self::Place { answer, .. }
            | Self::Sync { answer } => answer.give(Err(error.clone())),
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

/// How long the writer waits for the next publisher that it expects: far shorter than a sync.
const PATIENCE: Duration = Duration::from_micros(50);

/// Requests on their way to the writer, bounded. What waits while the writer syncs goes into its
/// next frame: the sync itself is the window of the group commit, and no timer is needed.
#[derive(Debug)]
pub(crate) struct Queue {
    inner: Mutex<Waiting>,
    arrived: Condvar,
    requests_max: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    requests: Vec<Request>,
    closed: bool,
    bytes: usize,
    /// The writer sleeps until so many requests are there. To wake it takes a system call, which is
    /// of no use while it is busy or waits for more.
    wanted: Option<usize>,
}

impl Waiting {
    /// Whether it is time to write, for a writer that wants so many requests.
    const fn enough(&self, wanted: usize) -> bool {
        self.closed || self.requests.len() >= wanted || self.bytes >= FRAME_BYTES_WORTHWHILE
    }

    fn take_frame(&mut self) -> Vec<Request> {
        let taken = take_frame(&mut self.requests);
        self.bytes -= taken.iter().map(Request::bytes).sum::<usize>();
        taken
    }
}

impl Queue {
    pub(crate) fn new(requests_max: usize) -> Self {
        Self { inner: Mutex::default(), arrived: Condvar::new(), requests_max }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request, or refuses it at once.
    pub(crate) fn push(&self, request: Request) {
        let mut waiting = self.lock();
        if waiting.closed {
            drop(waiting);
            request.refuse(&AppendError::Closed);
        } else if waiting.requests.len() >= self.requests_max {
            let count = waiting.requests.len();
            drop(waiting);
            request.refuse(&AppendError::Busy(count));
        } else {
            waiting.bytes += request.bytes();
            waiting.requests.push(request);
            let wake = waiting.wanted.is_some_and(|wanted| waiting.enough(wanted));
            if wake {
                waiting.wanted = None;
            }
            drop(waiting);
            if wake {
                self.arrived.notify_one();
            }
        }
    }

    /// What is waiting now, up to about one frame.
    pub(crate) fn take(&self) -> Vec<Request> {
        self.lock().take_frame()
    }

    /// Waits for requests; empty when the log is closed and nothing is left.
    ///
    /// Publishers that were answered together come back together. If the writer took the first of
    /// them at once, the others would wait for a sync of hardly anything. So until `wanted` are
    /// there, and as long as more of them keep coming, it lets them.
    pub(crate) fn wait(&self, wanted: usize) -> Vec<Request> {
        let mut waiting = self.lock();
        let mut wanted = wanted.max(1);
        while !waiting.enough(wanted) {
            let before = waiting.requests.len();
            waiting.wanted = Some(wanted);
            if wanted == 1 {
                waiting = self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.arrived.wait_timeout(waiting, PATIENCE);
            let timeout;
            (waiting, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if timeout.timed_out() && waiting.requests.len() == before {
                wanted = 1;
            }
        }
        waiting.wanted = None;
        waiting.take_frame()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().requests.len()
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
