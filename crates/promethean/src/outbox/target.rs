use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use promethean_event::{EventId, NewEvent, Topic};

use crate::bus::Bus;
use crate::publish::{Marks, PublishOptions};
use crate::store::{Append, AppendError, Receipt, SaveError, Store, TopicDefinition};

/// Where a drainer publishes to.
pub trait OutboxTarget: fmt::Debug + Send + Sync + 'static {
    /// Publishes events, all or none, and answers when they are durable; one receipt for each, in
    /// the order given. The same event again (by id) adds nothing. Dropping the future does not
    /// take the request back.
    fn publish(
        &self,
        events: Vec<NewEvent>,
    ) -> BoxFuture<'static, Result<Vec<Receipt>, PublishError>>;
}

/// Why events were not published, or nobody knows.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The store refused.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// A topic of theirs is not there, and could not be defined.
    #[error("topic {topic} could not be defined: {source}")]
    Define {
        /// The topic.
        topic: Topic,
        /// Why.
        source: SaveError,
    },
    /// The bus does not take such events.
    #[error("{0}")]
    Refused(String),
    /// No answer in time. It may still be published.
    #[error("no answer within {0:?}")]
    NoAnswer(Duration),
    /// The target panicked. It may still be published.
    #[error("the target panicked")]
    Panicked,
    /// An answer that does not fit what was asked.
    #[error("{receipts} receipts for {events} events")]
    WrongAnswer {
        /// How many events were published.
        events: usize,
        /// How many receipts there are.
        receipts: usize,
    },
}

/// What can be done about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remedy {
    /// The store takes nothing now, or nobody knows: wait, for as long as it lasts.
    Outage,
    /// Not these events, not now: try again some times.
    Again,
    /// Never these events.
    Park,
}

/// Which events a failure is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Culprit {
    /// All of them.
    All,
    /// One or some of them.
    Unnamed,
    /// This one.
    Id(EventId),
    /// Those of a topic.
    Topic(Topic),
}

impl PublishError {
    /// Judges the failure. Without a catch-all: whoever adds an error decides what it means here.
    pub(super) fn judge(&self) -> (Remedy, Culprit) {
        match self {
            Self::Append(error) => judge_append(error),
            Self::Define { topic, source } => match source {
                SaveError::Append(error) => judge_append(error),
                SaveError::Changed { .. } | SaveError::Fenced(_) => (Remedy::Outage, Culprit::All),
                SaveError::PartitionsFixed { .. }
                | SaveError::TooManyTopics(_)
                | SaveError::UnknownGroup(_)
                | SaveError::OutOfOrder(_)
                | SaveError::BadSpace(_) => (Remedy::Again, Culprit::Topic(topic.clone())),
            },
            Self::Refused(_) => (Remedy::Park, Culprit::Unnamed),
            Self::NoAnswer(_) | Self::Panicked | Self::WrongAnswer { .. } => {
                (Remedy::Outage, Culprit::All)
            }
        }
    }
}

fn judge_append(error: &AppendError) -> (Remedy, Culprit) {
    match error {
        AppendError::IdConflict { id, .. } => (Remedy::Park, Culprit::Id(*id)),
        AppendError::TooLarge { .. } | AppendError::Empty => (Remedy::Park, Culprit::Unnamed),
        AppendError::UnknownTopic(topic) => (Remedy::Again, Culprit::Topic(topic.clone())),
        // We make no conditions; whoever does may be asked again.
        AppendError::OffsetMismatch { .. } | AppendError::UnknownLane(_) => {
            (Remedy::Again, Culprit::Unnamed)
        }
        AppendError::Unavailable(_)
        | AppendError::Busy(_)
        | AppendError::NoSpace
        | AppendError::StorageFailed(_)
        | AppendError::Indeterminate(_)
        | AppendError::Closed => (Remedy::Outage, Culprit::All),
    }
}

/// Topics that are not there are defined, with one partition.
impl OutboxTarget for Arc<dyn Store> {
    fn publish(
        &self,
        events: Vec<NewEvent>,
    ) -> BoxFuture<'static, Result<Vec<Receipt>, PublishError>> {
        let store = Self::clone(self);
        Box::pin(async move {
            let topics: BTreeSet<&Topic> = events.iter().map(|event| &event.topic).collect();
            let known = store.topics();
            for topic in topics.into_iter().filter(|topic| known.get(topic).is_none()) {
                define(&store, topic).await?;
            }
            Ok(store.append(Append { events, ..Append::default() }).await?.receipts.into_vec())
        })
    }
}

/// Topics that are not there are made as the bus's options say.
impl OutboxTarget for Bus {
    fn publish(
        &self,
        events: Vec<NewEvent>,
    ) -> BoxFuture<'static, Result<Vec<Receipt>, PublishError>> {
        let bus = self.clone();
        Box::pin(async move {
            use crate::error::PublishError as Refusal;
            let own = events.len();
            let placed = bus.place(events, PublishOptions::default(), Marks::TakenOff).await;
            let mut appended = placed.map_err(|error| match error {
                Refusal::Append(error) => PublishError::Append(error),
                Refusal::Define { topic, source } => PublishError::Define { topic, source },
                Refusal::UnknownTopic(topic) => {
                    PublishError::Append(AppendError::UnknownTopic(topic))
                }
                // Nothing is let through unchecked, but it is not the events' fault.
                Refusal::Schemas(error) | Refusal::Snapshots(error) => {
                    PublishError::Append(AppendError::Unavailable(error.to_string()))
                }
                refused => PublishError::Refused(refused.to_string()),
            })?;
            // Copies that dual writes made are nobody's here.
            appended.receipts.truncate(own);
            Ok(appended.receipts.into_vec())
        })
    }
}

async fn define(store: &Arc<dyn Store>, topic: &Topic) -> Result<(), PublishError> {
    match store.define(TopicDefinition::new(topic.clone())).await {
        // Somebody else has defined it meanwhile, with more partitions.
        Ok(_) | Err(SaveError::PartitionsFixed { .. }) => Ok(()),
        Err(source) => Err(PublishError::Define { topic: topic.clone(), source }),
    }
}
