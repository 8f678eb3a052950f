use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use promethean_event::Offset;

use crate::batch::{Appended, Batch};
use crate::error::AppendError;
use crate::limits::FRAME_BYTES_TARGET;
use crate::ticket::Answer;
use crate::topic::{Lane, TopicDefinition, TopicId};

/// Something for the writer to do.
#[derive(Debug)]
pub(crate) enum Request {
    Append { batch: Batch, answer: Answer<Result<Appended, AppendError>> },
    Define { definition: TopicDefinition, answer: Answer<Result<TopicId, AppendError>> },
    Remove { topic: TopicId, answer: Answer<Result<(), AppendError>> },
    Trim { starts: Vec<(Lane, Offset)>, answer: Answer<Result<(), AppendError>> },
    Sync { answer: Answer<Result<(), AppendError>> },
}

impl Request {
    pub(crate) fn refuse(self, error: &AppendError) {
        match self {
            Self::Append { answer, .. } => answer.give(Err(error.clone())),
            Self::Define { answer, .. } => answer.give(Err(error.clone())),
            Self::Remove { answer, .. } | Self::Trim { answer, .. } | Self::Sync { answer } => {
                answer.give(Err(error.clone()));
            }
        }
    }

    const fn bytes(&self) -> usize {
        match self {
            Self::Append { batch, .. } => batch.bytes.len(),
            Self::Define { .. } | Self::Remove { .. } | Self::Trim { .. } | Self::Sync { .. } => 0,
        }
    }
}

/// How often the writer gives way in vain before it takes what is there.
const IDLE_YIELDS_MAX: usize = 8;

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
            let first = waiting.requests.is_empty();
            waiting.requests.push(request);
            drop(waiting);
            if first {
                self.arrived.notify_one();
            }
        }
    }

    /// What is waiting now, up to about one frame.
    pub(crate) fn take(&self) -> Vec<Request> {
        take_frame(&mut self.lock().requests)
    }

    /// Waits for requests; empty when the log is closed and nothing is left.
    ///
    /// Publishers that were answered together come back together. If the writer took the first of
    /// them at once, the others would wait for a sync of hardly anything. So as long as they keep
    /// coming, and until as many are there as were answered last, it lets them.
    pub(crate) fn wait(&self, expected: usize) -> Vec<Request> {
        let mut waiting = self.lock();
        while waiting.requests.is_empty() && !waiting.closed {
            waiting = self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        let mut idle = 0;
        while waiting.requests.len() < expected && !waiting.closed && idle < IDLE_YIELDS_MAX {
            let before = waiting.requests.len();
            drop(waiting);
            std::thread::yield_now();
            waiting = self.lock();
            idle = if waiting.requests.len() > before { 0 } else { idle + 1 };
        }
        take_frame(&mut waiting.requests)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().requests.is_empty()
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
        return std::mem::take(requests);
    }
    let rest = requests.split_off(count);
    std::mem::replace(requests, rest)
}
