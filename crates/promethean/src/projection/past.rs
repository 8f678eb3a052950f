//! Views as they were. A view whose documents have the keys of their events is folded from the
//! history of one key; other keys are not looked at. Other views: [`Projection::folded`].

use std::sync::Arc;

use promethean_event::{Key, Topic};
use serde::Serialize;

use super::definition::Kind;
use super::digest::is_for_another;
use super::document::{Document, without_reserved};
use super::error::ViewError;
use super::mapping::{Change, Mapping, change_of};
use super::position::Position;
use super::stamp::{Order, Stamp, Write};
use super::views::Projection;
use crate::as_of::{AS_OF_EVENTS_MAX, AsOfError, History, Moment, Subject};
use crate::snapshot::Kept;
use crate::store::{KeyQuery, Lane, ReadError, Stored, event_at};

/// A document at a moment.
#[derive(Debug, Clone, PartialEq)]
pub enum Past {
    /// It was this one.
    Document {
        /// The document.
        document: Box<Document>,
        /// The event that made it so; one of the topic's snapshot where the topic has lost it.
        event: Box<Stored>,
        /// False if events between this one and the moment may have been compacted away.
        is_complete: bool,
    },
    /// It had been deleted.
    Deleted {
        /// By this event.
        event: Box<Stored>,
        /// As above.
        is_complete: bool,
    },
    /// It had never been there.
    NeverExisted,
    /// Nothing from before the moment is kept.
    BeforeHistory {
        /// The first event of the key that is kept, if there is one.
        first: Option<Box<Stored>>,
        /// The first place that is kept.
        starts_at: Position,
    },
}

/// Why there is no answer about the past.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PastError {
    /// The view is not folded by the keys of its events.
    #[error(
        "documents of {0} do not have the keys of their events, so that a key has no history of its \
         own; its state at a time by append is folded from the whole log"
    )]
    NotByKey(String),
    /// The log up to there is longer than is folded for a question.
    #[error("{events} events would have to be folded, more than {max}; ask for a view by key")]
    TooLong {
        /// How many events there are.
        events: u64,
        /// How many are folded.
        max: u64,
    },
    /// The document has no form in the version that was asked for.
    #[error("{0}")]
    Version(String),
    /// The key cannot be one.
    #[error("{0}")]
    Key(String),
    /// The key's history.
    #[error(transparent)]
    AsOf(#[from] AsOfError),
    /// The view.
    #[error(transparent)]
    View(#[from] ViewError),
}

impl From<ReadError> for PastError {
    fn from(error: ReadError) -> Self {
        Self::AsOf(error.into())
    }
}

/// What an event did to a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StepEffect {
    /// It wrote it.
    Put,
    /// It deleted it.
    Delete,
    /// Nothing: its version is not newer.
    Stale,
    /// Nothing: the view makes nothing of it, or it was for another group.
    Ignored,
}

/// An event of a key, and the document after it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PastStep {
    /// The event.
    pub stored: Stored,
    /// What it did.
    pub effect: StepEffect,
    /// The document afterwards.
    pub document: Option<Document>,
}

/// Documents at a moment, by key.
pub(super) struct PastPage {
    /// Keys and their documents; what was deleted or never there is left out.
    pub(super) documents: Vec<Document>,
    /// Keys of which nothing from before the moment is kept.
    pub(super) unknown: u64,
    /// After which key to go on; `None` at the end.
    pub(super) next: Option<Key>,
}

/// What folds the history of a key.
#[derive(Debug)]
pub(super) struct KeyFold {
    pub(super) topic: Topic,
    mapping: Arc<dyn Mapping>,
    pub(super) order: Order,
}

impl Projection {
    /// The topics that it reads.
    pub fn topics(&self) -> &[Topic] {
        &self.site.definition.topics
    }

    /// Whether its documents have the keys of their events.
    pub fn is_by_key(&self) -> bool {
        matches!(&self.site.definition.kind, Kind::Changelog { mapping, .. } if mapping.keeps_key())
    }

    /// The version of their schema that it sees events in, if it is declared.
    pub fn reads(&self) -> Option<u32> {
        match &self.site.definition.kind {
            Kind::Changelog { mapping, .. } => mapping.reads(),
            Kind::Transactional { .. } | Kind::Delegated { .. } => None,
        }
    }

    pub(super) fn key_fold(&self, view: &str) -> Result<KeyFold, PastError> {
        self.table(view)?;
        let definition = &self.site.definition;
        match (&definition.kind, definition.topics.first()) {
            (Kind::Changelog { mapping, .. }, Some(topic)) if mapping.keeps_key() => Ok(KeyFold {
                topic: topic.clone(),
                mapping: Arc::clone(mapping),
                order: definition.order(),
            }),
            _ => Err(PastError::NotByKey(view.to_owned())),
        }
    }

    /// The document of a key at a moment, from the history of this key alone.
    pub async fn at(&self, view: &str, key: &str, moment: Moment) -> Result<Past, PastError> {
        let fold = self.key_fold(view)?;
        let key = Key::new(key).map_err(|error| PastError::Key(error.to_string()))?;
        let bus = &self.site.bus;
        let subject = bus.subject(&fold.topic, &key, moment).await?;
        let newest_decides = fold.order == Order::Offset && !matches!(moment, Moment::Happened(_));
        let found = if newest_decides {
            self.newest(&fold, &subject, moment).await?
        } else {
            // Any of them may decide: a history that is not whole is no answer.
            let mut history = bus.whole_history(&subject).await?;
            cut(&mut history, &subject, moment);
            let steps = self.steps_of(&fold, history.events, moment);
            steps.into_iter().rev().find_map(|(step, write)| match step.effect {
                StepEffect::Put | StepEffect::Delete => Some((write?, step.stored)),
                StepEffect::Stale | StepEffect::Ignored => None,
            })
        };
        if found.is_none()
            && newest_decides
            && let Some(past) = self.kept(&fold, &subject).await?
        {
            return Ok(past);
        }
        self.past(&subject, found).await
    }

    /// What the snapshot of the topic has kept of a key that the topic has lost.
    async fn kept(&self, fold: &KeyFold, subject: &Subject) -> Result<Option<Past>, PastError> {
        let Some(Kept { stored, source, is_complete }) = self.site.bus.kept(subject).await? else {
            return Ok(None);
        };
        let event = Box::new(stored);
        Ok(self.write_of(fold, &source).map(|write| match write {
            Write::Put(stamp, value) => {
                let key = subject.key.as_str().to_owned();
                let document = Box::new(self.document(key, &stamp, value));
                Past::Document { document, event, is_complete }
            }
            Write::Delete(_) => Past::Deleted { event, is_complete },
        }))
    }

    /// The newest event of a key that counts says it all: mostly it is among the first few.
    async fn newest(
        &self,
        fold: &KeyFold,
        subject: &Subject,
        moment: Moment,
    ) -> Result<Option<(Write, Stored)>, PastError> {
        let mut max = HISTORY_FIRST;
        loop {
            let mut history = self.site.bus.history_of(subject, max).await?;
            cut(&mut history, subject, moment);
            let found = history.events.into_iter().find_map(|stored| self.written(fold, stored));
            if found.is_some() || history.is_whole {
                return Ok(found);
            }
            if max == AS_OF_EVENTS_MAX {
                return Err(AsOfError::TooManyEvents.into());
            }
            max = max.saturating_mul(8).min(AS_OF_EVENTS_MAX);
        }
    }

    /// The event that wrote a document, if it is still there.
    pub async fn source_of(&self, document: &Document) -> Result<Option<Stored>, ReadError> {
        let topics = self.site.bus.topics();
        let Some(entry) = topics.get(&document.position.topic) else {
            return Ok(None);
        };
        let Position { partition, offset, .. } = document.position;
        let lane = Lane { topic: entry.id, partition };
        event_at(&**self.site.bus.store(), lane, offset).await
    }

    /// A document as it would be if its event had been of another version of its schema.
    pub async fn in_version(
        &self,
        view: &str,
        document: Document,
        version: u32,
    ) -> Result<Document, PastError> {
        let fold = self.key_fold(view)?;
        let gone = || {
            PastError::Version(format!("the event at {} is not kept any more", document.position))
        };
        let stored = self.source_of(&document).await?.ok_or_else(gone)?;
        let catalog = self.site.bus.inner.groups.site().schemas.catalog().await?;
        let topic = &stored.event.topic;
        if matches!(catalog.find(topic), Ok(None)) {
            let why = format!("{topic} has no schemas, and so no version {version}");
            return Err(PastError::Version(why));
        }
        let reader = self.site.bus.reader(crate::decode::Reads::Version(version)).await?;
        let event = reader.decode(&stored.event);
        let event = event.map_err(|error| PastError::Version(error.to_string()))?;
        match change_of(&*fold.mapping, &event) {
            Ok(Change::Put { document: value, .. }) => {
                Ok(Document { value: without_reserved(value), ..document })
            }
            Ok(Change::Delete { .. } | Change::Nothing) => {
                Err(PastError::Version("in that version it is no document".to_owned()))
            }
            Err(why) => Err(PastError::Version(why.to_string())),
        }
    }

    async fn past(
        &self,
        subject: &Subject,
        found: Option<(Write, Stored)>,
    ) -> Result<Past, PastError> {
        let bus = &self.site.bus;
        let Some((write, stored)) = found else {
            return Ok(match bus.nothing::<()>(subject).await? {
                crate::as_of::AsOf::BeforeHistory { first, starts_at, .. } => Past::BeforeHistory {
                    first,
                    starts_at: Position {
                        topic: subject.entry.definition.topic.clone(),
                        partition: subject.lane.partition,
                        offset: starts_at,
                    },
                },
                _ => Past::NeverExisted,
            });
        };
        let is_complete = bus.is_complete(subject, &stored).await?;
        let event = Box::new(stored);
        Ok(match write {
            Write::Put(stamp, value) => {
                let key = subject.key.as_str().to_owned();
                let document = Box::new(self.document(key, &stamp, value));
                Past::Document { document, event, is_complete }
            }
            Write::Delete(_) => Past::Deleted { event, is_complete },
        })
    }

    pub(super) fn document(
        &self,
        key: String,
        stamp: &Stamp,
        value: promethean_event::Payload,
    ) -> Document {
        Document {
            key,
            ts: promethean_event::Timestamp::from_millis(stamp.ts),
            appended_at: promethean_event::Timestamp::from_millis(stamp.at),
            position: self.position(stamp.lane, stamp.offset),
            version: stamp.version,
            value,
        }
    }

    /// What an event alone writes, if it does.
    fn written(&self, fold: &KeyFold, stored: Stored) -> Option<(Write, Stored)> {
        let write = self.write_of(fold, &stored)?;
        Some((write, stored))
    }

    pub(super) fn write_of(&self, fold: &KeyFold, stored: &Stored) -> Option<Write> {
        if is_for_another(stored, &self.site.definition.name) {
            return None;
        }
        let topics = self.site.bus.topics();
        let topic = topics.get(&fold.topic)?.id;
        let lane = Lane { topic, partition: stored.event.partition };
        match change_of(&*fold.mapping, &stored.event).ok()? {
            Change::Put { document, version, .. } => {
                let stamp = Stamp::of(stored, lane, version);
                Some(Write::Put(stamp, without_reserved(document)))
            }
            Change::Delete { version, .. } => Some(Write::Delete(Stamp::of(stored, lane, version))),
            Change::Nothing => None,
        }
    }

    /// Events of a key, newest first, as steps, oldest first; each with what stands after it.
    fn steps_of(
        &self,
        fold: &KeyFold,
        mut events: Vec<Stored>,
        moment: Moment,
    ) -> Vec<(PastStep, Option<Write>)> {
        let is_by_event = matches!(moment, Moment::Happened(_));
        if is_by_event {
            events.sort_by_key(|stored| (stored.event.ts, stored.event.offset));
        } else {
            events.reverse();
        }
        let mut stands: Option<Write> = None;
        let mut steps = Vec::with_capacity(events.len());
        for stored in events {
            let effect = match self.write_of(fold, &stored) {
                None => StepEffect::Ignored,
                Some(write) => {
                    // By event time, what comes later in that order stands.
                    let order = if is_by_event && fold.order == Order::Offset {
                        Order::Sequence
                    } else {
                        fold.order
                    };
                    let after = match &stands {
                        None => Some(write),
                        Some(before) => order.after(write, before.stamp()),
                    };
                    match after {
                        None => StepEffect::Stale,
                        Some(write) => {
                            let effect = match write {
                                Write::Put(..) => StepEffect::Put,
                                Write::Delete(_) => StepEffect::Delete,
                            };
                            stands = Some(write);
                            effect
                        }
                    }
                }
            };
            let document = match &stands {
                Some(Write::Put(stamp, value)) => {
                    let key = stored.event.key.as_ref().map(|key| key.as_str().to_owned());
                    Some(self.document(key.unwrap_or_default(), stamp, value.clone()))
                }
                Some(Write::Delete(_)) | None => None,
            };
            steps.push((PastStep { stored, effect, document }, stands.clone()));
        }
        steps
    }

    /// The events of a key up to a moment, oldest first, each with the document after it; and
    /// whether that is all there ever was.
    pub async fn steps(
        &self,
        view: &str,
        key: &str,
        moment: Moment,
    ) -> Result<(Vec<PastStep>, bool), PastError> {
        let fold = self.key_fold(view)?;
        let key = Key::new(key).map_err(|error| PastError::Key(error.to_string()))?;
        let bus = &self.site.bus;
        let subject = bus.subject(&fold.topic, &key, moment).await?;
        let mut history = bus.whole_history(&subject).await?;
        cut(&mut history, &subject, moment);
        let steps = self.steps_of(&fold, history.events, moment);
        let is_all = !subject.may_be_gone();
        Ok((steps.into_iter().map(|(step, _)| step).collect(), is_all))
    }

    /// All documents at a moment, by key, after a key; no more than so many keys are looked at.
    pub(super) async fn at_keys(
        &self,
        view: &str,
        moment: Moment,
        after: Option<Key>,
        max: usize,
    ) -> Result<PastPage, PastError> {
        let fold = self.key_fold(view)?;
        let bus = &self.site.bus;
        let topics = bus.topics();
        let topic = topics.get(&fold.topic).ok_or(ReadError::UnknownLane)?.id;
        let query = KeyQuery { topic, prefix: String::new(), after, max: max.max(1) };
        let page = bus.store().keys(query).await?;
        let next = page.events.last().and_then(|stored| stored.event.key.clone());
        let next = next.filter(|_| page.more);
        let mut found = PastPage { documents: Vec::new(), unknown: 0, next };
        for key in page.events.into_iter().filter_map(|newest| newest.event.key) {
            match self.at(view, key.as_str(), moment).await? {
                Past::Document { document, .. } => found.documents.push(*document),
                Past::BeforeHistory { .. } => found.unknown += 1,
                Past::Deleted { .. } | Past::NeverExisted => {}
            }
        }
        Ok(found)
    }
}

/// Events of a key that are read first; if they do not reach back far enough, more are.
const HISTORY_FIRST: usize = 16;

/// Leaves what counts at a moment.
fn cut(history: &mut History, subject: &Subject, moment: Moment) {
    match moment {
        Moment::Happened(time) => history.events.retain(|stored| stored.event.ts <= time),
        Moment::Appended(_) | Moment::Offset(_) => {
            history.events.retain(|stored| stored.event.offset < subject.end);
        }
    }
}
