//! What a replay would do, without doing it.

use promethean_event::{EventId, Payload, Topic};
use serde::Serialize;

use super::record::Refused;
use super::runner::{JobError, Jobs};
use super::spec::ReplaySpec;
use crate::error::PublishError;
use crate::registry::KnownStamps;
use crate::store::{Lane, PageLimit, Read, TopicId};

/// Events that are looked at for a plan; beyond them it says "at least".
const LOOKED_AT_MAX: u64 = 200_000;
/// Events that a plan shows.
const SHOWN_MAX: usize = 3;
/// What a replay would do.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ReplayPlan {
    /// What was asked for.
    pub replay: ReplaySpec,
    /// Topics that are read.
    pub topics: Vec<PlannedTopic>,
    /// Events that were looked at.
    pub read: u64,
    /// Of these, how many would be published.
    pub wanted: u64,
    /// Of these, how many are there already, from an earlier run.
    pub duplicates: u64,
    /// How many would be refused.
    pub refused: u64,
    /// The first of them.
    pub refusals: Vec<Refused>,
    /// Some of what would be published.
    pub examples: Vec<PlannedEvent>,
    /// Whether everything was looked at; otherwise the numbers are of the first part.
    pub complete: bool,
}

/// A topic that would be read.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct PlannedTopic {
    /// The topic.
    pub topic: Topic,
    /// Its events between the times.
    pub events: u64,
}

/// An event that would be published.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct PlannedEvent {
    /// Its source.
    pub source: EventId,
    /// Its own id.
    pub id: EventId,
    /// Where it would go.
    pub topic: Topic,
    /// Its key.
    pub key: Option<String>,
    /// Its payload.
    pub payload: Payload,
}

impl Jobs {
    /// What a replay would do. Reads, and changes nothing.
    pub async fn plan(&self, spec: ReplaySpec) -> Result<ReplayPlan, JobError> {
        let cursors = self.cursors(&spec).await?;
        let compiled = self.compiled(spec.clone())?;
        let mut plan = ReplayPlan {
            replay: spec,
            topics: Vec::new(),
            read: 0,
            wanted: 0,
            duplicates: 0,
            refused: 0,
            refusals: Vec::new(),
            examples: Vec::new(),
            complete: true,
        };
        for cursor in &cursors {
            let events = cursor.end.get().saturating_sub(cursor.next.get());
            match plan.topics.last_mut().filter(|last| last.topic == cursor.topic) {
                Some(last) => last.events += events,
                None => plan.topics.push(PlannedTopic { topic: cursor.topic.clone(), events }),
            }
        }
        for cursor in cursors {
            let lane = Lane { topic: TopicId::new(cursor.number), partition: cursor.partition };
            let mut next = cursor.next;
            while next < cursor.end {
                if plan.read >= LOOKED_AT_MAX {
                    plan.complete = false;
                    return Ok(plan);
                }
                let limit = PageLimit::default();
                let read = Read::From { lane, from: next, limit };
                let page = self.bus().store().read(read).await?;
                for stored in page.events.iter().filter(|s| s.event.offset < cursor.end) {
                    plan.read += 1;
                    let copy = compiled.copy(&stored.event);
                    self.consider(&mut plan, stored, copy).await?;
                }
                next = if page.next > next { page.next } else { cursor.end };
            }
        }
        Ok(plan)
    }

    async fn consider(
        &self,
        plan: &mut ReplayPlan,
        stored: &crate::store::Stored,
        copy: Result<Option<promethean_event::NewEvent>, String>,
    ) -> Result<(), JobError> {
        let copy = match copy {
            Ok(Some(copy)) => copy,
            Ok(None) => return Ok(()),
            Err(why) => {
                refuse(plan, stored, why);
                return Ok(());
            }
        };
        plan.wanted += 1;
        let topics = self.bus().topics();
        if let Some(target) = topics.get(&copy.topic)
            && self.bus().store().find(target.id, copy.id).await?.is_some()
        {
            plan.duplicates += 1;
            return Ok(());
        }
        let schemas = &self.bus().inner.groups.site().schemas;
        let checked = schemas.check(std::slice::from_ref(&copy), &KnownStamps::new()).await;
        let checked = checked.map_err(PublishError::Schemas)?;
        if let Some(refusal) = checked.and_then(|checked| checked.refusal()) {
            refuse(plan, stored, refusal.to_string());
        } else if plan.examples.len() < SHOWN_MAX {
            plan.examples.push(PlannedEvent {
                source: stored.event.id,
                id: copy.id,
                topic: copy.topic,
                key: copy.key.map(|key| key.as_str().to_owned()),
                payload: copy.payload,
            });
        }
        Ok(())
    }
}

fn refuse(plan: &mut ReplayPlan, stored: &crate::store::Stored, why: String) {
    plan.refused += 1;
    Refused::note(&mut plan.refusals, &stored.event, why);
}
