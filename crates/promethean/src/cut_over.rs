//! The end of a change from one version to another: everything that is stored is replayed through
//! the casters first, so that nobody finds out later what cannot be read.

use std::collections::BTreeMap;

use promethean_event::{EventId, NewEvent, Offset, Partition, Topic};
use serde::Serialize;

use crate::bus::Bus;
use crate::decode::{Reads, Want};
use crate::error::PublishError;
use crate::reader::Decoded;
use crate::registry::{Evolution, EvolutionError, Stage};
use crate::store::{PageLimit, ReadError};

/// Unreadable events that are listed; the others are counted.
const LISTED_MAX: usize = 20;

/// How far each partition was read.
type Places = BTreeMap<Partition, Offset>;

/// How a change is ended.
#[derive(Debug, Clone, Default)]
pub struct CutOver {
    /// A topic that gets all stored events in the new form, in their order, each caused by its
    /// original. What it has already is
    /// not added again. Default: none, they are only read.
    pub into: Option<Topic>,
    /// Why it is done against objections. It is kept.
    pub force: Option<String>,
}

/// What was found when a change was ended.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct CutOverReport {
    /// The change.
    pub evolution: Evolution,
    /// Stored events that were read in the new form.
    pub replayed: u64,
    /// Those that cannot be.
    pub unreadable: u64,
    /// The first of them.
    pub examples: Vec<Unreadable>,
    /// Events that were added to the other topic.
    pub added: u64,
}

/// A stored event that cannot be read in the new form.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Unreadable {
    /// Its partition.
    pub partition: Partition,
    /// Its place there.
    pub offset: Offset,
    /// Why.
    pub reason: String,
}

/// Why a change was not ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CutOverError {
    /// The registry says no.
    #[error(transparent)]
    Evolution(#[from] EvolutionError),
    /// What is stored could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// An event could not be added to the other topic.
    #[error("cannot replay into {topic}: {source}")]
    Publish {
        /// The other topic.
        topic: Topic,
        /// Why.
        source: Box<PublishError>,
    },
}

impl Bus {
    /// Ends the change of a topic: replays what is stored through the casters, then has only the
    /// new version written. Refused, unless it is forced, if a stored event cannot be read in the
    /// new form, or a group still asks for the old one.
    pub async fn cut_over(
        &self,
        topic: &Topic,
        wish: &CutOver,
    ) -> Result<CutOverReport, CutOverError> {
        let schemas = self.schemas();
        let evolution = schemas.evolution(topic).await.map_err(EvolutionError::from)?;
        let evolution = evolution.filter(|evolution| evolution.stage == Stage::DualWrite);
        let not_started = || EvolutionError::NotStarted(topic.clone());
        let evolution = evolution.ok_or_else(not_started)?;
        let mut report = CutOverReport {
            replayed: 0,
            unreadable: 0,
            examples: Vec::new(),
            added: 0,
            evolution: evolution.clone(),
        };
        // First looked at, then written: an event that cannot be read is found before anything is
        // done.
        self.replay_as(topic, None, &mut Places::new(), &mut report).await?;
        let mut objections = self.old_readers(topic, (evolution.from, evolution.to)).await?;
        if report.unreadable > 0 {
            let (count, to) = (report.unreadable, evolution.to);
            let first = report.examples.first().map(|first| {
                format!(", the first at {}/{}: {}", first.partition, first.offset, first.reason)
            });
            let first = first.unwrap_or_default();
            objections.push(format!("{count} stored events cannot be read as {to}{first}"));
        }
        if !objections.is_empty() && wish.force.is_none() {
            return Err(EvolutionError::Objections(objections).into());
        }
        let mut places = Places::new();
        if let Some(into) = &wish.into {
            self.replay_as(topic, Some(into), &mut places, &mut report).await?;
        }
        let forced = wish.force.clone().filter(|_| !objections.is_empty());
        if let Some(reason) = &forced {
            tracing::warn!(%topic, reason, ?objections, "cut over by force");
        }
        report.evolution = schemas.end_evolution(topic, forced).await?;
        // Writers did not wait: what they have written by the old version in the meantime belongs
        // to the history, too.
        if let Some(into) = &wish.into {
            self.replay_as(topic, Some(into), &mut places, &mut report).await?;
        }
        Ok(report)
    }

    /// Groups that ask for the version that is left, if the new one cannot be brought to it.
    async fn old_readers(
        &self,
        topic: &Topic,
        (from, to): (u32, u32),
    ) -> Result<Vec<String>, CutOverError> {
        let schemas = self.schemas();
        if schemas.has_way(topic, (to, from)).await.map_err(EvolutionError::from)? {
            return Ok(Vec::new());
        }
        let readers = schemas.readers(topic).await?.into_iter();
        let asks = readers.filter(|reader| reader.reads.of(topic, None) == Want::Version(from));
        let object = |group| format!("group {group} reads version {from}, and has no way to it");
        Ok(asks.map(|reader| object(reader.group)).collect())
    }

    /// Reads what is stored from these places on, in the new form, and adds it to another topic.
    async fn replay_as(
        &self,
        topic: &Topic,
        into: Option<&Topic>,
        places: &mut Places,
        report: &mut CutOverReport,
    ) -> Result<(), CutOverError> {
        let reader = self.reader(Reads::Version(report.evolution.to)).await?;
        let lanes: Vec<Partition> = {
            let topics = self.topics();
            let entry = topics.get(topic);
            entry.map(|entry| entry.lanes().map(|lane| lane.partition).collect())
        }
        .unwrap_or_default();
        for partition in lanes {
            let from = places.entry(partition).or_insert(Offset::ZERO);
            loop {
                let read = reader.read(topic, partition, *from, PageLimit::default()).await;
                let (page, next) = read?;
                let mut events = Vec::new();
                for decoded in page {
                    match decoded {
                        Decoded::Event(stored) => events.push(stored.event),
                        Decoded::Unreadable(stored, error) if into.is_none() => {
                            report.unreadable += 1;
                            if report.examples.len() < LISTED_MAX {
                                let offset = stored.event.offset;
                                let reason = error.reason.to_string();
                                report.examples.push(Unreadable { partition, offset, reason });
                            }
                        }
                        Decoded::Unreadable(..) | Decoded::Missing { .. } => {}
                    }
                }
                match into {
                    None => report.replayed += events.len() as u64,
                    Some(into) => report.added += self.add_replayed(into, events).await?,
                }
                if next <= *from {
                    break;
                }
                *from = next;
            }
        }
        Ok(())
    }

    async fn add_replayed(
        &self,
        into: &Topic,
        events: Vec<promethean_event::Event>,
    ) -> Result<u64, CutOverError> {
        if events.is_empty() {
            return Ok(0);
        }
        let failed = |source: PublishError| CutOverError::Publish {
            topic: into.clone(),
            source: Box::new(source),
        };
        let mut batch = Vec::with_capacity(events.len());
        for event in events {
            let mut name = event.id.as_bytes().to_vec();
            name.extend_from_slice(into.as_str().as_bytes());
            let id = EventId::derived("promethean cut over", &name);
            let mut copy = NewEvent::new(id, event.ts, into.clone(), event.payload);
            copy.key = event.key;
            copy.headers = event.headers;
            copy.tags = event.tags;
            copy.sid = event.sid;
            copy.caused_by = vec![event.id];
            batch.push(copy);
        }
        let published = self.publish_marked(batch).await.map_err(failed)?;
        Ok(published.iter().filter(|one| !one.duplicate).count() as u64)
    }
}
