use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::Poll;

use promethean::member::{Member, Token, Told};
use promethean_event::frame::Target;
use promethean_event::{EventId, GroupName, Pattern, Topic};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::access::{Action, Principal, Resource};
use crate::rejection::{Code, Rejection};
use crate::tail::{Followed, Tail};

/// Where the events of a subscription come from.
#[derive(Debug)]
pub(crate) enum Feed {
    /// A group of the bus.
    Member(Member),
    /// Topics, followed without a group.
    Tail(mpsc::Receiver<Result<Vec<Followed>, Rejection>>, AbortHandle),
}

/// What a feed has to say.
#[derive(Debug)]
pub(crate) enum News {
    Told(Told),
    Followed(Vec<Followed>),
    /// Nothing more, and why: the group has stopped, the store is closed or cannot be read.
    Ended(Rejection),
}

impl News {
    const fn stopped() -> Self {
        Self::Ended(Rejection::plain(Code::ReadOnly))
    }
}

/// One SUBSCRIBE of a connection.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) group: Option<GroupName>,
    pub(crate) topics: Vec<Pattern>,
    pub(crate) feed: Feed,
    /// Most events of one EVENTS frame; none for one EVENT each.
    pub(crate) batch: Option<usize>,
    /// The server acks, as soon as an event is on its way.
    pub(crate) auto_ack: bool,
    pub(crate) max_attempts: u16,
    pub(crate) ack_timeout_ms: u32,
    /// The client wants nothing new for now.
    pub(crate) paused: bool,
    /// The server gives nothing new: the credential has ended, or the server stops. A RESUME of the
    /// client does not undo it.
    pub(crate) hushed: bool,
    /// More came than its rates allow: nothing new until then.
    pub(crate) paced: Option<Instant>,
    /// Events a tail may still send; none without credits.
    pub(crate) credit: Option<u32>,
    /// What is out, by what clients without tokens call it.
    pub(crate) out: HashMap<(Topic, EventId), OutDelivery>,
    pub(crate) counters: HashMap<Topic, Counted>,
}

/// A delivery that a plain client can answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutDelivery {
    pub(crate) token: Token,
    pub(crate) deadline_ms: u64,
}

/// Counters of one topic, looked up once.
#[derive(Debug, Clone)]
pub(crate) struct Counted {
    pub(crate) delivered: Arc<AtomicU64>,
    pub(crate) redelivered: Arc<AtomicU64>,
}

impl Subscription {
    pub(crate) fn is(&self, target: &Target, number: u32) -> bool {
        match target {
            Target::Sub(wanted) => *wanted == number,
            Target::Name { topic, group } => {
                self.group.as_ref() == Some(group) && self.topics.contains(topic)
            }
        }
    }

    /// Whether somebody may have it.
    pub(crate) fn is_allowed(&self, principal: &Principal) -> bool {
        let group = self.group.as_ref();
        self.topics.iter().all(|pattern| match group {
            Some(_) => {
                principal.policy().allows(Action::Subscribe, Resource::Pattern(pattern, group))
            }
            // A tail was opened with the rights of then.
            None => principal.policy().allows(Action::Read, Resource::Pattern(pattern, None)),
        })
    }

    /// Follows topics in a task of its own, a few pages ahead at most.
    pub(crate) fn follow(mut tail: Tail) -> Feed {
        let (sender, receiver) = mpsc::channel(2);
        let task = tokio::spawn(async move {
            loop {
                match tail.next().await {
                    Ok(Some(found)) => {
                        if sender.send(Ok(found)).await.is_err() {
                            return;
                        }
                    }
                    Ok(None) => return,
                    Err(error) => {
                        // Whoever is not there any more need not know.
                        let _ = sender.send(Err(error.into())).await;
                        return;
                    }
                }
            }
        });
        Feed::Tail(receiver, task.abort_handle())
    }

    /// Tells the group whether there may be anything new. Tails ask by themselves.
    pub(crate) fn settle(&self) {
        if let Feed::Member(member) = &self.feed {
            if self.is_quiet() {
                member.seat().pause();
            } else {
                member.seat().resume();
            }
        }
    }

    const fn is_quiet(&self) -> bool {
        self.paused || self.hushed || self.paced.is_some()
    }

    fn is_ready(&self) -> bool {
        !self.is_quiet() && self.credit != Some(0)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Feed::Tail(_, task) = &self.feed {
            task.abort();
        }
    }
}

/// Waits for the first of all subscriptions that has something to say.
pub(super) async fn next(subscriptions: &mut BTreeMap<u32, Subscription>) -> (u32, News) {
    std::future::poll_fn(|context| {
        for (number, subscription) in subscriptions.iter_mut() {
            let ready = subscription.is_ready();
            let polled = match &mut subscription.feed {
                // What was on its way when its credential ended stays here.
                Feed::Member(_) if subscription.hushed => Poll::Pending,
                Feed::Member(member) => member
                    .poll_next(context)
                    .map(|told| told.map_or_else(News::stopped, News::Told)),
                Feed::Tail(pages, _) if ready => {
                    pages.poll_recv(context).map(|found| match found {
                        Some(Ok(found)) => News::Followed(found),
                        Some(Err(refusal)) => News::Ended(refusal),
                        None => News::stopped(),
                    })
                }
                Feed::Tail(..) => Poll::Pending,
            };
            if let Poll::Ready(news) = polled {
                return Poll::Ready((*number, news));
            }
        }
        Poll::Pending
    })
    .await
}
