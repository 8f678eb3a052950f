//! Transactional projections: code that reads and writes any number of views, and emits events.
//!
//! The code runs on a thread for blocking work, over a layer in memory: it sees what it wrote,
//! and nothing is in the database until the batch is committed with its cursor. Each event has a
//! layer of its own on top of the batch's, so that an event that fails leaves nothing behind and
//! the others go on: no batch has to be cut in half and tried again.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use promethean_event::limits::CAUSED_BY_COUNT_MAX;
use promethean_event::{
    Event, EventId, Failure, FailureVerdict, JsonError, NewEvent, Payload, Timestamp, ToEvent,
};
use serde::Serialize;

use super::database::DatabaseError;
use super::definition::{Definition, DefinitionError, Draft, Kind};
use super::digest::{Digested, Emitted, GivenUp, is_for_another};
use super::document::{Document, without_reserved};
use super::feed::Fed;
use super::limits::{EMITTED_MAX, GRAVE_MS};
use super::position::Position;
use super::stamp::{Stamp, Write};
use super::view::View;
use super::view_store::{RowReader, Table};
use crate::error::PublishError;
use crate::store::{Lane, Stored, TopicTable};

pub(crate) type Apply =
    Arc<dyn Fn(&mut Transaction<'_>, &Event) -> Result<(), Failure> + Send + Sync>;

/// A projection in Rust. What it does must follow from the event and from its own views alone: it
/// is done again after a crash, and when the views are built anew.
#[derive(Debug, Clone)]
#[must_use = "a projection runs once it is started"]
pub struct Transactional {
    name: String,
    topics: Vec<String>,
    views: Vec<View>,
    version: u32,
    batch_events: Option<usize>,
}

impl Transactional {
    /// A projection without topics and views yet.
    pub fn new(name: impl Into<String>) -> Self {
        let (topics, views) = (Vec::new(), Vec::new());
        Self { name: name.into(), topics, views, version: 1, batch_events: None }
    }

    /// Reads a topic. Partitions have no order among each other: where it matters which of two
    /// events of different partitions comes first, documents may come out otherwise when they are
    /// built anew. With one partition they never do.
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.topics.push(topic.into());
        self
    }

    /// Keeps a view. No other projection may.
    pub fn view(mut self, view: View) -> Self {
        self.views.push(view);
        self
    }

    /// A number to be raised whenever the code changes what events mean: the views are then built
    /// anew. Default: 1.
    pub const fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Events that are committed together. Default and most: 4,096.
    pub const fn batch(mut self, events: usize) -> Self {
        self.batch_events = Some(events);
        self
    }

    /// With what is done for each event.
    ///
    /// [`Failure::retry`] (or `?` on any error) tries the event again, with growing delays, for as
    /// long as it takes: what comes after it waits, because a view that left an event out for an
    /// outage would be wrong for ever. [`Failure::park`], and a panic, make it a dead letter.
    pub fn apply(
        self,
        apply: impl Fn(&mut Transaction<'_>, &Event) -> Result<(), Failure> + Send + Sync + 'static,
    ) -> TransactionalProjection {
        TransactionalProjection { projection: self, apply: Arc::new(apply) }
    }
}

/// A projection in Rust, to be started.
#[must_use = "a projection runs once it is started"]
pub struct TransactionalProjection {
    projection: Transactional,
    apply: Apply,
}

impl TransactionalProjection {
    pub(crate) fn finish(self) -> Result<Definition, DefinitionError> {
        let Transactional { name, topics, views, version, batch_events } = self.projection;
        let draft = Draft { name, topics, views, version, grave_ms: GRAVE_MS, batch_events };
        draft.finish(Kind::Transactional { apply: self.apply })
    }
}

impl std::fmt::Debug for TransactionalProjection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.projection.fmt(f)
    }
}

/// Why something in a transaction did not go.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionError {
    /// A view that the projection did not declare.
    #[error("{0:?} is not a view of this projection; declare it")]
    UnknownView(String),
    /// No document can have the key.
    #[error("a document's key cannot be empty")]
    EmptyKey,
    /// A document that is not good.
    #[error(transparent)]
    Document(#[from] JsonError),
    /// A document that is not what it was taken for.
    #[error("the document is not of this type")]
    Decode(#[from] serde_json::Error),
    /// An event that is not good.
    #[error(transparent)]
    Event(#[from] PublishError),
    /// Too many events.
    #[error("one handling may emit {EMITTED_MAX} events, not more")]
    TooManyEvents,
    /// The database could not be read.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

/// What is written, by view and key.
type Layer = Vec<BTreeMap<String, Write>>;

/// What the handling of one event may read and do. All of it happens, or nothing.
pub struct Transaction<'a> {
    digester: &'a Digester<'a>,
    /// What events before this one in the batch have written.
    batch: &'a Layer,
    own: Layer,
    emitted: Vec<NewEvent>,
    stamp: Stamp,
    source: &'a Stored,
    /// The first error that was not the handler's own.
    broken: Option<DatabaseError>,
}

impl Transaction<'_> {
    fn place(&self, view: &str) -> Result<usize, TransactionError> {
        let place = self.digester.definition.view_at(view);
        place.ok_or_else(|| TransactionError::UnknownView(view.chars().take(80).collect()))
    }

    /// The document of a key, as this transaction sees it.
    pub fn get(&mut self, view: &str, key: &str) -> Result<Option<Document>, TransactionError> {
        let place = self.place(view)?;
        let layers = [&self.own, self.batch];
        let written = layers.iter().find_map(|layer| layer.get(place)?.get(key));
        if let Some(write) = written {
            return Ok(self.digester.document(key, write));
        }
        match self.digester.stored(place, key) {
            Ok(found) => Ok(found),
            Err(error) => {
                self.broken.get_or_insert_with(|| error.clone());
                Err(error.into())
            }
        }
    }

    /// The document of a key, read as a type.
    pub fn read<T: serde::de::DeserializeOwned>(
        &mut self,
        view: &str,
        key: &str,
    ) -> Result<Option<T>, TransactionError> {
        Ok(self.get(view, key)?.map(|document| document.decode()).transpose()?)
    }

    /// Writes a document; nothing of an older one stays.
    pub fn put<T: Serialize + ?Sized>(
        &mut self,
        view: &str,
        key: &str,
        document: &T,
    ) -> Result<(), TransactionError> {
        let document = without_reserved(Payload::of(document)?);
        self.write(view, key, Write::Put(self.stamp, document))
    }

    /// Deletes a document.
    pub fn delete(&mut self, view: &str, key: &str) -> Result<(), TransactionError> {
        self.write(view, key, Write::Delete(self.stamp))
    }

    fn write(&mut self, view: &str, key: &str, write: Write) -> Result<(), TransactionError> {
        if key.is_empty() {
            return Err(TransactionError::EmptyKey);
        }
        let place = self.place(view)?;
        if let Some(layer) = self.own.get_mut(place) {
            layer.insert(key.to_owned(), write);
        }
        Ok(())
    }

    /// Publishes an event, once, with all that this transaction writes. Its id is made of the
    /// source's position, its event time is the source's unless it has its own, and the source is
    /// among its causes.
    pub fn emit(&mut self, event: impl ToEvent) -> Result<EventId, TransactionError> {
        if self.emitted.len() == EMITTED_MAX {
            return Err(TransactionError::TooManyEvents);
        }
        let mut event = event.to_event(self.source.event.ts).map_err(PublishError::from)?;
        event.id = self.digester.emitted_id(&self.stamp, self.emitted.len());
        if event.caused_by.len() < CAUSED_BY_COUNT_MAX {
            event.caused_by.push(self.source.event.id);
        }
        self.digester.check(&event)?;
        let id = event.id;
        self.emitted.push(event);
        Ok(id)
    }

    /// When the store took the event. Not a clock: the same whenever this is done again.
    pub const fn appended_at(&self) -> Timestamp {
        self.source.appended_at
    }
}

impl std::fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction").field("own", &self.own).finish_non_exhaustive()
    }
}

/// Runs a projection's code over a batch.
pub(crate) struct Digester<'a> {
    pub(crate) definition: &'a Definition,
    pub(crate) tables: &'a [Table],
    pub(crate) rows: &'a dyn RowReader,
    pub(crate) topics: &'a TopicTable,
    /// Whether topics that are not there may be made.
    pub(crate) makes_topics: bool,
}

impl Digester<'_> {
    pub(crate) fn digest(&self, apply: &Apply, batch: Vec<Fed>) -> Result<Digested, DatabaseError> {
        let mut digested = Digested::default();
        let mut layer: Layer = vec![BTreeMap::new(); self.tables.len()];
        let mut left: VecDeque<Fed> = batch.into();
        while let Some(fed) = left.pop_front() {
            if let Fed::Event(lane, stored) = &fed {
                match self.event(apply, &layer, *lane, stored)? {
                    Ok((own, emitted)) => {
                        for (under, over) in layer.iter_mut().zip(own) {
                            under.extend(over);
                        }
                        let (lane, offset) = (*lane, stored.event.offset);
                        let emitted =
                            emitted.into_iter().map(|event| Emitted { lane, offset, event });
                        digested.emitted.extend(emitted);
                    }
                    Err(failure) => match failure.verdict() {
                        FailureVerdict::Skip => {}
                        FailureVerdict::Park => {
                            let (stored, error) = (stored.clone(), failure.into_error());
                            digested.given_up.push(GivenUp { lane: *lane, stored, error });
                        }
                        FailureVerdict::Retry | FailureVerdict::RetryAfter(_) => {
                            digested.retry = Some(failure);
                            left.push_front(fed);
                            break;
                        }
                    },
                }
                digested.counts.events += 1;
            }
            digested.pass(&fed);
        }
        digested.rest = left;
        digested.writes = layer;
        Ok(digested)
    }

    fn event(
        &self,
        apply: &Apply,
        batch: &Layer,
        lane: Lane,
        stored: &Stored,
    ) -> Result<Result<(Layer, Vec<NewEvent>), Failure>, DatabaseError> {
        if is_for_another(stored, &self.definition.name) {
            return Ok(Err(Failure::skip()));
        }
        let mut transaction = Transaction {
            digester: self,
            batch,
            own: vec![BTreeMap::new(); self.tables.len()],
            emitted: Vec::new(),
            stamp: Stamp::of(stored, lane, None),
            source: stored,
            broken: None,
        };
        let run = AssertUnwindSafe(|| apply(&mut transaction, &stored.event));
        let result = catch_unwind(run).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Err(Failure::park(format!("panicked: {}", text.unwrap_or_default())))
        });
        let Transaction { own, emitted, broken, .. } = transaction;
        match broken {
            // Whatever the handler made of it: it has not seen what is there.
            Some(error) => Err(error),
            None => Ok(result.map(|()| (own, emitted))),
        }
    }

    /// The id of what an event emits: made of where the event stands, for this projection.
    fn emitted_id(&self, stamp: &Stamp, number: usize) -> EventId {
        let mut name = self.definition.name.as_str().as_bytes().to_vec();
        name.push(0);
        name.extend_from_slice(&stamp.lane.id().get().to_be_bytes());
        name.extend_from_slice(&stamp.offset.get().to_be_bytes());
        name.extend_from_slice(&(number as u64).to_be_bytes());
        EventId::derived("promethean projection", &name)
    }

    fn check(&self, event: &NewEvent) -> Result<(), PublishError> {
        event.check()?;
        if event.topic.is_system() {
            return Err(PublishError::System(event.topic.clone()));
        }
        if self.topics.get(&event.topic).is_none() && !self.makes_topics {
            return Err(PublishError::UnknownTopic(event.topic.clone()));
        }
        Ok(())
    }

    fn position(&self, lane: Lane, offset: promethean_event::Offset) -> Option<Position> {
        let topic = self.topics.by_id(lane.topic)?.definition.topic.clone();
        Some(Position { topic, partition: lane.partition, offset })
    }

    fn document(&self, key: &str, write: &Write) -> Option<Document> {
        let Write::Put(stamp, value) = write else {
            return None;
        };
        Some(Document {
            key: key.to_owned(),
            ts: Timestamp::from_millis(stamp.ts),
            appended_at: Timestamp::from_millis(stamp.at),
            position: self.position(stamp.lane, stamp.offset)?,
            version: stamp.version,
            value: value.clone(),
        })
    }

    fn stored(&self, place: usize, key: &str) -> Result<Option<Document>, DatabaseError> {
        let Some(table) = self.tables.get(place) else {
            return Ok(None);
        };
        let Some(row) = self.rows.get(&table.name, key)? else {
            return Ok(None);
        };
        let position = self.position(row.lane, row.offset).unwrap_or_else(|| Position {
            // The topic of an older event may be gone; the document is not.
            topic: self.definition.topics.first().cloned().unwrap_or_else(unknown_topic),
            partition: row.lane.partition,
            offset: row.offset,
        });
        Ok(Some(row.document(position)))
    }
}

fn unknown_topic() -> promethean_event::Topic {
    unreachable!("a checked definition has at least one topic")
}
